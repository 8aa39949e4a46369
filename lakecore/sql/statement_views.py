"""The views of one statement, which replace its tables in the text that DuckDB runs.

INVARIANT: a table that a statement names twice, in the same state, has one view and so one
snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, cast

import pyarrow as pa

from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.sql.join_keys import Side, key_filters
from lakecore.sql.python_objects import as_relation, is_of, is_read_once
from lakecore.sql.query_shape import compared_columns, stops_early
from lakecore.sql.rewrite import rewritten
from lakecore.sql.semi_joins import column_type, values_text
from lakecore.sql.stored_views import in_view
from lakecore.sql.tokens import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sized
    from typing import TypeAlias

    import duckdb

    from lakecore.errors import LakecoreError
    from lakecore.sql.python_objects import Scope
    from lakecore.sql.references import Reference
    from lakecore.sql.semi_joins import Candidate
    from lakecore.sql.statements import Chain
    from lakecore.sql.stored_query import check_sealed, check_stored_query
    from lakecore.table.handle import Table

    Noted: TypeAlias = Callable[[Reference, Table], None]
    """Called for each table of a catalog that a statement reads."""
else:
    check_sealed = deferred("lakecore.sql.stored_query", "check_sealed")
    check_stored_query = deferred("lakecore.sql.stored_query", "check_stored_query")

__all__ = ["NativeView", "StatementViews", "TableView"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeView:
    """A view that scans files. `types` are DuckDB's, by the lower-case names of the columns."""

    name: str
    types: Mapping[str, str]
    paths: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    bytes_of_bits: int = 0


@dataclass(frozen=True, slots=True)
class TableView:
    """The rows of a table.

    Either `relation` is set (lakecore reads the rows), or `view` (DuckDB scans the files itself).
    `metadata` are the metadata columns among the columns. The functions are called on first use:

    - `rows`: returns an upper bound of the number of rows; None if it is unknown;
    - `pruning`: returns the columns by which a filter can skip files or row groups;
    - `scan`: returns a view through which DuckDB scans the files itself; None if it must not.
    """

    relation: duckdb.DuckDBPyRelation | None = None
    view: NativeView | None = None
    metadata: tuple[str, ...] = ()
    rows: Callable[[], int | None] = lambda: None
    pruning: Callable[[], frozenset[str]] = frozenset
    scan: Callable[[], NativeView | None] = lambda: None


