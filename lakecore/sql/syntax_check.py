"""Finds syntax errors in a statement before it, or an earlier one of the same text, runs.

`parse` leaves queries and expressions as text for DuckDB. This module lets DuckDB parse them, and
reports an error at its position in the statement.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from lakecore.sql import statements as s
from lakecore.sql.duckdb_messages import syntax_hint
from lakecore.sql.references import placeholders
from lakecore.sql.tokens import syntax_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import duckdb

__all__ = ["check_syntax"]

_SELECT = "SELECT "
_NOT_A_QUERY = "Only SELECT"
"""DuckDB gives no tree for statements such as PIVOT, once it has parsed them."""


def check_syntax(text: str, statement: s.Statement, connection: duckdb.DuckDBPyConnection) -> None:
    """Raise InvalidRequest if DuckDB cannot parse a query or an expression of the statement."""
    for query in _queries(statement):
        _check(text, query, "", connection)
    for expression in _expressions(statement):
        if expression.strip().upper() != "DEFAULT":
            _check(text, expression, _SELECT, connection)


def _check(text: str, part: str, before: str, connection: duckdb.DuckDBPyConnection) -> None:
    # Blanks keep the position of the part, and so that of its error.
    place = max(text.find(part) - len(before), 0)
    padded = re.sub(r"[^\n]", " ", text[:place]) + before + part
    answer = connection.execute("SELECT json_serialize_sql(?)", [placeholders(padded)[0]])
    tree = json.loads(answer.fetchall()[0][0])
    message = str(tree.get("error_message", "")).partition("\n")[0]
    if not tree["error"] or _NOT_A_QUERY in message:
        return
    at = len(padded.encode()[: int(str(tree.get("position", 0)))].decode(errors="ignore"))
    at = min(at, len(text))
    raise syntax_error(text, at, message + syntax_hint(text, at))


def _queries(statement: s.Statement) -> Iterator[str]:
    match statement:
        case s.Query() | s.Explain():
            yield statement.text
        case s.Insert() | s.CreateView() | s.CopyOut():
            yield statement.query
        case s.CreateTable(query=str(query)) | s.AlterView(query=str(query)):
            yield query
        case s.Merge():
            yield f"FROM {statement.source}"


def _expressions(statement: s.Statement) -> Iterator[str]:
    found: Iterable[str | None] = ()
    match statement:
        case s.Update():
            found = [*statement.values.values(), statement.where]
        case s.Delete():
            found = [statement.where]
        case s.Merge():
            found = [statement.on, *(each.condition for each in statement.clauses)]
            for clause in statement.clauses:
                found += [*(clause.values or {}).values(), *(clause.row or ())]
        case s.Call():
            found = [*statement.positional, *statement.named.values()]
    yield from (each for each in found if each is not None)
