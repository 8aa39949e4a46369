"""Keys of a MAP<K, BLOB> as bytes."""

from __future__ import annotations

import struct
from datetime import date, time
from decimal import Decimal

import pytest

from lakecore.format.blob_file import key_bytes, key_of
from lakecore.model.types import parse_type


@pytest.mark.parametrize(
    ("kind", "key", "stored"),
    [
        ("BOOLEAN", True, b"\x01"),
        ("TINYINT", -1, b"\xff"),
        ("INT", 258, b"\x02\x01\x00\x00"),
        ("BIGINT", -(2**63), bytes(7) + b"\x80"),
        ("DECIMAL(5, 2)", Decimal("-1.28"), struct.pack("<q", -128)),
        ("DECIMAL(19, 2)", Decimal("-1.28"), b"\x80"),
        ("DECIMAL(19, 2)", Decimal("1.28"), b"\x00\x80"),
        ("DATE", date(1969, 12, 31), struct.pack("<i", -1)),
        ("TIME(3)", time(23, 59, 59, 999_000), struct.pack("<i", 86_399_999)),
        ("STRING", "é", b"\xc3\xa9"),
        ("BYTES", b"\x00", b"\x00"),
    ],
)
def test_key_is_stored_as_these_bytes(kind: str, key: object, stored: bytes) -> None:
    data_type = parse_type(kind)
    assert key_bytes(key, data_type) == stored
    assert key_of(stored, data_type) == key


@pytest.mark.parametrize("milliseconds", [-1, 86_400_000])
def test_a_time_beyond_its_day_is_refused(milliseconds: int) -> None:
    with pytest.raises(ValueError, match="outside its day"):
        key_of(struct.pack("<i", milliseconds), parse_type("TIME(3)"))
