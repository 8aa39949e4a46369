from __future__ import annotations

import json
import random
from dataclasses import replace
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from lakecore.errors import CorruptTable, InvalidRequest, NotFound, StorageError, Unsupported
from lakecore.format.parquet_footer import FooterJoin
from lakecore.io.files import parquet_read, parquet_write
from lakecore.io.files.data_files import (
    FORMATS,
    WriteFormat,
    file_columns,
    open_writer,
    read_file,
    read_positions,
    row_group_bounds,
)
from lakecore.io.files.parquet_write import ParquetWriter
from lakecore.io.stores.local import LocalStore
from lakecore.io.stores.store import MemoryStore
from lakecore.model.arrow_arrays import size_of
from lakecore.model.rows import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND
from lakecore.model.schema import number_fields
from lakecore.model.types import (
    Field,
    arrow_schema,
    arrow_type,
    parse_field,
    parse_type,
    with_nullable,
)
from tests.stores import FailingStore, StoreFailure
from tests.values import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.stores.store import Store

FIXTURES = Path(__file__).parents[2] / "golden" / "fixtures"
FORMAT_NAMES = tuple(FORMATS)

# Of each type three values: the least, a common one, the greatest, as far as all formats hold them.
_D38 = "9" * 28 + "." + "9" * 10
_LTZ = " WITH LOCAL TIME ZONE"
_MS = ["1700-01-01T00:00:00.001", "1969-12-31T23:59:59.999", "2024-01-31T12:34:05.120"]
_US = ["1700-01-01T00:00:00.000001", "1969-12-31T23:59:59.999999", "2261-12-31T00:00:00"]
_NS = ["1700-01-01T00:00:00.000000001", "1969-12-31T23:59:59.999999999", "2261-12-31T00:00:00"]
EXAMPLES: dict[str, list[Any]] = {
    "BOOLEAN": [False, True, True],
    "TINYINT": [-128, 0, 127],
    "SMALLINT": [-32768, 0, 32767],
    "INT": [-(2**31), 0, 2**31 - 1],
    "BIGINT": [-(2**63), 0, 2**63 - 1],
    "FLOAT": ["-Infinity", -0.5, 3.4028234663852886e38],
    "DOUBLE": ["-Infinity", 0.1, 1.7976931348623157e308],
    "CHAR(3)": ["abc", "é€x", "   "],
    "VARCHAR(5)": ["", "z", "日本語"],
    "STRING": ["", "a somewhat longer text, not inlined", "🦀"],
    "BINARY(2)": ["0000", "00ff", "ffff"],
    "VARBINARY(4)": ["", "00", "deadbeef"],
    "BYTES": ["", "00ff", "de" * 300],
    "DECIMAL(1, 0)": ["-9", "0", "9"],
    "DECIMAL(9, 2)": ["-9999999.99", "0.01", "9999999.99"],
    "DECIMAL(18, 4)": ["-99999999999999.9999", "-0.0001", "99999999999999.9999"],
    "DECIMAL(38, 10)": ["-" + _D38, "1.0000000001", _D38],
    "DATE": ["0001-01-01", "1969-12-31", "9999-12-31"],
    "TIME(0)": ["00:00:00", "12:34:05", "23:59:59"],
    "TIME(3)": ["00:00:00.001", "12:34:05.120", "23:59:59.999"],
    "TIMESTAMP(0)": ["1700-01-01T00:00:00", "1969-12-31T23:59:59", "2261-12-31T23:59:59"],
    "TIMESTAMP(3)": _MS,
    "TIMESTAMP(6)": _US,
    "TIMESTAMP(3)" + _LTZ: _MS,
    "TIMESTAMP(6)" + _LTZ: _US,
    "TIMESTAMP(9)": _NS,
    "TIMESTAMP(9)" + _LTZ: _NS,
    "ARRAY<INT>": [[], [1, None, 3], [7]],
    "ARRAY<ARRAY<STRING>>": [[["a", None], None, []], [], [[]]],
    "ARRAY<TIMESTAMP(3)>": [["2024-01-31T12:34:05.12"], [None], []],
    "ARRAY<DECIMAL(9, 2)>": [["1.25", None], [], ["-0.01"]],
    "MAP<STRING, BIGINT>": [[["k", 1], ["z", None]], [], [["", 2]]],
    "MAP<INT, DATE>": [[[1, "2024-01-31"], [2, None]], [], [[-1, "1969-12-31"]]],
    "MAP<STRING, ROW<`x` INT, `y` ARRAY<STRING>>>": [[["k", [1, ["a"]]]], [["z", None]], []],
    "MULTISET<STRING>": [[["a", 2]], [], [["b", 1], ["c", 3]]],
    "MULTISET<INT>": [[[5, 2]], [], [[6, 1]]],
    "ROW<`x` INT, `y` STRING>": [[1, "a"], [None, None], [2, None]],
    "ROW<`x` INT NOT NULL, `in` ROW<`z` TIME(3)>>": [[1, ["12:34:05.120"]], [2, None], [3, [None]]],
    "ARRAY<INT NOT NULL>": [[1], [], [2, 3]],
}  # fmt: skip
NANOSECOND_TYPES = {name for name in EXAMPLES if "(9)" in name and "TIMESTAMP" in name}


def fields_of(types: Sequence[str]) -> tuple[Field, ...]:
    """Columns c0, c1, ... of these types."""
    return number_fields(
        [Field(id=0, name=f"c{i}", type=parse_type(text)) for i, text in enumerate(types)]
    )[0]


def types_of(format_name: str) -> list[str]:
    """The types that a format holds."""
    return [name for name in EXAMPLES if format_name != "avro" or name not in NANOSECOND_TYPES]


def table_of(fields: Sequence[Field], rows: Sequence[Sequence[Any]]) -> pa.Table:
    columns = [column([row[i] for row in rows], field.type) for i, field in enumerate(fields)]
    return pa.Table.from_arrays(columns, schema=arrow_schema(fields))


def example(type_name: str, row: int, format_name: str) -> Any:
    """An example of a type; those that ORC refuses are replaced by others."""
    value = EXAMPLES[type_name][row]
    if format_name == "orc" and type_name.startswith("CHAR"):
        # It holds no blanks behind a CHAR.
        return value.rstrip(" ")
    if format_name == "orc" and "`in` ROW" in type_name and value == [2, None]:
        return [2, [None]]
    if format_name == "orc" and type_name.startswith("TIMESTAMP") and value < "1970":
        return value.partition(".")[0]
    return value


