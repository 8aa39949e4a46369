"""Runs an UPDATE or DELETE with a subquery in its condition or values as a MERGE.

1. DuckDB finds the rows for which the condition is true. The query returns their primary key
   (without one, all columns) and their new values.
2. A MERGE with these rows as its source updates or deletes them. Without a key, the source has one
   row for all equal rows: the condition is true for all of them or for none.

The query runs while the merge reads its source, at the snapshot that the merge changes. If another
commit is made meanwhile, the query and the merge start again.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.errors import CommitConflict, LakecoreError
from lakecore.sql.assignments import assigned, check_nested
from lakecore.sql.query_errors import written
from lakecore.sql.statements import Update
from lakecore.sql.tokens import Kind, quoted, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.model.snapshot import CommitResult
    from lakecore.sql.python_objects import Scope
    from lakecore.sql.queries import Queries
    from lakecore.sql.statements import Delete
    from lakecore.table.handle import Table

__all__ = ["change_by_query", "holds_query"]

_ATTEMPTS_MAX = 5
_STARTS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})
_NEW = "_lakecore_new_"
_NEWEST = "deletion-vectors.merge-on-read"


def holds_query(statement: Update | Delete) -> bool:
    """Whether an expression of the statement holds a query in parentheses."""
    texts = [statement.where or ""]
    if isinstance(statement, Update):
        texts += statement.values.values()
    return any(map(_has_query, texts))


def _has_query(text: str) -> bool:
    tokens = tokenize(text)
    return any(
        token.word == "SELECT"
        or (token.kind is Kind.OTHER and token.value == "(" and following.word in _STARTS)
        for token, following in pairwise(tokens)
    )


def change_by_query(
    queries: Queries, table: Table, statement: Update | Delete, scope: Scope
) -> CommitResult:
    """Execute the statement in one commit.

    Raises CommitConflict if other commits win every attempt.
    """
    schema = table.schema
    values = assigned(statement.values, schema) if isinstance(statement, Update) else {}
    keys = schema.primary_keys or schema.names
    _check_nested(queries, table, statement, values, scope)
    text = _query(queries, table, statement, values)
    on: list[str] | str = list(keys)
    if not schema.primary_keys:
        on = " AND ".join(
            f"source.{quoted(name)} IS NOT DISTINCT FROM target.{quoted(name)}" for name in keys
        )
    for _ in range(_ATTEMPTS_MAX):
        before = table.context.history.latest_snapshot_id()
        rows = _Rows(lambda: queries.reader(text, scope), table, before)
        merge = table.merge(rows, on)
        if values:
            new = {name: pl.col(f"source.{_NEW}{place}") for place, name in enumerate(values)}
            merge = merge.when_matched_update(new)
        else:
            merge = merge.when_matched_delete()
        try:
            return written(rows, merge.execute)
        except LakecoreError:
            if rows.failure is None:
                raise
            if not isinstance(rows.failure, CommitConflict):
                raise rows.failure from None
    raise CommitConflict(
        "the table changed in each attempt while the rows of the statement were found",
        table=table.identifier,
        attempts=_ATTEMPTS_MAX,
    )


def _check_nested(
    queries: Queries,
    table: Table,
    statement: Update | Delete,
    values: Mapping[str, str],
    scope: Scope,
) -> None:
    arrow = table.schema.arrow
    nested = {
        name: text for name, text in values.items() if pa.types.is_nested(arrow.field(name).type)
    }
    if nested:
        query = _query(queries, table, statement, nested, casts=False)
        found = queries.relation(query, None, scope).limit(0)
        news = found.columns[-len(nested) :]
        check_nested(found.select(*news), pa.schema([arrow.field(name) for name in nested]))


def _query(
    queries: Queries,
    table: Table,
    statement: Update | Delete,
    values: Mapping[str, str],
    *,
    casts: bool = True,
) -> str:
    """The query for the rows that the statement changes."""
    schema = table.schema
    names = [quoted(name) for name in schema.primary_keys or schema.names]
    qualifier = quoted(statement.alias or statement.chain[-1])
    columns = [f"{qualifier}.{name} AS {name}" for name in names]
    types = queries.types(pa.schema([schema.arrow.field(name) for name in values]))
    columns += [
        (f"CAST(({text}\n) AS {kind})" if casts else f"({text}\n)") + f" AS {_NEW}{place}"
        for place, (text, kind) in enumerate(zip(values.values(), types, strict=True))
    ]
    named = ".".join(map(quoted, statement.chain))
    # With deletion vectors, a read skips level 0. The verb changes the newest rows: include them.
    vectors = table.options.deletion_vectors_enabled
    hint = f" /*+ OPTIONS('{_NEWEST}' = 'true') */" if vectors else ""
    alias = "" if statement.alias is None else f" AS {qualifier}"
    where = "" if statement.where is None else f" WHERE ({statement.where}\n)"
    distinct = "" if schema.primary_keys else "DISTINCT "
    source = f"{named}{hint}{alias}{where}"
    return f"SELECT {distinct}{', '.join(columns)} FROM {source}"  # noqa: S608  names are quoted


class _Rows:
    """Rows of a query that runs when they are read. Raises CommitConflict if the table changed."""

    def __init__(
        self, run: Callable[[], pa.RecordBatchReader], table: Table, before: int | None
    ) -> None:
        self._run = run
        self._table = table
        self._before = before
        self._reader: pa.RecordBatchReader | None = None
        self.failure: LakecoreError | None = None
        """The error of the query. The reader of the Arrow stream replaces it by its own error."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        try:
            self._reader = self._run()
            if self._table.context.history.latest_snapshot_id() != self._before:
                raise CommitConflict("the table changed while the rows of the statement were found")
        except LakecoreError as error:
            self.failure = error
            raise
        return self._reader.__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Free the connection for other statements."""
        if self._reader is not None:
            self._reader.close()
