"""The views of one statement, which replace its tables in the text that DuckDB runs.

INVARIANT: a table that a statement names twice, in the same state, has one view and so one
snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import duckdb
import pyarrow as pa

from lakecore.deferred import deferred, is_of
from lakecore.errors import InvalidRequest, LakecoreError, Unsupported
from lakecore.scalar.syntax_trees import text_of
from lakecore.sql.python_objects import as_relation, is_read_once
from lakecore.sql.query_errors import raise_interrupt
from lakecore.sql.references import Node, Reference, nodes, select_of_table, selects
from lakecore.sql.rewrite import rewritten
from lakecore.sql.semi_joins import (
    LISTED_MAX,
    Candidate,
    are_alike,
    column_type,
    conjuncts_of,
    literal,
    values_text,
)
from lakecore.sql.stored_views import in_view
from lakecore.sql.tokens import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence, Sized

    from lakecore.sql.python_objects import Scope
    from lakecore.sql.statements import Chain
    from lakecore.sql.stored_views import check_sealed, check_stored_query
    from lakecore.table.handle import Table

    Noted: TypeAlias = Callable[[Reference, Table], None]
    """Called for each table of a catalog that a statement reads."""
else:
    check_sealed = deferred("lakecore.sql.stored_views", "check_sealed")
    check_stored_query = deferred("lakecore.sql.stored_views", "check_stored_query")


# --- join keys -----------------------------------------------------------------------------------
# Inner joins with a small side: the keys of this side become a filter on the other side's table.
#
# DuckDB does not push a filter that it derives from a join into lakecore's scans. For `big.k =
# small.k`:
#
# 1. Read the keys of the small side, with those conditions of the query that concern only this
#    side.
# 2. Up to `LISTED_MAX` keys become `k IN (...)`; more become a range of `k`. In the query's text,
#    the
#    table is replaced by `(FROM table WHERE condition)`: DuckDB pushes this condition into the
#    scan.
#
# The filter must only drop rows that the join would drop: it may be too wide, but never too narrow.
# Therefore:
#
# - only inner joins are used, and comma joins with a condition in WHERE. No filter is made for
#   outer, NATURAL, ASOF and POSITIONAL joins, or for a query with a sample;
# - a condition on the small side is used only if it consists of its columns, constants, and
#   functions that always give the same result. Other conditions are left out, which widens the
#   filter;
# - both columns are integers, or both are VARCHAR, or both are DATE: for these types, comparing a
#   column with the constants gives the same result as comparing it with the other column;
# - if a query for keys raises an error, no filter is made; the statement itself then raises the
#   error.

ROWS_MAX = 1_000_000
"""The largest number of rows of a small side."""
TARGET_ROWS_MIN = 50_000
"""A table with fewer rows gets no filter: reading it is faster than reading the keys."""
FEWER_ROWS = 4
"""A small side has at most this fraction of the other side's rows: 1 / 4."""
FEW_WITHOUT_CONDITION = 100
"""The fraction (1 / 100) for a small side without a condition in the query."""
_PLAIN = "COLUMN_REF CONSTANT COMPARISON CONJUNCTION OPERATOR BETWEEN CAST FUNCTION"
_SAFE = frozenset(_PLAIN.split())
_OPERATORS = "+ - * / // % || ~~ !~~ ~~* !~~* like_escape not_like_escape"
_FUNCTIONS = """
    abs ceil concat contains date_part date_trunc day ends_with floor hour left length lower ltrim
    minute month prefix regexp_matches replace right round rtrim second starts_with strlen substr
    substring suffix trim upper year
"""
_STABLE = frozenset(f"{_OPERATORS} {_FUNCTIONS}".split())
"""Functions that always give the same result for the same arguments."""
_INNER = frozenset({"REGULAR", "CROSS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A table of a query.

    - `rows`: an upper bound of the number of rows; None if it is unknown, or if the rows can be
      read only once;
    - `pruning`: the columns, in lower case, by which a filter can skip files or row groups.
    """

    view: str
    types: Mapping[str, str]
    rows: int | None
    pruning: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Source:
    """A table of a FROM clause that is connected by inner joins only."""

    name: str
    place: int
    side: Side


@dataclass(slots=True)
class _From:
    """A FROM clause: its tables, the conditions of its inner joins, and its other parts."""

    nodes: list[tuple[str, int]] = field(default_factory=list)
    conditions: list[Node] = field(default_factory=list)
    using: list[tuple[str, list[int], list[int]]] = field(default_factory=list)
    others: int = 0


@dataclass(frozen=True, slots=True)
class _Join:
    """One equality `target.column = source.key`."""

    target: _Source
    column: str
    source: _Source
    key: str


def key_filters(
    tree: object, side_at: Callable[[int], Side | None], connection: duckdb.DuckDBPyConnection
) -> dict[int, str]:
    """The filters that small sides of joins imply, as SQL, by the position of the filtered table.

    `side_at` returns the table at a position; None for an unknown table.
    """
    found: dict[int, list[str]] = {}
    for select in (each for each in selects(tree) if each.get("sample") is None):
        for join, conditions in _joins(select, side_at):
            query = _query(connection, join, conditions, found.get(join.source.place, ()))
            text = None if query is None else _filter(connection, query, join.column)
            if text is not None:
                found.setdefault(join.target.place, []).append(text)
    return {place: " AND ".join(texts) for place, texts in found.items()}


def _joins(
    select: Node, side_at: Callable[[int], Side | None]
) -> list[tuple[_Join, Sequence[Node]]]:
    """The joins that yield a filter, smallest source first, each with the source's conditions."""
    clause = _From()
    _read_from(select.get("from_table"), clause)
    if len(clause.nodes) == 1:
        return []
    names = [name for name, _ in clause.nodes]
    sources = {
        name: _Source(name, place, side)
        for name, place in clause.nodes
        if names.count(name) == 1 and (side := side_at(place)) is not None
    }
    # A column without a table is one of these tables only if all tables are known.
    known = not clause.others and len(sources) == len(clause.nodes)
    conjuncts = [*clause.conditions, *conjuncts_of(select.get("where_clause"))]
    pairs = [
        (left, right)
        for each in conjuncts
        if each.get("type") == "COMPARE_EQUAL"
        and (left := _column(each.get("left"), sources, known=known)) is not None
        and (right := _column(each.get("right"), sources, known=known)) is not None
        and left[0] is not right[0]
    ]
    pairs += _using(clause, sources)
    joins = [
        (_Join(target, column, source, key), _conditions(conjuncts, source, sources, known=known))
        for one, other in pairs
        for (target, column), (source, key) in ((one, other), (other, one))
    ]
    fit = [(join, conditions) for join, conditions in joins if _is_worth_it(join, conditions)]
    return sorted(fit, key=lambda each: each[0].source.side.rows or 0)


def _read_from(node: object, clause: _From) -> list[int]:
    """Collect the tables of a FROM clause. Returns the indexes of the tables below a node."""
    if not isinstance(node, dict):
        return []
    kind = node.get("type")
    if kind == "BASE_TABLE" and node.get("sample") is None and not node.get("column_name_alias"):
        place = cast("int", node.get("query_location"))
        clause.nodes.append((str(node.get("alias") or node.get("table_name")).lower(), place))
        return [place]
    if (
        kind == "JOIN"
        and node.get("join_type") == "INNER"
        and node.get("ref_type") in _INNER
        and node.get("sample") is None
        and not node.get("alias")
    ):
        left = _read_from(node.get("left"), clause)
        right = _read_from(node.get("right"), clause)
        clause.conditions += conjuncts_of(node.get("condition"))
        columns = node.get("using_columns")
        for name in columns if isinstance(columns, list) else ():
            clause.using.append((str(name), left, right))
        return [*left, *right]
    if kind != "EMPTY":
        clause.others += 1
    return []


def _column(
    node: object, sources: Mapping[str, _Source], *, known: bool
) -> tuple[_Source, str] | None:
    """The table and column of a reference; None if it may belong to another table."""
    if not isinstance(node, dict) or node.get("class") != "COLUMN_REF":
        return None
    *qualifier, name = (str(each) for each in cast("list[object]", node.get("column_names")))
    if len(qualifier) > 1:
        return None
    if qualifier:
        source = sources.get(qualifier[0].lower())
        return (source, name) if source and name.lower() in source.side.types else None
    owners = [each for each in sources.values() if name.lower() in each.side.types]
    return (owners[0], name) if known and len(owners) == 1 else None


def _using(
    clause: _From, sources: Mapping[str, _Source]
) -> list[tuple[tuple[_Source, str], tuple[_Source, str]]]:
    """The equal columns of JOIN ... USING, if exactly one table of each side has the column."""
    pairs = []
    by_place = {each.place: each for each in sources.values()}
    for name, *sides in clause.using:
        if clause.others or any(place not in by_place for places in sides for place in places):
            continue
        owners = [
            [by_place[place] for place in places if name.lower() in by_place[place].side.types]
            for places in sides
        ]
        if all(len(each) == 1 for each in owners):
            pairs.append(((owners[0][0], name), (owners[1][0], name)))
    return pairs


def _conditions(
    conjuncts: Sequence[Node], source: _Source, sources: Mapping[str, _Source], *, known: bool
) -> list[Node]:
    """The conditions on one table alone that can be evaluated without the others."""
    found = []
    for each in conjuncts:
        columns = [node for node in nodes(each) if node.get("class") == "COLUMN_REF"]
        owners = [_column(column, sources, known=known) for column in columns]
        if columns and all(owner is not None and owner[0] is source for owner in owners):
            found.append(each)
    return [each for each in found if _is_safe(each)]


def _is_safe(node: object) -> bool:
    """Whether an expression consists only of columns, constants, operators and plain functions."""
    if isinstance(node, list):
        return all(map(_is_safe, node))
    if not isinstance(node, dict):
        return True
    kind = node.get("class")
    if kind == "FUNCTION" and str(node.get("function_name")).lower() not in _STABLE:
        return False
    return (kind is None or kind in _SAFE) and all(map(_is_safe, node.values()))


def _is_worth_it(join: _Join, conditions: Sequence[Node]) -> bool:
    target, source = join.target.side, join.source.side
    if target.rows is None or source.rows is None or join.column.lower() not in target.pruning:
        return False
    fewer = FEWER_ROWS if conditions else FEW_WITHOUT_CONDITION
    return (
        target.rows >= TARGET_ROWS_MIN
        and source.rows <= min(ROWS_MAX, target.rows // fewer)
        and are_alike(target.types[join.column.lower()], [source.types[join.key.lower()]])
    )


def _query(
    connection: duckdb.DuckDBPyConnection,
    join: _Join,
    conditions: Sequence[Node],
    reduced: Sequence[str],
) -> str | None:
    """The query for the keys of the small side, as column `key`; None if it cannot be written."""
    source, key = join.source, quoted(join.key)
    text = f"FROM {quoted(source.side.view)} AS {quoted(source.name)}"
    try:
        if conditions:
            text += f" WHERE {text_of(connection, conditions)}"
    except duckdb.Error:
        return None
    within = f" WHERE {' AND '.join(reduced)}" if reduced else ""
    return f"SELECT {key} AS key FROM (SELECT * {text}){within}"  # noqa: S608 - parts of the query


def _filter(connection: duckdb.DuckDBPyConnection, query: str, column: str) -> str | None:
    """The condition on `column` from the keys that the query returns; None if the query fails."""
    keys = (
        "SELECT min(key), max(key), count(DISTINCT key), "  # noqa: S608 - the query is ours
        f"CASE WHEN count(DISTINCT key) <= {LISTED_MAX} THEN list(DISTINCT key) END FROM ({query})"
    )
    try:
        ((low, high, count, listed),) = connection.sql(keys).fetchall()
    except (duckdb.Error, RuntimeError) as error:
        raise_interrupt(error)
        return None
    if count == 0:
        return "false"
    name = quoted(column)
    values = [
        literal(each) for each in ((low, high) if listed is None else listed) if each is not None
    ]
    if None in values:
        return None
    if listed is None:
        return f"{name} >= {values[0]} AND {name} <= {values[1]}"
    return f"{name} IN ({', '.join(map(str, values))})"


# --- query shape ---------------------------------------------------------------------------------
# Facts from the syntax tree of a query that show how much of its tables a read may skip.


def compared_columns(tree: object) -> frozenset[str]:
    """The columns, in lower case, that a query compares with constants or with results of queries.

    A condition on such a column may leave out files. Columns of different tables are not
    distinguished.
    """
    return frozenset(_compared(tree))


def stops_early(tree: object) -> bool:
    """Whether a parsed query has a LIMIT without an ORDER BY, so that few rows may be read."""
    if isinstance(tree, list):
        return any(map(stops_early, tree))
    if not isinstance(tree, dict):
        return False
    modifiers = tree.get("modifiers")
    kinds = {
        str(each.get("type"))
        for each in (modifiers if isinstance(modifiers, list) else ())
        if isinstance(each, dict)
    }
    limited = any(kind.startswith("LIMIT") for kind in kinds) and "ORDER_MODIFIER" not in kinds
    return limited or any(map(stops_early, tree.values()))


def only_counts(tree: object) -> bool:
    """Whether a parsed query is `SELECT count(*) FROM t`, so that it reads no column."""
    found = select_of_table(tree)
    if found is None:
        return False
    node, source = found
    return (
        not source.get("sample")
        and not source.get("column_name_alias")
        and not node.get("where_clause")
        and not node.get("group_expressions")
        and all(
            each.get("function_name") == "count_star" and not each.get("filter")
            for each in cast("list[Node]", node.get("select_list", []))
        )
    )


def _compared(node: object) -> Iterator[str]:
    if isinstance(node, list):
        for each in node:
            yield from _compared(each)
        return
    if not isinstance(node, dict):
        return
    kind = str(node.get("type"))
    if kind.startswith("COMPARE_") or node.get("subquery_type") == "ANY":
        sides = [node.get(key) for key in ("left", "right", "input", "child")]
        children = node.get("children")
        sides += children[:1] if isinstance(children, list) else []
        columns = [_shape_column(side) for side in sides]
        if sum(name is not None for name in columns) == 1:
            yield from filter(None, columns)
    for each in node.values():
        yield from _compared(each)


def _shape_column(node: object) -> str | None:
    if not isinstance(node, dict) or node.get("class") != "COLUMN_REF":
        return None
    names = node.get("column_names")
    return str(names[-1]).lower() if isinstance(names, list) and names else None


# --- statement views -----------------------------------------------------------------------------


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
    - `count`: returns the number of rows if the metadata of the table gives it;
    - `pruning`: returns the columns by which a filter can skip files or row groups;
    - `scan`: returns a view through which DuckDB scans the files itself; None if it must not.
    """

    relation: duckdb.DuckDBPyRelation | None = None
    view: NativeView | None = None
    metadata: tuple[str, ...] = ()
    rows: Callable[[], int | None] = lambda: None
    count: Callable[[], int | None] = lambda: None
    pruning: Callable[[], frozenset[str]] = frozenset
    scan: Callable[[], NativeView | None] = lambda: None


class Connected(Protocol):
    """A DuckDB connection that knows the tables of a catalog."""

    connection: duckdb.DuckDBPyConnection

    def stored_query(self, chain: Chain) -> str | None:
        """The query of a temporary view; None if there is no such view."""

    def table_view(self, reference: Reference, noted: Noted | None) -> TableView | None:
        """The rows of a table of the catalog; None if it has no such table."""

    def catalog_view(self, chain: Chain) -> tuple[str, str] | None:
        """The catalog and the query of a view that a catalog stores; None if there is none."""

    def full_names(self, chain: Chain) -> list[Chain]:
        """The longer forms of a table's name: `database.table` and `catalog.database.table`."""

    def full_name(self, chain: Chain) -> Chain:
        """The name with catalog and database.

        A name that only the session knows is returned unchanged.
        """

    def unknown(self, reference: Reference) -> None:
        """Remember a name that the catalog does not have: DuckDB may know it."""

    def missing(self, chain: Chain) -> LakecoreError:
        """The error for a name that is neither a table nor a view of a catalog."""

    def create_view(self, relation: duckdb.DuckDBPyRelation) -> str:
        """Create a view of the relation for one statement. Returns the name of the view."""

    def run(self, text: str) -> duckdb.DuckDBPyRelation:
        """Run a query in which views have replaced the tables."""


class StatementViews:
    """The views of one statement: a table that it names twice is read at one snapshot."""

    def __init__(self, queries: Connected, scope: Scope, noted: Noted | None) -> None:
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
        lakecore's own reader leave out files. If the query only counts the rows, and the metadata
        of the table gives their number, the view has as many rows and none of the columns.
        """
        table = self._tables.get(view)
        if table is None or self._noted is not None:
            return view
        if only_counts(tree) and (rows := table.count()) is not None:
            return self._create(self._queries.connection.sql(f"FROM range({rows})"))
        if table.view is not None:
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