def example_table(format_name: str) -> tuple[tuple[Field, ...], pa.Table]:
    """A column of each type: the three values, and a null in the middle."""
    types = types_of(format_name)
    fields = fields_of(types)
    first, second, third = ([example(name, i, format_name) for name in types] for i in range(3))
    return fields, table_of(fields, [first, second, [None] * len(types), third])


def numbers(count: int) -> tuple[tuple[Field, ...], pa.Table]:
    """Columns c0 (0, 1, 2, ...) and c1, their texts."""
    fields = fields_of(["BIGINT NOT NULL", "STRING"])
    values = pa.array(range(count), pa.int64())
    schema = arrow_schema(fields)
    return fields, pa.Table.from_arrays([values, values.cast(pa.string())], schema=schema)


def write(
    store: Store, path: str, fields: Sequence[Field], table: pa.Table, **options: Any
) -> tuple[int, int]:
    write_format = WriteFormat(format=path.rpartition(".")[2], **options)
    writer = open_writer(store, path, fields, write_format)
    writer.write(table)
    return writer.close()


def read(store: Store, path: str, fields: Sequence[Field], **options: Any) -> pa.Table:
    batches = list(read_file(store, path, fields=fields, **options))
    return pa.Table.from_batches(batches, schema=arrow_schema(fields))


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path)


# --- every format ---------------------------------------------------------------------------------


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_rows_of_every_type_come_back(store: Store, folder: str, format_name: str) -> None:
    fields, table = example_table(format_name)
    path = f"{folder}/a.{format_name}"
    size_bytes, row_count = write(store, path, fields, table)
    result = read(store, path, fields)

    result.validate(full=True)
    assert result.equals(table)
    assert (size_bytes, row_count) == (store.size(path), 4)
    assert file_columns(store, path) == tuple(table.column_names)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@pytest.mark.parametrize("rows", [slice(0, 0), slice(0, 1), slice(2, 3)], ids=str)
def test_no_row_one_row_and_a_row_of_nulls_come_back(
    store: Store, folder: str, format_name: str, rows: slice
) -> None:
    fields, table = example_table(format_name)
    some = table.slice(rows.start, rows.stop - rows.start)
    path = f"{folder}/a.{format_name}"
    write(store, path, fields, some)

    assert read(store, path, fields).equals(some)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@pytest.mark.parametrize("codec", ["zstd", "none", "snappy", "gzip"])
def test_every_codec_is_written_and_read(
    store: Store, folder: str, format_name: str, codec: str
) -> None:
    fields, table = numbers(1_000)
    path = f"{folder}/a.{format_name}"
    write(store, path, fields, table, compression=codec)

    assert read(store, path, fields).equals(table)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_columns_are_chosen_by_name_in_the_order_asked_for(
    store: Store, folder: str, format_name: str
) -> None:
    fields, table = numbers(10)
    path = f"{folder}/a.{format_name}"
    write(store, path, fields, table)

    assert read(store, path, fields[::-1]).equals(table.select(["c1", "c0"]))
    assert read(store, path, fields[1:]).equals(table.select(["c1"]))


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_rows_are_counted_without_columns(store: Store, folder: str, format_name: str) -> None:
    fields, table = numbers(10)
    path = f"{folder}/a.{format_name}"
    write(store, path, fields, table)

    assert sum(batch.num_rows for batch in read_file(store, path, fields=[])) == 10


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_batches_are_small_and_say_where_they_begin(
    store: Store, folder: str, format_name: str
) -> None:
    fields, table = numbers(50_000)
    path = f"{folder}/a.{format_name}"
    write(store, path, fields, table)
    batches = list(read_positions(store, path, fields=fields, batch_rows=20_000))

    assert len(batches) >= 3
    assert all(batch.column("c0")[0].as_py() == at for at, batch in batches)
    assert pa.Table.from_batches([batch for _, batch in batches]).equals(table)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_pieces_of_any_size_and_layout_make_one_file(
    store: Store, folder: str, format_name: str
) -> None:
    fields, table = numbers(1_000)
    path = f"{folder}/a.{format_name}"
    writer = open_writer(store, path, fields, WriteFormat(format=format_name))
    for start in range(0, 1_000, 300):
        piece = table.slice(start, 300)
        large = piece.set_column(1, "c1", piece["c1"].cast(pa.large_string()))
        writer.write(large if start else piece.combine_chunks().to_batches()[0])
        writer.write(piece.slice(0, 0))
    writer.close()

    assert read(store, path, fields).equals(table)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@pytest.mark.parametrize("text_bits", [1, 256])
def test_file_that_holds_a_size_has_it_when_it_ends(
    store: Store, folder: str, format_name: str, text_bits: int
) -> None:
    fields = fields_of(["BIGINT", "STRING"])
    path = f"{folder}/a.{format_name}"
    small = WriteFormat(format=format_name, row_group_bytes=400_000)
    writer = open_writer(store, path, fields, small)
    draw = random.Random(5)
    rows = 0
    while not writer.holds(200_000):
        texts = ["all is well " * 4 + str(draw.getrandbits(text_bits)) for _ in range(5_000)]
        writer.write(pa.table({"c0": pa.array(range(rows, rows + 5_000), pa.int64()), "c1": texts}))
        rows += 5_000
    size_bytes, row_count = writer.close()

    assert row_count == rows
    assert 200_000 <= size_bytes < 800_000


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_abandoned_file_is_gone(store: Store, folder: str, format_name: str) -> None:
    fields, table = numbers(10_000)
    path = f"{folder}/a.{format_name}"
    writer = open_writer(store, path, fields, WriteFormat(format=format_name, row_group_rows=1_000))
    writer.write(table)
    writer.abort()

    assert not store.exists(path)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_failed_close_raises_its_own_error_if_the_deletion_fails_too(format_name: str) -> None:
    fields, table = numbers(10)
    store = FailingStore(MemoryStore(), fail_at=2)
    writer = open_writer(store, "a", fields, WriteFormat(format=format_name))
    writer.write(table)

    with pytest.raises(StoreFailure, match="injected at call 2: close_output of a"):
        writer.close()
    writer.abort()


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_absent_file_is_not_found(store: Store, folder: str, format_name: str) -> None:
    path = f"{folder}/none.{format_name}"

    with pytest.raises(NotFound, match="none"):
        read(store, path, fields_of(["INT"]))
    with pytest.raises(NotFound, match="none"):
        file_columns(store, path)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@pytest.mark.parametrize("damage", ["cut", "foreign", "empty"])
