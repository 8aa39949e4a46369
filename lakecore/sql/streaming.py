"""Statements that go on until they are stopped: INSERT from a stream, and queries of one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.ambient import SYSTEM
from lakecore.model.rows import ROW_KIND
from lakecore.options.kinds import parse_duration
from lakecore.scalar.syntax_trees import syntax_tree
from lakecore.sql.query_errors import drop_table, plain_errors
from lakecore.sql.references import Node, Reference, nodes, select_of_table
from lakecore.sql.rewrite import rewritten
from lakecore.sql.tokens import Kind, quoted, quoted_text, tokenize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import duckdb

    from lakecore.sql.datagen import Generator
    from lakecore.sql.python_objects import Scope
    from lakecore.sql.queries import Queries
    from lakecore.sql.run_rows import RowStatements
    from lakecore.sql.semi_joins import Candidate
    from lakecore.sql.statements import Chain, Insert
    from lakecore.sql.workspace import Workspace
    from lakecore.table.handle import Table
    from lakecore.table.writes.stream_write import IngestResult


# --- streaming insert ----------------------------------------------------------------------------
# Streaming inserts: INSERT INTO ... SELECT from an unbounded generator, with commits at intervals.
#
# The generator makes rows at the stated rate, and the query runs on the rows of each step. Two
# forms of queries are supported:
#
# - rows: a SELECT from the generator with expressions and WHERE. Each step inserts its rows;
# - groups: the same with GROUP BY and COUNT, SUM, MIN and MAX. DuckDB keeps the values of all
#   groups, and each step upserts the groups that changed, with their values over all rows so far.
#
# Any other query would need all earlier rows and is refused. The statement ends after the last row
# of a bounded generator, or at Ctrl-C, which first commits all written rows.

_STEP_MS_MAX = 1_000
_ROWS_MAX = 200_000
_FOLDS = {"count": "sum", "count_star": "sum", "sum": "sum", "min": "min", "max": "max"}
_EXPECTED = (
    "a streaming INSERT selects from one generated table, with WHERE, and with GROUP BY and COUNT, "
    "SUM, MIN or MAX; 'number-of-rows' ends the rows and allows any query"
)
_PLACES = frozenset({"alias", "query_location", "query_location_length"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """The generator and the form of a streaming query.

    `folds` is empty for a query of rows. For a query of groups, it has an entry for each output
    column: the function that combines the values of two steps, or None for a group key.
    """

    generator: str
    folds: tuple[str | None, ...] = ()


class StreamingInserts:
    """The streaming INSERT statements of one session."""

    def __init__(self, workspace: Workspace, queries: Queries, rows: RowStatements) -> None:
        self._workspace = workspace
        self._queries = queries
        self._rows = rows
        self._numbers = count(1)
        self.on_commit: Callable[[IngestResult], None] | None = None

    def applies_to(self, statement: Insert) -> bool:
        """Whether the query reads an unbounded generator, or any generator in streaming mode."""
        generators = self._workspace.generators
        if not generators:
            return False
        named = _tables_named(statement.query, self._queries.connection)
        found = [generators[each[0]] for each in named if len(each) == 1 and each[0] in generators]
        streams = self._workspace.is_streaming
        return any(each.rows_max is None or streams for each in found)

    def insert(self, statement: Insert, scope: Scope) -> IngestResult:
        """Run the statement until the generator ends.

        At Ctrl-C, commits the rows so far, then raises KeyboardInterrupt.
        """
        if statement.overwrite:
            raise Unsupported("INSERT OVERWRITE takes rows that have an end")
        table = self._workspace.table(statement.chain, statement.options)
        shape = self._shape(statement.query)
        if shape.folds and not table.schema.primary_keys:
            raise InvalidRequest(
                "the values of groups change, so the table needs a primary key",
                table=table.identifier,
            )
        generator = self._workspace.generators[shape.generator]
        interval = self._workspace.commit_interval
        state = f"_lakecore_state_{next(self._numbers)}"
        try:
            return table.ingest(
                self._steps(statement, shape, generator, state, parse_duration(interval), scope),
                every=interval,
                on_commit=self.on_commit,
            )
        finally:
            generator.batch = None
            drop_table(self._queries.connection, state)

    def _steps(
        self,
        statement: Insert,
        shape: _Shape,
        generator: Generator,
        state: str,
        interval_ms: int,
        scope: Scope,
    ) -> Iterator[pa.Table | None]:
        """The rows to write, step by step; None if no row is due yet."""
        table = self._workspace.table(statement.chain, statement.options)
        step_ms = max(1, min(_STEP_MS_MAX, interval_ms))
        done, began_ms = 0, SYSTEM.now_ms()
        while generator.rows_max is None or done < generator.rows_max:
            SYSTEM.sleep(step_ms / 1000)
            due = (SYSTEM.now_ms() - began_ms) * generator.rows_per_second // 1000 - done
            if due <= 0:
                yield None
                continue
            generator.batch = generator.rows(done, min(due, _ROWS_MAX))
            done += generator.batch.num_rows
            relation = self._queries.relation(statement.query, None, scope)
            if shape.folds:
                relation = self._folded(relation, shape, state)
            rows, _ = self._rows.rows_for(table, statement, relation)
            found = rows.read_all()
            yield found if found.num_rows else None

    def _folded(
        self, relation: duckdb.DuckDBPyRelation, shape: _Shape, state: str
    ) -> duckdb.DuckDBPyRelation:
        """The groups of this step, with their values over all rows so far."""
        connection = self._queries.connection
        columns = [f"c{place}" for place in range(len(shape.folds))]
        types = [str(kind) for kind in relation.types]
        part = f"{state}_part"
        listed = ", ".join(f"#{place} AS c{place - 1}" for place in range(1, len(columns) + 1))
        step = relation.project(listed).to_arrow_table()
        connection.from_arrow(step).create_view(part, replace=True)
        known = connection.execute(
            f"FROM duckdb_tables() SELECT count(*) WHERE table_name = {quoted_text(state)}"
        ).fetchall()
        before = (
            f"FROM {state} UNION ALL BY POSITION FROM {part}" if known[0][0] else f"FROM {part}"
        )
        before = before.replace(" BY POSITION", "")
        keys = [name for name, fold in zip(columns, shape.folds, strict=True) if fold is None]
        values = ", ".join(
            name if fold is None else f"CAST({fold}({name}) AS {kind}) AS {name}"
            for name, fold, kind in zip(columns, shape.folds, types, strict=True)
        )
        groups = f" GROUP BY {', '.join(keys)}" if keys else ""
        connection.execute(
            f"CREATE OR REPLACE TABLE {state} AS FROM ({before}) SELECT {values}{groups}"
        )
        if not keys:
            return connection.sql(f"FROM {state}")
        same = " AND ".join(f"{state}.{key} IS NOT DISTINCT FROM {part}.{key}" for key in keys)
        return connection.sql(f"FROM {state} SEMI JOIN {part} ON {same}")

    # --- the form of a query ----------------------------------------------------------------------

    def _shape(self, text: str) -> _Shape:
        """The form of a query. Raises Unsupported for a query that would need all earlier rows."""
        tree = syntax_tree(self._queries.connection, _plain(text))
        node, source = select_of_table(tree) or ({}, {})
        has_query = _finds(node.get("where_clause"), "SUBQUERY")
        if has_query or source.get("table_name") not in self._workspace.generators:
            raise Unsupported(_EXPECTED)
        generator = str(source["table_name"])
        selected = cast("list[Node]", node.get("select_list"))
        groups = cast("list[Node]", node.get("group_expressions") or [])
        folds = tuple(self._fold(each) for each in selected)
        if not groups and not any(folds):
            return _Shape(generator=generator)
        keys = [each for each, fold in zip(selected, folds, strict=True) if fold is None]
        if len(cast("list[Node]", node.get("group_sets") or [])) > 1 or not _are_the_keys(
            groups, keys, selected
        ):
            raise Unsupported("a streaming INSERT selects each expression of its GROUP BY, once")
        return _Shape(generator=generator, folds=folds)

    def _fold(self, expression: Node) -> str | None:
        """The function that combines the values of an aggregate of two steps.

        None if the expression is not an aggregate.
        """
        if _finds(expression, "SUBQUERY") or _finds(expression, "WINDOW"):
            raise Unsupported(_EXPECTED)
        name = str(expression.get("function_name", "")).lower()
        is_call = expression.get("class") == "FUNCTION"
        if is_call and name in _FOLDS:
            plain = not (expression.get("distinct") or expression.get("filter"))
            order = expression.get("order_bys") or {}
            if plain and not (isinstance(order, dict) and order.get("orders")):
                return _FOLDS[name]
            raise Unsupported(_EXPECTED)
        used = {
            str(each.get("function_name", "")).lower()
            for each in nodes(expression)
            if each.get("class") == "FUNCTION"
        }
        listed = ", ".join(map(quoted_text, sorted(used))) or "''"
        aggregates = self._queries.connection.execute(
            "FROM duckdb_functions() SELECT function_name "
            f"WHERE function_type = 'aggregate' AND function_name IN ({listed})"
        ).fetchall()
        if aggregates:
            raise Unsupported(_EXPECTED)
        return None


def _plain(text: str) -> str:
    """The text with double quotes in place of backquotes, which DuckDB does not read."""
    return text.replace("`", '"')


def _are_the_keys(groups: list[Node], keys: list[Node], selected: list[Node]) -> bool:
    """Whether GROUP BY lists exactly the selected expressions that are not aggregates."""
    if len(groups) != len(keys):
        return False
    wanted = {_text_of(each): each for each in keys}
    aliases = {str(each.get("alias")): each for each in keys if each.get("alias")}
    found = set()
    for group in groups:
        names = cast("list[str]", group.get("column_names") or [])
        literal = cast("Node", group.get("literal") or {})
        if group.get("class") == "CONSTANT":  # GROUP BY 1: the first column
            text = str(literal.get("text", ""))
            place = int(text) if literal.get("kind") == "INTEGER" and text.isdecimal() else 0
            match = selected[place - 1] if 1 <= place <= len(selected) else None
        else:
            match = wanted.get(_text_of(group))
            if match is None and len(names) == 1:
                match = aliases.get(names[0])
        if match is None or all(match is not each for each in keys):
            return False
        found.add(id(match))
    return len(found) == len(keys)


def _text_of(node: Node) -> str:
    """An expression as JSON without alias and position: equal texts mean equal expressions."""

    def bare(part: object) -> object:
        if isinstance(part, dict):
            return {key: bare(each) for key, each in part.items() if key not in _PLACES}
        return [bare(each) for each in part] if isinstance(part, list) else part

    return json.dumps(bare(node), sort_keys=True).lower()


def _finds(tree: object, kind: str) -> bool:
    """Whether a tree holds a node of this class."""
    return any(each.get("class") == kind for each in nodes(tree))


class _Names:
    """Stands in for the views of a query, and only records the names of its tables."""

    def __init__(self) -> None:
        self.found: list[Chain] = []

    def view_of(self, reference: Reference) -> str | None:
        """Record the name of a table. Always returns None."""
        self.found.append(reference.chain)
        return None

    def full_names(self, reference: Reference) -> list[Chain]:
        """Always empty: the text is never run."""
        del reference
        return []

    def scan_of(self, view: str, tree: object) -> str:
        """Always `view`."""
        del tree
        return view

    def key_filters(self, tree: object, view_at: Callable[[int], str | None]) -> Mapping[int, str]:
        """Always empty."""
        del tree, view_at
        return {}

    def metadata_of(self, view: str) -> tuple[str, ...]:
        """Always empty."""
        del view
        return ()

    def semi_join(
        self, query: str, candidate: Candidate, view_at: Callable[[int], str | None]
    ) -> str | None:
        """Always None: the query is not changed."""
        del query, candidate, view_at
        return None


def _tables_named(text: str, connection: duckdb.DuckDBPyConnection) -> list[Chain]:
    """The names of the tables in a query that WITH does not define."""
    names = _Names()
    rewritten(text, connection, names)
    return names.found


# --- streaming query -----------------------------------------------------------------------------
# Queries that follow their tables: `SET 'execution.runtime-mode' = 'streaming'`.
#
# 1. Run the query on the newest snapshots. All its rows are new.
# 2. Wait until a table of the query has another snapshot (`continuous.discovery-interval`).
# 3. Run the query again, and compare its rows with the previous ones. Missing rows are returned
#    with
#    the kind -D, new rows with the kind +I. For an updated row, both are returned.
#
# So the changes are right for any query. Each step costs as much as the query itself, and DuckDB
# keeps the rows of the previous step.

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
        connection, kind = self._queries.connection, quoted(ROW_KIND)
        with plain_errors():
            relation = self._queries.relation(text, None, scope)
            if ROW_KIND in relation.columns:
                raise InvalidRequest("a streaming query names its kinds of rows", column=ROW_KIND)
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
