"""`/*+ OPTIONS('key'='value') */`: dynamic options of one table in one statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import Unsupported
from lakecore.sql.cursor import Cursor
from lakecore.sql.parse_options import options
from lakecore.sql.tokens import Kind

if TYPE_CHECKING:
    from lakecore.sql.tokens import Token

__all__ = ["hint_options", "read_hint"]


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
