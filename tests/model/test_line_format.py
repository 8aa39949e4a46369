from __future__ import annotations

import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.line_format import line_format
from lakecore.options import parse_options


def test_other_formats_have_no_lines() -> None:
    assert line_format("parquet", ["a"], parse_options({})) is None


def test_options_say_how_lines_are_made() -> None:
    options = parse_options(
        {
            "csv.field-delimiter": ";",
            "csv.quote-character": "'",
            "csv.escape-character": "|",
            "csv.null-literal": "-",
            "csv.include-header": "true",
            "csv.line-delimiter": "\r\n",
        }
    )
    found = line_format("csv", ["a", "b"], options)

    assert found is not None
    assert (found.columns, found.separator, found.quote, found.escape) == (
        ("a", "b"),
        ";",
        "'",
        "|",
    )
    assert (found.null_text, found.header, found.line_end) == ("-", True, "\r\n")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *(
            ("csv.field-delimiter", "||"),
            ("csv.quote-character", ""),
            ("csv.escape-character", "é"),
        ),
        *(("csv.line-delimiter", ";"), ("json.line-delimiter", "x"), ("text.line-delimiter", "")),
    ],
)
def test_what_java_would_misread_is_unsupported(key: str, text: str) -> None:
    options = parse_options({key: text}, table="d.t")

    with pytest.raises(Unsupported, match=rf"option={key} .*table=d\.t"):
        line_format(key.partition(".")[0], ["a"], options)


def test_what_stands_for_null_has_no_special_characters() -> None:
    with pytest.raises(InvalidRequest, match=r"option=csv\.null-literal"):
        line_format("csv", ["a"], parse_options({"csv.null-literal": "a,b"}))


@pytest.mark.parametrize("key", ["csv.field-delimiter", "csv.escape-character"])
def test_characters_that_cannot_be_told_apart_are_refused(key: str) -> None:
    with pytest.raises(InvalidRequest, match="must differ"):
        line_format("csv", ["a"], parse_options({key: '"'}))
