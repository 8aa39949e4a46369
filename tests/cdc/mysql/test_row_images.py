from __future__ import annotations

import datetime as dt
from itertools import product

import pytest

from lakecore.cdc.mysql.column import Code, LoggedColumn
from lakecore.cdc.mysql.log_batches import RowImages, decimal_size
from lakecore.cdc.mysql.table_map import decoded, shown
from lakecore.errors import CorruptTable


def column(code: Code, **facts: object) -> LoggedColumn:
    return LoggedColumn(name="c", code=code, **facts)  # type: ignore[arg-type]


def value(of: LoggedColumn, stored: bytes) -> object:
    """The value of one column that is stored as these bytes, read with a null before it."""
    rows = RowImages([of, of]).cut(b"\x01" + stored, 0, 1 + len(stored))
    return decoded(of, [row[1] for row in rows]).to_pylist()[0]


CASES = [
    (column(Code.TINY), b"\xff", -1),
    (column(Code.TINY, unsigned=True), b"\xff", 255),
    (column(Code.INT24), b"\x00\x00\x80", -8388608),
    (column(Code.INT24, unsigned=True), b"\xff\xff\xff", 16777215),
    (column(Code.LONGLONG, unsigned=True), b"\xff" * 8, 18446744073709551615),
    (column(Code.YEAR), b"\x00", 0),
    (column(Code.YEAR), b"\x7c", 2024),
    (column(Code.DATE), bytes(3), None),
    (column(Code.DATE), (2024 << 9 | 2 << 5 | 29).to_bytes(3, "little"), dt.date(2024, 2, 29)),
    (column(Code.DATE), (2023 << 9 | 2 << 5 | 29).to_bytes(3, "little"), None),
    (
        column(Code.DATETIME2, precision=3),
        (1 << 39 | (2024 * 13 + 12) << 22 | 31 << 17 | 23 << 12 | 59 << 6 | 58).to_bytes(5, "big")
        + (6780).to_bytes(2, "big"),
        dt.datetime(2024, 12, 31, 23, 59, 58, 678000),
    ),
    (column(Code.DATETIME2), (1 << 39).to_bytes(5, "big"), None),
    (column(Code.TIMESTAMP2), bytes(4), None),
    (
        column(Code.TIMESTAMP2, precision=6),
        (1).to_bytes(4, "big") + (7).to_bytes(3, "big"),
        dt.datetime(1970, 1, 1, 0, 0, 1, 7, tzinfo=dt.UTC),
    ),
    (column(Code.TIME2), (0x800000 + (1 << 12)).to_bytes(3, "big"), dt.timedelta(hours=1)),
    (column(Code.TIME2), (0x800000 - (1 << 12)).to_bytes(3, "big"), dt.timedelta(hours=-1)),
    (
        column(Code.TIME2, precision=2),
        (0x80000000 - 256 - 50).to_bytes(4, "big"),
        -dt.timedelta(seconds=1.5),
    ),
    (column(Code.BIT, size=2, precision=9), b"\x01\x02", b"\x01\x02"),
    (column(Code.ENUM, size=1, values=("a", "b")), b"\x00", ""),
    (column(Code.ENUM, size=2, values=("a", "b")), b"\x02\x00", "b"),
    (column(Code.SET, size=1, values=("p", "q", "r")), b"\x05", ["p", "r"]),
    (column(Code.SET, size=1, values=("p", "q", "r")), b"\x00", []),
    (column(Code.VARCHAR, length_bytes=80, encoding="utf8"), b"\x04\xf0\x9f\x98\x80", "😀"),
    (column(Code.VARCHAR, length_bytes=300, encoding="utf8"), b"\x01\x00x", "x"),
    (column(Code.VARCHAR, length_bytes=9, encoding="cp1252"), b"\x02\x80\x81", "€\x81"),
    (column(Code.BLOB, size=4, encoding="utf8"), b"\x02\x00\x00\x00hi", "hi"),
    (column(Code.BLOB, size=1), b"\x00", b""),
    (column(Code.STRING, length_bytes=4), b"\x01\x01", b"\x01\x00\x00\x00"),
]


