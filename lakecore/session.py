"""The session that `connect` returns: the user's access to any catalog.

Each method of `Session` is one call to the catalog (`catalog/catalog.py`). `catalog/registry.py`
chooses the catalog by the option `metastore`. Nothing is cached: two sessions on one warehouse
always see the same tables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from inspect import currentframe
from threading import local
from typing import TYPE_CHECKING, cast

from lakecore.catalog.filesystem import create_table_at
from lakecore.catalog.identifier import check_directory
from lakecore.catalog.options import WAREHOUSE, is_storage_option, of_process
from lakecore.catalog.registry import OpeningCatalog, open_catalog
from lakecore.deferred import deferred
from lakecore.display import public_names, rows_html
from lakecore.errors import AlreadyExists, InvalidRequest, NotFound, check_flags
from lakecore.forks import require_threads
from lakecore.format.layout import MAIN_BRANCH, Layout
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.history import History
from lakecore.io.stores.open import locate, open_store
from lakecore.io.stores.services import flag
from lakecore.options import OptionValue, option_texts
from lakecore.table.publication import EXCLUSIVE_CREATE

if TYPE_CHECKING:
    from datetime import timedelta

    from lakecore.catalog.catalog import Catalog
    from lakecore.catalog.compact_database import DatabaseCompaction, compact_database
    from lakecore.catalog.new_table import SchemaLike, create_filled, first_schema
    from lakecore.frames.duckdb_face import DuckDBConnection, DuckDBRelation
    from lakecore.io.stores.store import Store
    from lakecore.model.compaction import CompactionResult
    from lakecore.model.retention import OrphanFiles
    from lakecore.model.schema_change import Change
    from lakecore.model.times import Time
    from lakecore.sql.attached import Attached, attach
    from lakecore.sql.engine import SqlEngine
    from lakecore.sql.python_objects import SqlRelation, names_in_scope
    from lakecore.table.handle import Table, load_table
else:
    attach = deferred("lakecore.sql.attached", "attach")
    DatabaseCompaction = deferred("lakecore.catalog.compact_database", "DatabaseCompaction")
    compact_database = deferred("lakecore.catalog.compact_database", "compact_database")
    create_filled = deferred("lakecore.catalog.new_table", "create_filled")
    first_schema = deferred("lakecore.catalog.new_table", "first_schema")
    load_table = deferred("lakecore.table.handle", "load_table")
    names_in_scope = deferred("lakecore.sql.python_objects", "names_in_scope")
    SqlEngine = deferred("lakecore.sql.engine", "SqlEngine")
    SqlRelation = deferred("lakecore.sql.python_objects", "SqlRelation")

__all__ = ["Session", "connect", "open_table", "sql", "sql_engine"]

AUTO_CREATE = "auto-create"
_OF_THREAD = local()


def connect(
    warehouse: str | os.PathLike[str] | Mapping[str, OptionValue], *, create: bool = False
) -> Session:
    """A session on a warehouse: a path, a URI such as `s3://bucket/warehouse`, or catalog options.

    The options are Paimon's catalog options: `warehouse`, `metastore`, `table-default.*` for new
    tables, and storage options such as `s3.endpoint`. Values are strings, numbers or booleans
    (https://paimon.apache.org/docs/master/maintenance/configurations/).

    Raises NotFound if the warehouse does not exist; with `create`, it is created.

        session = lakecore.connect("/data/warehouse", create=True)
    """
    require_threads()
    check_flags(create=create)
    stated = isinstance(warehouse, Mapping)
    given = option_texts(warehouse) if stated else {WAREHOUSE: _path(warehouse)}
    return Session(open_catalog(given, create=create))


def open_table(  # noqa: PLR0913  the public verb
    path: str | os.PathLike[str],
    *,
    create: bool = False,
    schema: SchemaLike | None = None,
    data: object = None,
    primary_keys: Sequence[str] | None = None,
    partition_keys: Sequence[str] | None = None,
    options: Mapping[str, OptionValue] | None = None,
    comment: str | None = None,
    branch: str | None = None,
    ambient: Ambient = SYSTEM,
) -> Table:
    """The table in a directory, without a catalog.

    `options` apply to this object only; they may include storage options. `branch` overrides the
    option `branch`; the default is "main".

    With `create` or the option `auto-create`, a missing table is created from `schema`, keys,
    comment and options. An existing table is opened unchanged. Without `create`, a missing table
    raises NotFound.

    With `data` (anything that `write` accepts), the new table is created with these rows. Its
    columns are those of `data` unless `schema` is given; primary key columns are NOT NULL. Raises
    AlreadyExists and writes nothing if the table exists.

        table = lakecore.open_table(
            "/data/orders", create=True, schema={"id": "BIGINT"}
        )
    """
    require_threads()
    check_flags(create=create)
    location = locate(_path(path))
    if branch is not None:
        check_directory("branch", branch)
    given = option_texts(options, table=location)
    store = open_store(location, given)
    own = {key: text for key, text in given.items() if not is_storage_option(key)}
    creates = flag(AUTO_CREATE, own.pop(AUTO_CREATE, "false")) or create
    if data is not None and not creates:
        raise InvalidRequest("data makes a new table: say create=True, or write it", path=location)
    if creates and _create_absent(
        store,
        location,
        schema,
        data,
        primary_keys=primary_keys,
        partition_keys=partition_keys,
        options={key: text for key, text in own.items() if key not in of_process(own)},
        comment=comment,
        ambient=ambient,
    ):
        own = of_process(own)
    try:
        return load_table(store, location, dynamic_options=own, branch=branch, ambient=ambient)
    except NotFound as error:
        raise NotFound(
            "no table in this directory; open_table(..., create=True, schema=...) makes one",
            path=location,
            branch=branch or own.get("branch", MAIN_BRANCH),
        ) from error


def sql(
    text: str, parameters: Sequence[object] | Mapping[str, object] | None = None
) -> DuckDBRelation:
    """Run SQL without a catalog: the rows of the last statement, as a DuckDB relation.

    Like `Session.sql`, but a table is named by the path of its directory: `'/data/shop.db/orders'`
    in a query, `"/data/shop.db/orders"` in statements that write. After `CREATE CATALOG c WITH
    ('warehouse' = '...')` and `USE CATALOG c`, tables are named by `database.table`. What SET, USE
    and CREATE define lasts for later calls in the same thread.

        lakecore.sql("SELECT count(*) FROM '/data/warehouse/shop.db/orders'").fetchall()
    """
    require_threads()
    engine: SqlEngine | None = getattr(_OF_THREAD, "engine", None)
    if engine is None:
        engine = _OF_THREAD.engine = SqlEngine(None, open_table)
    found = engine.run(text, parameters, scope=names_in_scope(currentframe()))
    return cast("DuckDBRelation", SqlRelation(found))


def sql_engine(session: Session) -> SqlEngine:
    """The SQL engine of a session, for the command line."""
    return session._engine()  # noqa: SLF001 - the module's own class


def engine_over(session: Session, opened: Callable[[Table], Table]) -> SqlEngine:
    """An SQL engine over the tables of a session. `opened` wraps each table for another engine."""
    catalog = OpeningCatalog(session._catalog, opened)  # noqa: SLF001 - the module's own class
    return SqlEngine(cast("Catalog", catalog), open_table)


def _path(given: object) -> str:
    """The path or URI as a string. Raises InvalidRequest for any other type."""
    path = os.fspath(given) if isinstance(given, str | os.PathLike) else given
    if not isinstance(path, str):
        raise InvalidRequest(
            "a warehouse or table is named by its path or URI", given=type(given).__name__
        )
    return path


def _create_absent(  # noqa: PLR0913  what a table is made of
    store: Store,
    path: str,
    schema: SchemaLike | None,
    data: object,
    *,
    primary_keys: Sequence[str] | None,
    partition_keys: Sequence[str] | None,
    options: Mapping[str, str],
    comment: str | None,
    ambient: Ambient,
) -> bool:
    """Create the table unless it exists. Returns whether it was created."""
    if not History(store, Layout(root=path)).schema_ids():
        first, rows = first_schema(
            schema,
            data,
            primary_keys=primary_keys,
            partition_keys=partition_keys,
            options=options,
            comment=comment,
            now_ms=ambient.now_ms(),
            table=path,
        )
        if create_filled(
            store,
            path,
            first,
            rows,
            create_table_at,
            ambient=ambient,
            publication=EXCLUSIVE_CREATE,
            table=path,
        ):
            return True
    if data is not None:
        raise AlreadyExists("the table is there: open it, and write the data", path=path)
    return False


class Session:
    """A session on a catalog: its databases and tables. Names are `database.table`.

    The verbs are the same whichever catalog keeps the names: a directory, a database or a server.

        session = lakecore.connect("/data/warehouse")
        session.list_tables("shop")  # ('orders',)
    """

    def __init__(self, catalog: Catalog) -> None:
        self._bound = catalog
        self._sql: SqlEngine | None = None

    @property
    def _catalog(self) -> Catalog:
        """The catalog. Raises Unsupported in a forked process, because calls would hang there."""
        require_threads()
        return self._bound

    @property
    def warehouse(self) -> str:
        """The path or URI of the warehouse.

        session.warehouse  # '/data/warehouse'
        """
        return self._bound.warehouse

    def __repr__(self) -> str:
        return f"Session({self.warehouse!r})"

    def _repr_html_(self) -> str:
        """The databases and tables, for notebooks."""
        tables = [
            (database, table)
            for database in self.list_databases()
            for table in self.list_tables(database) or ("",)
        ]
        return rows_html(f"Session {self.warehouse}", ("database", "table"), tables, "tables")

    def __dir__(self) -> list[str]:
        return public_names(self)

    def list_databases(self) -> tuple[str, ...]:
        """The names of all databases, sorted.

        session.list_databases()  # ('logs', 'shop')
        """
        return self._catalog.list_databases()

    def database_exists(self, name: str) -> bool:
        """Whether there is a database of that name.

        session.database_exists("shop")  # True
        """
        return self._catalog.database_exists(name)

    def create_database(self, name: str, *, ignore_if_exists: bool = False) -> None:
        """Create an empty database. Raises AlreadyExists if it exists.

        session.create_database("shop", ignore_if_exists=True)
        """
        self._catalog.create_database(name, ignore_if_exists=ignore_if_exists)

    def drop_database(
        self, name: str, *, ignore_if_not_exists: bool = False, cascade: bool = False
    ) -> None:
        """Remove a database; with `cascade`, also its tables and all other files in it.

        Raises InvalidRequest if it is not empty and `cascade` is False; NotFound if it does not
        exist, unless `ignore_if_not_exists`.

            session.drop_database("shop", cascade=True)
        """
        self._catalog.drop_database(
            name, ignore_if_not_exists=ignore_if_not_exists, cascade=cascade
        )

    def list_tables(self, database: str) -> tuple[str, ...]:
        """The names of the tables of a database, sorted.

        session.list_tables("shop")  # ('orders',)
        """
        return self._catalog.list_tables(database)

    def table_exists(self, identifier: str) -> bool:
        """Whether a table, or a branch such as `db.t$branch_b1`, of that name exists.

        session.table_exists("shop.orders")  # True
        """
        return self._catalog.table_exists(identifier)

    def create_table(  # noqa: PLR0913  the public verb
        self,
        identifier: str,
        schema: SchemaLike | None = None,
        *,
        data: object = None,
        primary_keys: Sequence[str] | None = None,
        partition_keys: Sequence[str] | None = None,
        options: Mapping[str, OptionValue] | None = None,
        comment: str | None = None,
        ignore_if_exists: bool = False,
    ) -> Table:
        """Create a table and return it. Raises AlreadyExists if it exists.

        With `ignore_if_exists`, an existing table is returned unchanged.

        `schema` is a pyarrow or Polars schema, or a mapping of column names to types such as
        `"BIGINT NOT NULL"`. `options` are Paimon's table options; the catalog's options under
        `table-default.` are their defaults.

        With `data` (anything that `write` accepts), the new table is created with these rows. Its
        columns are those of `data` unless `schema` is given; primary key columns are NOT NULL. If
        a row does not fit, no table is created. An existing table gets no rows.

            first = pl.read_csv("orders.csv")
            session.create_table("shop.orders", data=first, primary_keys=["id"])
        """
        return self._catalog.create_table(
            identifier,
            schema,
            data=data,
            primary_keys=primary_keys,
            partition_keys=partition_keys,
            options=options,
            comment=comment,
            ignore_if_exists=ignore_if_exists,
        )

    def get_table(self, identifier: str) -> Table:
        """The table `db.t`, its branch `db.t$branch_b1`, or its system table `db.t$files`.

        `sys.tables`, `sys.partitions`, `sys.all_table_options` and `sys.catalog_options` show the
        whole catalog.

        A system table supports the reading methods only. Raises NotFound, listing the names that
        exist.

            orders = session.get_table("shop.orders")
        """
        return self._catalog.get_table(identifier)

    def alter_table(
        self, identifier: str, changes: Sequence[Change], *, ignore_if_not_exists: bool = False
    ) -> None:
        """Apply `SchemaChange`s atomically. Table objects opened before keep their schema.

        A change of `deletion-vectors.enabled` first compacts the table in full, if stored rows need
        it. Raises CommitConflict if concurrent schema changes win every retry.

            note = lakecore.SchemaChange.add_column("note", "STRING")
            session.alter_table("shop.orders", [note])
        """
        self._catalog.alter_table(identifier, changes, ignore_if_not_exists=ignore_if_not_exists)

    def rename_table(self, source: str, target: str, *, ignore_if_not_exists: bool = False) -> None:
        """Rename a table, or move it to another database of the warehouse.

        Raises Unsupported on an object store, unless `commit.single-writer` is set.

            session.rename_table("shop.orders", "shop.sales")
        """
        self._catalog.rename_table(source, target, ignore_if_not_exists=ignore_if_not_exists)

    def remove_orphan_files(
        self,
        database: str,
        older_than: Time | timedelta = "1 d",
        *,
        dry_run: bool = False,
        force: bool = False,
    ) -> dict[str, OrphanFiles]:
        """Delete the orphan files of all tables of a database: files that nothing refers to.

        Arguments and errors are those of `Table.remove_orphan_files`. Returns the result of each
        table by its name. An error ends it; the tables before it are cleaned.

            session.remove_orphan_files("shop", dry_run=True)
        """
        names = [f"{database}.{name}" for name in self.list_tables(database)]
        return {
            name: self.get_table(name).remove_orphan_files(older_than, dry_run=dry_run, force=force)
            for name in names
        }

    def compact_database(  # noqa: PLR0913  the public verb
        self,
        including_databases: str = ".*",
        including_tables: str = ".*",
        excluding_tables: str | None = None,
        *,
        mode: str = "divided",
        full: bool = False,
        max_bytes: int | None = None,
        table_options: Mapping[str, OptionValue] | None = None,
    ) -> dict[str, CompactionResult]:
        """Compact all tables whose names match, each as `Table.compact` does.

        The patterns are regular expressions of whole names. A table matches by its name, with or
        without its database. With `mode` = `"combined"`, tables that are made meanwhile are
        compacted too. `table_options` are dynamic options of every table
        (https://paimon.apache.org/docs/master/maintenance/dedicated-compaction/).

        Returns the result of each table by its name. Tables that are dropped meanwhile, and tables
        of other types, are left out. If tables fail, the others are compacted first; then the first
        error is raised, with the numbers of failed and of compacted tables. Raises InvalidRequest
        for a pattern or a mode that is not valid.

            session.compact_database("shop|sales_.*", excluding_tables="tmp_.*")
        """
        check_flags(full=full)
        request = DatabaseCompaction(
            including_databases=including_databases,
            including_tables=including_tables,
            excluding_tables=excluding_tables,
            mode=mode,
            full=full,
            max_bytes=max_bytes,
            table_options=option_texts(table_options or {}),
        )
        return compact_database(self._catalog, self.get_table, request)

    def sql(
        self, text: str, parameters: Sequence[object] | Mapping[str, object] | None = None
    ) -> DuckDBRelation:
        """Run SQL: the rows of the last statement of the text, as a DuckDB relation.

        Queries are DuckDB's SQL over tables of the catalog (`orders`, `shop.orders`,
        `paimon.shop.orders`, `orders$files`), files (`'rows.parquet'`) and Python objects with rows
        (frames and Arrow tables in variables of the caller). Other statements are those of Paimon's
        Flink and Spark guides: CREATE, ALTER, INSERT, UPDATE, DELETE, MERGE INTO, SHOW, SET
        (https://paimon.apache.org/docs/master/flink/sql-ddl/). A table is read at the snapshot that
        is the latest when the statement starts; `FOR VERSION AS OF 3`, `FOR TIMESTAMP AS OF '...'`
        and `/*+ OPTIONS('key'='value') */` after its name read another state.

        `parameters` are values for `?` or `$name` in a query, an INSERT or a MERGE. A statement
        that writes returns one row with the snapshot and its counts; one that defines something
        returns one row with OK. The current database is `default` until USE names another.

        The rows are read when the relation is asked for them. It has all methods of DuckDB's class,
        and raises lakecore's errors: NotFound, if the table was dropped in the meantime.

        Raises InvalidRequest for wrong SQL, with line, column and a caret; NotFound for a name that
        does not exist; Unsupported for a statement that lakecore lacks.

            session.sql("SELECT item, sum(price) FROM shop.orders GROUP BY item").pl()
        """
        require_threads()
        found = self._engine().run(text, parameters, scope=names_in_scope(currentframe()))
        return cast("DuckDBRelation", SqlRelation(found))

    def attach(
        self,
        connection: DuckDBConnection,
        databases: Sequence[str] | None = None,
        *,
        name: str = "paimon",
    ) -> Attached:
        """Show all tables as views in a DuckDB connection: `paimon.shop.orders`.

        The views are in a database in memory with this `name`; `databases` limits them to some
        databases. Each scan of a view reads the latest snapshot, with the columns and filters that
        DuckDB pushes down. New and dropped tables, and new columns, appear after `refresh()` of the
        result; a view whose columns were renamed, dropped or changed raises an error until then.

        Raises AlreadyExists if the connection has a database of that name. `left_out` of the result
        lists tables that DuckDB cannot show.

            attached = session.attach(connection)
            connection.sql("SELECT count(*) FROM paimon.shop.orders")
        """
        return attach(self._catalog, connection, databases, name)

    def _engine(self) -> SqlEngine:
        if self._sql is None:
            self._sql = SqlEngine(self._catalog, open_table)
        return self._sql

    def drop_table(self, identifier: str, *, ignore_if_not_exists: bool = False) -> None:
        """Remove a table with all its data, snapshots, tags and branches.

        session.drop_table("shop.orders", ignore_if_not_exists=True)
        """
        self._catalog.drop_table(identifier, ignore_if_not_exists=ignore_if_not_exists)

    def repair(self, name: str | None = None) -> tuple[str, ...]:
        """Update the catalog's table list and schema copies from the files of the warehouse.

        `name` is a table `db.t` or a database; by default, everything is repaired. Returns the
        names of the repaired tables, sorted. Tables without files stay listed. Raises NotFound if
        the warehouse has no such table or database; Unsupported for a filesystem catalog, which
        keeps no names apart from its directories, and for a REST catalog.

            session.repair("shop")  # ('shop.orders',)
        """
        return self._catalog.repair(name)