def test_damaged_file_is_corrupt_and_named(
    store: Store, folder: str, format_name: str, damage: str
) -> None:
    fields, table = numbers(10_000)
    path = f"{folder}/a.{format_name}"
    write(store, path, fields, table)
    data = store.read(path)
    store.put(path, {"cut": data[: len(data) // 2], "foreign": b"{}" * 50, "empty": b""}[damage])

    with pytest.raises(CorruptTable, match=f"a.{format_name}"):
        read(store, path, fields)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_damage_anywhere_in_a_compressed_file_is_its_rows_or_corrupt(
    store: Store, folder: str, format_name: str
) -> None:
    fields, table = numbers(2_000)
    path = f"{folder}/a.{format_name}"
    write(store, path, fields, table)
    data = store.read(path)
    told = 0
    for at in range(0, len(data), max(1, len(data) // 60)):
        store.put(path, data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        try:
            read(store, path, fields)
        except CorruptTable as error:
            assert path in str(error)  # noqa: PT017  what is told is what is tested
            told += 1

    assert told


def test_damage_of_a_page_is_told_by_the_checksum_that_java_writes(folder: str) -> None:
    place = Path(__file__).parents[2] / "golden/fixtures/file_indexes/table/bucket-0"
    data = min(place.glob("data-*.parquet")).read_bytes()
    path, store = f"{folder}/a.parquet", MemoryStore()
    fields = [Field(id=0, name="a", type=parse_type("INT"))]
    store.put(path, data)
    (value,) = {batch.column(0)[0].as_py() for batch in read_file(store, path, fields=fields)}
    at = data.index(value.to_bytes(4, "little"), 30)
    store.put(path, data[:at] + b"\x7f" + data[at + 1 :])

    with pytest.raises(CorruptTable, match=r"a.parquet .*checksum"):
        read(store, path, fields)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_column_that_the_file_lacks_is_named(store: Store, folder: str, format_name: str) -> None:
    fields, table = numbers(3)
    path = f"{folder}/a.{format_name}"
    write(store, path, fields, table)

    with pytest.raises(CorruptTable, match="column=other"):
        read(store, path, [*fields, Field(id=9, name="other", type=parse_type("INT"))])


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_column_of_another_type_is_named(store: Store, folder: str, format_name: str) -> None:
    fields, table = numbers(3)
    path = f"{folder}/a.{format_name}"
    write(store, path, fields, table)

    with pytest.raises(CorruptTable, match="column=c0"):
        read(store, path, [Field(id=0, name="c0", type=parse_type("ARRAY<INT>"))])


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_rows_of_other_columns_are_refused(store: Store, folder: str, format_name: str) -> None:
    fields, table = numbers(3)
    writer = open_writer(
        store, f"{folder}/a.{format_name}", fields, WriteFormat(format=format_name)
    )

    with pytest.raises(InvalidRequest, match="do not have the columns"):
        writer.write(table.select(["c1", "c0"]))
    writer.abort()


def test_unknown_format_and_codec_are_unsupported(folder: str) -> None:
    fields = fields_of(["INT"])

    with pytest.raises(Unsupported, match="format=csv"):
        open_writer(MemoryStore(), f"{folder}/a.csv", fields, WriteFormat(format="csv"))
    with pytest.raises(Unsupported, match="format=lance"):
        list(read_file(MemoryStore(), f"{folder}/a.lance", fields=fields))
    with pytest.raises(Unsupported, match="codec=lzo"):
        open_writer(MemoryStore(), f"{folder}/a.parquet", fields, WriteFormat(compression="lzo"))


@pytest.mark.parametrize("codec", ["lz4", "brotli"])
def test_avro_refuses_a_codec_that_it_lacks_and_names_the_option(folder: str, codec: str) -> None:
    refused = rf"Avro has no such codec.*{codec}.*file\.compression"

    with pytest.raises(Unsupported, match=refused):
        open_writer(
            MemoryStore(),
            f"{folder}/a.avro",
            fields_of(["INT"]),
            WriteFormat(format="avro", compression=codec),
        )


# --- Parquet --------------------------------------------------------------------------------------


def message_of(store: Store, path: str) -> list[tuple[object, ...]]:
    """All that a Parquet schema says of its columns."""
    with pq.ParquetFile(store.open_input(path)) as file:
        schema = file.schema
        return [
            (
                part.path,
                part.physical_type,
                str(part.logical_type),
                part.length,
                part.max_definition_level,
                part.max_repetition_level,
            )
            for part in (schema.column(index) for index in range(len(schema)))
        ]


@pytest.mark.parametrize("table_name", ["table", "table-head"])
@pytest.mark.parametrize("fixture", ["append_all_types_parquet", "pk_aggregation"])
def test_message_type_is_the_one_that_java_writes(fixture: str, table_name: str) -> None:
    table = FIXTURES / fixture / table_name
    path = str(next(path for path in sorted(table.rglob("data-*.parquet"))))
    columns = file_columns(LocalStore(), path)
    fields = physical_fields(columns, newest_fields(table))
    store = MemoryStore()
    write(store, "ours.parquet", fields, arrow_schema(fields).empty_table())

    assert message_of(store, "ours.parquet") == message_of(LocalStore(), path)


def test_field_ids_are_those_of_java() -> None:
    table = FIXTURES / "append_all_types_parquet" / "table-head"
    path = str(next(table.rglob("data-*.parquet")))
    fields = newest_fields(table)
    store = MemoryStore()
    write(store, "ours.parquet", fields, arrow_schema(fields).empty_table())

    with pq.ParquetFile(store.open_input("ours.parquet")) as ours, pq.ParquetFile(path) as java:
        # The one difference: Java marks the inner group of a map too, for readers of long ago.
        assert str(ours.schema).splitlines()[1:] == [
            line.replace("key_value (Map)", "key_value")
            for line in str(java.schema).splitlines()[1:]
        ]


def test_timestamps_past_microseconds_are_int96_beside_others_that_are_not() -> None:
    fields = fields_of(["TIMESTAMP(9)", "TIMESTAMP(3)", "ARRAY<TIMESTAMP(7)>", "BINARY(12)"])
    store = MemoryStore()
    write(store, "a.parquet", fields, arrow_schema(fields).empty_table())

    assert [part[1] for part in message_of(store, "a.parquet")] == [
        "INT96",
        "INT64",
        "INT96",
        "BYTE_ARRAY",
    ]


def test_file_of_many_row_groups_is_read_by_others(tmp_path: Path) -> None:
    import duckdb

    fields, table = numbers(10_000)
    path = str(tmp_path / "a.parquet")
    write(LocalStore(), path, fields, table, row_group_rows=999)

    assert pq.read_metadata(path).num_row_groups == 11
    assert pq.read_table(path).equals(table.cast(pq.read_schema(path)))
    assert pl.read_parquet(path)["c0"].to_list() == table["c0"].to_pylist()
    assert duckdb.read_parquet(path).order("c0").to_arrow_table()["c1"].equals(table["c1"])


def test_row_group_ends_at_its_bytes_too() -> None:
    fields, table = numbers(10_000)
    store = MemoryStore()
    write(store, "a.parquet", fields, table, row_group_bytes=table.nbytes // 5)
    groups = row_group_bounds(store, "a.parquet", [])

    assert groups is not None
    assert 5 <= len(groups) <= 7


def test_row_groups_say_their_rows_and_bounds() -> None:
    fields, table = numbers(2_500)
    store = MemoryStore()
    size_bytes, _ = write(store, "a.parquet", fields, table, row_group_rows=1_000)
    groups = row_group_bounds(store, "a.parquet", ["c0", "c1", "none"])

    assert groups is not None
    assert [(g.index, g.first_row, g.row_count) for g in groups] == [
        (0, 0, 1_000),
        (1, 1_000, 1_000),
        (2, 2_000, 500),
    ]
    assert [g.bounds["c0"] for g in groups] == [(0, 999), (1_000, 1_999), (2_000, 2_499)]
    assert groups[1].bounds["c1"] == ("1000", "1999")
    assert groups[1].bounds["none"] is None
    assert groups[1].null_counts == {"c0": 0, "c1": 0, "none": None}
    assert size_bytes / 2 < sum(g.size_bytes for g in groups) < size_bytes
    assert all(g.decoded_bytes > g.size_bytes for g in groups)


def test_bounds_are_values_of_the_type_and_unknown_where_parquet_has_no_order() -> None:
    types = [
        name for name in types_of("parquet") if not name.startswith(("ARRAY", "MAP", "ROW", "MUL"))
    ]
    fields = fields_of(types)
    table = table_of(fields, [[EXAMPLES[name][i] for name in types] for i in range(3)])
    store = MemoryStore()
    write(store, "a.parquet", fields, table)
    groups = row_group_bounds(store, "a.parquet", table.column_names)

    assert groups is not None
    for name, field in zip(types, fields, strict=True):
        bounds = groups[0].bounds[field.name]
        if name in NANOSECOND_TYPES:
            assert bounds is None
        else:
            assert bounds is not None
            ends = pa.array(bounds, arrow_type(field.type))
            assert set(ends.to_pylist()) <= {*table[field.name].to_pylist(), *ends.to_pylist()[:0]}


def test_row_groups_are_chosen_by_index() -> None:
    fields, table = numbers(2_500)
    store = MemoryStore()
    write(store, "a.parquet", fields, table, row_group_rows=1_000)
    found = list(read_positions(store, "a.parquet", fields=fields[:1], row_groups=[0, 2]))

    assert [(at, batch.num_rows) for at, batch in found] == [(0, 1_000), (2_000, 500)]
    assert list(read_file(store, "a.parquet", fields=fields, row_groups=[])) == []


@pytest.mark.parametrize("format_name", ["orc", "avro"])
def test_only_parquet_has_row_groups_to_choose(format_name: str) -> None:
    fields, table = numbers(10)
    store = MemoryStore()
    write(store, f"a.{format_name}", fields, table)

    assert row_group_bounds(store, f"a.{format_name}", ["c0"]) is None
    with pytest.raises(Unsupported, match="row groups"):
        list(read_file(store, f"a.{format_name}", fields=fields, row_groups=[0]))


def test_large_row_groups_of_other_writers_are_streamed(tmp_path: Path) -> None:
    fields, table = numbers(50_000)
    path = str(tmp_path / "a.parquet")
    pq.write_table(table, path)
    batches = list(
        read_positions(LocalStore(), path, fields=fields, batch_rows=10_000, batch_bytes=900_000)
    )

    assert [at for at, _ in batches] == [0, 10_000, 20_000, 30_000, 40_000]
    assert pa.Table.from_batches([batch for _, batch in batches]).equals(table)


def test_batch_of_more_text_than_an_array_holds_comes_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = fields_of(["STRING", "ARRAY<STRING>"])
    texts = ["a" * 100] * 50
    table = table_of(fields, [[text, [text, None]] for text in texts])
    store = MemoryStore()
    write(store, "a.parquet", fields, table)
    monkeypatch.setattr(parquet_read, "NARROW_BYTES_MAX", 1_000)
    found = list(read_positions(store, "a.parquet", fields=fields))

    assert len(found) > 5
    assert [at for at, _ in found] == list(
        accumulate((batch.num_rows for _, batch in found[:-1]), initial=0)
    )
    assert pa.Table.from_batches([batch for _, batch in found]).equals(table)


def test_wide_decimals_have_no_dictionary_in_which_java_would_miss_them() -> None:
    fields = fields_of(["DECIMAL(18, 2)", "DECIMAL(19, 2)"])
    store = MemoryStore()
    write(store, "a.parquet", fields, table_of(fields, [["1.00", "1.00"]] * 3))
    group = pq.ParquetFile(store.open_input("a.parquet")).metadata.row_group(0)

    assert group.column(0).has_dictionary_page
    assert not group.column(1).has_dictionary_page


def test_dictionaries_are_built_where_values_repeat() -> None:
    fields = fields_of(["BIGINT", "STRING", "STRING"])
    count = 20_000
    table = pa.Table.from_arrays(
        [
            pa.array(range(count), pa.int64()),
            pa.array([f"text {i % 50}" for i in range(count)]),
            pa.array([f"text {i}" for i in range(count)]),
        ],
        schema=arrow_schema(fields),
    )
    store = MemoryStore()
    write(store, "a.parquet", fields, table)
    with pq.ParquetFile(store.open_input("a.parquet")) as file:
        group = file.metadata.row_group(0)
        encodings = [set(group.column(i).encodings) for i in range(3)]

    assert ["RLE_DICTIONARY" in found or "PLAIN_DICTIONARY" in found for found in encodings] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("codec", ["zstd", "snappy"])
def test_numbers_that_hardly_shrink_are_not_compressed(codec: str) -> None:
    fields = fields_of(["BIGINT", "DOUBLE", "DOUBLE", "STRING", "ARRAY<DOUBLE>"])
    count = 5_000
    draws = random.Random(1)
    noise = [draws.random() for _ in range(count)]
    table = pa.Table.from_arrays(
        [
            pa.array(range(count), pa.int64()),
            pa.array(noise),
            pa.array([value if i % 5 else None for i, value in enumerate(noise)], pa.float64()),
            pa.array([str(value) for value in noise]),
            pa.array([[value] for value in noise], pa.list_(pa.float64())),
        ],
        schema=arrow_schema(fields),
    )
    store = MemoryStore()
    write(store, "a.parquet", fields, table, compression=codec, row_group_rows=2_100)
    with pq.ParquetFile(store.open_input("a.parquet")) as file:
        metadata = file.metadata
        found = [
            [metadata.row_group(group).column(i).compression for i in range(5)] for group in (0, 1)
        ]

    assert found == [[codec.upper(), "UNCOMPRESSED", "UNCOMPRESSED", *[codec.upper()] * 2]] * 2
    assert pa.Table.from_batches(read_file(store, "a.parquet", fields=fields)).equals(table)


@pytest.mark.parametrize("row_group_rows", [1, 100])
def test_null_in_a_column_that_may_not_be_null_is_refused_and_leaves_no_file(
    store: Store, folder: str, row_group_rows: int
) -> None:
    fields = fields_of(["INT NOT NULL"])
    path = f"{folder}/a.parquet"
    writer = open_writer(store, path, fields, WriteFormat(row_group_rows=row_group_rows))
    rows = pa.Table.from_arrays([pa.array([1, None], pa.int32())], names=["c0"])

    def write_and_close() -> None:
        writer.write(rows)
        writer.close()

    with pytest.raises(InvalidRequest, match=r"a\.parquet"):
        write_and_close()
    writer.abort()
    assert not store.exists(path)


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (pa.large_string(), "STRING"),
        (pa.string_view(), "STRING"),
        (pa.dictionary(pa.int32(), pa.string()), "STRING"),
        (pa.large_binary(), "BYTES"),
        (pa.int64(), "INT"),
        (pa.timestamp("us"), "TIMESTAMP(3)"),
        (pa.timestamp("ns"), "TIMESTAMP(9)"),
        (pa.timestamp("us", "Asia/Shanghai"), "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        (pa.timestamp("us"), "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        (pa.time64("us"), "TIME(3)"),
        (pa.decimal128(20, 2), "DECIMAL(9, 2)"),
        (pa.large_list(pa.int32()), "ARRAY<INT>"),
        (pa.list_(pa.struct([("key", pa.int32()), ("value", pa.int64())])), "MAP<INT, BIGINT>"),
    ],
    ids=str,
)
def test_layouts_of_other_writers_become_those_of_the_type(
    tmp_path: Path, stored: pa.DataType, wanted: str
) -> None:
    field = Field(id=0, name="c0", type=parse_type(wanted))
    sample = {
        "STRING": "a", "BYTES": b"a", "INT": 5, "TIME(3)": 0,
        "DECIMAL(9, 2)": Decimal("1.25"), "ARRAY<INT>": [1],
        "MAP<INT, BIGINT>": [{"key": 1, "value": 2}],
    }.get(wanted, 1_000_000)  # fmt: skip
    values = pa.array([sample, None], arrow_type(field.type) if "view" in str(stored) else None)
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"c0": values.cast(stored) if values.type != stored else values}), path)
    result = read(LocalStore(), path, [field])

    result.validate(full=True)
    assert result["c0"].null_count == 1


# --- ORC and Avro ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stamp", ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"])
def test_orc_refuses_timestamps_that_arrow_could_not_read_back(stamp: str) -> None:
    fields = fields_of(["TIMESTAMP(6)"])
    table = table_of(fields, [[stamp]])

    with pytest.raises(InvalidRequest, match=r"a\.orc"):
        write(MemoryStore(), "a.orc", fields, table)


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("TIMESTAMP(3)", "1969-12-31T23:59:59.999"),
        ("TIMESTAMP(9)" + _LTZ, "1700-01-01T00:00:00.000000001"),
        ("ARRAY<TIMESTAMP(6)>", ["1969-12-31T23:59:59.999999"]),
    ],
)
def test_orc_refuses_fractions_of_seconds_before_1970(type_name: str, value: object) -> None:
    fields = fields_of([type_name])
    table = table_of(fields, [[value]])

    with pytest.raises(Unsupported, match=r"before 1970.*column=c0"):
        write(MemoryStore(), "a.orc", fields, table)


@pytest.mark.parametrize("type_name", ["TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(6)" + _LTZ])
@pytest.mark.parametrize("value", ["1500-01-01T00:00:00", "9999-12-31T23:59:59"])
def test_orc_refuses_years_that_nanoseconds_do_not_reach(type_name: str, value: str) -> None:
    fields = fields_of([type_name])
    table = table_of(fields, [[value]])

    with pytest.raises(InvalidRequest, match=rf"1677 to 2262; .*column=c0 value={value[:4]}"):
        write(MemoryStore(), "a.orc", fields, table)


@pytest.mark.parametrize("far", [253_402_300_800_000_000, 2**63 - 1000, -(2**62) - 1])
def test_orc_refuses_years_that_python_has_not(far: int) -> None:
    fields = fields_of(["TIMESTAMP(6)"])
    column = pa.array([far], pa.int64()).cast(pa.timestamp("us"))

    with pytest.raises((InvalidRequest, Unsupported), match=r"ORC files cannot .*column=c0 value="):
        write(MemoryStore(), "a.orc", fields, pa.table([column], names=["c0"]))


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("ROW<s ROW<a INT>>", {"s": None}),
        ("ARRAY<ROW<s ROW<a INT>>>", [{"s": {"a": 1}}, {"s": None}]),
        ("MAP<INT, ROW<s ROW<a INT>>>", [(1, {"s": None})]),
    ],
)
def test_orc_refuses_a_null_row_inside_a_row(type_name: str, value: object) -> None:
    fields = fields_of([type_name])
    schema = arrow_schema(fields)
    table = pa.Table.from_arrays([pa.array([value], schema.types[0])], schema=schema)

    with pytest.raises(Unsupported, match=r"null ROW inside a ROW.*column=c0"):
        write(MemoryStore(), "a.orc", fields, table)


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@pytest.mark.parametrize("rows", [(1, 3), (2, 1), (0, 2), (3, 1)], ids=str)
def test_slices_of_nested_columns_are_written_as_they_are(
    format_name: str, rows: tuple[int, int]
) -> None:
    fields, table = example_table(format_name)
    store = MemoryStore()
    path = f"a.{format_name}"
    write(store, path, fields, table.slice(*rows))

    assert read(store, path, fields).to_pylist() == table.slice(*rows).to_pylist()


