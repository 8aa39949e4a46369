"""`column IN (SELECT ...)`: the query runs first, and its values become a filter on the table.

DuckDB pushes filters with constants into scans, but no filter that it derives from a join. In
`WHERE ... AND column IN (query) AND ...`, the query is replaced:

- at most `LISTED_MAX` distinct values: a list of these values;
- more: a view that holds the values, and the range of the values as a further condition.

The meaning of the text must not change. Therefore the query is not replaced if it

- cannot run alone, because it refers to the outer query, or to a name that WITH defines;
- has parameters;
- returns more than `ROWS_MAX` rows;
- returns values whose type does not compare exactly with the column's type.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from lakecore.deferred import deferred
from lakecore.sql.query_errors import raise_interrupt
from lakecore.sql.tokens import Kind, quoted, quoted_text, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyarrow.compute import unique

    from lakecore.sql.references import Node
else:
    unique = deferred("pyarrow.compute", "unique")

LISTED_MAX = 1000
ROWS_MAX = 4_000_000
_INTEGERS = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """`column IN (query)` in a text; positions count bytes.

    `sources` describe the FROM clause: the name of each source, and the position of its table; None
    if the source is not a table.
    """

    start: int
    end: int
    column: tuple[str, ...]
    column_text: str
    sources: tuple[tuple[str, int | None], ...]


def candidates(tree: object, encoded: bytes) -> list[Candidate]:
    """Each `column IN (query)` that may be replaced; of nested ones, only the outermost."""
    found = sorted(_walk(tree, frozenset(), encoded), key=lambda each: (each.start, -each.end))
    outer: list[Candidate] = []
    for each in found:
        if not outer or each.start >= outer[-1].end:
            outer.append(each)
    return outer


def _walk(node: object, defined: frozenset[str], encoded: bytes) -> Iterator[Candidate]:
    if isinstance(node, list):
        for each in node:
            yield from _walk(each, defined, encoded)
        return
    if not isinstance(node, dict):
        return
    defined |= _defined(node)
    if node.get("type") == "SELECT_NODE":
        sources = tuple(sources_of(node.get("from_table")))
        for conjunct in conjuncts_of(node.get("where_clause")):
            made = _candidate(conjunct, sources, defined, encoded)
            if made is not None:
                yield made
    for each in node.values():
        yield from _walk(each, defined, encoded)


def _defined(node: Node) -> frozenset[str]:
    """The names that WITH defines at a node, in lower case."""
    ctes = node.get("cte_map")
    entries = ctes.get("map") if isinstance(ctes, dict) else None
    names = [each.get("key") for each in entries or () if isinstance(each, dict)]
    names.append(node.get("cte_name"))
    return frozenset(str(name).lower() for name in names if name)


def sources_of(node: object) -> Iterator[tuple[str, int | None]]:
    """The name of each source of a FROM clause, and its position; None if it is not a table."""
    if not isinstance(node, dict):
        return
    if node.get("type") == "JOIN":
        yield from sources_of(node.get("left"))
        yield from sources_of(node.get("right"))
    elif node.get("type") == "BASE_TABLE":
        place = node.get("query_location")
        name = str(node.get("alias") or node.get("table_name"))
        yield name, place if isinstance(place, int) else None
    else:
        yield str(node.get("alias") or ""), None


def conjuncts_of(node: object) -> Iterator[Node]:
    """The conditions that AND connects."""
    if not isinstance(node, dict):
        return
    if node.get("type") != "CONJUNCTION_AND":
        yield node
        return
    children = node.get("children")
    for each in children if isinstance(children, list) else ():
        yield from conjuncts_of(each)


def _candidate(
    node: Node, sources: tuple[tuple[str, int | None], ...], defined: frozenset[str], encoded: bytes
) -> Candidate | None:
    column = node.get("child")
    if (
        node.get("subquery_type") != "ANY"
        or node.get("comparison_type") != "COMPARE_EQUAL"
        or not isinstance(column, dict)
        or column.get("class") != "COLUMN_REF"
    ):
        return None
    start, length = node.get("query_location"), node.get("query_location_length")
    left, size = column.get("query_location"), column.get("query_location_length")
    names = column.get("column_names")
    places = (start, length, left, size)
    if not isinstance(names, list) or not all(isinstance(each, int) for each in places):
        return None
    assert isinstance(start, int)
    assert isinstance(length, int)
    assert isinstance(left, int)
    assert isinstance(size, int)
    text = encoded[start : start + length].decode(errors="replace")
    tokens = tokenize(text)
    words = {token.value.lower() for token in tokens if token.kind in {Kind.WORD, Kind.QUOTED}}
    if (
        not (text.startswith("(") and text.endswith(")"))
        or any(token.kind is Kind.PARAMETER for token in tokens)
        or words & defined
    ):
        return None
    return Candidate(
        start=start,
        end=start + length,
        column=tuple(map(str, names)),
        column_text=encoded[left : left + size].decode(errors="replace"),
        sources=sources,
    )


def column_type(
    candidate: Candidate, types_at: Callable[[int], Mapping[str, str] | None]
) -> str | None:
    """The type of a candidate's column; None unless exactly one known table has the column.

    `types_at` gives the column types, by lower-case name, of the table at a position.
    """
    *qualifier, name = (part.lower() for part in candidate.column)
    known: list[str] = []
    for source, place in candidate.sources:
        types = None if place is None else types_at(place)
        if qualifier:
            if source.lower() != qualifier[-1]:
                continue
        elif types is None:
            return None  # the column may be one of this source
        if types is None:
            return None
        if name in types:
            known.append(types[name])
    return known[0] if len(known) == 1 and len(qualifier) <= 1 else None


def values_text(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    candidate: Candidate,
    kind: str,
    held: Callable[[pa.Table], str],
) -> str | None:
    """The text that replaces the query of a candidate; None if the query is not replaced.

    `held` creates a view of the given rows and returns its name.
    """
    try:
        relation = connection.sql(query)
        if not are_alike(kind, [str(each) for each in relation.types]):
            return None
        with relation.to_arrow_reader() as reader:
            batches, rows = [], 0
            for batch in reader:
                batches.append(batch)
                rows += batch.num_rows
                if rows > ROWS_MAX:
                    return None
            table = pa.Table.from_batches(batches, reader.schema)
    except (duckdb.Error, RuntimeError, pa.ArrowException) as error:
        raise_interrupt(error)
        # The query does not run alone. If it is wrong, the whole statement raises the error.
        return None
    distinct = pa.table({"value": unique(table.column(0)).drop_null()})
    values = connection.from_arrow(distinct)
    if distinct.num_rows <= LISTED_MAX:
        listed = [literal(value) for (value,) in values.fetchall()]
        return None if None in listed else f"({', '.join(map(str, listed)) or 'NULL'})"
    # DuckDB compares by the collation of the session, as the statement will.
    low, high = map(literal, values.aggregate("min(value), max(value)").fetchall()[0])
    if low is None or high is None:
        return None
    view = held(distinct)
    column = candidate.column_text
    return f"(FROM {quoted(view)}) AND {column} >= {low} AND {column} <= {high}"


def are_alike(kind: str, types: Sequence[str]) -> bool:
    """Whether a comparison of the column gives the same result with constants as with the query."""
    if len(types) != 1:
        return False
    both = {kind, types[0]}
    return both <= _INTEGERS or (len(both) == 1 and kind in {"VARCHAR", "DATE"})


def literal(value: object) -> str | None:
    """A string, an integer or a date as an SQL constant; None if the value has none.

    The first and the last date of Python have none: DuckDB returns them also for infinite dates.
    """
    if value in (date.min, date.max):
        return None
    if isinstance(value, str):
        return None if "\0" in value else quoted_text(value)
    return str(value) if isinstance(value, int) else f"DATE '{value}'"
