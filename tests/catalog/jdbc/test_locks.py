from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.jdbc import metastore as sql
from lakecore.catalog.jdbc.database import Database, parse_address
from lakecore.catalog.jdbc.metastore import Locks
from lakecore.errors import CommitConflict, InvalidRequest
from lakecore.io.ambient import SYSTEM

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def locks(tmp_path: Path) -> Locks:
    database = Database(parse_address(f"jdbc:sqlite:{tmp_path}/c.db", {}), 2, SYSTEM)
    locks = Locks(
        database=database,
        catalog_key="jdbc",
        characters_max=255,
        wait_ms_max=60,
        timeout_ms=300_000,
        ambient=SYSTEM,
    )
    locks.make_table()
    return locks


def held(locks: Locks) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [
        *locks.database.rows("SELECT lock_id, expire_time_seconds FROM " + sql.LOCKS, {})
    ]
    return rows


def test_lock_is_a_row_as_java_writes_it(locks: Locks) -> None:
    with locks.hold("shop", "orders"):
        assert held(locks) == [("jdbc.shop.orders", 300)]
    assert held(locks) == []


def test_lock_is_released_after_an_error(locks: Locks) -> None:
    with pytest.raises(KeyError), locks.hold("shop", "orders"):
        raise KeyError
    assert held(locks) == []


def test_lock_of_another_is_waited_for_and_then_refused(locks: Locks) -> None:
    waited: list[float] = []
    now = [0]

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += int(seconds * 1000)

    clock = replace(SYSTEM, now_ms=lambda: now[0], sleep=sleep, random=lambda: 1.0)
    with (
        locks.hold("shop", "orders"),
        pytest.raises(CommitConflict, match=r"lock=jdbc\.shop\.orders waited_seconds=1"),
        replace(locks, timeout_ms=1000, ambient=clock).hold("shop", "orders"),
    ):
        pass

    assert waited[0] == pytest.approx(0.06)
    assert sum(waited) == pytest.approx(1.0, abs=0.07)


def test_locks_of_other_tables_are_free(locks: Locks) -> None:
    with ExitStack() as stack:
        for table in ("a", "b"):
            stack.enter_context(locks.hold("shop", table))
        assert len(held(locks)) == 2


def test_stale_lock_is_taken_over(locks: Locks) -> None:
    before = "datetime('now', '-10 seconds')"
    columns = "lock_id, acquired_at, expire_time_seconds"
    locks.database.change(
        (f"INSERT INTO {sql.LOCKS} ({columns}) VALUES ('jdbc.shop.orders', {before}, 5)", {})
    )

    with locks.hold("shop", "orders"):
        assert held(locks) == [("jdbc.shop.orders", 300)]


def test_lock_that_was_held_too_long_is_left_to_its_new_holder(
    locks: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0]
    slow = replace(locks, ambient=replace(SYSTEM, now_ms=lambda: now[0]))
    with slow.hold("shop", "orders"):
        now[0] = 300_001

    assert held(locks) == [("jdbc.shop.orders", 300)]
    assert "lock held too long" in caplog.text


def test_owner_is_stored_and_its_lock_alone_released_where_the_table_has_owners(
    locks: Locks,
) -> None:
    locks.database.change((f"ALTER TABLE {sql.LOCKS} ADD COLUMN lock_owner VARCHAR(255)", {}))
    with locks.hold("shop", "orders"):
        ((owner,),) = locks.database.rows(f"SELECT lock_owner FROM {sql.LOCKS}", {})
        assert owner
        locks.database.change((f"UPDATE {sql.LOCKS} SET lock_owner = 'them'", {}))

    assert locks.database.rows(f"SELECT lock_owner FROM {sql.LOCKS}", {}) == [("them",)]


def test_name_that_the_column_cannot_hold_is_refused(locks: Locks) -> None:
    with (
        pytest.raises(InvalidRequest, match="option=lock-key-max-length characters=16 most=10"),
        replace(locks, characters_max=10).hold("shop", "orders"),
    ):
        pass


def test_lock_that_cannot_be_released_does_not_undo_the_work(
    locks: Locks, caplog: pytest.LogCaptureFixture
) -> None:
    with locks.hold("shop", "orders"):
        locks.database.change((f"DROP TABLE {sql.LOCKS}", {}))

    assert "lock not released lock=jdbc.shop.orders" in caplog.text