@pytest.mark.parametrize("format_name", ["parquet", "orc", "avro"])
def test_batches_end_at_their_bytes(tmp_path: Path, format_name: str) -> None:
    fields = fields_of(["INT NOT NULL", "STRING"])
    # Of rows alike a codec leaves next to nothing: the size of the file does not tell theirs.
    table = pa.table([range(8_000), ["x" * 2_000] * 8_000], schema=arrow_schema(fields))
    store, path = LocalStore(), str(tmp_path / f"a.{format_name}")
    write(store, path, fields, table)
    sizes, at = [], 0
    for position, batch in read_positions(store, path, fields=fields, batch_bytes=1 << 20):
        assert position == at
        at += batch.num_rows
        sizes.append(size_of(batch))

    assert at == table.num_rows
    assert max(sizes) <= 1.25 * (1 << 20)
    assert len(sizes) <= 100


@pytest.mark.parametrize("format_name", ["parquet", "orc", "avro"])
def test_a_null_taken_into_a_row_of_not_null_parts_is_written(format_name: str) -> None:
    types = [
        "ROW<a STRING NOT NULL, b ROW<c INT NOT NULL> NOT NULL, d ARRAY<INT NOT NULL> NOT NULL>",
        "ARRAY<ROW<a DECIMAL(5, 2) NOT NULL, b MAP<STRING, ROW<c BOOLEAN NOT NULL>>>>",
    ]
    fields = fields_of(types)
    values = [["x", [1], [1, 2]], [["1.50", [["k", [True]]]], None]]
    table = table_of(fields, [values, [None, [["2.50", [["k", None]]]]]])
    # Nulls that are taken have null parts, NOT NULL or not.
    taken = table.take(pa.array([None, 1, 0, None], pa.int64()))
    store = MemoryStore()

    write(store, f"a.{format_name}", fields, taken)

    assert read(store, f"a.{format_name}", fields).to_pylist() == taken.to_pylist()


