"""Converts column types of Flink and Spark to Paimon's type strings.

A type name that both engines have means Flink's type, which is also Paimon's: TIMESTAMP has no time
zone, and BINARY has one byte. Names that only Spark has mean Spark's types: TIMESTAMP_NTZ, LONG,
STRUCT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.sql.tokens import Kind, Token

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
_ENDS = frozenset({"COMMENT", "PRIMARY", "DEFAULT", "METADATA", "FIRST", "AFTER", "CONSTRAINT"})


def read_type(cursor: Cursor) -> str:
    """The type that comes next, as Paimon's type text, with NOT NULL if it is declared."""
    first = cursor.token
    if first.kind is not Kind.WORD:
        raise cursor.expected("a type")
    parts: list[str] = []
    depth = 0
    while not cursor.done():
        token = cursor.token
        symbol = token.value if token.kind is Kind.OTHER else ""
        if depth == 0 and (symbol in {",", ")"} or token.word in _ENDS):
            break
        if depth and symbol == ":":  # STRUCT<name: type>
            cursor.take()
            continue
        for character in symbol:
            depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        parts.append(_spelled(token, inside=depth > 0, before=parts))
        cursor.take()
    return " ".join(parts)


def _spelled(token: Token, *, inside: bool, before: list[str]) -> str:
    if token.kind is Kind.QUOTED:
        return "`" + token.value.replace("`", "``") + "`"
    if token.kind is Kind.STRING:
        return "'" + token.value.replace("'", "''") + "'"
    # A field of a ROW may be called LONG: a name follows `<` or `,` and precedes its type.
    is_name = inside and bool(before) and before[-1] in {"<", ","} and "ROW" in before
    return token.value if is_name else _RENAMED.get(token.word, token.value)
