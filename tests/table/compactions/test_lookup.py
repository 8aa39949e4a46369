"""Keys find their rows in the levels above, and no more is read for it than it takes."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.errors import CorruptTable
from lakecore.io.files.file_format import BatchSize, WriteFormat
from lakecore.io.stores.local import LocalStore
from lakecore.merge.keys import order_columns
from lakecore.model.files import Split
from lakecore.model.rows import SEQUENCE_NUMBER
from lakecore.model.types import arrow_type, parse_type
from lakecore.table.compactions.lookup import LookupPlan, UpperLevels
from lakecore.table.file_reader.split_files import SplitFiles
from lakecore.table.reads.source import TableSource
from lakecore.table.sections.windows import merge_fields
from lakecore.table.splits.read_planner import scan_parts
from tests.tables import new_table, put

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from lakecore.merge.keys import OrderColumns
    from lakecore.table.handle import Table

GROUP = 100
FIELDS = {"id": "INT NOT NULL", "a": "INT", "b": "STRING"}


@pytest.fixture(autouse=True)
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lakecore.table.run_writer.file_shape.WriteFormat",
        lambda **given: WriteFormat(**given, row_group_rows=GROUP),
    )


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What is read: of each batch the columns, and the row group of its first row."""
    seen: list[tuple[int, int]] = []
    batches = LookupPlan.batches

    def recorded(*given: object, **named: object) -> Iterator[tuple[int, pa.RecordBatch]]:
        for position, batch in batches(*given, **named):  # type: ignore[arg-type]
            seen.append((batch.num_columns, position // GROUP))
            yield position, batch

    monkeypatch.setattr(LookupPlan, "batches", recorded)
    return seen


def filled(*counts: int, home: Path | None = None, **options: str) -> Table:
    """A table with so many keys, even ones, in each of its levels, the last level first.

    It lies in memory, or on disk in `home`.
    """
    where = {} if home is None else {"store": LocalStore(), "path": str(home / "t")}
    table = new_table(
        FIELDS,
        **where,  # type: ignore[arg-type]
        changelog_producer="lookup",
        write_only="true",
        compaction__max_size_amplification_percent="2000000000",
        **options,  # type: ignore[arg-type]
    )
    for number, count in enumerate(counts):
        put(table, " | ".join(f"{key} {number} v{key}" for key in range(0, 2 * count, 2)))
        table.compact()
    assert len(table.inspect.files()) == len(counts)
    return table


SMALL = BatchSize(30)


def upper(table: Table, size: BatchSize = SMALL) -> UpperLevels:
    """All files of the table, to be looked into."""
    context = table.context
    snapshot = context.history.latest_snapshot()
    assert snapshot is not None
    files = tuple((entry.file,) for entry in context.history.live_entries(snapshot))
    split = Split(
        partition=bytes(12), partition_path="", bucket=0, total_buckets=1, runs=files, raw=False
    )
    plan = TableSource(context=context, snapshot=snapshot, table_schema=table.schema).read_plan(
        [split], None
    )
    plan = replace(plan, system_columns=True)
    fields = merge_fields((), plan)
    there = SplitFiles(split, plan, context.store)
    found = LookupPlan(files=there, fields=fields, size=size)
    return UpperLevels(found, context.budget.acquire(0))


def keys(*values: int) -> OrderColumns:
    return order_columns([pa.array(values, pa.int32())])


def rows_of(levels: UpperLevels, *values: int) -> list[tuple[int, list[int], list[int]]]:
    """Of each level that has some of the keys: its number, the keys, and their values."""
    return [
        (part.level, part.rows["id"].to_pylist(), part.rows["a"].to_pylist())
        for part in levels.rows(keys(*values))
    ]


def test_keys_are_found_in_the_lowest_level_that_has_them() -> None:
    levels = upper(filled(600, 100, 20))

    assert rows_of(levels, 0, 3, 38, 40, 198, 200, 1198, 1200) == [
        (3, [0, 38], [2, 2]),
        (4, [40, 198], [1, 1]),
        (5, [200, 1198], [0, 0]),
    ]


def test_slices_are_older_than_what_is_compacted_and_know_their_numbers() -> None:
    found = upper(filled(600, 100)).rows(keys(2, 6, 900))

    assert [part.commit_order for part in found] == [-4, -5]
    for part in found:
        numbers = part.rows[SEQUENCE_NUMBER].to_pylist()
        assert (part.sequence_min, part.sequence_max) == (min(numbers), max(numbers))


def test_only_row_groups_that_may_hold_a_key_are_read(reads: list[tuple[int, int]]) -> None:
    levels = upper(filled(1000))

    assert rows_of(levels, 2, 4, 1001, 1598, 1600) == [(5, [2, 4, 1598, 1600], [0, 0, 0, 0])]
    touched = {columns: {group for each, group in reads if each == columns} for columns in (1, 5)}
    # In row group 5 no key was found, so nothing but its keys was read.
    assert touched == {1: {0, 5, 7, 8}, 5: {0, 7, 8}}


def test_who_asks_only_whether_keys_are_there_reads_nothing_else(
    reads: list[tuple[int, int]],
) -> None:
    levels = upper(filled(1000, 10))
    reads.clear()

    assert levels.known(keys(2, 3, 18, 20, 1998, 2000)).tolist() == [
        *(True, False, True, True, True, False)
    ]
    assert {columns for columns, _ in reads} == {1}


def test_windows_read_each_row_group_forward_and_once(reads: list[tuple[int, int]]) -> None:
    levels = upper(filled(1000))
    found: list[int] = []
    for start in range(0, 2000, 14):
        for part in levels.rows(keys(*range(start, start + 14))):
            found += part.rows["id"].to_pylist()

    assert found == list(range(0, 2000, 2))
    of_keys = [group for columns, group in reads if columns == 1]
    assert of_keys == sorted(of_keys)
    assert len(of_keys) == 10 * -(-GROUP // 30)
    assert len(reads) == 2 * len(of_keys)


@pytest.mark.parametrize("kind", ["INT", "STRING"])
@pytest.mark.parametrize("seed", range(20))
def test_keys_of_several_columns_are_found_wherever_row_groups_end(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    table = new_table(
        {"a": f"{kind} NOT NULL", "b": "INT NOT NULL", "v": "INT"},
        keys=["a", "b"],
        changelog_producer="lookup",
        write_only="true",
    )
    pool = [(a, b) for a in range(5) for b in range(120)]
    there = sorted(chance.sample(pool, 450))
    table.write(_arrow(there, table).append_column("v", pa.array(range(450), pa.int32())))
    table.compact(full=True)
    levels = upper(table)

    found: list[tuple[int, int]] = []
    asked = sorted(chance.sample(pool, chance.choice([3, 10, 60])))
    for start in range(0, len(asked), 7):
        columns = _arrow(asked[start : start + 7], table).columns
        for part in levels.rows(order_columns([each.combine_chunks() for each in columns])):
            found += [(int(a), b) for a, b in zip(*_values(part.rows), strict=True)]
    assert found == [key for key in asked if key in set(there)]


def _arrow(keys: Sequence[tuple[int, int]], table: Table) -> pa.Table:
    first = pa.array([a for a, _ in keys], pa.int32()).cast(table.schema.arrow.field("a").type)
    return pa.table({"a": first, "b": pa.array([b for _, b in keys], pa.int32())})


def _values(rows: pa.Table) -> tuple[list[str], list[int]]:
    return rows.column("a").to_pylist(), rows.column("b").to_pylist()


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_files_without_row_groups_are_read_forward(file_format: str) -> None:
    levels = upper(filled(500, file__format=file_format))

    assert rows_of(levels, 4, 5, 600) == [(5, [4, 600], [0, 0])]
    assert rows_of(levels, 602, 998, 1000) == [(5, [602, 998], [0, 0])]


TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIME(3)"),
    *("DECIMAL(5, 2)", "DECIMAL(18, 0)", "DECIMAL(38, 10)", "CHAR(4)", "STRING", "BINARY(2)"),
    *("BYTES", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)"),
)
ALL_OVER = tuple(range(0, 2000, 20))
"""Of 1 000 rows, some in each of ten row groups."""


@pytest.mark.parametrize("batch_bytes", [SMALL.size_bytes, 20_000, 8_000, 100])
def test_rows_in_many_row_groups_are_read_by_polars_where_it_may(
    tmp_path: Path, reads: list[tuple[int, int]], batch_bytes: int
) -> None:
    own = upper(filled(1000)).rows(keys(1, *ALL_OVER))
    reads.clear()

    (part,) = upper(filled(1000, home=tmp_path), BatchSize(30, batch_bytes)).rows(
        keys(1, *ALL_OVER)
    )

    assert part.rows.equals(own[0].rows)
    assert part.rows.schema == own[0].rows.schema
    # Of 100 bytes a row group is too large.
    assert {columns for columns, _ in reads} == ({1, 5} if batch_bytes == 100 else {1})


def test_row_groups_of_other_rows_than_their_footer_says_are_not_for_polars(
    tmp_path: Path, reads: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fewer(*given: Any) -> pl.LazyFrame:
        return scan_parts(*given).slice(1)

    own = upper(filled(1000)).rows(keys(*ALL_OVER))
    reads.clear()
    monkeypatch.setattr("lakecore.table.compactions.lookup.scan_parts", fewer)

    (part,) = upper(filled(1000, home=tmp_path)).rows(keys(*ALL_OVER))

    assert part.rows.equals(own[0].rows)
    assert {columns for columns, _ in reads} == {1, 5}


@pytest.mark.parametrize("kind", ["INT", "STRING", "DECIMAL(20, 3)", "BYTES", "TIMESTAMP(6)"])
def test_polars_gives_values_of_every_type_as_the_own_reader_does(
    tmp_path: Path, kind: str, reads: list[tuple[int, int]]
) -> None:
    chance = random.Random(7)
    columns = {"id": f"{kind} NOT NULL", **{f"c{n}": each for n, each in enumerate(TYPES)}}
    numbers = pa.array(range(1000), pa.int32())
    rows = pa.table({"id": _cast(numbers, kind)})
    for name, each in zip([*columns][1:], TYPES, strict=True):
        drawn = [None if chance.random() < 0.2 else chance.randrange(100) for _ in range(1000)]
        rows = rows.append_column(name, _cast(pa.array(drawn, pa.int32()), each))
    found: list[pa.Table] = []
    for store in (None, LocalStore()):
        table = new_table(
            columns,
            store=store,
            path=str(tmp_path / "t"),
            changelog_producer="lookup",
            write_only="true",
        )
        table.write(rows)
        table.compact(full=True)
        reads.clear()
        sought = order_columns([rows["id"].combine_chunks().take(pa.array(range(0, 1000, 10)))])
        (part,) = upper(table).rows(sought)
        found.append(part.rows)

    assert found[0].num_rows == 100
    assert found[1].schema == found[0].schema
    assert found[1].equals(found[0])
    assert {columns for columns, _ in reads} == {1}, "by Polars, but for keys"


def _cast(numbers: pa.Array, kind: str) -> pa.Array:
    """Numbers below 1 000 as values of a type, in their order."""
    if kind.startswith(("STRING", "CHAR", "VARCHAR")):
        return pa.array([None if n is None else f"ü{n:03}" for n in numbers.to_pylist()])
    if kind.startswith(("BYTES", "BINARY")):
        values = [None if n is None else n.to_bytes(2, "big") for n in numbers.to_pylist()]
        return pa.array(values, pa.binary())
    target = arrow_type(parse_type(kind))
    if pa.types.is_decimal(target):
        return pa.array([None if n is None else Decimal(n) for n in numbers.to_pylist()], target)
    if pa.types.is_timestamp(target):
        return numbers.cast(pa.int64()).cast(pa.timestamp("s", target.tz)).cast(target)
    narrow = pa.types.is_date(target) or pa.types.is_time(target)
    return (numbers if narrow else numbers.cast(pa.int64())).cast(target)


def test_rows_in_few_row_groups_are_read_one_after_the_other(
    tmp_path: Path, reads: list[tuple[int, int]]
) -> None:
    levels = upper(filled(1000, home=tmp_path))

    assert rows_of(levels, 0, 198, 200) == [(5, [0, 198, 200], [0, 0, 0])]
    assert {columns for columns, _ in reads} == {1, 5}


def test_what_polars_cannot_read_is_named_by_the_own_reader(tmp_path: Path) -> None:
    table = filled(1000, home=tmp_path)
    levels = upper(table)
    path = Path(table.inspect.files()["file_path"].item())
    column = pq.read_metadata(path).row_group(4).column(5)
    assert column.path_in_schema == "b"
    with path.open("r+b") as file:
        file.seek(column.dictionary_page_offset or column.data_page_offset)
        file.write(b"\xff" * 16)

    with pytest.raises(CorruptTable, match=path.name):
        levels.rows(keys(*ALL_OVER))


def test_closing_lets_go_of_files_and_lease(reads: list[tuple[int, int]]) -> None:
    table = filled(1000)
    levels = upper(table)
    rows_of(levels, 2, 900)

    levels.close()

    assert reads
    assert table.context.budget.used_bytes == 0


@pytest.mark.parametrize("values", [(), (-5,), (5000,), (1, 3, 5)])
def test_keys_that_are_nowhere_are_not_found(values: Sequence[int]) -> None:
    assert upper(filled(200)).rows(keys(*values)) == []


def test_one_file_of_a_level_after_the_other_is_looked_into_and_closed() -> None:
    table = new_table(
        {"id": "INT NOT NULL", "v": "STRING"},
        changelog_producer="lookup",
        write_only="true",
        target_file_size="1 kb",
    )
    draw = random.Random(3)
    count = 12_000
    texts = [draw.randbytes(40).hex() for _ in range(count)]
    table.write(pa.table({"id": pa.array(range(count), pa.int32()), "v": texts}))
    table.compact(full=True)
    assert len(table.inspect.files()) >= 3
    levels = upper(table, BatchSize(1_000))
    asked = [*range(0, count, 997), count + 5]

    found = levels.rows(keys(*asked))

    assert [part.rows["v"].to_pylist() for part in found] == [[texts[key] for key in asked[:-1]]]
    assert found[0].rows["id"].to_pylist() == asked[:-1]
    levels.close()
    levels = upper(table, BatchSize(1_000))
    assert levels.known(keys(*asked)).tolist() == [True] * (len(asked) - 1) + [False]
    levels.close()
    assert table.context.budget.used_bytes == 0
