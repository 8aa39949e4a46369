"""SQL text about two tables at once, as text about columns whose names say which table is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Collection


def join_qualifiers(text: str, qualifiers: Collection[str]) -> str:
    """The condition with `source.id` as the one, quoted name `"source.id"`, for each qualifier.

    A qualifier counts in any case, and the parts after the column's name are fields of a ROW.
    """
    try:
        tree = sqlglot.parse_one(text, read="duckdb")
    except sqlglot.errors.SqlglotError as error:
        reason = str(error).splitlines()[0]
        raise InvalidRequest("bad SQL condition", text=text, reason=reason) from error

    def joined(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or len(node.parts) == 1:
            return node
        first, second, *rest = (part.name for part in node.parts)
        if first.lower() not in qualifiers:
            return node
        parts = [f"{first.lower()}.{second}", *rest]
        names = [exp.to_identifier(part, quoted=True) for part in parts]
        return exp.column(*reversed(names))

    return tree.transform(joined).sql(dialect="duckdb")