def test_parquet_refuses_a_null_in_a_not_null_part() -> None:
    row = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.int32())])
    values = pa.StructArray.from_arrays(
        [pa.array([1, None], pa.int32()), pa.array([1, 2], pa.int32())], fields=list(row)
    )
    fields = fields_of(["ROW<a INT NOT NULL, b INT>"])

    with pytest.raises(InvalidRequest, match="non-nullable"):
        write(MemoryStore(), "a.parquet", fields, pa.table([values], schema=arrow_schema(fields)))


def test_orc_columns_carry_their_ids() -> None:
    from pyarrow import orc

    fields = fields_of(["INT", "ARRAY<STRING>"])
    store = MemoryStore()
    write(store, "a.orc", fields, arrow_schema(fields).empty_table())
    stored = orc.ORCFile(store.open_input("a.orc")).schema

    assert stored.field(0).metadata == {b"paimon.id": b"0"}
    assert stored.field(1).type.value_field.metadata == {b"paimon.id": b"536871936"}


@pytest.mark.parametrize("text", ["TIMESTAMP(7)", "TIMESTAMP(9) WITH LOCAL TIME ZONE", "TIME(6)"])
def test_avro_refuses_what_paimon_refuses(text: str) -> None:
    with pytest.raises(Unsupported, match="Avro has TIME"):
        open_writer(MemoryStore(), "a.avro", fields_of([text]), WriteFormat(format="avro"))


