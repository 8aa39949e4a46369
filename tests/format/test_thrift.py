from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.errors import CorruptTable
from lakecore.format.parquet_footer import (
    BOOLEAN,
    ListValue,
    Struct,
    read_struct,
    write_struct,
)

I32, DOUBLE, LIST = 5, 7, 9


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


def test_struct_of_every_kind_of_value_has_these_bytes() -> None:
    eight = bytes(range(8))
    struct: Struct = [
        (1, BOOLEAN, True),
        (16, I32, 5),
        (32, I32, -1),
        (3, DOUBLE, eight),
        (4, LIST, ListValue(BOOLEAN, [True, False])),
        (5, BOOLEAN, False),
    ]
    expected = (
        "11"  # true, one after zero
        "f50a"  # fifteen after: the most that a byte takes
        "054001"  # sixteen after: the number itself
        "0706" + eight.hex() + "19210102" + "12" + "00"
    )
    out = bytearray()
    write_struct(out, struct)

    assert out.hex() == expected
    assert read_struct(memoryview(out), 0) == (struct, len(out))


@pytest.mark.parametrize("data", ["0706" + "00" * 7, "1921" + "01", "19"])
def test_struct_that_ends_early_is_corrupt(data: str) -> None:
    with pytest.raises(CorruptTable, match="cut short"):
        read_struct(memoryview(bytes.fromhex(data)), 0)
