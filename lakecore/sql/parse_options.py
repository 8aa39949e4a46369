"""The parser of `('key' = 'value', ...)` after WITH, TBLPROPERTIES and OPTIONS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import Unsupported
from lakecore.sql.cursor import Cursor
from lakecore.sql.tokens import Kind

if TYPE_CHECKING:
    from lakecore.sql.tokens import Token


def options(cursor: Cursor) -> dict[str, str]:
    """Parse `( 'key' = 'value', ... )`; keys and values may be bare words and numbers."""
    found: dict[str, str] = {}

    def text(what: str) -> str:
        token = cursor.token
        if token.kind in {Kind.STRING, Kind.NUMBER, Kind.QUOTED}:
            return cursor.take().value
        if token.kind is Kind.WORD:
            start = token.start
            cursor.take()
            while cursor.at_symbol(".") or cursor.at_symbol("-"):
                cursor.take()
                cursor.take()
            return cursor.text[start : cursor.tokens_before(0)[-1].end]
        raise cursor.expected(what)

    def one() -> None:
        key_token = cursor.token
        key = text("the key of an option")
        cursor.expect_symbol("=")
        if key in found:
            raise cursor.error(f"the option {key!r} is given twice", key_token)
        found[key] = text("the value of an option")

    cursor.listed(one)
    return found


# --- hints ---------------------------------------------------------------------------------------
# `/*+ OPTIONS('key'='value') */`: dynamic options of one table in one statement.


def hint_options(cursor: Cursor) -> dict[str, str]:
    """The options of the hint that comes next; empty if there is none."""
    if cursor.token.kind is not Kind.HINT:
        return {}
    return read_hint(cursor.take())


def read_hint(token: Token) -> dict[str, str]:
    """The options in a hint. Raises Unsupported for any other hint."""
    inner = Cursor(token.value[3:-2])
    if not inner.skip("OPTIONS"):
        raise Unsupported("only the hint /*+ OPTIONS(...) */ is known", hint=token.value)
    found = options(inner)
    inner.end()
    return found