@pytest.mark.parametrize("table_name", ["table", "table-head"])
def test_avro_schema_is_the_one_that_java_writes(table_name: str) -> None:
    table = FIXTURES / "pk_dedup_delete_avro" / table_name
    path = str(next(table.rglob("data-*.avro")))
    fields = physical_fields(file_columns(LocalStore(), path), newest_fields(table))
    store = MemoryStore()
    write(store, "ours.avro", fields, arrow_schema(fields).empty_table())
    theirs = avro_schema_of(LocalStore().read(path))

    assert avro_schema_of(store.read("ours.avro")) == (
        theirs[1] if isinstance(theirs, list) else theirs
    )


def avro_schema_of(data: bytes) -> Any:
    import io

    import fastavro

    return plain(json.loads(fastavro.reader(io.BytesIO(data)).metadata["avro.schema"]))


def plain(schema: Any) -> Any:
    """An Avro schema with names in full, as fastavro writes them; Java splits off the namespace."""
    if isinstance(schema, list):
        return [plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: plain(part) for key, part in schema.items() if key not in {"namespace", "doc"}}
    if schema.get("type") == "record":
        out["name"] = schema["name"].rpartition(".")[2]
    return out


# --- what others wrote ----------------------------------------------------------------------------


def newest_fields(table: Path) -> tuple[Field, ...]:
    newest = max((table / "schema").iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
    return tuple(parse_field(field) for field in json.loads(newest.read_text())["fields"])


def physical_fields(columns: Sequence[str], fields: Sequence[Field]) -> list[Field]:
    """The fields of a file's columns, system columns included."""
    by_name = {field.name: field for field in fields}
    system = {
        SEQUENCE_NUMBER: "BIGINT NOT NULL",
        VALUE_KIND: "TINYINT NOT NULL",
        "_ROW_ID": "BIGINT",
    }
    out: list[Field] = []
    for name in columns:
        if name in system:
            out.append(Field(id=2**31 - 2, name=name, type=parse_type(system[name])))
        elif name.startswith(KEY_PREFIX):
            key = by_name[name.removeprefix(KEY_PREFIX)]
            out.append(Field(id=key.id, name=name, type=with_nullable(key.type, nullable=False)))
        else:
            out.append(by_name[name])
    return out


def table_folder(path: Path) -> Path:
    return next(folder for folder in path.parents if folder.name in {"table", "table-head"})


def fields_with(columns: Sequence[str], table: Path) -> tuple[Field, ...]:
    """The fields of the first schema that has just these columns, of whichever branch."""
    own = {name for name in columns if not name.startswith("_")}
    for path in sorted(table.rglob("schema/schema-*")):
        fields = tuple(parse_field(field) for field in json.loads(path.read_text())["fields"])
        if {field.name for field in fields} == own:
            return fields
    raise AssertionError(columns)


@pytest.mark.parametrize("fixture", sorted(path.name for path in FIXTURES.iterdir()))
def test_every_data_file_of_java_is_read(fixture: str) -> None:
    store = LocalStore()
    for path in sorted((FIXTURES / fixture).rglob("bucket-*/*")):
        if path.suffix.removeprefix(".") not in FORMATS:
            continue
        if fixture == "schema_evolution":  # its files need their own schema: plan/test_evolution.py
            continue
        columns = file_columns(store, str(path))
        fields = physical_fields(columns, fields_with(columns, table_folder(path)))
        result = read(store, str(path), fields)

        result.validate(full=True)
        assert result.num_rows > 0


def test_copies_of_columns_are_encoded_once_and_read_like_others() -> None:
    types = ["BIGINT NOT NULL", "TIMESTAMP(9) NOT NULL", "STRING"]
    one, two, text = fields_of(types)
    keys = [replace(one, id=101, name="_KEY_one"), replace(two, id=102, name="_KEY_two")]
    fields = [*keys, replace(text, name="text"), replace(one, name="one"), replace(two, name="two")]
    copies = (("_KEY_one", "one"), ("_KEY_two", "two"))
    wanted = WriteFormat(copies=copies, row_group_rows=3_000)
    numbers = pa.array(range(10_000))
    times = numbers.cast(pa.timestamp("ns"))
    rows = pa.table(
        [numbers, times, numbers.cast(pa.string()), numbers, times],
        names=[field.name for field in fields],
    )
    store = MemoryStore()
    writer = open_writer(store, "f/a.parquet", fields, wanted)
    for start in range(0, 10_000, 700):
        writer.write(rows.slice(start, 700))
    size_bytes, row_count = writer.close()

    assert (size_bytes, row_count) == (len(store.read("f/a.parquet")), 10_000)
    read = pa.Table.from_batches(read_file(store, "f/a.parquet", fields=fields))
    assert read.cast(rows.schema).equals(rows)
    metadata = pq.read_metadata(pa.BufferReader(store.read("f/a.parquet")))
    assert [metadata.schema.column(i).physical_type for i in (1, 4)] == ["INT96", "INT96"]


def test_copy_of_a_column_is_not_that_of_a_field_inside_another_of_its_name() -> None:
    one, row, dotted, outer = fields_of(
        ["BIGINT NOT NULL", "ROW<id STRING, x INT>", "STRING NOT NULL", "ROW<b INT>"]
    )
    fields = [
        replace(one, id=101, name="_KEY_id"),
        replace(dotted, id=102, name="_KEY_a.b"),
        replace(row, name="row"),
        replace(outer, name="a"),
        replace(dotted, name="a.b"),
        replace(one, name="id"),
    ]
    numbers, texts = pa.array([1, 2], pa.int64()), pa.array(["p", "q"])
    rows = pa.table(
        [
            numbers,
            texts,
            pa.array([{"id": "r", "x": 1}, None], arrow_type(row.type)),
            pa.array([{"b": 7}, {"b": 8}], arrow_type(outer.type)),
            texts,
            numbers,
        ],
        names=[field.name for field in fields],
    )
    store = MemoryStore()
    copies = (("_KEY_id", "id"), ("_KEY_a.b", "a.b"))
    writer = open_writer(store, "f/a.parquet", fields, WriteFormat(copies=copies))
    writer.write(rows)
    writer.close()

    data = pa.BufferReader(store.read("f/a.parquet"))
    assert pq.read_table(data).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_file_that_a_full_disk_refuses_at_its_first_byte_is_removed(
    tmp_path: Path, name: str
) -> None:
    path = f"{tmp_path}/bucket-0/file.{name}"
    (tmp_path / "bucket-0").mkdir()
    Path(path).symlink_to("/dev/full")
    descriptors = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises(StorageError) as caught:
        open_writer(
            LocalStore(),
            path,
            [parse_field({"id": 0, "name": "a", "type": "INT"})],
            WriteFormat(format=name),
        ).close()
    assert LocalStore().list(f"{tmp_path}/bucket-0") == ()
    # As long as somebody holds the error, too.
    assert caught.value is not None
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_second_that_orc_has_too_many_is_taken_off(unit: str) -> None:
    """Java's file of a partition in the last second before 1970 says a second later."""
    precision = {"ms": 3, "us": 6, "ns": 9}[unit]
    fields = [Field(id=0, name="p", type=parse_type(f"TIMESTAMP({precision})"))]
    store, kind = MemoryStore(), pa.timestamp(unit)
    stored = pa.array([500, 500, None], pa.timestamp("ms")).cast(kind)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"p": stored}), sink)
    store.put("p.parquet", sink.getvalue().to_pybytes())

    def held(value: int | None) -> list[int | None]:
        scalar = pa.scalar(value, pa.timestamp("ms")).cast(kind)
        read = read_positions(store, "p.parquet", fields=fields, known={"p": scalar})
        ((_, batch),) = read
        found: list[int | None] = batch.column(0).cast(pa.timestamp("ms")).cast("int64").to_pylist()
        return found

    assert held(-500) == [-500, -500, None]
    assert held(500) == held(0) == held(-1500) == held(None) == [500, 500, None]


