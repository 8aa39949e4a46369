"""Strings that Spark and lakecore read in two ways."""

from __future__ import annotations

import pytest

from lakecore import Unsupported
from spark_bridge.sql_query import masked, require_plain, unmasked


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (r"SELECT 'it\'s; x', 1", "SELECT 'xxxxxxxx', 1"),
        (r'SELECT "a\"b"', 'SELECT "xxxx"'),
        (r"SELECT r'\d', `a\b` -- it\'s", r"SELECT r'\d', `a\b` -- it\'s"),
    ],
)
def test_strings_with_a_backslash_are_masked_at_their_places(text: str, seen: str) -> None:
    assert masked(text) == seen
    assert unmasked(seen[7:], text) == text[7:]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r"DELETE FROM t WHERE v = 'it\'s'", "no backslash"),
        ('DELETE FROM t WHERE v = "v"', "as a string"),
        ('DELETE FROM t WHERE v = \'say "v"\' AND `a"b` = 1 -- "c"', None),
    ],
)
def test_statement_of_lakecore_has_no_string_that_spark_reads_otherwise(
    text: str, message: str | None
) -> None:
    if message is None:
        require_plain(text)
        return
    with pytest.raises(Unsupported, match=message):
        require_plain(text)
