"""Datasets of Ray over tables: read at one state, written in one commit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import ray.data

import lakecore as lc
import lakecore.ray

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The processes of Ray take minutes beside other work; docs/tools.md has a block that is always run.
pytestmark = pytest.mark.slow

FIELDS = {"id": "INT NOT NULL", "day": "STRING NOT NULL", "n": "BIGINT"}
KINDS: dict[str, dict[str, Any]] = {
    "append": {},
    "fixed buckets": {
        "primary_keys": ["id", "day"],
        "partition_keys": ["day"],
        "options": {"bucket": "2"},
    },
    "cross-partition": {"primary_keys": ["id"], "partition_keys": ["day"]},
}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20)
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    yield
    ray.shutdown()


@pytest.fixture
def session(tmp_path: Path) -> lc.Session:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("shop")
    return session


def made(begin: int, end: int, n: int) -> list[dict[str, Any]]:
    return [{"id": each, "day": f"d{each % 3}", "n": n} for each in range(begin, end)]


def data(rows: list[dict[str, Any]], blocks: int = 4) -> ray.data.Dataset:
    return ray.data.from_items(rows, override_num_blocks=blocks)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_is_one_commit_and_is_read_again(session: lc.Session, kind: str) -> None:
    table = session.create_table("shop.t", FIELDS, **KINDS[kind])
    lakecore.ray.write(data(made(0, 60, 1)), table, commit_user="job", identifier=1)
    lakecore.ray.write(data(made(0, 60, 9)), table, commit_user="job", identifier=1)
    done = lakecore.ray.write(data(made(40, 80, 2)), table, commit_user="job", identifier=2)

    assert [done.snapshot_id, table.last_identifier("job")] == [2, 2]
    read = lakecore.ray.read(table).take_all()
    first = made(0, 60 if kind == "append" else 40, 1)
    assert sorted(map(str, read)) == sorted(map(str, [*first, *made(40, 80, 2)]))
    old = lakecore.ray.read(table, ["n"], "id >= 50", snapshot_id=1)
    assert old.take_all() == [{"n": 1}] * 10

    lakecore.ray.write(data(made(5, 7, 3), 1), table, overwrite=True)
    assert table.to_polars()["n"].to_list() == [3, 3]


def test_an_empty_table_has_its_columns(session: lc.Session) -> None:
    table = session.create_table("shop.t", FIELDS)

    read = lakecore.ray.read(table, ["id", "n"])

    assert read.schema().names == ["id", "n"]
    assert read.count() == 0


def test_a_row_that_does_not_fit_is_named_and_nothing_is_visible(session: lc.Session) -> None:
    table = session.create_table("shop.t", FIELDS)
    rows = [{"id": 2**40 if each == 7 else each, "day": "d", "n": 1} for each in range(10)]

    with pytest.raises(lc.InvalidRequest, match="1099511627776"):
        lakecore.ray.write(data(rows), table)
    named = [{**row, "_lakecore_owner": 1} for row in made(0, 3, 1)]
    with pytest.raises(lc.InvalidRequest, match="_lakecore_owner"):
        lakecore.ray.write(data(named), table)

    assert table.count() == len(table.inspect.snapshots()) == 0


def test_what_is_not_one_plain_state_is_refused(session: lc.Session) -> None:
    table = session.create_table("shop.t", FIELDS)
    table.write(made(0, 3, 1))
    table.write(made(3, 5, 1))
    changes = table.copy({"incremental-between": "1,2"})

    with pytest.raises(lc.Unsupported, match="one state"):
        lakecore.ray.read(changes)
