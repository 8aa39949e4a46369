"""Elements: what enters one is text, whatever it holds."""

from __future__ import annotations

import re

import pytest

from lakecore.ui.html import address, ago, facts, moment, records, table, tag


def test_text_and_attributes_are_escaped_and_elements_are_kept() -> None:
    inner = tag("b", "<i>")

    assert inner == "<b>&lt;i&gt;</b>"
    assert tag("p", inner, None, "a\u202eb", class_="x", title='"><script>', hidden=None) == (
        '<p class="x" title="&quot;&gt;&lt;script&gt;"><b>&lt;i&gt;</b>a\\u202eb</p>'
    )
    assert tag("input", value="\"'&", required=True, autofocus=False) == (
        '<input value="&quot;&#x27;&amp;" required>'
    )


def test_a_table_shows_counts_with_separators_and_nothing_for_a_missing_value() -> None:
    text = table(("<n>",), [(1234567,), (None,), (True,), (0.5,)])

    assert '<th scope="col">&lt;n&gt;</th>' in text
    assert '<td class="n">1,234,567</td>' in text
    assert "<td></td>" in text
    assert "<td>True</td>" in text
    assert facts({"a": "", "b": None, "c": 0}, place="f").count("<tr>") == 1


def test_records_are_shown_by_the_units_of_their_keys() -> None:
    rows: list[dict[str, object]] = [
        {"name": "a", "size_bytes": None, "error": "x"},
        {"name": "b", "size_bytes": 2048, "error": None, "time_ms": 0, "lag_seconds": 90.0},
    ]
    text = records(rows, place="r", name=lambda row: tag("b", row["name"]), error=None)

    assert re.findall(r"<th scope[^>]*>(.*?)</th>", text) == ["name", "size", "time", "lag"]
    assert re.findall(r"<td>(.*?)</td>", text) == [
        "<b>a</b>",
        "",
        "",
        "",
        "<b>b</b>",
        '<span class="whole">2.0 KiB</span>',
        '<span class="whole">1970-01-01 00:00:00 UTC</span>',
        '<span class="whole">2 min</span>',
    ]
    assert "<tbody></tbody>" in records([], place="r")
    assert "k = v" in facts({"options": {"k": "v"}}, place="f")


@pytest.mark.parametrize(
    ("parts", "query", "expected"),
    [
        ((), {}, "/"),
        (("t", "a/b?c#d%"), {}, "/t/a%2Fb%3Fc%23d%25"),
        (("t", "x.json"), {}, "/t/x%2Ejson"),
        (
            ("t", "x", "files"),
            {"partition": "a=1&b", "bucket": None},
            "/t/x/files?partition=a%3D1%26b",
        ),
    ],
)
def test_an_address_names_what_it_was_made_of(
    parts: tuple[object, ...], query: dict[str, object], expected: str
) -> None:
    assert address(*parts, **query) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7_200, "2 h"), (172_800, "2 d")],
)
def test_a_duration_has_the_largest_unit_that_fits(seconds: float, expected: str) -> None:
    assert ago(seconds) == expected


def test_a_time_beyond_the_calendar_is_a_number() -> None:
    assert moment(0) == "1970-01-01 00:00:00 UTC"
    assert moment(1 << 62) == f"{1 << 62} ms"
    assert moment(None) is None
