from __future__ import annotations

import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest
from lakecore.format.text_lines import csv_columns, csv_header, csv_text
from lakecore.model.line_format import LineFormat

TWO = LineFormat(kind="csv", columns=("a", "b"))


def rows(*pairs: tuple[str | None, str | None]) -> pa.Table:
    columns = [pa.array([pair[at] for pair in pairs], pa.string()) for at in range(2)]
    return pa.table(columns, names=["a", "b"])


@pytest.mark.parametrize(
    ("pair", "line"),
    [
        (("1", "x"), "1,x"),
        ((None, None), ","),
        (("a,b", 'say "no"'), '"a,b","say \\"no\\""'),
        (("c:\\d", "'"), '"c:\\\\d",\''),
        ((" x ", "é中😀"), " x ,é中😀"),
    ],
)
def test_fields_with_special_characters_are_quoted(
    pair: tuple[str | None, str | None], line: str
) -> None:
    assert csv_text(rows(pair), TWO) == f"{line}\n"
    assert [each.to_pylist() for each in csv_columns([line], TWO, ["a", "b"])] == [
        [pair[0]],
        [pair[1]],
    ]


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        # A quote is escaped by a quote, too.
        ('"a""b",c', ['a"b', "c"]),
        # In the middle of a field it is text.
        ('a,bc"d"ef', ["a", 'bc"d"ef']),
        # Blanks before a quote go.
        ('a, "x"', ["a", "x"]),
        # An escape character that escapes nothing goes.
        ("a\\b,\\", ["ab", ""]),
        ("a\\,b", ["a", "b"]),
        ('"a\\"b",c', ['a"b', "c"]),
        ('"open,x', [None, None]),
        ('a,"open', ["a", None]),
        ("only", ["only", None]),
        ("a,b,c", ["a", "b"]),
        (" \t", [None, None]),
        ("\u00a0", ["\u00a0", None]),
    ],
)
def test_lines_of_others_are_read_as_java_reads_them(line: str, fields: list[str | None]) -> None:
    found = [each.to_pylist()[0] for each in csv_columns([line], TWO, ["a", "b"])]

    assert found == [None if field == "" else field for field in fields]


def test_columns_come_in_the_order_asked_for_from_lines_of_both_kinds() -> None:
    lines = ["1,x", '2,"y,z"', "3,", "4"]
    (b, a) = csv_columns(lines, TWO, ["b", "a"])

    assert a.to_pylist() == ["1", "2", "3", "4"]
    assert b.to_pylist() == ["x", "y,z", None, None]
    assert csv_columns(lines, TWO, []) == []


@pytest.mark.parametrize("text", ["", "a\nb", "a\rb"])
def test_a_value_that_would_be_lost_is_refused_and_named(text: str) -> None:
    with pytest.raises(InvalidRequest, match="column=b"):
        csv_text(rows(("1", "x"), ("2", text)), TWO)


@pytest.mark.parametrize(("a", "b"), [("\ufeffx", "y"), ("\ufeff", None)])
def test_a_line_that_begins_like_a_file_is_refused(a: str, b: str | None) -> None:
    with pytest.raises(InvalidRequest, match="beginning of a file"):
        csv_text(rows((a, b)), TWO)


def test_a_line_of_blanks_is_refused_unless_it_means_nulls() -> None:
    tabs = LineFormat(kind="csv", columns=("a", "b"), separator="\t")

    assert csv_text(rows((None, None)), tabs) == "\t\n"
    with pytest.raises(InvalidRequest, match="takes the line for nulls"):
        csv_text(rows((" ", None)), tabs)


def test_another_null_text_lets_empty_texts_be() -> None:
    named = LineFormat(kind="csv", columns=("a", "b"), null_text="NULL")

    assert csv_text(rows(("", None)), named) == ",NULL\n"
    assert [each.to_pylist() for each in csv_columns([",NULL"], named, ["a", "b"])] == [
        [""],
        [None],
    ]
    with pytest.raises(InvalidRequest, match="column=a value=NULL"):
        csv_text(rows(("NULL", None)), named)


def test_a_header_is_quoted_like_a_row() -> None:
    named = LineFormat(kind="csv", columns=("a", "b,c"), line_end="\r\n")

    assert csv_header(named) == 'a,"b,c"\r\n'
