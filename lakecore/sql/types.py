"""Converts column types of Flink and Spark to Paimon's type strings.

A type name that both engines have means Flink's type, which is also Paimon's: TIMESTAMP has no time
zone, and BINARY has one byte. In statements of Spark (`Cursor.spark_types`) it means Spark's type:
an instant, and any number of bytes. Names that only Spark has mean Spark's types: TIMESTAMP_NTZ,
LONG, STRUCT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.sql.tokens import Kind

if TYPE_CHECKING:
    from lakecore.sql.cursor import Cursor

_RENAMED = {
    "LONG": "BIGINT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "INT8": "BIGINT",
    "TEXT": "STRING",
    "REAL": "FLOAT",
    "TIMESTAMP_NTZ": "TIMESTAMP(6)",
    "STRUCT": "ROW",
}
_OF_SPARK = {"TIMESTAMP": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "BINARY": "BYTES"}
_ENDS = frozenset({"COMMENT", "PRIMARY", "DEFAULT", "METADATA", "FIRST", "AFTER", "CONSTRAINT"})


def read_type(cursor: Cursor) -> str:
    """The type that comes next, as Paimon's type text, with NOT NULL if it is declared."""
    first = cursor.token
    if first.kind is not Kind.WORD:
        raise cursor.expected("a type")
    parts: list[str] = []
    around: list[str] = []  # the words before the brackets that are open
    while not cursor.done():
        token = cursor.token
        symbol = token.value if token.kind is Kind.OTHER else ""
        if not around and (symbol in {",", ")"} or token.word in _ENDS):
            break
        if around and symbol == ":":  # STRUCT<name: type>
            cursor.take()
            continue
        # A field of a ROW may be called LONG.
        is_name = around[-1:] == ["ROW"] and parts[-1] in {"<", "(", ","}
        parts.append(_spelled(cursor, is_name=is_name))
        for character in symbol:
            if character in "<(":
                around.append(parts[-2].upper())
            elif character in ">)":
                around = around[:-1]
        cursor.take()
    return " ".join(parts)


def _spelled(cursor: Cursor, *, is_name: bool) -> str:
    token = cursor.token
    if token.kind is Kind.QUOTED:
        return "`" + token.value.replace("`", "``") + "`"
    if token.kind is Kind.STRING:
        return "'" + token.value.replace("'", "''") + "'"
    if is_name:
        return token.value
    after = cursor.ahead(1)
    if cursor.spark_types and after.value != "(" and after.word not in {"WITH", "WITHOUT"}:
        return _OF_SPARK.get(token.word, _RENAMED.get(token.word, token.value))
    return _RENAMED.get(token.word, token.value)
