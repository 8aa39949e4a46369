"""ANALYZE: the statistics of a table, stored in a snapshot, and how long they last."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.snapshot import CommitKind
from lakecore.table.verbs import statistics_verbs
from lakecore.table.verbs.statistics_verbs import ColumnSketch
from tests.stores import FailingStore, StoreFailure
from tests.tables import held, in_directory, new_table, put, reopened

if TYPE_CHECKING:
    from lakecore.table.handle import Table

TYPES = {
    "id": "INT NOT NULL",
    "flag": "BOOLEAN",
    "small": "SMALLINT",
    "price": "DECIMAL(10, 2)",
    "wide": "DECIMAL(30, 3)",
    "rate": "DOUBLE",
    "day": "DATE",
    "noon": "TIME(3)",
    "at": "TIMESTAMP(6)",
    "seen": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "text": "STRING",
    "raw": "BYTES",
    "tags": "ARRAY<INT>",
}
ROWS: dict[str, list[Any]] = {
    "id": [1, 2, 3],
    "flag": [True, None, False],
    "small": [5, 5, None],
    "price": [Decimal("1.50"), None, Decimal("-20.00")],
    "wide": [Decimal("7.125"), None, None],
    "rate": [1e10, float("nan"), -0.5],
    "day": [date(2024, 1, 2), date(1969, 12, 31), None],
    "noon": [time(12), None, time(0, 0, 1)],
    "at": [datetime(2024, 1, 2, 3, 4, 5, 123456), None, datetime(1960, 1, 1)],
    "seen": [datetime(2024, 1, 2, tzinfo=UTC), None, None],
    "text": ["é", "abc", None],
    "raw": [b"\x00\x01", None, None],
    "tags": [[1], None, []],
}


def typed() -> Table:
    table = new_table(TYPES)
    table.write(pl.DataFrame(ROWS, strict=False))
    return table


def statistics(table: Table, *, columns: Any = None) -> lc.TableStatistics:
    found = table.analyze(columns).statistics
    assert found is not None
    return found


def names_of(table: Table) -> list[str | None]:
    history = reopened(table).context.history
    return [history.snapshot(number).statistics for number in history.snapshot_ids()]


def test_each_type_has_the_statistics_that_spark_computes() -> None:
    found = statistics(typed()).columns

    def facts(name: str) -> tuple[object, ...]:
        each = found[name]
        lengths = each.average_length, each.max_length
        return each.distinct_count, each.null_count, each.min, each.max, *lengths

    assert {name: facts(name) for name in found} == {
        "id": (3, 0, "1", "3", 4, 4),
        "flag": (2, 1, "false", "true", 1, 1),
        "small": (1, 1, "5", "5", 2, 2),
        "price": (2, 1, "-20.00", "1.50", 8, 8),
        "wide": (1, 2, "7.125", "7.125", 16, 16),
        "rate": (3, 0, "-0.5", "NaN", 8, 8),
        "day": (2, 1, "-1", "19724", 4, 4),
        "noon": (2, 1, "1000", "43200000", 4, 4),
        "at": (2, 1, "1960-01-01 00:00:00.000000", "2024-01-02 03:04:05.123456", 8, 8),
        "seen": (1, 2, "2024-01-02 00:00:00.000", "2024-01-02 00:00:00.000", 8, 8),
        "text": (2, 1, None, None, 2, 3),
        "raw": (1, 2, None, None, 2, 2),
    }
    assert [each.column_id for each in found.values()] == list(range(12))


def test_rows_are_counted_merged_and_their_size_is_a_share_of_the_files() -> None:
    table = new_table(write_only="true")
    put(table, "1 a | 2 b")
    put(table, "1 A | -D 2 b")
    size = int(table.inspect.files()["file_size_in_bytes"].sum())

    found = statistics(table, columns=[])

    assert found == lc.TableStatistics(
        snapshot_id=2, schema_id=0, merged_record_count=1, merged_record_size_bytes=size // 4
    )


def test_result_names_the_snapshot_and_inspect_shows_it() -> None:
    table = new_table()
    put(table, "1 a")
    result = table.analyze("id")

    assert result.snapshot_ids == (2,)
    assert table.context.history.snapshot(2).commit_kind is CommitKind.ANALYZE
    (row,) = table.inspect.statistics().to_dicts()
    assert (row["snapshot_id"], row["schema_id"], row["mergedRecordCount"]) == (1, 0, 1)
    assert row["colstat"].startswith('{\n  "id" : {\n    "colId" : 0,\n    "distinctCount" : 1,')
    assert "rows" in str(result)
    assert "id" in result._repr_html_()
    assert held(table) == "1 a"


def test_statistics_last_until_the_schema_changes(tmp_path: Any) -> None:
    catalog = lc.connect(tmp_path)
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"id": "INT NOT NULL"}, primary_keys=["id"])
    table.write([{"id": 1}])
    table.analyze()
    table.write([{"id": 2}])
    table.compact(full=True)
    catalog.alter_table("db.t", [lc.SchemaChange.add_column("v", "STRING")])
    catalog.get_table("db.t").write([{"id": 3, "v": "x"}])

    history = table.refresh().context.history
    kept = [history.snapshot(number).statistics is not None for number in history.snapshot_ids()]
    assert kept == [False, True, True, True, False]


def test_statistics_of_a_new_schema_are_those_of_its_columns(tmp_path: Any) -> None:
    catalog = lc.connect(tmp_path)
    catalog.create_database("db")
    catalog.create_table("db.t", {"id": "INT"}).write([{"id": 1}])
    catalog.alter_table("db.t", [lc.SchemaChange.add_column("v", "STRING")])
    found = statistics(catalog.get_table("db.t"))

    assert (found.schema_id, found.columns["v"].null_count) == (1, 1)
    catalog.get_table("db.t").write([{"id": 2}])
    assert catalog.get_table("db.t").inspect.statistics().height == 1


def test_statistics_travel_in_time() -> None:
    table = new_table()
    put(table, "1 a")
    table.analyze()
    put(table, "2 b")
    table.analyze()

    counts = [
        table.copy({"scan.snapshot-id": str(number)}).inspect.statistics()["mergedRecordCount"]
        for number in (1, 2, 3, 4)
    ]
    assert [each.to_list() for each in counts] == [[], [1], [1], [2]]


def test_lost_statistics_file_is_dropped_by_the_next_commit() -> None:
    table = new_table()
    put(table, "1 a")
    table.analyze()
    name = names_of(table)[-1]
    assert name is not None
    table.context.store.delete(table.context.layout.statistics(name))
    put(reopened(table), "2 b")

    assert names_of(table) == [None, name, None]


def test_many_values_are_estimated() -> None:
    table = new_table({"id": "BIGINT", "few": "INT"}, keys=())
    count = 200_000
    table.write(pl.DataFrame({"id": np.arange(count), "few": np.arange(count) % 7}))
    found = statistics(table).columns

    assert found["few"].distinct_count == 7
    assert abs((found["id"].distinct_count or 0) - count) < count / 50


def test_table_without_snapshots_gets_none() -> None:
    table = new_table()

    assert table.analyze() == lc.AnalyzeResult()
    assert table.context.history.latest_snapshot() is None
    assert "nothing to analyze" in str(lc.AnalyzeResult())


def test_table_without_rows_has_statistics_without_values() -> None:
    table = new_table()
    put(table, "1 a")
    table.truncate()
    found = statistics(table)

    assert (found.merged_record_count, found.merged_record_size_bytes) == (0, 0)
    assert found.columns["v"] == lc.ColumnStatistics(
        column_id=1, distinct_count=0, null_count=0, average_length=20, max_length=20
    )


def test_crash_at_any_store_call_leaves_the_old_statistics_or_the_new() -> None:
    call, seen = 0, set()
    while True:
        call += 1
        table = new_table()
        put(table, "1 a")
        failing = FailingStore(table.context.store, fail_at=call, after=call % 2 == 0)
        try:
            reopened(table, store=failing).analyze()
        except (StoreFailure, lc.LakecoreError):
            assert failing.is_dead
        after = reopened(table)
        seen.add(after.inspect.statistics().height)
        assert held(after) == "1 a"
        after.analyze()
        assert after.inspect.statistics().height == 1
        if not failing.is_dead:
            break

    assert seen == {0, 1}


def test_failed_commit_removes_the_statistics_file() -> None:
    table = new_table(commit__max_retries="0")
    put(table, "1 a")
    context = table.context

    class Lost:
        def __getattr__(self, name: str) -> Any:
            return getattr(context.store, name)

        def put_if_absent(self, *_: object) -> bool:
            return False

    with pytest.raises(lc.CommitConflict):
        reopened(table, store=Lost()).analyze()
    assert in_directory(table, "statistics") == set()


@pytest.mark.parametrize("columns", [["nope"], ["id", "id"], [7], 7])
def test_wrong_columns_are_refused(columns: Any) -> None:
    table = new_table()
    put(table, "1 a")

    with pytest.raises(InvalidRequest):
        table.analyze(columns)
    assert names_of(table) == [None]


def test_column_of_a_nested_type_is_unsupported_by_name_and_left_out_otherwise() -> None:
    table = typed()

    with pytest.raises(Unsupported, match=r"no statistics.*column=tags"):
        table.analyze(["tags"])
    assert "tags" not in statistics(table).columns


def test_statistics_are_frozen() -> None:
    found = statistics(typed(), columns=["id"])

    assert replace(found, schema_id=3).schema_id == 3
    with pytest.raises(AttributeError):
        found.schema_id = 3  # type: ignore[misc]


@pytest.mark.parametrize("at", [0, 1, 2, 3])
@pytest.mark.parametrize("name", [name for name in TYPES if name != "tags"])
def test_statistics_of_parts_are_merged_into_those_of_all_rows(name: str, at: int) -> None:
    table = typed()
    values = table.to_arrow([name]).column(0).combine_chunks()
    whole, first, second = (ColumnSketch(table.schema.field(name)) for _ in range(3))
    whole.add(values)
    first.add(values[:at])
    second.add(values[at:])

    first.merge(second)
    assert first.result() == whole.result()


def test_many_distinct_values_of_parts_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics_verbs, "_HASHES_MAX", 64)
    field = new_table().schema.field("id")
    whole, first, second = (ColumnSketch(field) for _ in range(3))
    whole.add(pa.array(range(2000), pa.int32()))
    first.add(pa.array(range(1200), pa.int32()))
    second.add(pa.array(range(800, 2000), pa.int32()))

    first.merge(second)
    assert first.result().distinct_count == whole.result().distinct_count
