from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.format.binary_row import decode_rows
from lakecore.format.manifest_files import decode_manifest
from lakecore.format.metadata import decode_schema
from lakecore.format.statistics import (
    StatsCollector,
    StatsKind,
    StatsMode,
    key_bounds,
    parse_stats_mode,
    stats_columns,
    stats_frame,
    stats_modes,
)
from lakecore.model.files import DataFile, Stats
from lakecore.model.schema import TableSchema
from lakecore.model.types import BINARIES, Atomic, Field, arrow_type, parse_type

FIXTURES = Path(__file__).parents[1] / "golden" / "fixtures"


def fields(*types: str) -> tuple[Field, ...]:
    return tuple(Field(id=i, name=f"f{i}", type=parse_type(text)) for i, text in enumerate(types))


def collect(
    data_type: str, *batches: list[Any], mode: str = "truncate(16)", file_format: str = "parquet"
) -> Stats:
    """Statistics of one column that comes in batches."""
    column = fields(data_type)
    collector = StatsCollector(column, [parse_stats_mode(mode)], file_format)
    for values in batches:
        array = pa.array(values, arrow_type(column[0].type))
        collector.update(pa.record_batch([array], names=["f0"]))
    return collector.finish()


def bounds(stats: Stats, data_type: str) -> tuple[Any, Any]:
    low, high = (
        decode_rows([row], fields(data_type)) for row in (stats.min_values, stats.max_values)
    )
    return low.column(0)[0].as_py(), high.column(0)[0].as_py()


@pytest.mark.parametrize(
    ("data_type", "batches", "low", "high"),
    [
        ("INT", ([3, None], [-5], [9, 1]), -5, 9),
        ("BOOLEAN", ([True], [False]), False, True),
        ("DOUBLE", ([1.5, None, -2.0], [0.25]), -2.0, 1.5),
        ("FLOAT", ([1.5], [2.5]), 1.5, 2.5),
        (
            "DECIMAL(10, 2)",
            ([Decimal("1.20")], [Decimal("-0.01")]),
            Decimal("-0.01"),
            Decimal("1.20"),
        ),
        ("DECIMAL(38, 0)", ([Decimal(10**37), Decimal(-1)],), Decimal(-1), Decimal(10**37)),
        (
            "DATE",
            ([dt.date(2024, 2, 29)], [dt.date(1960, 1, 1)]),
            dt.date(1960, 1, 1),
            dt.date(2024, 2, 29),
        ),
        ("TIME(3)", ([dt.time(1), dt.time(2)],), dt.time(1), dt.time(2)),
        ("STRING", (["b", "é", ""], [None], ["\U0001f600"]), "", "\U0001f600"),
        ("STRING", (["\ue000", "\U00010000"],), "\ue000", "\U00010000"),
        ("BYTES", ([b"a", b"b"],), None, None),
        ("ARRAY<INT>", ([[1], None],), None, None),
        ("INT", ([None, None],), None, None),
        ("STRING", ([None],), None, None),
        ("DOUBLE", ([None],), None, None),
        ("STRING", (), None, None),
    ],
)
def test_bounds_hold_all_values(
    data_type: str, batches: tuple[list[Any], ...], low: object, high: object
) -> None:
    stats = collect(data_type, *batches)

    assert bounds(stats, data_type) == (low, high)
    assert stats.null_counts == (sum(value is None for batch in batches for value in batch),)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (["a somewhat longer"], "a somewhat longe", "a somewhat longf"),
        (["a somewhat longe"], "a somewhat longe", "a somewhat longe"),
        (["é" * 17], "é" * 16, "é" * 15 + "ê"),
        (["\U0001f600" * 17, "b"], "b", "\U0001f600" * 15 + "\U0001f601"),
        (["x" * 15 + "\ud7ff" + "y"], "x" * 15 + "\ud7ff", "x" * 15 + "\ue000"),
        (["x" * 15 + "\U0010ffff" + "y"], "x" * 15 + "\U0010ffff", "x" * 14 + "y"),
        (["\U0010ffff" * 17, "b"], None, None),
        (["a" * 20, "b"], "a" * 16, "b"),
    ],
)
def test_long_texts_are_cut_and_the_upper_bound_raised(
    values: list[str], low: str | None, high: str | None
) -> None:
    assert bounds(collect("STRING", values), "STRING") == (low, high)


def test_full_keeps_long_texts() -> None:
    assert bounds(collect("STRING", ["a" * 20], mode="full"), "STRING") == ("a" * 20, "a" * 20)


def test_counts_keeps_the_null_count_alone() -> None:
    stats = collect("INT", [1, None], mode="counts")

    assert bounds(stats, "INT") == (None, None)
    assert stats.null_counts == (1,)


