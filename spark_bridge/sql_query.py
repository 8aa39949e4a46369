"""Runs queries of Spark SQL over attached tables, with time travel and system tables.

Spark's planner refuses `VERSION AS OF`, `TIMESTAMP AS OF` and `t$snapshots` for a Python source.
These parts of the text are replaced by frames of `spark_bridge.read`; the rest is passed to Spark
unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore import InvalidRequest
from lakecore.distributed.planning import SYSTEM_TABLES
from lakecore.distributed.sql import Kind, tokenize
from spark_bridge.attached_names import attached_table
from spark_bridge.read_frame import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakecore import Table
    from lakecore.distributed.sql import Token

__all__ = ["query"]

_NAMES = {Kind.WORD, Kind.QUOTED}
_UNITS = {"VERSION": "VERSION", "SYSTEM_VERSION": "VERSION"} | dict.fromkeys(
    ("TIMESTAMP", "SYSTEM_TIME"), "TIMESTAMP"
)


def query(spark: SparkSession, text: str) -> DataFrame:
    """The rows of a query."""
    tokens = tokenize(text)
    pieces: list[str] = []
    frames: dict[str, DataFrame] = {}
    copied = place = 0
    while tokens[place].kind is not Kind.END:
        chain, end = _chain(text, tokens, place)
        found = None if not chain else _state(spark, text, tokens, chain, end)
        if found is None:
            place = max(end, place + 1)
            continue
        frame, last = found
        name = f"lakecore_{len(frames)}"
        frames[name] = frame
        pieces += [_literal(text[copied : tokens[place].start]), "{", name, "}"]
        copied = tokens[last].end
        place = last + 1
    if not frames:
        return spark.sql(text)
    return spark.sql("".join([*pieces, _literal(text[copied:])]), **frames)


def _literal(text: str) -> str:
    """The text with doubled braces: `spark.sql` reads single ones as placeholders of frames."""
    return text.replace("{", "{{").replace("}", "}}")


def _chain(text: str, tokens: Sequence[Token], place: int) -> tuple[list[str], int]:
    """The names separated by dots that start at a token, and the index of the token after them."""
    names: list[str] = []
    while tokens[place].kind in _NAMES and text[tokens[place].start] != '"':
        names.append(tokens[place].value)
        place += 1
        if tokens[place].value != "." or tokens[place].kind is not Kind.OTHER:
            break
        place += 1
    return names, place


def _state(
    spark: SparkSession, text: str, tokens: Sequence[Token], chain: list[str], end: int
) -> tuple[DataFrame, int] | None:
    """The frame for a system table or time travel, and the index of its last token.

    None for others.
    """
    base, mark, system = chain[-1].rpartition("$")
    if mark and system.lower() in SYSTEM_TABLES:
        found = attached_table(spark, [*chain[:-1], base])
        if found is None:
            return None
        table = found[0].session.get_table(f"{found[0].name}.{found[1]}")
        return read(spark, table.inspect.system_table(system.lower())), end - 1
    place = end + (tokens[end].word == "FOR")
    unit = _UNITS.get(tokens[place].word)
    words = [tokens[each].word for each in range(place + 1, min(place + 3, len(tokens)))]
    if unit is None or words != ["AS", "OF"]:
        return None
    found = attached_table(spark, chain)
    if found is None:
        return None
    table = found[0].session.get_table(f"{found[0].name}.{found[1]}")
    moment, last = _moment(text, tokens, place + 3)
    return _at(spark, table, unit, moment), last


def _moment(text: str, tokens: Sequence[Token], place: int) -> tuple[str, int]:
    """The text of a version or a time, and the index of its last token."""
    first = last = place
    if tokens[place].value == "(" and tokens[place].kind is Kind.OTHER:
        depth = 0
        while True:
            if tokens[last].kind is Kind.END:
                raise InvalidRequest("a parenthesis has no end", text=text)
            depth += (tokens[last].value == "(") - (tokens[last].value == ")")
            if not depth:
                break
            last += 1
    elif tokens[place].word in {"TIMESTAMP", "DATE"} and tokens[place + 1].kind is Kind.STRING:
        last += 1
    elif tokens[place].kind not in {Kind.STRING, Kind.NUMBER}:
        raise InvalidRequest(
            "the version or time of a table is a literal, or an expression in parentheses",
            given=text[tokens[place].start : tokens[place].end],
        )
    return text[tokens[first].start : tokens[last].end], last


def _at(spark: SparkSession, table: Table, unit: str, moment: str) -> DataFrame:
    if unit == "TIMESTAMP":
        value = spark.sql(f"SELECT unix_millis(CAST({moment} AS TIMESTAMP)) AS ms").collect()[0].ms
        if value is None:
            raise InvalidRequest("the time of a table is null", given=moment)
        return read(spark, table, timestamp=int(value))
    version = spark.sql(f"SELECT CAST({moment} AS STRING) AS version").collect()[0].version
    if version is None:
        raise InvalidRequest("the version of a table is null", given=moment)
    return read(spark, table.copy({"scan.version": version}))
