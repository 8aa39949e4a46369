from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.errors import CorruptTable
from lakecore.format.parquet_footer import read_struct, write_struct


def footer(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    data: bytes = out.getvalue().to_pybytes()
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


def test_footer_is_written_as_it_was_read() -> None:
    # More than fourteen columns: the length of the list takes a byte of its own.
    data = footer(pa.table({f"c{at}": [at, None] for at in range(20)}))

    struct, end = read_struct(memoryview(data), 0)
    out = bytearray()
    write_struct(out, struct)

    assert end == len(data)
    assert bytes(out) == data


def test_wire_type_that_is_none_is_a_corrupt_table() -> None:
    with pytest.raises(CorruptTable):
        read_struct(memoryview(b"\x1e\x00"), 0)