def test_none_keeps_nothing() -> None:
    stats = collect("INT", [1, None], mode="none")

    assert bounds(stats, "INT") == (None, None)
    assert stats.null_counts == (None,)


@pytest.mark.parametrize(
    "batches", [([1.0, float("nan")],), ([float("nan")], [1.0]), ([1.0], [float("nan")])]
)
def test_nan_leaves_a_column_without_bounds(batches: tuple[list[float], ...]) -> None:
    assert bounds(collect("DOUBLE", *batches), "DOUBLE") == (None, None)


@pytest.mark.parametrize("values", [[0.0], [-0.0], [0.0, -0.0], [-0.0, 0.0]])
def test_zero_bounds_hold_zeros_of_both_signs(values: list[float]) -> None:
    low, high = bounds(collect("DOUBLE", values), "DOUBLE")

    assert (str(low), str(high)) == ("-0.0", "0.0")


@pytest.mark.parametrize(
    ("data_type", "file_format", "known"),
    [
        ("TIMESTAMP(6)", "parquet", True),
        ("TIMESTAMP(7)", "parquet", False),
        ("TIMESTAMP_LTZ(9)", "parquet", False),
        ("TIMESTAMP(9)", "orc", True),
    ],
)
def test_nanosecond_bounds_are_known_outside_parquet(
    data_type: str, file_format: str, *, known: bool
) -> None:
    stats = collect(data_type, [dt.datetime(1969, 1, 1)], [None], file_format=file_format)

    assert (bounds(stats, data_type)[0] is not None) is known
    assert stats.null_counts == (1,)


@pytest.mark.parametrize(
    "form",
    [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)
def test_bounds_do_not_depend_on_the_arrow_form(form: pa.DataType) -> None:
    column = pa.array(["z", "b", None, "c", "z"]).cast(form)[1:4]
    collector = StatsCollector(fields("STRING"), [parse_stats_mode("full")])

    collector.update(
        pa.table({"f0": pa.chunked_array([column[:2], column[2:]]), "other": [1, 2, 3]})
    )

    assert bounds(collector.finish(), "STRING") == ("b", "c")


def test_bounds_are_those_of_all_batches_however_many() -> None:
    batches = [[number, None] for number in (5, 9, 4, *range(10, 30), 1, 40, 7)]

    found = collect("INT", *batches)

    assert bounds(found, "INT") == (1, 40)
    assert found.null_counts == (len(batches),)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("truncate(16)", StatsMode(StatsKind.TRUNCATE, 16)),
        (" FULL ", StatsMode(StatsKind.FULL)),
        ("counts", StatsMode(StatsKind.COUNTS)),
        ("none", StatsMode(StatsKind.NONE)),
    ],
)
def test_modes_parse(text: str, mode: StatsMode) -> None:
    assert parse_stats_mode(text) == mode


@pytest.mark.parametrize("text", ["", "truncate", "truncate(0)", "truncate(-1)", "most"])
def test_unknown_modes_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="unknown statistics mode"):
        parse_stats_mode(text)


# --- reading ------------------------------------------------------------------------------------


def schema(*types: str) -> TableSchema:
    return TableSchema(id=0, fields=fields(*types), highest_field_id=len(types) - 1)


def file(stats: Stats, columns: tuple[str, ...] | None = None, **more: Any) -> DataFile:
    return DataFile(
        name="data.parquet",
        size_bytes=1,
        row_count=1,
        value_stats=stats,
        value_stats_columns=columns,
        sequence_min=0,
        sequence_max=0,
        schema_id=0,
        **more,
    )


def test_statistics_of_many_files_come_as_columns() -> None:
    files = [file(collect("INT", [n, n + 1, None])) for n in (5, 1)]

    frame = stats_frame(files, schema("INT"), ["f0"])

    assert [batch.to_pydict() for batch in frame] == [
        {"f0": [5, 1]},
        {"f0": [6, 2]},
        {"f0": [1, 1]},
    ]


def test_files_cover_the_columns_they_name() -> None:
    table = schema("STRING", "INT")
    dense = file(collect("INT", [1]), ("f0",))
    collector = StatsCollector(table.fields, stats_modes(table.fields, "full", {"f0": "counts"}))
    collector.update(pa.table({"f0": ["a"], "f1": pa.array([7], pa.int32())}))
    whole = file(collector.finish())
    tail = file(collect("INT", [2]), ("f1",))
    written = file(collect("INT", [3]), write_columns=("f1",))
    none = file(Stats())

    frame = stats_frame([tail, whole, none, tail, written], table, ["f1", "f0"])

    assert frame.min_values.to_pydict() == {"f1": [2, 7, None, 2, 3], "f0": [None] * 5}
    assert frame.max_values.schema == pa.schema({"f1": pa.int32(), "f0": pa.string()})
    assert frame.null_counts.to_pydict() == {
        "f1": [0, 0, None, 0, 0],
        "f0": [None, 0, None, None, None],
    }
    assert [column.name for column in stats_columns(dense, table)] == ["f0"]


