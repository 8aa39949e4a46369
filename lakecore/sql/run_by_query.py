"""Runs an UPDATE or DELETE with a subquery in its condition or values as a MERGE.

1. DuckDB finds the rows for which the condition is true. The query returns their primary key
   (without one, all columns) and their new values.
2. A MERGE with these rows as its source updates or deletes them. Without a key, the source has one
   row for all equal rows: the condition is true for all of them or for none.

The rows are found at the snapshot that the merge changes (`found_rows.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.scalar.fractions import cut_to_precision
from lakecore.sql.assignments import assigned, check_nested
from lakecore.sql.found_rows import equal_columns, merge_found, newest_rows
from lakecore.sql.python_objects import NotingScope
from lakecore.sql.qualifiers import has_query
from lakecore.sql.statements import Update
from lakecore.sql.tokens import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from lakecore.model.snapshot import CommitResult
    from lakecore.sql.python_objects import Scope
    from lakecore.sql.queries import Queries
    from lakecore.sql.statements import Delete
    from lakecore.table.handle import Table
    from lakecore.table.verbs.merge_into import MergeInto

__all__ = ["change_by_query", "holds_query"]

_NEW = "_lakecore_new_"


def holds_query(statement: Update | Delete) -> bool:
    """Whether an expression of the statement holds a query in parentheses."""
    texts = [statement.where or ""]
    if isinstance(statement, Update):
        texts += statement.values.values()
    return any(map(has_query, texts))


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
        on = equal_columns(keys, "source", "target")
    objects = NotingScope(scope)

    def merge(rows: object) -> MergeInto:
        found = table.merge(rows, on)
        if not values:
            return found.when_matched_delete()
        new = {name: pl.col(f"source.{_NEW}{place}") for place, name in enumerate(values)}
        return found.when_matched_update(new)

    types = queries.types(pa.schema([schema.arrow.field(name) for name in values]))

    def cast(found: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
        """The rows of the query, with the new values as their columns store them."""
        parts = [f"#{place} AS {quoted(name)}" for place, name in enumerate(keys, 1)]
        for place, (name, kind) in enumerate(zip(values, types, strict=True)):
            at = len(keys) + place
            stored = schema.field(name).type
            value = cut_to_precision(f"#{at + 1}", str(found.types[at]), stored)
            parts.append(f"CAST({value} AS {kind}) AS {_NEW}{place}")
        rows = found.project(", ".join(parts))
        return rows if schema.primary_keys else rows.distinct()

    return merge_found(table, objects, lambda: queries.reader(text, objects, None, cast), merge)


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
        query = _query(queries, table, statement, nested)
        found = queries.relation(query, None, scope).limit(0)
        news = found.columns[-len(nested) :]
        check_nested(found.select(*news), pa.schema([arrow.field(name) for name in nested]))


def _query(
    queries: Queries, table: Table, statement: Update | Delete, values: Mapping[str, str]
) -> str:
    """The query for the rows that the statement changes."""
    schema = table.schema
    names = [quoted(name) for name in schema.primary_keys or schema.names]
    qualifier = quoted(statement.alias or statement.chain[-1])
    columns = [f"{qualifier}.{name} AS {name}" for name in names]
    columns += [f"({text}\n) AS {_NEW}{place}" for place, text in enumerate(values.values())]
    alias = "" if statement.alias is None else f" AS {qualifier}"
    where = "" if statement.where is None else f" WHERE ({statement.where}\n)"
    source = f"{newest_rows(queries, table, statement.chain)}{alias}{where}"
    return f"SELECT {', '.join(columns)} FROM {source}"  # noqa: S608  names are quoted
