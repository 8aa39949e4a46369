"""An SQL session: takes statements and returns DuckDB relations."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from functools import cached_property
from inspect import currentframe
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.sql import statements as s
from lakecore.sql.parse import parse
from lakecore.sql.printable import printable
from lakecore.sql.python_objects import names_in_scope
from lakecore.sql.queries import Queries, batches_of
from lakecore.sql.query_errors import check_syntax, plain_errors
from lakecore.sql.tokens import quoted, split
from lakecore.sql.workspace import DEFAULT_CATALOG, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import duckdb

    from lakecore.catalog.catalog import Catalog
    from lakecore.catalog.views import new_view
    from lakecore.cdc.sink_parts import Progress
    from lakecore.sql.copy_into import copy_into, copy_out
    from lakecore.sql.procedures.registry import call, listed
    from lakecore.sql.python_objects import Scope
    from lakecore.sql.queries import Parameters
    from lakecore.sql.run_rows import RowStatements
    from lakecore.sql.run_show import Rows, describe, describe_view, show
    from lakecore.sql.run_tables import TableStatements, run_mirror
    from lakecore.sql.streaming import StreamingInserts, StreamingQueries
    from lakecore.table.handle import Table
    from lakecore.table.writes.stream_write import IngestResult
else:
    call = deferred("lakecore.sql.procedures.registry", "call")
    copy_into = deferred("lakecore.sql.copy_into", "copy_into")
    copy_out = deferred("lakecore.sql.copy_into", "copy_out")
    describe = deferred("lakecore.sql.run_show", "describe")
    describe_view = deferred("lakecore.sql.run_show", "describe_view")
    new_view = deferred("lakecore.catalog.views", "new_view")
    listed = deferred("lakecore.sql.procedures.registry", "listed")
    show = deferred("lakecore.sql.run_show", "show")
    run_mirror = deferred("lakecore.sql.run_tables", "run_mirror")
    RowStatements = deferred("lakecore.sql.run_rows", "RowStatements")
    StreamingInserts = deferred("lakecore.sql.streaming", "StreamingInserts")
    StreamingQueries = deferred("lakecore.sql.streaming", "StreamingQueries")
    TableStatements = deferred("lakecore.sql.run_tables", "TableStatements")

_COUNTS = ("rows", "rows_inserted", "rows_updated", "rows_deleted")


class SqlEngine:
    """Runs statements on a catalog. It keeps the current database, variables and temporary names.

    Only one thread may use it at a time.
    """

    def __init__(self, catalog: Catalog | None, open_path: Callable[..., Table]) -> None:
        catalogs = {} if catalog is None else {DEFAULT_CATALOG: catalog}
        self._workspace = Workspace(catalogs=catalogs, open_path=open_path)
        self._queries = Queries(self._workspace)
        self._on_commit: Callable[[IngestResult], None] | None = None
        self._on_checkpoint: Callable[[str, Progress], None] | None = None

    @cached_property
    def _rows(self) -> RowStatements:
        return RowStatements(self._workspace, self._queries)

    @cached_property
    def _tables(self) -> TableStatements:
        return TableStatements(self._workspace, self._queries)

    @cached_property
    def _following(self) -> StreamingQueries:
        return StreamingQueries(self._queries)

    @cached_property
    def _streams(self) -> StreamingInserts:
        return StreamingInserts(self._workspace, self._queries, self._rows)

    def on_commit(self, told: Callable[[IngestResult], None] | None) -> None:
        """Call the function `told` after each commit of a streaming INSERT."""
        self._on_commit = told

    def on_checkpoint(self, told: Callable[[str, Progress], None] | None) -> None:
        """Call `told` with the pipeline's name and progress after each checkpoint of a pipeline."""
        self._on_checkpoint = told

    def interrupt(self) -> None:
        """Stop the running query, which then raises an error. Another thread may call this."""
        self._queries.connection.interrupt()

    def progress(self) -> float | None:
        """How much of the running query is done, in percent; None if DuckDB does not know."""
        percent = self._queries.connection.query_progress()
        return percent if percent >= 0 else None

    def checked(self, statements: Sequence[str]) -> Sequence[str]:
        """The statements of one text, after a check that none has a syntax error.

        A single statement is checked when it runs.
        """
        if len(statements) > 1:
            for text in statements:
                check_syntax(text, parse(text), self._queries.connection)
        return statements

    def changes(self, text: str) -> Iterator[pa.Table] | None:
        """The changes of a query as they arrive, in streaming mode.

        None for any other statement.
        """
        if not self._workspace.is_streaming:
            return None
        statement = parse(text)
        if not isinstance(statement, s.Query):
            return None
        return self._following.changes(statement.text, lambda _name: None)

    def run(
        self, text: str, parameters: Parameters = None, *, scope: Scope | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Run the statements of a text, in order. Returns the rows of the last one.

        `scope` finds Python objects by name; by default it searches the variables of the callers.
        """
        if not isinstance(text, str):
            raise InvalidRequest("an SQL statement must be a string", given=type(text).__name__)
        parts = split(text)
        if not parts:
            raise InvalidRequest("the text contains no statement")
        if parameters is not None and len(parts) > 1:
            raise InvalidRequest("parameters are for one statement", statements=len(parts))
        find = names_in_scope(currentframe()) if scope is None else scope
        found = None
        for statement in [parse(part) for part in self.checked(parts)]:
            found = self._run(statement, parameters, find)
        assert found is not None, "there is a statement"
        return found

    def sealed(
        self, text: str, *, limit: int, memory_bytes: int
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The first rows of a query from somebody who may only read.

        The text is one SELECT that reads tables of the catalog and computes: no files, networks,
        settings or other statements. DuckDB keeps at most `memory_bytes` of rows, and no disk. What
        it computes with at the moment is not counted: up to 2,048 values for each expression.
        """
        connection = self._queries.connection
        connection.execute(f"SET memory_limit = '{memory_bytes} B'")
        connection.execute("SET temp_directory = ''")
        connection.execute("SET arrow_lossless_conversion = true")
        return batches_of(printable(self._queries.sealed(text).limit(limit)))

    def carry_out(self, statement: s.Statement) -> duckdb.DuckDBPyRelation:
        """Run one parsed statement, which reads no Python objects. Returns its rows."""
        return self._run(statement, None, lambda _name: None)

    def _run(
        self, statement: s.Statement, parameters: Parameters, scope: Scope
    ) -> duckdb.DuckDBPyRelation:
        with plain_errors():
            return self._answer(statement, parameters, scope)

    def _answer(
        self, statement: s.Statement, parameters: Parameters, scope: Scope
    ) -> duckdb.DuckDBPyRelation:
        takes = s.Query | s.Insert | s.Merge
        creates = (
            isinstance(statement, s.CreateTable)
            and statement.query is not None
            and not self._follows(statement)
        )
        if parameters is not None and not (isinstance(statement, takes) or creates):
            raise Unsupported("parameters are for queries, INSERT and MERGE")
        if isinstance(statement, s.Query) and self._workspace.is_streaming:
            if parameters is not None:
                raise Unsupported("parameters are for queries in batch mode")
            return self._following.limited(statement.text, scope)
        if isinstance(statement, s.Query):
            return self._queries.relation(statement.text, parameters, scope)
        if isinstance(statement, s.Own):
            return self._queries.change(statement.text)
        rows = self._asked(statement, scope)
        if rows is not None:
            return self._relation(*rows)
        result = self._changed(statement, parameters, scope)
        return self._done() if result is None else self._relation(*_shown(result))

    def _asked(self, statement: s.Statement, scope: Scope) -> Rows | None:
        """The rows of a statement that returns rows or calls a procedure.

        None for other statements.
        """
        match statement:
            case s.CreateTable() | s.CreateDatabase() if self._follows(statement):
                assert statement.mirror is not None, "as checked"
                return run_mirror(self._workspace, statement, statement.mirror, self._on_checkpoint)
            case s.Explain():
                return ("part", "plan"), list(self._queries.explained(statement, scope))
            case s.Show(what="procedures"):
                return listed(like=statement.like)
            case s.Show():
                return show(self._workspace, statement)
            case s.Call():
                return call(
                    self._workspace,
                    self._queries,
                    statement,
                    lambda text: self.run(text, scope=scope),
                )
            case s.CopyInto():
                table = self._workspace.table(statement.chain)
                storage = self._workspace.storage_options(statement.chain)
                return copy_into(self._queries, table, statement, storage)
            case s.CopyOut():
                query = parse(statement.query)
                if not isinstance(query, s.Query):
                    raise InvalidRequest(
                        "COPY INTO a directory takes a query, not a statement that changes data",
                        query=statement.query,
                    )
                return copy_out(self._queries, statement, scope, self._workspace.storage_options())
            case s.Describe():
                return self._described(statement)
            case s.SetVariable(key=None):
                return ("key", "value"), sorted(self._workspace.variables.items())
            case s.SetVariable(key=str(key), value=None):
                return ("key", "value"), [(key, self._workspace.variables.get(key))]
        return None

    def _described(self, statement: s.Describe) -> Rows:
        name, views = statement.chain[0], self._workspace.views
        if len(statement.chain) > 1 or name not in views:
            return describe(self._workspace, statement)
        rows = self._queries.relation(f"FROM {quoted(name)}").limit(0).to_arrow_table()
        return describe_view(name, new_view(views[name], rows.schema, None, {}), statement)

    def _follows(self, statement: s.CreateTable | s.CreateDatabase) -> bool:
        """Whether the statement starts a CDC pipeline. AS TABLE may instead name a Paimon table."""
        mirror = statement.mirror
        if mirror is None or isinstance(statement, s.CreateDatabase):
            return mirror is not None
        return mirror.chain[0] in self._workspace.sources or bool(mirror.computed)

    def _changed(
        self, statement: s.Statement, parameters: Parameters, scope: Scope
    ) -> object | None:
        """Execute a statement that changes data.

        Returns its result; None if there is nothing to show.
        """
        if isinstance(statement, s.Insert) and self._streams.applies_to(statement):
            self._streams.on_commit = self._on_commit
            return self._streams.insert(statement, scope)
        if isinstance(statement, s.RowStatement):
            return self._rows.run(statement, parameters, scope)
        if isinstance(statement, s.TableStatement):
            self._tables.run(statement)
        elif isinstance(statement, s.Analyze):
            self._workspace.table(statement.chain).analyze(statement.columns)
        elif isinstance(statement, s.CreateTable):
            self._create(statement, parameters, scope)
        else:
            self._set(statement)
        return None

    def _create(self, statement: s.CreateTable, parameters: Parameters, scope: Scope) -> None:
        if statement.query is None:
            self._tables.create_table(statement)
        else:
            self._rows.create_as(statement, parameters, scope)

    def _set(self, statement: s.Statement) -> None:
        """Execute a statement on the session itself."""
        workspace = self._workspace
        match statement:
            case s.Use():
                workspace.use(statement.chain, catalog=statement.catalog)
            case s.CreateCatalog():
                workspace.create_catalog(statement.name, statement.options)
            case s.DropCatalog():
                workspace.drop_catalog(statement.name, if_exists=statement.if_exists)
            case s.SetVariable(key=str(key), value=str(value)):
                if not workspace.set_variable(key, value):
                    self._queries.set(key, value)
            case s.Reset(key=None):
                workspace.variables.clear()
            case s.Reset(key=str(key)):
                if not workspace.reset_variable(key):
                    self._queries.set(key, None)
            case _:
                raise Unsupported(
                    "this statement is not supported", statement=type(statement).__name__
                )

    def _relation(
        self, names: tuple[str, ...], rows: list[tuple[object, ...]]
    ) -> duckdb.DuckDBPyRelation:
        columns = [pa.array([row[place] for row in rows]) for place in range(len(names))]
        table = pa.table(
            {
                name: column.cast(pa.string()) if pa.types.is_null(column.type) else column
                for name, column in zip(names, columns, strict=True)
            }
        )
        return self._queries.connection.from_arrow(table)

    def _done(self) -> duckdb.DuckDBPyRelation:
        return self._relation(("result",), [("OK",)])


def _shown(result: object) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """The result of a statement as one row: the snapshot and the counts."""
    assert is_dataclass(result), "verbs return frozen results"
    facts = asdict(result)  # type: ignore[arg-type]  # an instance, as asserted
    ids = facts.get("snapshot_ids") or (None,)
    names = ("snapshot_id", *(name for name in _COUNTS if facts.get(name) is not None))
    return names, [(ids[-1], *(facts[name] for name in names[1:]))]
