"""Queries that follow their tables: `SET 'execution.runtime-mode' = 'streaming'`.

1. Run the query on the newest snapshots. All its rows are new.
2. Wait until a table of the query has another snapshot (`continuous.discovery-interval`).
3. Run the query again, and compare its rows with the previous ones. Missing rows are returned with
   the kind -D, new rows with the kind +I. For an updated row, both are returned.

So the changes are right for any query. Each step costs as much as the query itself, and DuckDB
keeps the rows of the previous step.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.ambient import SYSTEM
from lakecore.model.rows import ROW_KIND
from lakecore.sql.query_errors import drop_table, error_of
from lakecore.sql.tokens import Kind, quoted, tokenize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.sql.python_objects import Scope
    from lakecore.sql.queries import Queries
    from lakecore.table.handle import Table

__all__ = ["StreamingQueries"]

_NO_END = (
    "a streaming query has no end: add LIMIT, run it in `lakecore sql`, or "
    "SET 'execution.runtime-mode' = 'batch'"
)


class StreamingQueries:
    """The streaming queries of one session."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._numbers = count(1)

    def limited(self, text: str, scope: Scope) -> duckdb.DuckDBPyRelation:
        """The first changes of a query, as many as its LIMIT says.

        Raises InvalidRequest if the query has no LIMIT.
        """
        query, limit = _without_limit(text)
        if limit is None:
            raise InvalidRequest(_NO_END)
        found = list(self._changes(query, limit, scope))
        return self._queries.connection.from_arrow(pa.concat_tables(found))

    def changes(self, text: str, scope: Scope) -> Iterator[pa.Table]:
        """The changes of a query, step by step, until its LIMIT is reached, if it has one."""
        yield from self._changes(*_without_limit(text), scope)

    def _changes(self, text: str, limit: int | None, scope: Scope) -> Iterator[pa.Table]:
        tables = self._queries.tables_of(text, scope)
        number = next(self._numbers)
        seen, new = f"_lakecore_seen_{number}", f"_lakecore_new_{number}"
        left = limit
        before: list[int | None] | None = None
        try:
            while left is None or left > 0:
                state = [each.context.history.latest_snapshot_id() for each in tables]
                if state == before:
                    SYSTEM.sleep(_wait_seconds(tables))
                    continue
                found = self._compared(text, scope, seen, new, first=before is None)
                before = state
                if left is not None:
                    found = found.slice(0, left)
                    left -= found.num_rows
                if found.num_rows:
                    yield found
                if not tables:
                    return
        finally:
            for name in (seen, new):
                drop_table(self._queries.connection, name)

    def _compared(self, text: str, scope: Scope, seen: str, new: str, *, first: bool) -> pa.Table:
        """The rows removed and added since the last step. Keeps all rows for the next step."""
        relation = self._queries.relation(text, None, scope)
        kind = quoted(ROW_KIND)
        if ROW_KIND in relation.columns:
            raise InvalidRequest("a streaming query names its kinds of rows", column=ROW_KIND)
        connection = self._queries.connection
        try:
            relation.create(new)
            if first:
                found = connection.sql(f"FROM {new} SELECT '+I' AS {kind}, *").to_arrow_table()
            else:
                gone, more = (
                    f"FROM {seen} EXCEPT ALL FROM {new}",
                    f"FROM {new} EXCEPT ALL FROM {seen}",
                )
                parts = (
                    f"(FROM ({rows}) SELECT '{each}' AS {kind}, *)"
                    for each, rows in (("-D", gone), ("+I", more))
                )
                found = connection.sql(" UNION ALL ".join(parts)).to_arrow_table()
            connection.execute(f"DROP TABLE IF EXISTS {seen}")
            connection.execute(f"ALTER TABLE {new} RENAME TO {seen}")
        except duckdb.Error as error:
            raise error_of(error) from error
        return found


def _wait_seconds(tables: list[Table]) -> float:
    waits = [each.options.continuous_discovery_interval_ms for each in tables]
    return max(1, min(waits)) / 1000


def _without_limit(text: str) -> tuple[str, int | None]:
    """The query without its final LIMIT, and the number of that LIMIT; None without a LIMIT."""
    tokens = tokenize(text)
    depth, place = 0, None
    for index, token in enumerate(tokens):
        if token.kind is Kind.OTHER:
            depth += {"(": 1, ")": -1}.get(token.value, 0)
        if depth == 0 and token.word == "LIMIT":
            place = index
    if place is None:
        return text, None
    number, end = tokens[place + 1], tokens[place + 2]
    if number.kind is not Kind.NUMBER or not number.value.isdecimal() or end.kind is not Kind.END:
        raise Unsupported("a streaming query ends with LIMIT and a whole number")
    return text[: tokens[place].start], int(number.value)
