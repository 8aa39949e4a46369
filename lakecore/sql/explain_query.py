"""EXPLAIN: DuckDB's plan of a query, followed by lakecore's plan for each table.

If the query has a single scan of a single table, lakecore plans the read of the columns and filters
that DuckDB pushes into this scan. Otherwise lakecore plans a read of each whole table, because
DuckDB's plan does not say which scan reads which table.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, TypedDict

from lakecore.errors import LakecoreError
from lakecore.table.system.system_columns import SystemTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import duckdb

    from lakecore.model.times import Time
    from lakecore.table.handle import Table

__all__ = ["ReadState", "Scanned", "parts_of_plan"]


class ReadState(TypedDict, total=False):
    """The state of a table to read, as keyword arguments of the read methods."""

    snapshot_id: int
    tag: str
    timestamp: Time


Scanned = tuple[str, "Table", ReadState]
"""A table of a query: its name in the query, the table, and the state that is read."""
_SCAN = "PYTHON_ARROW_SCAN"


def parts_of_plan(
    text: str,
    tables: Sequence[Scanned],
    run: Callable[[str], duckdb.DuckDBPyRelation],
    *,
    analyze: bool = False,
) -> list[tuple[str, str]]:
    """The plan of a query over views, as (name, text): DuckDB's, then lakecore's for each table.

    With `analyze`, the query runs, and DuckDB's plan has times and numbers of rows.
    """
    verb = "EXPLAIN ANALYZE" if analyze else "EXPLAIN"
    rows = [(str(key), str(value)) for key, value in run(f"{verb} {text}").fetchall()]
    pushed: tuple[list[str] | None, str | None] = (None, None)
    if len(tables) == 1:
        described = run(f"EXPLAIN (FORMAT JSON) {text}").fetchall()
        scans = list(_scans(json.loads(described[0][1])))
        if len(scans) == 1:
            pushed = scans[0]
    return [*rows, *((name, _plan(table, state, *pushed)) for name, table, state in tables)]


def _plan(table: Table, state: ReadState, columns: list[str] | None, where: str | None) -> str:
    read: object = table  # a catalog gives system tables the type of a table
    if isinstance(read, SystemTable):
        return f"table:     {table.identifier}\nreads:     metadata"
    with suppress(LakecoreError):  # some of DuckDB's filters cannot be parsed
        return str(table.explain(columns, where, **state))
    return str(table.explain(**state))


def _scans(nodes: object) -> Iterator[tuple[list[str] | None, str | None]]:
    """The columns and the filter of each scan of an Arrow dataset in a plan of DuckDB."""
    for node in nodes if isinstance(nodes, list) else ():
        if node.get("name") == _SCAN:
            facts = node.get("extra_info", {})
            names, filters = (_listed(facts.get(key)) for key in ("Projections", "Filters"))
            yield names or None, " AND ".join(filters) or None
        yield from _scans(node.get("children"))


def _listed(fact: object) -> list[str]:
    if fact is None or fact == "":
        return []
    return [str(each) for each in fact] if isinstance(fact, list) else [str(fact)]