@pytest.mark.parametrize("file_format", FORMAT_NAMES)
def test_column_that_a_file_lacks_has_the_value_that_is_known(file_format: str) -> None:
    fields = fields_of(["INT", "STRING", "STRING"])
    stored, first, second = fields
    store, path = MemoryStore(), f"a.{file_format}"
    write(store, path, [stored], table_of([stored], [[1], [2]]))
    known = {first.name: pa.scalar("x"), second.name: pa.scalar(None, pa.string())}

    def held(*wanted: Field) -> list[dict[str, Any]]:
        found = read_positions(store, path, fields=wanted, known=known)
        return [row for _, batch in found for row in batch.to_pylist()]

    both = {first.name: "x", second.name: None}
    assert held(*fields) == [{stored.name: 1, **both}, {stored.name: 2, **both}]
    assert held(first, second) == [both, both]


def test_blanks_behind_a_char_do_not_count_in_orc() -> None:
    kinds = ["CHAR(5)", "VARCHAR(5)", "ROW<`x` CHAR(5)>", "ARRAY<CHAR(5)>", "MAP<INT, CHAR(5)>"]
    fields = fields_of(kinds)
    text = "ab   "
    rows: list[list[Any]] = [
        [text, text, [text], [text, None], [[1, text]]],
        ["\t ", " x", None, [], [[2, ""]]],
    ]
    store = MemoryStore()

    def held(file_format: str) -> list[dict[str, Any]]:
        path = f"a.{file_format}"
        write(store, path, fields, table_of(fields, rows))
        return [row for batch in read_file(store, path, fields=fields) for row in batch.to_pylist()]

    bare: list[list[Any]] = [
        ["ab", text, ["ab"], ["ab", None], [[1, "ab"]]],
        ["\t", " x", None, [], [[2, ""]]],
    ]
    assert held("orc") == table_of(fields, bare).to_pylist()
    assert held("parquet") == held("avro") == table_of(fields, rows).to_pylist()


