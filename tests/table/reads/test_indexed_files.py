"""File indexes of tables: what is written, what reads skip, and that no read shows it."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import CorruptTable
from lakecore.io.stores.store import MemoryStore
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.table.publication import write_schema
from lakecore.table.reads.time_travel import Travel
from tests.conditions import from_sql
from tests.tables import PATH, in_directory, new_table, put

if TYPE_CHECKING:
    from lakecore.model.files import DataFile
    from lakecore.table.handle import Table

COLUMNS = {
    "id": "INT NOT NULL",
    "b": "STRING",
    "c": "BIGINT",
    "d": "DOUBLE",
    "e": "DECIMAL(10, 2)",
    "t": "TIMESTAMP(6)",
    "f": "BOOLEAN",
}
ALL_TYPES: dict[str, Any] = {
    "file_index__bloom_filter__columns": "id,b,d,t",
    "file_index__bloom_filter__id__items": "100",
    "file_index__bitmap__columns": "b,c,d,f,t",
    "file_index__range_bitmap__columns": "b,c,d,e,f,t",
    "file_index__bsi__columns": "c,e,t",
}
CONDITIONS = [
    "id = 7",
    "b = 'aa'",
    "b = 'zz'",
    "b IN ('a', 'zzz')",
    "b NOT IN ('a', 'bbb')",
    "b >= 'h'",
    "b < 'aa'",
    "b LIKE 'a%'",
    "c = 3",
    "c < -25",
    "c >= 29",
    "c <> 5",
    "NOT (c > -25)",
    "c IS NULL",
    "c IS NOT NULL",
    "c IN (1, 2, 200)",
    "c NOT IN (1, 2)",
    "d = 0.0",
    "d > 0.0",
    "d < 0.0",
    "d >= 0.0",
    "d <= 0.0",
    "d <> 0.0",
    "d NOT IN (0.0, 1.5)",
    "e = 1.25",
    "e < -4.5",
    "t = TIMESTAMP '2024-01-01 00:00:00.000050'",
    "t < TIMESTAMP '2024-01-01 00:00:00.000003'",
    "f",
    "NOT f",
    "f IS NULL",
    "b = 'a' OR c = 3",
    "b = 'hhh' AND c > 10",
]


def drawn_rows(random: Random, count: int) -> list[dict[str, Any]]:
    def some(value: Any) -> Any:
        return None if random.random() < 0.1 else value

    return [
        {
            "id": random.randrange(400),
            "b": some(random.choice("abcdefgh") * random.randrange(4)),
            "c": some(random.randrange(-30, 30)),
            "d": some(random.choice([0.0, -0.0, float("nan"), float("inf"), 1.5, -2.5])),
            "e": some(Decimal(random.randrange(-500, 500)) / 100),
            "t": some(datetime(2024, 1, 1) + timedelta(microseconds=random.randrange(100))),
            "f": some(random.random() < 0.5),
        }
        for _ in range(count)
    ]


def files_of(table: Table) -> list[DataFile]:
    history = table.context.history
    snapshot = history.latest_snapshot()
    assert snapshot is not None
    return [entry.file for entry in history.live_entries(snapshot)]


def skipped(table: Table, where: str) -> int:
    return table.explain(where=where).files_skipped_by_index


@pytest.mark.parametrize(
    ("threshold", "keys", "file_format"),
    [("1 b", (), "parquet"), ("100 mb", ("id",), "orc"), ("100 mb", (), "avro")],
)
def test_no_read_shows_what_indexes_left_out(
    threshold: str, keys: tuple[str, ...], file_format: str
) -> None:
    table = new_table(
        COLUMNS,
        keys=keys,
        file_index__in_manifest_threshold=threshold,
        file__format=file_format,
        **ALL_TYPES,
    )
    random = Random(1)
    for _ in range(4):
        table.write(drawn_rows(random, 40))
    if keys:
        table.compact(full=True)
    plain = table.copy({"file-index.read.enabled": "false"})

    for where in CONDITIONS:
        mine, all_read = (
            each.to_polars(where=where).sort(*COLUMNS, nulls_last=True) for each in (table, plain)
        )
        assert mine.equals(all_read), where
    if not keys:
        assert sum(skipped(table, where) for where in CONDITIONS) >= 8
    assert sum(skipped(plain, where) for where in CONDITIONS) == 0


def test_small_index_is_in_the_manifest_and_a_large_one_beside_its_file() -> None:
    table = new_table(keys=[], file_index__bitmap__columns="v")
    put(table, "1 a | 2 b")
    large = table.copy({"file-index.in-manifest-threshold": "10 b"})
    large.write([{"id": 3, "v": "c"}])
    small, beside = sorted(files_of(table), key=lambda file: len(file.extra_files))

    assert small.embedded_index is not None
    assert (beside.embedded_index, beside.extra_files) == (None, (f"{beside.name}.index",))
    assert skipped(table, "v = 'bb'") == 0  # statistics leave out the first, so does the second
    assert skipped(table, "v = 'aa'") == 1


def test_index_stays_true_through_compaction_rename_and_change_of_type() -> None:
    store = MemoryStore()
    table = new_table(
        {"id": "INT NOT NULL", "v": "STRING", "n": "INT"},
        store=store,
        file_index__bitmap__columns="v,n",
        file_index__bitmap__v__version="1",
    )
    put(table, "1 a 1 | 2 c 3")
    put(table, "3 d 1 | 4 f 3")
    table.compact(full=True)
    assert skipped(table, "v = 'b'") == 1
    table = altered(table, SchemaChange.rename_column("v", "w"))
    table = altered(table, SchemaChange.update_column_type("n", "BIGINT"))
    assert table.options.texts["file-index.bitmap.columns"] == "w,n"
    assert table.options.texts["file-index.bitmap.w.version"] == "1"
    assert skipped(table, "w = 'b'") == 1
    # The index holds INT: the numbers of a wider column are not looked for in it.
    assert skipped(table, "n = 2") == 0
    put(table, "9 z 9")
    table.compact(full=True)
    assert skipped(table, "n = 2") == 1
    assert table.to_polars(where="w = 'c'")["id"].to_list() == [2]


def altered(table: Table, change: Any) -> Table:
    context = table.context
    schema = evolve(context.schema, [change], table="t", has_snapshots=True, now_ms=1)
    assert write_schema(context.store, context.layout, schema)
    return table.refresh()


def test_missing_or_damaged_index_is_corrupt_and_the_error_says_how_to_read_without() -> None:
    store = MemoryStore()
    table = new_table(
        keys=[],
        store=store,
        file_index__bitmap__columns="v",
        file_index__in_manifest_threshold="1 b",
    )
    put(table, "1 a | 2 c")
    (file,) = files_of(table)
    path = f"{PATH}/bucket-0/{file.extra_files[0]}"
    data = store.read(path)

    store.put(path, data[:40])
    with pytest.raises(CorruptTable, match=r"file-index\.read\.enabled=false"):
        table.to_polars(where="v = 'b'")
    store.delete(path)
    with pytest.raises(CorruptTable, match=r"file-index\.read\.enabled=false"):
        table.to_polars(where="v = 'b'")
    assert table.copy({"file-index.read.enabled": "false"}).to_polars(where="v = 'a'").height == 1
    assert table.to_polars().height == 2


def test_abort_expiry_and_orphans_know_index_files() -> None:
    table = new_table(
        keys=["id"],
        file_index__bitmap__columns="v",
        file_index__in_manifest_threshold="1 b",
        snapshot__num_retained__min="1",
    )
    put(table, "1 a | 2 c")
    put(table, "1 b | 2 c")
    table.compact(full=True)
    (newest,) = files_of(table)
    with table.new_write() as write:
        write.write([{"id": 7, "v": "x"}])
        messages = write.prepare_commit()
        assert len(index_files(table)) == 4
        write.abort(messages)

    assert len(index_files(table)) == 3
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="2999-01-01T00:00:00Z")
    assert index_files(table) == {newest.extra_files[0]}
    table.context.store.put(f"{PATH}/bucket-0/data-0.parquet.index", b"stray")
    table.remove_orphan_files(older_than="2999-01-01T00:00:00Z", force=True)
    assert index_files(table) == {newest.extra_files[0]}


def index_files(table: Table) -> set[str]:
    return {name for name in in_directory(table, "bucket-0") if name.endswith(".index")}


def test_rows_that_an_index_selects_are_read_alone() -> None:
    table = new_table({"id": "INT", "v": "INT"}, keys=[], file_index__bitmap__columns="v")
    ids = range(60_000)
    table.write({"id": list(ids), "v": [number % 1_000 for number in ids]})
    (split,) = table._source(Travel()).plan(from_sql("v = 7", table.schema)).splits  # noqa: SLF001

    assert sum(map(len, split.selected.values())) == 60
    assert table.to_polars(where="v = 7")["id"].sort().to_list() == list(range(7, 60_000, 1_000))
    assert "file indexes leave few rows" in str(table.explain(where="v = 7"))
    assert table.to_polars(where="v < 7").height == 420


def test_marked_rows_stay_out_where_an_index_selects_rows() -> None:
    table = new_table(
        {"id": "INT", "v": "STRING"},
        keys=[],
        deletion_vectors__enabled="true",
        file_index__bitmap__columns="v,id",
    )
    for start in range(0, 400, 100):
        values = [str(number % 7) for number in range(100)]
        table.write({"id": list(range(start, start + 100)), "v": values})
    table.delete("id % 3 = 0")
    table.update({"v": "zz"}, "id = 35")
    plain = table.copy({"file-index.read.enabled": "false"})
    for _ in range(2):
        for where in ("v = '3'", "id = 33", "id = 34", "v = 'zz'", "id IN (5, 6, 7)"):
            mine, all_read = (each.to_polars(where=where).sort("id") for each in (table, plain))
            assert mine.equals(all_read), where
        table.rewrite_file_index()
        table.delete("id = 34")