@pytest.mark.parametrize(("of", "stored", "expected"), CASES)
def test_stored_value_is_read(of: LoggedColumn, stored: bytes, expected: object) -> None:
    assert value(of, stored) == expected


def stored_decimal(text: str, precision: int, scale: int) -> bytes:
    """A decimal as the server stores it, digit group by digit group."""
    digits = text.lstrip("-").replace(".", "").rjust(precision, "0")[-precision:]
    whole = precision - scale
    sizes = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    stored = b""
    for size in sizes:
        part, digits = digits[:size], digits[size:]
        stored += int(part or "0").to_bytes((0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[size], "big")
    stored = bytes([stored[0] ^ 0x80]) + stored[1:]
    return bytes(each ^ 0xFF for each in stored) if text.startswith("-") else stored


@pytest.mark.parametrize(
    ("precision", "scale", "text"),
    [
        (5, 5, "-0.00001"),
        (9, 0, "-999999999"),
        (18, 9, "123456789.987654321"),
        (19, 0, "-9999999999999999999"),
        (30, 10, "-12345678901234567890.1234567891"),
        (38, 30, "12345678.123456789012345678901234567890"),
        (65, 2, "-" + "9" * 63 + ".99"),
        (12, 3, "0.000"),
    ],
)
def test_decimal_keeps_every_digit(precision: int, scale: int, text: str) -> None:
    of = column(Code.NEWDECIMAL, precision=precision, scale=scale)
    stored = stored_decimal(text, precision, scale)

    assert len(stored) == decimal_size(precision, scale)
    assert str(value(of, stored)) == text


def test_every_pattern_of_nulls_is_cut_where_its_values_end() -> None:
    columns = [
        column(Code.LONG),
        column(Code.VARCHAR, length_bytes=10),
        column(Code.TINY),
        column(Code.SHORT),
        column(Code.BLOB, size=2),
    ]
    parts = [b"\x07\0\0\0", b"\x02ab", b"\x05", b"\x09\x00", b"\x01\x00z"]
    values = [7, b"ab", 5, 9, b"z"]
    data, expected = b"", []
    for nulls in product([False, True], repeat=5):
        data += bytes([sum(1 << at for at, null in enumerate(nulls) if null)])
        data += b"".join(p for p, null in zip(parts, nulls, strict=True) if not null)
        expected.append(tuple(None if n else v for v, n in zip(values, nulls, strict=True)))

    assert RowImages(columns).cut(data, 0, len(data)) == expected


def test_row_that_ends_behind_its_event_is_damage() -> None:
    with pytest.raises(CorruptTable, match="ends behind its event"):
        RowImages([column(Code.VARCHAR, length_bytes=10)]).cut(b"\x00\x05ab", 0, 4)


@pytest.mark.parametrize(
    ("of", "stored", "text"),
    [
        (column(Code.DATE), (2024 << 9 | 10).to_bytes(3, "little"), "2024-00-10"),
        (column(Code.DATETIME2), (1 << 39).to_bytes(5, "big"), "0000-00-00 00:00:00"),
        (
            column(Code.DATETIME2, precision=3),
            (1 << 39 | (2023 * 13 + 2) << 22 | 31 << 17 | 1 << 12 | 2 << 6 | 3).to_bytes(5, "big")
            + (5000).to_bytes(2, "big"),
            "2023-02-31 01:02:03.500",
        ),
        (column(Code.TIMESTAMP2, precision=6), bytes(7), "0000-00-00 00:00:00"),
    ],
)
def test_a_date_outside_the_calendar_is_shown(of: LoggedColumn, stored: bytes, text: str) -> None:
    rows = RowImages([of, of]).cut(b"\x01" + stored, 0, 1 + len(stored))

    assert shown(of, [row[1] for row in rows]).to_pylist() == [text]
    assert shown(of, [None]).to_pylist() == [None]