def test_text_of_a_partition_has_the_blanks_that_orc_does_not_hold() -> None:
    (field,) = fields = fields_of(["CHAR(5)"])
    store = MemoryStore()
    write(store, "a.orc", fields, table_of(fields, [["ab   "]]))
    known = {field.name: pa.scalar("ab   ")}

    ((_, batch),) = read_positions(store, "a.orc", fields=fields, known=known)
    assert batch.column(0).to_pylist() == ["ab   "]


PARTS = {
    "ROW<`a` INT, `b` STRING>": [{"b": "B", "x": 1.5, "a": 1}, None],
    "ARRAY<ROW<`a` INT, `b` STRING>>": [[{"b": "B", "x": 1.5, "a": 1}, None], []],
    "MAP<INT, ROW<`a` INT, `b` STRING>>": [[(7, {"b": "B", "x": 1.5, "a": 1})], None],
    "ROW<`b` ROW<`a` INT, `b` STRING>>": [{"b": {"b": "B", "x": 1.5, "a": 1}}],
}


def foreign_file(file_format: str, part: pa.DataType, type_name: str) -> tuple[MemoryStore, str]:
    """A file that another program wrote, with this struct in the column c0."""
    kind = {"R": part, "A": pa.list_(part), "M": pa.map_(pa.int32(), part)}[type_name[0]]
    kind = pa.struct([("b", part)]) if type_name.startswith("ROW<`b`") else kind
    table = pa.table({"c0": pa.array(PARTS[type_name], kind)})
    sink = pa.BufferOutputStream()
    if file_format == "orc":
        orc.write_table(table, sink)
    else:
        pq.write_table(table, sink)
    store, path = MemoryStore(), f"a.{file_format}"
    assert store.put_if_absent(path, sink.getvalue().to_pybytes())
    return store, path


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("type_name", PARTS)
def test_parts_of_a_row_are_found_by_their_names(type_name: str, file_format: str) -> None:
    fields = fields_of([type_name])
    part = pa.struct([("b", pa.string()), ("x", pa.float64()), ("a", pa.int16())])
    store, path = foreign_file(file_format, part, type_name)
    (batch,) = read_file(store, path, fields=fields)

    assert batch.schema == arrow_schema(fields)
    assert str(batch.column(0).to_pylist()) == str(PARTS[type_name]).replace(
        "'x': 1.5, ", ""
    ).replace("{'b': 'B', 'a': 1}", "{'a': 1, 'b': 'B'}")


@pytest.mark.parametrize("type_name", PARTS)
def test_part_that_a_file_lacks_is_null_in_orc_and_refused_in_parquet(type_name: str) -> None:
    fields = fields_of([type_name])
    part = pa.struct([("b", pa.string())])
    (batch,) = read_file(*foreign_file("orc", part, type_name), fields=fields)

    assert "{'a': None, 'b': 'B'}" in str(batch.column(0).to_pylist())
    with pytest.raises(CorruptTable, match="another type than its schema says"):
        list(read_file(*foreign_file("parquet", part, type_name), fields=fields))
    required = fields_of([type_name.replace("INT, `b`", "INT NOT NULL, `b`")])
    with pytest.raises(CorruptTable, match="another type than its schema says"):
        list(read_file(*foreign_file("orc", part, type_name), fields=required))


def test_file_is_whole_if_its_rows_outgrow_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_write, "_ROOM_LEAST_BYTES", 0)
    monkeypatch.setattr(parquet_write, "_ROOM_A_COLUMN_BYTES", 0)
    fields, table = numbers(1_000)
    store = MemoryStore()
    size_bytes, rows = write(store, "f/a.parquet", fields, table, compression="none")

    assert (size_bytes, rows) == (store.size("f/a.parquet"), 1_000)
    assert read(store, "f/a.parquet", fields).equals(table)


@pytest.mark.parametrize("most", [0, 1 << 30])
def test_large_row_group_is_written_before_the_next_is_made(
    most: int, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_write, "_UNDER_WAY_BYTES", most)
    fields, table = numbers(1_000)
    appended: list[int] = []
    add = FooterJoin.add

    def noted(join: FooterJoin, part: memoryview, *texts: Any) -> list[bytes]:
        appended.append(len(part))
        return add(join, part, *texts)  # type: ignore[return-value]

    monkeypatch.setattr(FooterJoin, "add", noted)
    writer = ParquetWriter(
        LocalStore(), f"{folder}/a.parquet", fields, WriteFormat(row_group_rows=1_000)
    )
    writer.write(table)
    assert len(appended) == (0 if most else 1)
    writer.close()
    assert read(LocalStore(), f"{folder}/a.parquet", fields).equals(table)
