"""Inner joins with a small side: the keys of this side become a filter on the other side's table.

DuckDB does not push a filter that it derives from a join into lakecore's scans. For `big.k =
small.k`:

1. Read the keys of the small side, with those conditions of the query that concern only this side.
2. Up to `LISTED_MAX` keys become `k IN (...)`; more become a range of `k`. In the query's text, the
   table is replaced by `(FROM table WHERE condition)`: DuckDB pushes this condition into the scan.

The filter must only drop rows that the join would drop: it may be too wide, but never too narrow.
Therefore:

- only inner joins are used, and comma joins with a condition in WHERE. No filter is made for outer,
  NATURAL, ASOF and POSITIONAL joins, or for a query with a sample;
- a condition on the small side is used only if it consists of its columns, constants, and functions
  that always give the same result. Other conditions are left out, which widens the filter;
- both columns are integers, or both are VARCHAR, or both are DATE: for these types, comparing a
  column with the constants gives the same result as comparing it with the other column;
- if a query for keys raises an error, no filter is made; the statement itself then raises the
  error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import duckdb

from lakecore.sql.query_errors import raise_interrupt
from lakecore.sql.semi_joins import LISTED_MAX, are_alike, conjuncts_of, literal
from lakecore.sql.syntax_tree import nodes, selects
from lakecore.sql.tokens import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.sql.syntax_tree import Node

__all__ = ["Side", "key_filters"]

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
            text += f" WHERE {_text(connection, conditions)}"
    except duckdb.Error:
        return None
    within = f" WHERE {' AND '.join(reduced)}" if reduced else ""
    return f"SELECT {key} AS key FROM (SELECT * {text}){within}"  # noqa: S608 - parts of the query


def _text(connection: duckdb.DuckDBPyConnection, conditions: Sequence[Node]) -> str:
    """The conditions as SQL. DuckDB converts a parsed query to text."""
    ((answer,),) = connection.execute("SELECT json_serialize_sql('SELECT 1 WHERE 1')").fetchall()
    tree = json.loads(answer)
    pieces = []
    for each in conditions:
        tree["statements"][0]["node"]["where_clause"] = each
        ((text,),) = connection.execute(
            "SELECT json_deserialize_sql(?)", [json.dumps(tree)]
        ).fetchall()
        pieces.append("(" + str(text).partition(" WHERE ")[2] + ")")
    return " AND ".join(pieces)


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
