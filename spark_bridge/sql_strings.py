r"""Strings of Spark's SQL that lakecore's tokenizer would read in another way.

In a string, Spark reads a backslash as an escape: `'it\\'s'` is one string. lakecore's tokenizer
has DuckDB's rules. It therefore sees a text in which such strings are masked, at the same places.
A statement without expressions (CREATE TABLE) instead gets plain strings with the values that Spark
reads.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakecore import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["masked", "plain", "require_plain", "spelled_string", "unmasked"]

_SPARK = re.compile(
    r"""
      --[^\n]* | /\*.*?\*/ | `(?:[^`]|``)*`
    | (?P<raw>[rR](?:'[^']*'|"[^"]*")) | \w+
    | (?P<string>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
    """,
    re.VERBOSE | re.DOTALL,
)


def masked(text: str) -> str:
    """The text, of the same length, without backslashes and what they escape."""
    if "\\" not in text:
        return text
    return _SPARK.sub(_mask, text)


def unmasked(part: str, text: str) -> str:
    """The original of a part that ends a masked text. Raises Unsupported if it does not end it."""
    if not masked(text).endswith(part):
        require_plain(text)
        return part
    head = text[: len(text) - len(part)]
    require_plain(head)
    return text[len(head) :]


def require_plain(text: str) -> None:
    """Raise Unsupported for strings that Spark and lakecore read in two ways.

    They have a backslash, or double quotes, which name a column in DuckDB.
    """
    if any((each["string"] or "").startswith('"') for each in _SPARK.finditer(text)):
        raise Unsupported(
            'Spark reads "x" as a string, and lakecore reads it as a name in this statement: write '
            "'x' for a string, `x` for a name"
        )
    if masked(text) != text:
        raise Unsupported(
            "lakecore reads no backslash in the strings of this statement, where Spark and DuckDB "
            "read two values: write a quote as '', and other characters as chr(92) || 'n'"
        )


def plain(spark: SparkSession, text: str) -> str:
    """The text with plain strings in the places of the others, of the value that Spark reads."""

    def one(found: re.Match[str]) -> str:
        literal = found["raw"] or found["string"]
        if literal is None or (literal.startswith("'") and "\\" not in literal):
            return found[0]
        value = str(spark.sql(f"SELECT {literal}").collect()[0][0])
        return "'" + value.replace("'", "''") + "'"

    return _SPARK.sub(one, text)


def spelled_string(value: str) -> str:
    """The string as a literal of Spark's SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _mask(found: re.Match[str]) -> str:
    part = found[0]
    if found["string"] is None or "\\" not in part:
        return part
    return part[0] + "x" * (len(part) - 2) + part[-1]
