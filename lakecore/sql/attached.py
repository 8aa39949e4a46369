"""`Session.attach`: the tables of a catalog as views in a DuckDB connection of the user.

The views are in a separate DuckDB database in memory, so nothing is stored in the user's files.
Each view reads a dataset that opens the table again for each scan:

- rows: each scan reads the snapshot that is the latest when the scan starts. A query that names a
  table twice scans it twice, and may see two snapshots;
- columns: those of the last `refresh`. A scan finds them by their ids, and raises an error if one
  of them was renamed or dropped, or has another type;
- names: the next `refresh` shows tables that were created or dropped after the last one.

The views need `refresh` because DuckDB binds their columns once, and has no hook that is called for
an unknown table name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from lakecore.catalog.identifier import Identifier, parse_identifier
from lakecore.errors import AlreadyExists, InvalidRequest, LakecoreError
from lakecore.frames.arrow_dataset import SourceDataset, SourceScanner
from lakecore.frames.duckdb_face import shown_schema
from lakecore.sql.query_errors import error_of
from lakecore.sql.tokens import quoted, quoted_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from lakecore.catalog.catalog import Catalog
    from lakecore.frames.source import EngineFile
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate
    from lakecore.table.handle import Table

_Columns = tuple[tuple[int, str, pa.DataType], ...]
"""Id, name and type of each column."""
_Comments = tuple[tuple[str | None, str], ...]
"""The comment of each column that has one; that of the table is under None."""


def attach(
    catalog: Catalog,
    connection: duckdb.DuckDBPyConnection,
    databases: Sequence[str] | None,
    name: str,
) -> Attached:
    """The tables of a catalog as views `name.database.table` of a connection."""
    if not isinstance(connection, duckdb.DuckDBPyConnection):
        raise InvalidRequest(
            "attach takes a DuckDB connection, such as duckdb.connect()",
            given=type(connection).__name__,
        )
    text: object = name
    if not isinstance(text, str) or not text:
        raise InvalidRequest("the name of the attached database must be a text", name=name)
    if isinstance(databases, str):
        databases = [databases]
    found = Attached(catalog, connection, databases, name)
    if found.is_attached():
        raise AlreadyExists(
            "the connection has a database of that name; give another one: attach(..., name=...)",
            name=name,
        )
    found.run(f"ATTACH ':memory:' AS {quoted(name)} (READ_WRITE)")
    try:
        return found.refresh()
    except BaseException:
        found.detach()
        raise


class Attached:
    """Tables of a catalog as views in a DuckDB connection; returned by `Session.attach`."""

    def __init__(
        self,
        catalog: Catalog,
        connection: duckdb.DuckDBPyConnection,
        databases: Sequence[str] | None,
        name: str,
    ) -> None:
        self._catalog = catalog
        self._connection = connection
        self._databases = databases
        self.name = name
        self._views: dict[tuple[str, str], tuple[_Columns, _Comments]] = {}
        self._left_out: dict[str, str] = {}

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that have a view, as `database.table`, sorted."""
        return tuple(sorted(map(".".join, self._views)))

    @property
    def left_out(self) -> Mapping[str, str]:
        """The tables without a view, with the reason.

        A table is left out if it cannot be read, or if its name differs from another name only in
        case: DuckDB ignores case.
        """
        return dict(self._left_out)

    def __repr__(self) -> str:
        return f"Attached({self.name!r}, tables={len(self._views)})"

    def refresh(self, table: str | None = None) -> Attached:
        """Update the views to the catalog's new, dropped and altered tables. Returns self.

        With `table`, such as `"shop.orders"`, only its view is updated; no other table is opened.

        Raises InvalidRequest if the database was detached from the connection.
        """
        if not self.is_attached():
            raise InvalidRequest(
                "the views were detached from the connection; attach the catalog again",
                name=self.name,
            )
        only = None if table is None else parse_identifier(table)
        wanted = self._wanted(only)
        named = self._views if only is None else {(only.database, only.table)} & self._views.keys()
        for view in [view for view in named if view not in wanted]:
            self._drop(view)
        for view, found in wanted.items():
            shown = _columns(found.schema), _comments(found.schema)
            if self._views.get(view) == shown:
                continue
            try:
                self._create(view, found, *shown)
            except LakecoreError as error:
                self._left_out[".".join(view)] = str(error)
        return self

    def detach(self) -> None:
        """Remove all views from the connection."""
        self._views.clear()
        if self.is_attached():
            self.run(f"DETACH {quoted(self.name)}")

    def is_attached(self) -> bool:
        """Whether the connection has a database of this name."""
        found = self.run(
            "SELECT 1 FROM duckdb_databases() WHERE lower(database_name) = lower(?)", [self.name]
        )
        return bool(found.fetchall())

    def run(self, text: str, values: Sequence[object] = ()) -> duckdb.DuckDBPyConnection:
        """Run a statement on a separate cursor, so that USE does not change the user's database."""
        try:
            cursor = self._connection.cursor()
            return cursor.execute(text, list(values))
        except duckdb.Error as error:
            raise error_of(error) from error

    def _wanted(self, only: Identifier | None) -> dict[tuple[str, str], Table]:
        found: dict[tuple[str, str], Table] = {}
        seen: dict[tuple[str, str], str] = {}
        if only is None:
            self._left_out.clear()
        else:
            self._left_out.pop(f"{only.database}.{only.table}", None)
            seen = {(view[0].lower(), view[1].lower()): ".".join(view) for view in self._views}
        for database, name in self._names(only):
            full = f"{database}.{name}"
            twin = seen.setdefault((database.lower(), name.lower()), full)
            if twin != full:
                self._left_out[full] = f"DuckDB does not distinguish it from {twin}"
                continue
            try:
                table = self._catalog.get_table(_identifier(database, name))
                _columns(table.schema)
            except LakecoreError as error:
                self._left_out[full] = str(error)
                continue
            found[database, name] = table
        return found

    def _names(self, only: Identifier | None) -> list[tuple[str, str]]:
        catalog, databases = self._catalog, self._databases
        if only is None:
            names = catalog.list_databases() if databases is None else databases
            return [
                (database, name) for database in names for name in catalog.list_tables(database)
            ]
        shown = databases is None or only.database in databases
        there = shown and catalog.table_exists(_identifier(only.database, only.table))
        return [(only.database, only.table)] if there else []

    def _create(
        self, view: tuple[str, str], table: Table, columns: _Columns, comments: _Comments
    ) -> None:
        database, name = view
        catalog, identifier = self._catalog, _identifier(database, name)
        live = _LiveDataset(table, columns, lambda: catalog.get_table(identifier))
        schema = f"{quoted(self.name)}.{quoted(database)}"
        try:
            cursor = self._connection.cursor()
            cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            # `create_view` takes no schema for the view: it creates it in the current one.
            cursor.execute(f"USE {schema}")
            cursor.from_arrow(live).create_view(name, replace=True)
            for column, comment in comments:
                on = f"COLUMN {quoted(name)}.{quoted(column)}" if column else f"VIEW {quoted(name)}"
                cursor.execute(f"COMMENT ON {on} IS {quoted_text(comment)}")
        except duckdb.Error as error:
            raise error_of(error) from error
        self._views[view] = columns, comments

    def _drop(self, view: tuple[str, str]) -> None:
        database, name = view
        schema = f"{quoted(self.name)}.{quoted(database)}"
        del self._views[view]
        self.run(f"DROP VIEW IF EXISTS {schema}.{quoted(name)}")
        if not any(each == database for each, _ in self._views):
            self.run(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


class _LiveDataset(SourceDataset):
    """The rows of a table as a dataset; each scan opens the table again."""

    def __init__(self, table: Table, columns: _Columns, current: Callable[[], Table]) -> None:
        self._columns = columns
        self._current = current
        self._declared = shown_schema(table.schema.arrow)
        super().__init__(_NoRows(self._declared))

    def __reduce__(self) -> tuple[object, ...]:
        raise InvalidRequest("a view of an attached table cannot be copied to another process")

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  pyarrow's name
        *,
        use_threads: bool | None = None,
        **tuning: object,
    ) -> SourceScanner | ds.Scanner:
        """A scan of the latest snapshot. Raises InvalidRequest if a column has changed."""
        table = self._current()
        missing = set(self._columns) - set(_columns(table.schema))
        if missing:
            raise InvalidRequest(
                "columns of the table were renamed, dropped or changed since the catalog was "
                "attached; call refresh() of what attach returned",
                table=table.identifier,
                columns=sorted(name for _, name, _ in missing),
            )
        rows = table.to_arrow_dataset()
        # A column mask may make a NOT NULL column nullable: take the fields of the masked rows.
        shown = shown_schema(rows.schema)
        fields = [shown.field(name) for name in self._declared.names]
        return rows.replace_schema(pa.schema(fields)).scanner(
            columns, filter, use_threads=use_threads, **tuning
        )


@dataclass(frozen=True, slots=True)
class _NoRows:
    """A source with columns but no rows.

    It serves a dataset that is read only through its scanners.
    """

    schema: pa.Schema

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Always empty."""
        del columns, predicate, limit
        return iter(())

    def engine_files(
        self, columns: Sequence[str], predicate: Predicate | None = None
    ) -> list[EngineFile] | None:
        """Always an empty list."""
        del columns, predicate
        return []


def _columns(schema: TableSchema) -> _Columns:
    arrow = schema.arrow
    return tuple((field.id, field.name, arrow.field(field.name).type) for field in schema.fields)


def _comments(schema: TableSchema) -> _Comments:
    described = [(None, schema.comment), *((each.name, each.description) for each in schema.fields)]
    return tuple((name, text) for name, text in described if text)


def _identifier(database: str, name: str) -> str:
    escaped = f"`{database}`" if "." in database or "`" in database else database
    return f"{escaped}.{name}"
