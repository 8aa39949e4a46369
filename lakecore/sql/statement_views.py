"""The views of one statement, which stand for its tables in the text that DuckDB runs.

INVARIANT: a table that a statement names twice, in the same state, is one view and so one snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import duckdb
import polars as pl

from lakecore.errors import InvalidRequest
from lakecore.sql.rewrite import rewritten
from lakecore.sql.semi_joins import column_type, values_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    import pyarrow as pa

    from lakecore.sql.rewrite import Reference
    from lakecore.sql.semi_joins import Candidate
    from lakecore.sql.statements import Chain
    from lakecore.table.handle import Table

    Scope: TypeAlias = Callable[[str], object | None]
    """Gives a Python object with rows by its name, or None."""
    Noted: TypeAlias = Callable[[Reference, Table], None]
    """Is told each table of the catalog that a statement reads."""

__all__ = ["StatementViews"]


class Connected(Protocol):
    """A DuckDB connection that knows the tables of a catalog."""

    connection: duckdb.DuckDBPyConnection

    def stored_query(self, chain: Chain) -> str | None:
        """The query of a temporary view; None if there is no such view."""
        ...

    def table_view(
        self, reference: Reference, noted: Noted | None
    ) -> duckdb.DuckDBPyRelation | None:
        """The rows of a table of the catalog; None if it has no such table."""
        ...

    def full_names(self, chain: Chain) -> list[Chain]:
        """The longer forms of a table's name: `database.table` and `catalog.database.table`."""
        ...

    def unknown(self, reference: Reference) -> None:
        """Note a name that is no table of the catalog: DuckDB may know it."""
        ...

    def create_view(self, relation: duckdb.DuckDBPyRelation) -> str:
        """Create a view of the relation for one statement. Returns the name of the view."""
        ...

    def run(self, text: str) -> duckdb.DuckDBPyRelation:
        """Run a query in which views have replaced the tables."""
        ...


class StatementViews:
    """The views of one statement: a table that it names twice is read at one snapshot."""

    def __init__(
        self,
        queries: Connected,
        scope: Scope,
        noted: Noted | None,
    ) -> None:
        self._queries = queries
        self._scope = scope
        self._noted = noted
        self._known: dict[object, str | None] = {}
        self._types: dict[str, dict[str, str]] = {}
        self._within: list[str] = []

    def view_of(self, reference: Reference) -> str | None:
        """The view of a temporary view, a table of the catalog or a Python object."""
        options = tuple(sorted(reference.options.items()))
        state = (reference.unit, reference.moment, reference.function, reference.arguments)
        key = (reference.chain, options, state)
        if key not in self._known:
            self._known[key] = self._view_of(reference)
        return self._known[key]

    def _view_of(self, reference: Reference) -> str | None:
        chain = reference.chain
        stored = self._queries.stored_query(chain)
        if stored is not None:
            if chain[0] in self._within:
                raise InvalidRequest("the view reads itself", view=chain[0])
            self._within.append(chain[0])
            inner = rewritten(stored, self._queries.connection, self)
            self._within.pop()
            return self._create(self._queries.run(inner))
        relation = self._queries.table_view(reference, self._noted)
        if relation is not None:
            return self._create(relation)
        held = self._scope(chain[0]) if len(chain) == 1 else None
        if held is not None:
            return self._create(_as_relation(held, chain[0], self._queries.connection))
        self._queries.unknown(reference)
        return None

    def _create(self, relation: duckdb.DuckDBPyRelation) -> str:
        name = self._queries.create_view(relation)
        names = [column.lower() for column in relation.columns]
        self._types[name] = dict(zip(names, map(str, relation.types), strict=True))
        return name

    def full_names(self, reference: Reference) -> list[Chain]:
        """The longer forms of a table's name: `database.table` and `catalog.database.table`."""
        return self._queries.full_names(reference.chain)

    def semi_join(
        self, query: str, candidate: Candidate, view_at: Callable[[int], str | None]
    ) -> str | None:
        """The text that replaces the query of `IN (query)`: its values. None leaves it."""
        if self._noted is not None:
            return None  # EXPLAIN runs no query

        def types_at(place: int) -> dict[str, str] | None:
            return self._types.get(view_at(place) or "")

        kind = column_type(candidate, types_at)
        if kind is None:
            return None

        def held(rows: pa.Table) -> str:
            return self._queries.create_view(self._queries.connection.from_arrow(rows))

        return values_text(self._queries.connection, query, candidate, kind, held)


def _as_relation(
    held: object, name: str, connection: duckdb.DuckDBPyConnection
) -> duckdb.DuckDBPyRelation:
    """A Python object that a query names, as rows."""
    to_duckdb = getattr(held, "to_duckdb", None)
    if to_duckdb is not None:
        found: duckdb.DuckDBPyRelation = to_duckdb(connection)
        return found
    if isinstance(held, pl.LazyFrame):
        held = held.collect()
    if isinstance(held, pl.DataFrame):
        held = held.to_arrow()
    try:
        return connection.from_arrow(held)
    except (duckdb.Error, TypeError, ValueError) as error:
        raise InvalidRequest(
            "this Python object cannot be read as rows", name=name, cause=error
        ) from error
