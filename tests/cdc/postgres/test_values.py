from __future__ import annotations

import datetime as dt
from decimal import Decimal
from struct import pack
from typing import Any

import pytest

from lakecore.cdc.events import SourceTable
from lakecore.cdc.postgres.connection import PostgresColumn, PostgresSettings, source_schema
from lakecore.cdc.postgres.stream_rows import (
    UNSENT,
    Begin,
    Change,
    End,
    Mark,
    Relation,
    StreamPlace,
    Truncation,
    array_items,
    parse,
    parsed,
)
from lakecore.cdc.types.mapping import TypeMapping
from lakecore.errors import InvalidRequest, Unsupported


def read(kind: str, *texts: str | None, modifier: int = -1, mapping: str = "") -> list[object]:
    column = PostgresColumn(name="c", type=kind, modifier=modifier)
    schema = source_schema(
        SourceTable("d", "s.t"), [column], (), None, TypeMapping.parse(mapping), identity="f"
    )
    found: list[object] = parsed(column, texts, schema.arrow.field(0).type).to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "modifier", "text", "expected"),
    [
        ("bool", -1, "t", True),
        ("bool", -1, "false", False),
        ("int8", -1, "-9223372036854775808", -(2**63)),
        ("numeric", (30 << 16 | 10) + 4, "-1.5", Decimal("-1.5000000000")),
        ("numeric", -1, "0.14285714285714285714", "0.14285714285714285714"),
        ("bpchar", 9, "ab   ", "ab"),
        ("bytea", -1, "\\x00ff", b"\x00\xff"),
        ("date", -1, "2024-02-29", dt.date(2024, 2, 29)),
        ("timestamp", 3, "2024-01-02 03:04:05.678", dt.datetime(2024, 1, 2, 3, 4, 5, 678000)),
        ("timestamptz", -1, "2024-01-02 00:00:00+00", dt.datetime(2024, 1, 2, tzinfo=dt.UTC)),
        ("time", 3, "23:59:59.999", dt.time(23, 59, 59, 999000)),
        ("bit", 1, "1", True),
        ("bit", 12, "101010101010", b"\x0a\xaa"),
        ("enum", -1, "fine", "fine"),
        ("_int4", -1, "{1,NULL,3}", [1, None, 3]),
        ("_text", -1, "{}", []),
    ],
)  # fmt: skip
def test_printed_value_is_read(kind: str, modifier: int, text: str, expected: object) -> None:
    assert read(kind, text, None, modifier=modifier) == [expected, None]


@pytest.mark.parametrize(("kind", "text"), [("date", "infinity"), ("_int4", "{{1},{2}}")])
def test_value_that_paimon_lacks_is_refused(kind: str, text: str) -> None:
    with pytest.raises(InvalidRequest):
        read(kind, text)
    assert read(kind, text, mapping="to-string") == [text]


@pytest.mark.parametrize("text", ["NaN", "0.14285714285714285714"])
def test_numeric_that_a_decimal_cannot_hold_is_refused_if_a_decimal_is_asked(text: str) -> None:
    with pytest.raises(InvalidRequest):
        read("numeric", text, mapping="bare-numeric-to-decimal")


def test_items_of_an_array_are_unquoted() -> None:
    assert array_items('{"a,b",NULL,"NULL","q\\"\\\\",x}') == ["a,b", None, "NULL", 'q"\\', "x"]


def row(*values: str | bytes | None) -> bytes:
    """The values of a row as pgoutput sends them; bytes stand for an unchanged value."""
    parts = [
        b"n" if each is None else b"u" if isinstance(each, bytes)
        else b"t" + pack(">I", len(each.encode())) + each.encode()
        for each in values
    ]  # fmt: skip
    return pack(">H", len(values)) + b"".join(parts)


def test_messages_are_read() -> None:
    relation = b"R" + pack(">I", 7) + b"s\0t\0f" + pack(">H", 1) + b"\1id\0" + pack(">Ii", 20, -1)

    assert parse(relation) == Relation(7, "s", "t", "f", (("id", 20, -1),))
    assert parse(b"I" + pack(">I", 7) + b"N" + row("1", None)) == Change(7, None, ("1", None))
    assert parse(b"D" + pack(">I", 7) + b"O" + row("1")) == Change(7, ("1",), None)
    assert parse(b"C" + pack(">BQQq", 0, 5, 9, 1_000_000)) == End(9)
    assert parse(b"B" + pack(">QqI", 5, 1_000_000, 77)) == Begin(77, 946_684_801_000)
    assert parse(b"O" + bytes(20)) is None
    with pytest.raises(Unsupported, match="not known"):
        parse(b"?")


def test_large_value_that_stayed_the_same_is_that_of_the_row_before() -> None:
    before = b"O" + row("1", "large", "x")
    update = b"U" + pack(">I", 7) + before + b"N" + row("1", b"", "y")

    assert parse(update) == Change(7, ("1", "large", "x"), ("1", "large", "y"))
    key = b"K" + row("1", None, None)
    assert parse(b"U" + pack(">I", 7) + b"N" + row("1", b"")) == Change(7, None, ("1", UNSENT))
    assert parse(b"U" + pack(">I", 7) + key + b"N" + row(b"", b"", "y")) == Change(
        7, ("1", None, None), ("1", UNSENT, "y")
    )


def test_a_snapshot_shows_what_was_committed_before_it() -> None:
    epoch = 5 << 32
    mark = Mark(least=epoch + 10, next=epoch + 20, running=(epoch + 10, epoch + 12), lsn=99)
    shown = [each for each in range(8, 24) if mark.shows(each)]

    assert shown == [8, 9, 11, *range(13, 20)]
    assert mark.shows((1 << 32) - 5), "before the numbers began again"
    assert Mark.from_json(mark.to_json()) == mark
    place = StreamPlace.from_json(StreamPlace(5, marks={"s.t": mark}).to_json())
    place.reach(98)
    assert place.marks == {"s.t": mark}
    place.reach(99)
    assert place.marks == {}


def test_truncation_names_its_tables() -> None:
    assert parse(b"T" + pack(">IBII", 2, 0, 7, 9)) == Truncation((7, 9))


CONF = {
    "hostname": "h", "username": "u", "password": "a-secret-word", "database-name": "d",
    "schema-name": "public", "table-name": "t_.*", "slot.name": "s",
}  # fmt: skip


def test_settings_are_checked() -> None:
    settings = PostgresSettings.parse(CONF)

    assert "a-secret-word" not in repr(settings)
    assert settings.publication == "s_publication"
    assert settings.takes("public", "t_1")
    assert not settings.takes("public", "x")
    for more in ({"slot.name": "A-b"}, {"port": "x"}, {"scan.startup.mode": "x"}, {"prot": "1"}):
        with pytest.raises(InvalidRequest):
            PostgresSettings.parse({**CONF, **more})
    with pytest.raises(Unsupported, match="pgoutput"):
        PostgresSettings.parse({**CONF, "decoding.plugin.name": "wal2json"})


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"lsn": None},
        {"lsn": "x"},
        {"lsn": 1, "time_ms": []},
        {"lsn": 1, "transaction": "x"},
        {"lsn": 1, "marks": {"s.t": 1}},
        {"lsn": 1, "marks": {"s.t": {"running": 1}}},
        {"lsn": 1, "marks": {"s.t": {"running": [], "least": {}, "next": 1, "lsn": 1}}},
    ],
)
def test_a_damaged_position_is_refused(stored: Any) -> None:
    with pytest.raises(InvalidRequest, match="not a position of this source"):
        StreamPlace.from_json(stored)
