"""Look-ups of a state and handles that follow a table: what they take, return, keep and refuse."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import CorruptTable, InvalidRequest, NotFound, Unsupported
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.table.lookups import lookup as lookups
from tests.stores import ReadCounter
from tests.tables import PATH, new_table, put, reopened

if TYPE_CHECKING:
    from pathlib import Path

ROWS = "1 a | 2 b | 3 c"


@pytest.mark.parametrize(
    "keys",
    [
        [{"id": 3}, {"id": 9}, {"id": 1}, {"id": None}, {"id": 3}],
        {"id": [3, 9, 1, None, 3]},
        pl.DataFrame({"id": [3, 9, 1, None, 3]}),
        pa.table({"id": [3, 9, 1, None, 3]}),
        pd.DataFrame({"id": [3.0, 9.0, 1.0, None, 3.0]}),
        duckdb.sql("SELECT unnest([3, 9, 1, NULL, 3]) AS id"),
    ],
    ids=["dicts", "dict of columns", "Polars", "Arrow", "pandas", "DuckDB"],
)
def test_rows_come_in_the_order_of_the_keys(keys: object) -> None:
    table = new_table()
    put(table, ROWS)

    assert table.lookup(keys).rows() == [(3, "c"), (1, "a"), (3, "c")]
    if not isinstance(keys, duckdb.DuckDBPyRelation):
        assert table.open_lookup().rows(keys).rows() == [(3, "c"), (1, "a"), (3, "c")]


def test_one_key_may_be_a_dict_and_columns_are_those_asked_for() -> None:
    table = new_table({"id": "INT NOT NULL", "v": "STRING", "n": "INT"})
    put(table, "1 a 5 | 2 b 6")

    assert table.lookup({"id": 2}).to_dicts() == [{"id": 2, "v": "b", "n": 6}]
    assert table.lookup({"id": 2}, ["n"]).to_dicts() == [{"n": 6}]
    assert table.lookup({"id": 2}, "v").to_dicts() == [{"v": "b"}]
    assert table.lookup({"v": "a"}, ["id"]).rows() == [(1,)]
    assert table.lookup({"n": 6, "v": "b"}, ["id"]).rows() == [(2,)]
    assert table.lookup({"n": 6, "v": "a"}).height == 0
    assert table.lookup([]).schema == table.to_polars().schema


def test_part_of_a_key_finds_all_its_rows() -> None:
    table = new_table({"a": "INT NOT NULL", "b": "STRING NOT NULL", "v": "INT"}, keys=["a", "b"])
    put(table, "1 x 1 | 1 y 2 | 2 x 3")

    found = table.lookup([{"a": 2}, {"a": 1}]).rows()
    assert sorted(found) == [(1, "x", 1), (1, "y", 2), (2, "x", 3)]
    with table.open_lookup(["v"], on="a") as lookup:
        assert lookup.rows([{"a": 2}, {"a": 1}]).rows()[0] == (3,)
        assert lookup.rows({"a": 1}).height == 2


def test_a_past_state_is_looked_up_by_its_snapshot() -> None:
    table = new_table()
    put(table, "1 a")
    put(table, "1 b | 2 c")

    assert table.lookup({"id": 1}, snapshot_id=1).rows() == [(1, "a")]
    assert table.lookup({"id": 2}, snapshot_id=1).height == 0
    assert table.lookup({"id": 1}).rows() == [(1, "b")]
    with pytest.raises(NotFound):
        table.lookup({"id": 1}, snapshot_id=7)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"gone": 1}, "unknown"),
        ({"id": "x"}, "id"),
        ({"id": 1 << 40}, "id"),
        ({"m": {}}, "nested column"),
        ([], "name no columns"),
        (7, "rows cannot be read"),
    ],
)
def test_keys_that_cannot_be_looked_up_by_are_refused(keys: object, message: str) -> None:
    table = new_table({"id": "INT", "m": "MAP<STRING, INT>"}, keys=[])

    with pytest.raises(InvalidRequest, match=message):
        table.lookup(keys)


def test_handle_is_opened_for_certain_columns() -> None:
    table = new_table({"id": "INT", "v": "STRING"}, keys=[])
    with pytest.raises(InvalidRequest, match="no primary key"):
        table.open_lookup()
    with pytest.raises(InvalidRequest, match="gone"):
        table.open_lookup(on=["gone"])
    with table.open_lookup(on=["id"]) as lookup:
        with pytest.raises(InvalidRequest, match="opened for"):
            lookup.rows({"v": "a"})
        assert lookup.rows({"id": 1}).height == 0
        assert "on=(id), snapshot=None" in repr(lookup)
    with pytest.raises(InvalidRequest, match="closed"):
        lookup.rows({"id": 1})
    lookup.close()


def test_read_between_two_points_is_not_looked_up() -> None:
    table = new_table()
    put(table, "1 a")
    put(table, "2 b")

    with pytest.raises(Unsupported, match="name a state"):
        table.copy({"incremental-between": "1,2"}).lookup({"id": 1})


def test_handle_looks_for_a_newer_snapshot_after_the_interval() -> None:
    store = MemoryStore()
    ambient = seeded(3)
    table = new_table(store=store, ambient=ambient, continuous__discovery_interval="10 s")
    put(table, "1 a")
    lookup = table.open_lookup()
    put(reopened(table, store=store), "1 b")

    assert lookup.rows({"id": 1}).rows() == [(1, "a")]
    ambient.sleep(10)
    assert lookup.rows({"id": 1}).rows() == [(1, "b")]
    often = table.copy({"lookup.continuous.discovery-interval": "1 s"}).open_lookup()
    put(reopened(table, store=store), "1 c")
    ambient.sleep(1)
    assert lookup.rows({"id": 1}).rows() == [(1, "b")]
    assert often.rows({"id": 1}).rows() == [(1, "c")]
    assert lookup.refresh() == 3
    assert lookup.rows({"id": 1}).rows() == [(1, "c")]


def test_cached_blocks_are_not_read_again_and_a_new_file_alone_is() -> None:
    store = MemoryStore()
    counter = ReadCounter(store)
    table = reopened(new_table(store=store, write_only="true"), store=counter)
    put(table, ROWS)
    lookup = table.open_lookup()
    lookup.rows({"id": [1, 2]})
    before = len(opened(counter))

    lookup.rows({"id": [3, 1]})
    assert len(opened(counter)) == before
    put(table, "2 x")
    lookup.refresh()
    assert lookup.rows({"id": [2, 1]}).rows() == [(2, "x"), (1, "a")]
    assert lookup.cached_bytes > 0
    lookup.close()
    assert lookup.cached_bytes == 0


def opened(counter: ReadCounter) -> list[str]:
    return [name for name in counter.reads if name.endswith(".parquet")]


def test_full_cache_is_filled_at_once_and_limited() -> None:
    table = new_table()
    put(table, ROWS)
    full = table.copy({"lookup.cache": "FULL"}).open_lookup()
    limited = {"lookup.cache": "FULL", "lookup.cache-max-memory-size": "1 b"}
    small = table.copy(limited).open_lookup()

    assert full.cached_bytes > 0
    assert small.cached_bytes == 0
    for lookup in (full, small):
        assert lookup.rows({"id": [3, 1]}).rows() == [(3, "c"), (1, "a")]


@pytest.mark.parametrize("attempts", [5, 1])
def test_files_that_expired_meanwhile_are_those_of_an_older_state(
    attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "_ATTEMPTS_MAX", attempts)
    table = new_table()
    put(table, ROWS)
    lookup = table.open_lookup()
    writer = reopened(table)
    put(writer, "1 z | 2 z | 3 z")
    writer.compact(full=True)
    writer.expire_snapshots(retain_max=1, retain_min=1, older_than=datetime(2999, 1, 1, tzinfo=UTC))

    assert lookup.rows({"id": 2}).rows() == [(2, "z")]


def test_missing_file_of_the_newest_snapshot_is_corrupt() -> None:
    store = MemoryStore()
    table = new_table(store=store)
    put(table, ROWS)
    lookup = table.open_lookup()
    for file in store.list(f"{PATH}/bucket-0"):
        store.delete(file.path)

    with pytest.raises(CorruptTable):
        lookup.rows({"id": 2})
    with pytest.raises(CorruptTable):
        table.lookup({"id": 2})


def test_failing_read_leaves_the_handle_usable() -> None:
    """A storage error at any read is raised, and the next look-up answers as if nothing was."""
    table = new_table()
    put(table, ROWS)
    put(table, "2 x")
    for call in range(1, 30):
        store = FailingReads(table.context.store)
        lookup = reopened(table, store=store).open_lookup()
        store.left = call
        try:
            first = lookup.rows({"id": [2, 1]}).rows()
        except OSError:
            store.left = 1 << 30
            assert lookup.rows({"id": [2, 1]}).rows() == [(2, "x"), (1, "a")]
            continue
        assert first == [(2, "x"), (1, "a")]
        break
    assert call > 2


class FailingReads(ReadCounter):
    """Fails at the k-th read from now on, once `left` is set."""

    left = 1 << 30

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(5, "injected")

    def read(self, path: str) -> bytes:
        self._count()
        return super().read(path)

    def open_input(self, path: str) -> pa.NativeFile:
        self._count()
        return super().open_input(path)

    def size(self, path: str) -> int:
        self._count()
        return super().size(path)


def test_table_on_disk_and_file_indexes_serve_lookups(tmp_path: Path) -> None:
    table = lc.open_table(
        tmp_path / "t",
        create=True,
        schema={"id": "INT", "v": "STRING"},
        options={"file-index.bloom-filter.columns": "v", "file-index.bloom-filter.v.items": "10"},
    )
    for number in range(4):
        table.write({"id": [number, number + 10], "v": [f"a{number}", f"z{number}"]})

    assert table.lookup({"v": ["z2", "b", "a0"]}).rows() == [(12, "z2"), (0, "a0")]
    assert table.explain(where="v = 'b'").files_skipped_by_index >= 3