def test_no_files_have_empty_statistics() -> None:
    frame = stats_frame([], schema("INT"), ["f0"])

    assert [batch.num_rows for batch in frame] == [0, 0, 0]
    assert frame.min_values.schema == pa.schema({"f0": pa.int32()})


def test_a_stored_nan_bounds_nothing() -> None:
    collector = StatsCollector(fields("DOUBLE"), [parse_stats_mode("full")])
    collector.update(pa.table({"f0": [1.0]}))
    fine = collector.finish()
    nan = fine.max_values.replace(b"\xf0\x3f", b"\xf8\x7f")
    stored = Stats(min_values=fine.min_values, max_values=nan, null_counts=(0,))

    frame = stats_frame([file(fine), file(stored)], schema("DOUBLE"), ["f0"])

    assert frame.min_values.to_pydict() == frame.max_values.to_pydict() == {"f0": [1.0, None]}


@pytest.mark.parametrize(
    ("padded", "low"),
    [
        ("ab   ", "ab"),
        ("a b  ", "a b"),
        ("     ", ""),
        ("a\t\n  ", "a"),
        ("é    ", "é"),
        ("abcde",) * 2,
    ],
)
def test_bounds_of_a_padded_char_hold_for_its_values(padded: str, low: str) -> None:
    found = file(collect("STRING", [padded, None], mode="full"))
    keyed = replace(found, key_stats=found.value_stats)

    frame = stats_frame([found], schema("CHAR(5)"), ["f0"])
    least, greatest = key_bounds([keyed], fields("CHAR(5)"))

    assert frame.min_values.to_pydict() == least.to_pydict() == {"f0": [low]}
    assert frame.max_values.to_pydict() == greatest.to_pydict() == {"f0": [padded]}


def test_statistics_that_do_not_fit_their_columns_are_corrupt() -> None:
    stats = collect("INT", [1])

    with pytest.raises(CorruptTable, match="number of fields"):
        stats_frame([file(stats)], schema("INT", "INT"), ["f0"])
    with pytest.raises(CorruptTable, match="unknown columns"):
        stats_frame([file(stats, ("gone",))], schema("INT"), ["f0"])
    uneven = Stats(min_values=stats.min_values, max_values=stats.max_values, null_counts=(0, 0))
    with pytest.raises(CorruptTable, match="null counts"):
        stats_frame([file(uneven)], schema("INT"), ["f0"])


def test_statistics_of_an_unknown_column_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="unknown column"):
        stats_frame([], schema("INT"), ["nope"])


# --- what the reference wrote -------------------------------------------------------------------


def plain(column: Field) -> bool:
    """Columns for which all versions of the reference store the same statistics."""
    return isinstance(column.type, Atomic) and column.type.root not in BINARIES


@pytest.mark.parametrize(
    "table", sorted(FIXTURES.glob("*/table*")), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_collected_statistics_are_those_of_the_reference(table: Path) -> None:
    schemas = {
        schema.id: schema
        for path in (table / "schema").glob("schema-*")
        for schema in [decode_schema(path.read_bytes(), str(path))]
    }
    data_files = {path.name: path for path in table.rglob("*.parquet")}
    entries = [
        entry.file
        for path in (table / "manifest").glob("manifest-*")
        if not path.name.startswith("manifest-list")
        for entry in decode_manifest(path.read_bytes(), str(path))
    ]

    for data_file in {entry.name: entry for entry in entries if entry.name in data_files}.values():
        own = schemas[data_file.schema_id]
        covered = stats_columns(data_file, own)
        kept = [column for column in covered if plain(column)]
        rows = pq.ParquetFile(data_files[data_file.name]).read([column.name for column in kept])
        options = own.options
        by_column = {c.name: options.get(f"fields.{c.name}.stats-mode") for c in kept}
        if options.get("data-file.thin-mode"):  # keys have no other statistics then
            by_column |= dict.fromkeys(own.primary_keys, "full")
        modes = stats_modes(
            kept,
            options.get("metadata.stats-mode", "truncate(16)"),
            {name: mode for name, mode in by_column.items() if mode},
        )
        collector = StatsCollector(kept, modes)
        for batch in rows.to_batches(max_chunksize=2):
            collector.update(batch)
        found = file(collector.finish(), tuple(column.name for column in kept))
        names = [column.name for column in kept]

        assert stats_frame(
            [found], TableSchema(id=0, fields=own.fields, highest_field_id=0), names
        ) == (stats_frame([data_file], own, names))
