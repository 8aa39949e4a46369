from __future__ import annotations

import io

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.errors import CorruptTable
from lakecore.format.parquet_footer import (
    MAGIC,
    Copy,
    FooterJoin,
    ListValue,
    read_struct,
    split,
    with_maps_as_lists,
)


def part(table: pa.Table) -> memoryview:
    out = pa.BufferOutputStream()
    # As lakecore writes: some versions of Polars read only the columns of a stored schema of Arrow.
    pq.write_table(table, out, row_group_size=max(1, table.num_rows), store_schema=False)
    return memoryview(out.getvalue())


def joined(join: FooterJoin, *tables: pa.Table) -> pa.Buffer:
    body = b"".join(bytes(data) for table in tables for data in join.add(part(table)))
    return pa.py_buffer(MAGIC + body + join.finish())


def test_parts_become_one_file_of_their_rows_in_order() -> None:
    table = pa.table({"a": range(100), "b": [f"text {i % 7}" for i in range(100)]})
    data = joined(FooterJoin("message"), *(table.slice(at, 30) for at in range(0, 100, 30)))

    assert pq.read_table(pa.BufferReader(data)).equals(table)
    metadata = pq.read_metadata(pa.BufferReader(data))
    assert metadata.num_rows == 100
    assert [metadata.row_group(i).num_rows for i in range(4)] == [30, 30, 30, 10]
    assert metadata.row_group(3).column(0).statistics.min == 90


def test_any_row_group_is_read_alone() -> None:
    table = pa.table({"a": range(100)})
    data = joined(FooterJoin("message"), table.slice(0, 50), table.slice(50))

    with pq.ParquetFile(pa.BufferReader(data)) as file:
        assert file.read_row_group(1).equals(table.slice(50))


def test_file_without_rows_has_its_columns() -> None:
    data = joined(FooterJoin("message"), pa.table({"a": pa.array([], pa.int64())}))

    assert pq.read_table(pa.BufferReader(data)).schema.names == ["a"]


def test_root_is_named_and_twelve_bytes_become_int96_without_statistics() -> None:
    table = pa.table({"t": pa.array([bytes(12), None], pa.binary(12)), "u": pa.array([1, 2])})
    metadata = pq.read_metadata(
        pa.BufferReader(joined(FooterJoin("message", frozenset({"t"})), table))
    )

    assert str(metadata.schema).splitlines()[1].startswith("required group field_id=-1 message")
    assert [metadata.schema.column(i).physical_type for i in range(2)] == ["INT96", "INT64"]
    assert metadata.row_group(0).column(0).statistics is None
    assert metadata.row_group(0).column(1).statistics.max == 2


def test_copy_of_a_column_is_read_as_a_column_of_its_own() -> None:
    texts = pa.field("b", pa.string(), metadata={"PARQUET:field_id": "2"})
    numbers = pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "1"})
    table = pa.table(
        [[f"text {i % 7}" for i in range(100)], list(range(100))],
        schema=pa.schema([texts, numbers]),
    )
    join = FooterJoin("message", copies={"_b": Copy("b", 12), "_a": Copy("a", 11)})
    data = joined(join, *(table.slice(at, 40) for at in range(0, 100, 40)))
    whole = pa.table([table["b"], table["a"], *table.columns], names=["_b", "_a", "b", "a"])

    assert pq.read_table(pa.BufferReader(data)).equals(whole)
    assert pl.read_parquet(data.to_pybytes()).equals(pl.DataFrame(pl.from_arrow(whole)))
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        assert file.read_row_group(2, columns=["_a", "b"])["_a"].to_pylist() == [*range(80, 100)]
        ids = [int(node.metadata[b"PARQUET:field_id"]) for node in file.schema_arrow]
        metadata = file.metadata
    assert ids == [12, 11, 2, 1]
    assert metadata.row_group(2).column(1).statistics.max == 99
    ends = len(MAGIC)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = [group.column(i) for i in range(group.num_columns)]
        for chunk in chunks:
            # Each lies where the one before it ends.
            begin = chunk.dictionary_page_offset or chunk.data_page_offset
            assert begin == ends
            ends += chunk.total_compressed_size
        assert group.total_byte_size == sum(chunk.total_uncompressed_size for chunk in chunks)


@pytest.mark.parametrize("data", [b"", MAGIC, MAGIC + bytes(20), bytes(20) + MAGIC])
def test_what_is_no_whole_file_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptTable, match="not a whole Parquet file"):
        split(memoryview(data))


def test_maps_are_lists_of_entries_in_a_footer_made_for_it() -> None:
    kind = pa.map_(pa.string(), pa.map_(pa.int32(), pa.int64()))
    file = part(pa.table({"k": [1, 2], "m": pa.array([[("a", [(1, 2)])], None], kind)}))
    length = int.from_bytes(file[-8:-4], "little")

    alone = with_maps_as_lists(file[-8 - length : -8].cast("B"))
    opened = pq.ParquetFile(
        pa.BufferReader(file), metadata=pq.read_metadata(pa.BufferReader(alone))
    )

    assert opened.read().to_pylist() == [
        {"k": 1, "m": [{"key": "a", "value": [{"key": 1, "value": 2}]}]},
        {"k": 2, "m": None},
    ]


def test_row_groups_that_are_numbered_are_numbered_anew() -> None:
    join, numbered = FooterJoin("message"), b""
    for at in (0, 10):
        out = io.BytesIO()
        pl.DataFrame({"a": range(at, at + 10)}).write_parquet(out)
        numbered += b"".join(bytes(data) for data in join.add(memoryview(out.getvalue())))
    data = MAGIC + numbered + join.finish()

    assert pq.read_table(io.BytesIO(data))["a"].to_pylist() == [*range(20)]
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(memoryview(data)[-8 - length : -8], 0)
    (groups,) = (value for id_, _, value in footer if id_ == 4)
    assert isinstance(groups, ListValue)
    ordinals = [value for group in groups.items for id_, _, value in group if id_ == 7]  # type: ignore[union-attr,misc]
    assert ordinals == [0, 1]
