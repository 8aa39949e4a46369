from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pytest

from lakecore.cdc.events import SourceTable
from lakecore.cdc.mysql.column import Definition, source_schema
from lakecore.cdc.mysql.snapshot import fitted, parsed, printed, selected
from lakecore.cdc.types.mapping import TypeMapping
from lakecore.cdc.types.mysql import parse_mysql_type
from lakecore.errors import InvalidRequest


def read(
    kind: str,
    *texts: bytes | None,
    mapping: str = "",
    zone: str = "UTC",
    nullable: bool = True,
    key: tuple[str, ...] = (),
) -> list[object]:
    """The values of a column in the target's type."""
    schema = source_schema(
        SourceTable("d", "t"),
        [Definition(name="c", type=kind, nullable=nullable)],
        key,
        None,
        TypeMapping.parse(mapping),
    )
    decode = partial(parsed, parse_mysql_type(kind), texts)
    found: list[object] = fitted(
        decode,
        partial(printed, texts),
        schema.fields[0],
        schema.arrow.field(0).type,
        zone=zone,
        exact="c" in schema.exact,
    ).to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("tinyint(1)", b"1", True),
        ("tinyint(3) unsigned", b"255", 255),
        ("bigint(20) unsigned", b"18446744073709551615", Decimal(18446744073709551615)),
        ("decimal(12,3)", b"-1.250", Decimal("-1.250")),
        ("decimal(65,2)", b"9" * 63 + b".25", "9" * 63 + ".25"),
        ("float", b"1.100000023841858", 1.100000023841858),
        ("date", b"2024-02-29", dt.date(2024, 2, 29)),
        ("date", b"0000-00-00", None),
        ("date", b"2024-00-10", None),
        ("date", b"2023-02-31", None),
        ("datetime(3)", b"2024-01-02 03:04:05.678", dt.datetime(2024, 1, 2, 3, 4, 5, 678000)),
        ("datetime", b"0000-00-00 00:00:00", None),
        ("time(2)", b"12:34:56.78", dt.time(12, 34, 56, 780000)),
        ("year(4)", b"0000", 0),
        ("bit(1)", b"\x01", True),
        ("bit(9)", b"\x01\x02", b"\x01\x02"),
        ("set('a','b')", b"a,b", ["a", "b"]),
        ("set('a','b')", b"", []),
        ("enum('a','b')", b"", ""),
        ("varchar(9)", "😀".encode(), "😀"),
        ("varbinary(9)", b"\x00\xff", b"\x00\xff"),
        ("json", b'{"a": 1}', '{"a": 1}'),
    ],
)
def test_printed_value_is_read(kind: str, text: bytes, expected: object) -> None:
    assert read(kind, text, None) == [expected, None]


def test_timestamp_is_the_local_time_of_the_server() -> None:
    summer, winter = read(
        "timestamp", b"2024-07-01 12:00:00", b"2024-01-01 12:00:00", zone="Europe/Berlin"
    )

    assert summer == dt.datetime(2024, 7, 1, 14)
    assert winter == dt.datetime(2024, 1, 1, 13)


def test_zero_date_in_a_column_that_is_not_null_is_1970() -> None:
    assert read("date", b"0000-00-00", nullable=False) == [dt.date(1970, 1, 1)]
    assert read("datetime", b"0000-00-00 00:00:00", nullable=False) == [dt.datetime(1970, 1, 1)]


@pytest.mark.parametrize("text", [b"-00:00:01", b"24:00:00", b"838:59:59"])
def test_time_beyond_a_day_is_refused_and_taken_as_text(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match="within one day"):
        read("time", text)
    assert read("time", text, mapping="to-string") == [text.decode()]


def test_everything_is_text_if_asked() -> None:
    assert read("decimal(5,2)", b"1.50", mapping="to-string") == ["1.50"]
    assert read("set('a','b')", b"a,b", mapping="to-string") == ["a,b"]
    assert read("datetime", b"2024-01-02 03:04:05", mapping="to-string") == ["2024-01-02 03:04:05"]


def test_different_keys_stay_different() -> None:
    key = ("c",)

    assert read("tinyint(1)", b"2", b"3", key=key) == [2, 3]
    assert read("time(6)", b"01:02:03.123001", b"-01:02:03", key=key) == [
        "01:02:03.123001",
        "-01:02:03",
    ]
    assert read("set('a','b')", b"a,b", key=key) == ["a,b"]
    assert read("timestamp", b"2024-10-27 00:30:00", zone="Europe/Berlin", key=key) == [
        dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC)
    ]


def test_a_key_refuses_a_date_outside_the_calendar_unless_dates_are_texts() -> None:
    for kind, text in (("date", b"2024-00-10"), ("timestamp", b"0000-00-00 00:00:00")):
        with pytest.raises(InvalidRequest, match=f"value={text[:4].decode()}"):
            read(kind, text, b"2024-01-01", key=("c",))
        shown = read(kind, text, key=("c",), mapping="key-dates-to-string")
        assert shown == [text.decode()]
    assert read("datetime(3)", b"2023-02-31 01:02:03.500", mapping="to-string") == [
        "2023-02-31 01:02:03.500"
    ]


def test_a_local_time_that_occurs_twice_is_two_texts() -> None:
    times = (b"2024-10-27 00:30:00", b"2024-10-27 01:30:00", b"2024-10-27 02:30:00")

    assert read("timestamp", *times, zone="Europe/Berlin", mapping="to-string") == [
        "2024-10-27 02:30:00",
        "2024-10-27 02:30:00+01:00",
        "2024-10-27 03:30:00",
    ]


def test_value_that_does_not_fit_names_its_column() -> None:
    with pytest.raises(InvalidRequest, match="column=c"):
        read("bigint(20) unsigned", b"18446744073709551615", mapping="bigint-unsigned-to-bigint")


def test_geometry_is_bytes() -> None:
    assert read("point", b"x") == [b"x"]
    assert read("point", b"x", mapping="to-string") == ["78"]


def test_float_is_selected_with_all_of_its_digits() -> None:
    assert selected("a`b", parse_mysql_type("float")) == "`a``b` + 0e0"
    assert selected("a", parse_mysql_type("int")) == "`a`"
    assert parsed(parse_mysql_type("float"), [b"0.1"]).type == pa.float32()


@pytest.mark.parametrize(("kind", "text"), [("date", b"\xff"), ("int(11)", b"\xff\xfe")])
def test_bytes_that_are_no_text_name_their_column(kind: str, text: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"does not fit its column.*column=c"):
        read(kind, text)