class Connected(Protocol):
    """A DuckDB connection that knows the tables of a catalog."""

    connection: duckdb.DuckDBPyConnection

    def stored_query(self, chain: Chain) -> str | None:
        """The query of a temporary view; None if there is no such view."""
        ...

    def table_view(self, reference: Reference, noted: Noted | None) -> TableView | None:
        """The rows of a table of the catalog; None if it has no such table."""
        ...

    def catalog_view(self, chain: Chain) -> tuple[str, str] | None:
        """The catalog and the query of a view that a catalog stores; None if there is none."""
        ...

    def full_names(self, chain: Chain) -> list[Chain]:
        """The longer forms of a table's name: `database.table` and `catalog.database.table`."""
        ...

    def full_name(self, chain: Chain) -> Chain:
        """The name with catalog and database.

        A name that only the session knows is returned unchanged.
        """
        ...

    def unknown(self, reference: Reference) -> None:
        """Remember a name that the catalog does not have: DuckDB may know it."""
        ...

    def missing(self, chain: Chain) -> LakecoreError:
        """The error for a name that is neither a table nor a view of a catalog."""
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
        self._tables: dict[str, TableView] = {}
        self._sides: dict[str, Side | None] = {}
        self._scans: dict[str, str] = {}
        self._once: list[str] = []
        """Views of objects whose rows may be readable only once, such as streams."""
        self._held: dict[str, int] = {}
        """The number of rows of each view of a Polars DataFrame or an Arrow table."""
        self._within: list[str] = []
        self._catalog: str | None = None  # the catalog of the stored view whose query is read

    def view_of(self, reference: Reference) -> str | None:
        """The name of the view for a temporary view, a catalog table or a Python object."""
        if self._catalog is not None:
            reference = in_view(reference, self._within[-1], self._catalog)
        options = tuple(sorted(reference.options.items()))
        state = (reference.unit, reference.moment, reference.function, reference.arguments)
        short = (reference.chain, options, state, reference.metadata)
        full = (self._queries.full_name(reference.chain), *short[1:])
        for key in (short, full):
            if key in self._known:
                return self._known[key]
        view = self._known[short] = self._view_of(reference)
        if view in self._tables:
            self._known[full] = view
        return view

    def _view_of(self, reference: Reference) -> str | None:
        chain = reference.chain
        stored = self._queries.stored_query(chain)
        if stored is not None:
            inner = self.within(chain[0], None, stored)
            return self._create(self._queries.run(inner))
        found = self._queries.table_view(reference, self._noted)
        if found is not None:
            return self._note(found)
        kept = self._queries.catalog_view(chain)
        if kept is not None:
            if reference.options or reference.unit or reference.function:
                raise Unsupported("a view has no options and no time travel", view=".".join(chain))
            return self._create(self._queries.run(self.within(".".join(chain), *kept)))
        if self._catalog is not None:
            raise self._queries.missing(chain)
        held = self._scope(chain[0]) if len(chain) == 1 else None
        if held is not None:
            name = self._create(as_relation(held, chain[0], self._queries.connection))
            if is_of(held, "polars", "DataFrame") or isinstance(held, pa.Table):
                self._held[name] = len(cast("Sized", held))
            elif is_read_once(held):
                self._once.append(name)
            return name
        self._queries.unknown(reference)
        return None

    def within(self, view: str, catalog: str | None, query: str) -> str:
        """The query of a view with its tables replaced.

        `catalog` is the catalog of a stored view.
        """
        if view in self._within:
            raise InvalidRequest("the view reads itself", view=view)
        outer = self._catalog
        if catalog is not None:
            check_stored_query(query, view)
        self._within.append(view)
        self._catalog = catalog
        try:
            text = rewritten(query, self._queries.connection, self)
            if catalog is not None:
                check_sealed(text, self._types)
            return text
        finally:
            self._catalog = outer
            self._within.pop()

    def _create(self, relation: duckdb.DuckDBPyRelation) -> str:
        name = self._queries.create_view(relation)
        names = [column.lower() for column in relation.columns]
        self._types[name] = dict(zip(names, map(str, relation.types), strict=True))
        return name

    def _note(self, table: TableView) -> str:
        if table.view is not None:
            name = table.view.name
            self._types[name] = dict(table.view.types)
        else:
            assert table.relation is not None
            name = self._create(table.relation)
        self._tables[name] = table
        return name

    def scan_of(self, view: str, tree: object) -> str:
        """A view of the same rows that DuckDB scans itself, if that is faster; otherwise `view`.

        It is faster unless the query stops after a few rows, or compares a column that lets
        lakecore's own reader leave out files.
        """
        table = self._tables.get(view)
        if table is None or table.view is not None or self._noted is not None:
            return view
        if view not in self._scans:
            if table.pruning() & compared_columns(tree) or stops_early(tree):
                return view
            scan = table.scan()
            better = None if scan is None else replace(table, view=scan, pruning=frozenset)
            self._scans[view] = view if better is None else self._note(better)
        return self._scans[view]

    def metadata_of(self, view: str) -> tuple[str, ...]:
        """The metadata columns that a view has because its reference asks for them."""
        return self._tables[view].metadata if view in self._tables else ()

    def key_filters(self, tree: object, view_at: Callable[[int], str | None]) -> Mapping[int, str]:
        """The filters that small sides of joins imply, by the position of the filtered table."""
        if self._noted is not None:
            return {}  # EXPLAIN runs no query
        if all(table.view is not None for table in self._tables.values()):
            return {}  # DuckDB derives the filters of its own scans

        def side_at(place: int) -> Side | None:
            view = view_at(place)
            if view is None:
                return None
            if view not in self._sides:
                self._sides[view] = self._side(view)
            return self._sides[view]

        return key_filters(tree, side_at, self._queries.connection)

    def _side(self, view: str) -> Side:
        table, held = self._tables.get(view), self._held.get(view)
        types = self._types[view]
        if table is not None:
            rows, pruning = table.rows(), table.pruning()
            return Side(view=view, types=types, rows=rows, pruning=pruning)
        return Side(view=view, types=types, rows=held)

    def full_names(self, reference: Reference) -> list[Chain]:
        """The longer forms of a table's name: `database.table` and `catalog.database.table`."""
        return self._queries.full_names(reference.chain)

    def semi_join(
        self, query: str, candidate: Candidate, view_at: Callable[[int], str | None]
    ) -> str | None:
        """The values that replace the query in `IN (query)`, as SQL; None if the query stays."""
        if self._noted is not None:
            return None  # EXPLAIN runs no query
        if any(quoted(view) in query for view in self._once):
            return None  # running the query now would consume rows that the statement needs

        def types_at(place: int) -> dict[str, str] | None:
            return self._types.get(view_at(place) or "")

        kind = column_type(candidate, types_at)
        if kind is None or self._is_scanned(candidate, view_at):
            return None

        def held(rows: pa.Table) -> str:
            return self._create(self._queries.connection.from_arrow(rows))

        return values_text(self._queries.connection, query, candidate, kind, held)

    def _is_scanned(self, candidate: Candidate, view_at: Callable[[int], str | None]) -> bool:
        """Whether DuckDB scans the column's table itself, and so filters it by the values."""
        column = candidate.column[-1].lower()
        views = [view_at(place) or "" for _, place in candidate.sources if place is not None]
        tables = [self._tables.get(view) for view in views if column in self._types.get(view, ())]
        return any(table is not None and table.view is not None for table in tables)
