"""Data files of a bucket, and what their metadata says of them."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.format.binary_row import decode_rows
from lakecore.format.statistics import key_bounds, stats_frame
from lakecore.io.files.data_files import file_columns
from lakecore.model.files import EMPTY_ROW, NO_STATS, DataFile, FileSource
from lakecore.model.rows import SEQUENCE_NUMBER, VALUE_KIND
from lakecore.table.run_writer.file_shape import (
    BucketPlace,
    FileNames,
    FileShape,
    changelog_shape,
    data_shape,
)
from lakecore.table.run_writer.rolling_writer import RollingWriter
from tests.tables import new_table

if TYPE_CHECKING:
    from lakecore.table.handle import Table

COLUMNS = {"id": "BIGINT NOT NULL", "s": "STRING", "d": "DECIMAL(30, 2)", "t": "TIMESTAMP(6)"}
LONG = "abcdefghijklmnopqrstuvwxyz"


def writer_of(table: Table, shape: FileShape, bucket: int = 0) -> RollingWriter:
    context = table.context
    place = BucketPlace(
        store=context.store,
        layout=context.layout,
        ambient=context.ambient,
        partition_path="",
        bucket=bucket,
        names=FileNames("w"),
    )
    return RollingWriter(place, shape)


def keyed_rows(
    *values: tuple[Any, ...], first: int = 0, kinds: list[int] | None = None
) -> pa.Table:
    """Rows of `COLUMNS` with sequence numbers from `first` and kinds."""
    columns = [
        pa.array([row[index] for row in values], kind)
        for index, kind in enumerate(
            [pa.int64(), pa.string(), pa.decimal128(30, 2), pa.timestamp("us")]
        )
    ]
    return pa.Table.from_arrays(
        [
            *columns,
            pa.array(range(first, first + len(values)), pa.int64()),
            pa.array(kinds or [0] * len(values), pa.int8()),
        ],
        names=[*COLUMNS, SEQUENCE_NUMBER, VALUE_KIND],
    )


ROWS = keyed_rows(
    (1, LONG, Decimal("1.50"), dt.datetime(2020, 1, 1)),
    (2, None, None, None),
    (5, "m", Decimal("-3.00"), dt.datetime(2019, 1, 1)),
    first=7,
    kinds=[0, 3, 2],
)


def written(table: Table, shape: FileShape | None = None, rows: pa.Table = ROWS) -> DataFile:
    writer = writer_of(table, data_shape(table.schema, table.options) if shape is None else shape)
    writer.write(rows)
    (file,) = writer.close()
    return file


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_metadata_says_what_the_rows_are(file_format: str) -> None:
    table = new_table(COLUMNS, file__format=file_format)
    file = written(table)
    size_bytes = table.context.store.size(f"{table.path}/bucket-0/{file.name}")
    low, high, nulls = stats_frame([file], table.schema, list(COLUMNS))
    keys = decode_rows([file.key_min, file.key_max], table.schema.key_fields)

    assert file.name == f"data-w-lc0.{file_format}"
    assert (file.size_bytes, file.row_count, file.level, file.schema_id) == (size_bytes, 3, 0, 0)
    assert (file.sequence_min, file.sequence_max, file.delete_row_count) == (7, 9, 1)
    assert file.file_source is FileSource.APPEND
    assert file.creation_time_ms == table.context.ambient.local_wall_clock_ms()
    assert keys.to_pydict() == {"id": [1, 5]}
    assert low.to_pylist() == [
        {"id": 1, "s": LONG[:16], "d": Decimal("-3.00"), "t": dt.datetime(2019, 1, 1)}
    ]
    # The greatest text is cut too, and raised so that it stays above all.
    assert high.to_pylist() == [
        {"id": 5, "s": "m", "d": Decimal("1.50"), "t": dt.datetime(2020, 1, 1)}
    ]
    assert nulls.to_pylist() == [{"id": 0, "s": 1, "d": 1, "t": 1}]


def test_bound_of_a_long_text_is_cut_and_raised() -> None:
    table = new_table(COLUMNS)
    file = written(table, rows=ROWS.slice(0, 1))
    low, high, _ = stats_frame([file], table.schema, ["s"])

    assert low.to_pylist() == [{"s": "abcdefghijklmnop"}]
    assert high.to_pylist() == [{"s": "abcdefghijklmnoq"}]


TEXTS = {
    "short": ["b", "é", "", None, "\U0001f600", "\uffff"] * 40,
    "repeated": ["aa", "ab"] * 120,
    "null": [None] * 240,
    "now and then": [None] * 239 + ["x"],
    # Arrow leaves bounds of more than 4 KiB out of the footer.
    "long": ["y" * 5_000 + str(at) for at in range(240)],
    "one long": ["a"] * 239 + ["z" * 5_000],
    "last of all": ["\U0010ffff" * 20] * 240,
}


@pytest.mark.parametrize("mode", ["truncate(1)", "truncate(16)", "full", "counts", "none"])
def test_bounds_of_texts_are_the_same_in_every_format(mode: str) -> None:
    columns = {"m": "MAP<STRING, STRING>", "id": "STRING NOT NULL"}
    columns |= dict.fromkeys(TEXTS, "VARCHAR(9000)")
    found = []
    for file_format in ("parquet", "avro"):
        table = new_table(columns, file__format=file_format, metadata__stats_mode=mode)
        shape = data_shape(table.schema, table.options)
        small = replace(shape, write_format=replace(shape.write_format, row_group_rows=100))
        rows = pa.table(
            {
                "m": pa.array([[("k", "v")]] * 240, pa.map_(pa.string(), pa.string())),
                "id": [f"{at:03}" for at in range(240)],
                **{name: pa.array(values, pa.string()) for name, values in TEXTS.items()},
                SEQUENCE_NUMBER: pa.array(range(240), pa.int64()),
                VALUE_KIND: pa.array([0] * 240, pa.int8()),
            }
        )
        file = written(table, small, rows)
        found.append((file.value_stats, file.key_stats, file.value_stats_columns))

    assert found[0] == found[1]


@pytest.mark.parametrize(("group_bytes", "between"), [(1_000, 50), (399, 49), (80, 10), (4, 1)])
def test_file_is_looked_at_after_the_rows_of_a_row_group(group_bytes: int, between: int) -> None:
    table = new_table(COLUMNS)
    shape = data_shape(table.schema, table.options)
    small = replace(shape.write_format, row_group_rows=50, row_group_bytes=group_bytes)

    rows = pa.table({"id": pa.array(range(100), pa.int64())})
    assert replace(shape, write_format=small).rows_between_looks(rows) == between


def test_keyed_file_has_key_number_kind_and_all_columns() -> None:
    table = new_table(COLUMNS)
    file = written(table)
    path = f"{table.path}/bucket-0/{file.name}"

    assert file_columns(table.context.store, path) == (
        "_KEY_id", "_SEQUENCE_NUMBER", "_VALUE_KIND", "id", "s", "d", "t"
    )  # fmt: skip


def test_thin_file_has_the_key_once() -> None:
    table = new_table(COLUMNS, data_file__thin_mode="true")
    file = written(table)
    path = f"{table.path}/bucket-0/{file.name}"
    keys = decode_rows([file.key_min, file.key_max], table.schema.key_fields)

    assert file_columns(table.context.store, path) == (
        "_SEQUENCE_NUMBER", "_VALUE_KIND", "id", "s", "d", "t"
    )  # fmt: skip
    assert keys.to_pydict() == {"id": [1, 5]}


def test_append_file_has_the_columns_alone_and_no_keys() -> None:
    table = new_table(COLUMNS, keys=[])
    writer = writer_of(table, data_shape(table.schema, table.options))
    for first in (4, 7):
        writer.write(ROWS.select(list(COLUMNS)), first)
    (file,) = writer.close()
    path = f"{table.path}/bucket-0/{file.name}"

    assert file_columns(table.context.store, path) == tuple(COLUMNS)
    assert (file.key_min, file.key_max, file.key_stats) == (EMPTY_ROW, EMPTY_ROW, NO_STATS)
    assert (file.row_count, file.sequence_min, file.sequence_max) == (6, 4, 9)
    assert file.delete_row_count == 0


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, None),
        ({"metadata__stats_mode": "counts"}, None),
        ({"metadata__stats_mode": "none"}, ()),
        ({"metadata__stats_mode": "none", "metadata__stats_dense_store": "false"}, None),
        ({"fields__s__stats_mode": "none"}, ("id", "d", "t")),
    ],
)
def test_columns_without_statistics_are_left_out(
    options: dict[str, Any], columns: tuple[str, ...] | None
) -> None:
    table = new_table(COLUMNS, **options)
    file = written(table)
    low, _, nulls = stats_frame([file], table.schema, list(COLUMNS))

    assert file.value_stats_columns == columns
    bounds = [value for value in low.to_pylist()[0].values() if value is not None]
    counted = [value for value in nulls.to_pylist()[0].values() if value is not None]
    mode = options.get("metadata__stats_mode")
    assert len(bounds) == (0 if mode else len(columns or COLUMNS))
    assert len(counted) == (0 if mode == "none" else len(columns or COLUMNS))


def test_keys_are_known_whatever_the_statistics() -> None:
    table = new_table(COLUMNS, metadata__stats_mode="none")
    file = written(table)

    assert decode_rows([file.key_min, file.key_max], table.schema.key_fields).to_pydict() == {
        "id": [1, 5]
    }


def test_file_ends_at_the_target_size_and_the_next_begins() -> None:
    table = new_table(COLUMNS, target_file_size="1 b")
    writer = writer_of(table, data_shape(table.schema, table.options))
    for at in range(3):
        writer.write(ROWS.slice(at, 1))
    files = writer.close()

    assert [file.name for file in files] == [f"data-w-lc{number}.parquet" for number in range(3)]
    assert [file.row_count for file in files] == [1, 1, 1]
    assert [file.sequence_min for file in files] == [7, 8, 9]


def test_rows_that_are_none_make_no_file() -> None:
    table = new_table(COLUMNS)
    writer = writer_of(table, data_shape(table.schema, table.options))
    writer.write(ROWS.slice(0, 0))

    assert writer.close() == ()
    assert table.context.store.list(f"{table.path}/bucket-0") == ()


def test_aborted_writer_removes_ended_and_open_files() -> None:
    table = new_table(COLUMNS, target_file_size="1 b")
    shape = data_shape(table.schema, table.options)
    writer = writer_of(table, shape)
    writer.write(ROWS)
    writer.abort()
    writer.abort()
    unfinished = writer_of(new_table(COLUMNS), data_shape(table.schema, new_table().options), 1)
    unfinished.write(ROWS)
    unfinished.abort()

    assert writer.close() == ()
    assert table.context.store.list(f"{table.path}/bucket-0") == ()
    assert table.context.store.list(f"{table.path}/bucket-1") == ()


def test_options_name_format_and_compression_of_a_level() -> None:
    table = new_table(
        COLUMNS,
        file__format__per__level="0:avro,5:orc",
        file__compression__per__level="0:snappy",
        data_file__prefix="d-",
        file__suffix__include__compression="true",
    )
    names = [
        written(table, data_shape(table.schema, table.options, level)).name for level in (0, 3, 5)
    ]

    assert names == ["d-w-lc0.snappy.avro", "d-w-lc0.zst.parquet", "d-w-lc0.zst.orc"]


def test_changelog_files_have_options_of_their_own() -> None:
    table = new_table(
        COLUMNS,
        changelog_producer="input",
        changelog_file__format="avro",
        changelog_file__prefix="c-",
        changelog_file__stats_mode="none",
    )
    file = written(table, changelog_shape(table.schema, table.options))

    assert file.name == "c-w-lc0.avro"
    assert file.value_stats_columns == ()
    assert (file.row_count, file.delete_row_count) == (3, 1)


def test_files_of_compaction_say_so() -> None:
    table = new_table(COLUMNS)
    shape = data_shape(table.schema, table.options, 5)
    file = written(table, replace(shape, source=FileSource.COMPACT))

    assert (file.level, file.file_source) == (5, FileSource.COMPACT)


def test_bounds_of_keys_come_in_the_order_of_the_key() -> None:
    columns = {"s": "STRING NOT NULL", "id": "INT NOT NULL", "v": "INT"}
    table = new_table(columns, keys=["id", "s"], fields__id__stats_mode="none")
    rows = pa.table(
        {
            "s": ["z", "a"],
            "id": pa.array([1, 2], pa.int32()),
            "v": pa.array([None, 3], pa.int32()),
            SEQUENCE_NUMBER: pa.array([0, 1], pa.int64()),
            VALUE_KIND: pa.array([0, 0], pa.int8()),
        }
    )
    file = written(table, rows=rows)
    low, high = key_bounds([file], table.schema.key_fields)
    least, _, nulls = stats_frame([file], table.schema, ["s", "id", "v"])

    assert low.to_pylist() == [{"id": None, "s": "a"}]
    assert high.to_pylist() == [{"id": None, "s": "z"}]
    assert file.key_stats.null_counts == (None, 0)
    # A column without statistics is left out of the values', and no other moves.
    assert file.value_stats_columns == ("s", "v")
    assert least.to_pylist() == [{"s": "a", "id": None, "v": 3}]
    assert nulls.to_pylist() == [{"s": 0, "id": None, "v": 1}]
