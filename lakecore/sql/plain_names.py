"""Names of result columns without the names of lakecore's views.

DuckDB names a column without an alias after its expression. If that holds a subquery, the name
would hold the view that stands for a table, and another one in the next statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.sql.tokens import quoted, tokenize

if TYPE_CHECKING:
    import duckdb

__all__ = ["plain_name", "with_plain_names"]

_VIEW = "_lakecore_view_"


def with_plain_names(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The same rows; a table in the name of a column has its own name, or its alias."""
    if not any(_VIEW in name for name in relation.columns):
        return relation
    names = enumerate(map(plain_name, relation.columns), 1)
    return relation.project(", ".join(f"#{place} AS {quoted(name)}" for place, name in names))


def plain_name(name: str) -> str:
    """The name with `view AS t`, and `(SELECT * FROM view WHERE filter) AS t`, replaced by `t`."""
    tokens = tokenize(name)
    pieces: list[str] = []
    copied = 0
    for at, token in enumerate(tokens):
        if token.start < copied or not token.value.startswith(_VIEW):
            continue
        first, after = at, at + 1
        if tokens[after].word == "WHERE" and at > 3:
            first, depth = at - 4, 1
            while depth:
                depth += {"(": 1, ")": -1}.get(tokens[after].value, 0)
                after += 1
        start, end = tokens[first].start, tokens[after].start
        if tokens[after].word == "AS":
            end = tokens[after + 1].start
        pieces.append(name[copied:start])
        copied = end
    return "".join([*pieces, name[copied:]])
