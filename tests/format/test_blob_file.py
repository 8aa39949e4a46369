"""Files of BLOB values, byte by byte."""

from __future__ import annotations

import struct

import pytest

from lakecore.errors import CorruptTable, Unsupported
from lakecore.format.blob_file import (
    NULL,
    PLACEHOLDER,
    TAIL_BYTES,
    decode_index,
    index_bytes,
    value_of,
)
from tests.blob_files import SAME, blob_file

VALUES = [b"ab", None, b"", SAME, b"x" * 300]


@pytest.mark.parametrize("java", [True, False])
def test_entries_and_values(java: bool) -> None:  # noqa: FBT001
    data = blob_file(VALUES, java=java)
    length = index_bytes(data[-TAIL_BYTES:], len(data), "f")
    end = len(data) - TAIL_BYTES - length
    index = decode_index(data[end : end + length], end, len(VALUES), "f")

    assert index.lengths.tolist() == [18, NULL, 16, PLACEHOLDER, 316]
    assert index.offsets.tolist() == [0, 18, 18, 34, 34]
    stored = [at for at, each in enumerate(index.lengths) if each > 0]
    found = [data[index.offsets[at] : index.offsets[at] + index.lengths[at]] for at in stored]
    assert [value_of(entry, "f") for entry in found] == [VALUES[at] for at in stored]


def test_an_empty_file_has_no_entries() -> None:
    assert decode_index(b"", 0, 0, "f").lengths.tolist() == []


def test_damage_is_found_anywhere() -> None:
    data = blob_file([b"abc", b"d"])
    entry = data[:19]
    for at in range(len(entry)):
        with pytest.raises(CorruptTable, match="a BLOB value is damaged"):
            value_of(entry[:at] + bytes([entry[at] ^ 1]) + entry[at + 1 :], "f")
    index = data[36:-TAIL_BYTES]
    wrongs = (
        (index, 35, 2),
        (index, 36, 3),
        (index[:-1], 36, 2),
        (b"\x80", 36, 2),
        (b"\x80", 0, 0),
    )
    for wrong, values_bytes, rows in wrongs:
        with pytest.raises(CorruptTable, match="does not fit the file"):
            decode_index(wrong, values_bytes, rows, "f")
    with pytest.raises(CorruptTable, match="outside the file"):
        index_bytes(struct.pack("<iB", 100, 1), 20, "f")
    with pytest.raises(CorruptTable, match="ends early"):
        index_bytes(b"\x01", 1, "f")
    with pytest.raises(Unsupported, match="version=2"):
        index_bytes(struct.pack("<iB", 1, 2), 20, "f")
