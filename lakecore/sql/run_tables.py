"""Statements on catalogs, databases, tables and their schemas.

CREATE TABLE ... AS TABLE and CREATE DATABASE ... AS DATABASE of a source catalog run a CDC
pipeline, as an action of the command line does, and keep the same state: running the statement
again continues where it ended. It follows the source until Ctrl-C, and then commits what it has
read. With `SET 'cdc.until' = 'caught-up'` or the same option in the hint, it ends when it has
caught up.

An option of the hint is a flag of the action if the action has a flag of that name (`type_mapping`,
`mode`, `interval`, ...). Otherwise it is an option of the source (`server-id`,
`scan.startup.mode`, ...).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from lakecore.cdc.actions import Arguments
from lakecore.cdc.pipeline import RUN_FLAGS, SYNC_ACTIONS, launch_of
from lakecore.errors import AlreadyExists, InvalidRequest, NotFound, Unsupported
from lakecore.io.ambient import SYSTEM
from lakecore.model.data_types import Array, DataType, Map, Row
from lakecore.model.schema_change import Change, DropColumn, SchemaChange, UpdateColumnType
from lakecore.model.types import Field, parse_type
from lakecore.options.kinds import parse_duration
from lakecore.sql import statements as s
from lakecore.sql.datagen import CONNECTOR, generator_of
from lakecore.sql.run_rows import partition_values, replace_table
from lakecore.sql.stored_views import (
    alter_view,
    check_stores_views,
    create_view,
    drop_view,
    rename_view,
    with_columns,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.catalog.catalog import Catalog
    from lakecore.cdc.sink_parts import Progress
    from lakecore.cdc.source_catalogs import SourceCatalog
    from lakecore.model.schema import TableSchema
    from lakecore.sql.queries import Queries
    from lakecore.sql.run_show import Rows
    from lakecore.sql.workspace import Workspace
    from lakecore.table.handle import Table

# --- nested --------------------------------------------------------------------------------------
# Splits a new type of a nested column into changes of the parts that differ.
#
# ALTER TABLE ... MODIFY states the whole type. Fields of a ROW are found by name: those that the
# new type lacks are dropped, new ones are added last, and types of the others change, at any depth.


def in_parts(changes: Sequence[Change], schema: TableSchema) -> list[Change]:
    """The changes, where each new type of a nested column is replaced by changes of its parts."""
    types = {field.name: field.type for field in schema.fields}
    found: list[Change] = []
    for change in changes:
        old = types.get(change.path[0]) if isinstance(change, UpdateColumnType) else None
        if isinstance(change, UpdateColumnType) and len(change.path) == 1 and old is not None:
            found += _parts(change, change.path, old, change.type)
        else:
            found.append(change)
    return found


def _parts(
    whole: UpdateColumnType, path: tuple[str, ...], old: DataType, new: DataType
) -> list[Change]:
    match old, new:
        case Row(), Row():
            return _fields(whole, path, old, new)
        case Array(), Array():
            return _parts(whole, (*path, "element"), old.element, new.element)
        case Map(), Map():
            if old.key != new.key:
                raise InvalidRequest(
                    "the key type of a MAP does not change", column=".".join(path), type=str(new)
                )
            return _parts(whole, (*path, "value"), old.value, new.value)
    if path == whole.path:
        return [whole]
    if str(old) == str(new):
        return []
    return [SchemaChange.update_column_type(path, new)]


def _fields(whole: UpdateColumnType, path: tuple[str, ...], old: Row, new: Row) -> list[Change]:
    before = {field.name: field for field in old.fields}
    after = {field.name: field for field in new.fields}
    kept = [name for name in before if name in after]
    if not kept:
        raise InvalidRequest(
            "the new ROW has no field of the old one", column=".".join(path), type=str(new)
        )
    if list(after)[: len(kept)] != kept:
        raise InvalidRequest(
            "fields of a ROW keep their order; new fields come last",
            column=".".join(path),
            type=str(new),
        )
    found: list[Change] = [
        SchemaChange.drop_column((*path, name)) for name in before if name not in after
    ]
    for name in kept:
        found += _parts(whole, (*path, name), before[name].type, after[name].type)
    found += [
        SchemaChange.add_column((*path, name), field.type, comment=field.description)
        for name, field in after.items()
        if name not in before
    ]
    return found


# --- run tables ----------------------------------------------------------------------------------

_CONNECTOR = "connector"
_PATH = "path"


class TableStatements:
    """The statements that define objects, on one session."""

    def __init__(self, workspace: Workspace, queries: Queries) -> None:
        self._workspace = workspace
        self._queries = queries

    def run(self, statement: s.TableStatement) -> None:
        """Execute a statement."""
        match statement:
            case s.CreateDatabase():
                self.create_database(statement)
            case s.DropDatabase():
                self.drop_database(statement)
            case s.CreateView():
                self.create_view(statement)
            case s.AlterView():
                self.alter_view(statement)
            case s.Drop():
                self.drop(statement)
            case s.RenameTable():
                self.rename(statement)
            case s.AlterTable():
                self.alter(statement)
            case s.DropPartition():
                self.drop_partitions(statement)
            case s.CommentOn():
                self.comment(statement)
            case s.ChangeTag():
                self.change_tag(statement)

    def create_database(self, statement: s.CreateDatabase) -> None:
        """CREATE DATABASE."""
        catalog, name = self._workspace.databases(statement.chain)
        catalog.create_database(name, ignore_if_exists=statement.if_not_exists)

    def drop_database(self, statement: s.DropDatabase) -> None:
        """DROP DATABASE."""
        catalog, name = self._workspace.databases(statement.chain)
        try:
            catalog.drop_database(
                name, ignore_if_not_exists=statement.if_exists, cascade=statement.cascade
            )
        except InvalidRequest as error:
            # The catalog names its own argument.
            said = error.message.replace("cascade=True", "DROP DATABASE ... CASCADE")
            raise InvalidRequest(said, **error.facts) from error

    def create_table(self, statement: s.CreateTable) -> None:
        """CREATE TABLE, without a query."""
        options = dict(statement.options)
        connector = options.pop(_CONNECTOR, "paimon")
        if connector not in {"paimon", CONNECTOR}:
            raise Unsupported("the connector of a table is paimon or datagen", connector=connector)
        columns = {column.name: _field(column) for column in statement.columns}
        if len(columns) < len(statement.columns):
            names = [column.name for column in statement.columns]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise InvalidRequest("a column is defined twice", columns=twice)
        keys, partitions, comment = (
            statement.primary_keys,
            statement.partition_keys,
            statement.comment,
        )
        if statement.like is not None:
            source = self._workspace.table(statement.like).schema
            columns = {field.name: field for field in source.fields} | columns
            keys = keys or source.primary_keys
            partitions = partitions or source.partition_keys
            comment = source.comment if comment is None else comment
            stated = source.stated_options
            options = {key: text for key, text in stated.items() if key != _PATH} | options
        if connector == CONNECTOR:
            self._make_generator(statement, list(columns.values()), options)
            return
        if statement.temporary:
            opened = partial(
                self._workspace.open_path,
                schema=columns or None,
                primary_keys=keys,
                partition_keys=partitions,
                comment=comment,
            )
            self._open_temporary(statement, opened, options)
            return
        if not columns:
            raise InvalidRequest("a table needs columns, LIKE, or AS and a query")
        self._workspace.make_default_database(statement.chain)
        catalog, identifier = self._workspace.identifier(statement.chain)
        before = self._workspace.replaced(statement)
        if before is not None:
            replace_table(
                before,
                columns,
                primary_keys=keys,
                partition_keys=partitions,
                options={**catalog.names.table_defaults, **options},
                comment=comment,
            )
            return
        catalog.create_table(
            identifier,
            columns,
            primary_keys=keys,
            partition_keys=partitions,
            options=options,
            comment=comment,
            ignore_if_exists=statement.if_not_exists,
        )

    def _make_generator(
        self, statement: s.CreateTable, columns: list[Field], options: dict[str, str]
    ) -> None:
        """CREATE TEMPORARY TABLE ... WITH ('connector' = 'datagen')."""
        if not statement.temporary or len(statement.chain) > 1:
            raise Unsupported(
                "generated rows are not stored: write CREATE TEMPORARY TABLE, and a name of one "
                "part",
                table=".".join(statement.chain),
            )
        if statement.primary_keys or statement.partition_keys:
            raise Unsupported("a generated table has no keys", table=statement.chain[0])
        (name,) = statement.chain
        taken = name in self._workspace.generators or name in self._workspace.temporary
        if taken and statement.if_not_exists:
            return
        if taken and not statement.replace:
            raise AlreadyExists("a temporary table of that name exists", table=name)
        self._workspace.temporary.pop(name, None)
        self._workspace.generators[name] = generator_of(
            name, columns, options, seed=UUID(SYSTEM.new_uuid()).int, now_ms=SYSTEM.now_ms()
        )

    def _open_temporary(
        self, statement: s.CreateTable, opened: Callable[..., Table], options: dict[str, str]
    ) -> None:
        """CREATE TEMPORARY TABLE: a name for a table at a path."""
        if len(statement.chain) > 1:
            raise InvalidRequest(
                "a temporary table has a name of one part", name=".".join(statement.chain)
            )
        (name,) = statement.chain
        taken = name in self._workspace.temporary or name in self._workspace.generators
        if taken and not statement.replace:
            if statement.if_not_exists:
                return
            raise AlreadyExists("a temporary table of that name exists", table=name)
        path = options.pop(_PATH, None)
        if path is None:
            raise InvalidRequest("a temporary table needs the option 'path'", table=name)
        self._workspace.temporary[name] = opened(path, options=options)
        self._workspace.generators.pop(name, None)

    def create_view(self, statement: s.CreateView) -> None:
        """CREATE VIEW, CREATE TEMPORARY VIEW."""
        if not statement.temporary:
            check_stores_views(self._workspace, statement.chain)
            text = with_columns(statement.query, statement.columns)
            schema = self._queries.schema_in_view(text, statement.chain)
            create_view(self._workspace, statement, schema)
            return
        if len(statement.chain) > 1:
            raise InvalidRequest("a temporary view has a name of one part")
        if statement.options:
            raise InvalidRequest("a temporary view has no properties", view=statement.chain[0])
        (name,) = statement.chain
        views = self._workspace.views
        if name in views and statement.if_not_exists:
            return
        if name in views and not statement.replace:
            raise AlreadyExists("a view of that name exists", view=name)
        query = statement.query
        self._queries.relation(query)  # raises for an invalid query
        views[name] = with_columns(query, statement.columns)

    def alter_view(self, statement: s.AlterView) -> None:
        """ALTER VIEW ... AS, SET TBLPROPERTIES, UNSET TBLPROPERTIES."""
        chain, query = statement.chain, statement.query
        if len(chain) == 1 and chain[0] in self._workspace.views:
            if query is None:
                raise InvalidRequest("a temporary view has no properties", view=chain[0])
            self._queries.relation(query)  # raises for an invalid query
            self._workspace.views[chain[0]] = query
            return
        check_stores_views(self._workspace, chain)
        schema = None if query is None else self._queries.schema_in_view(query, chain)
        alter_view(self._workspace, statement, schema)

    def drop(self, statement: s.Drop) -> None:
        """DROP TABLE, DROP VIEW."""
        name = statement.chain[0] if len(statement.chain) == 1 else None
        if statement.view:
            if name in self._workspace.views:
                del self._workspace.views[name]
            else:
                drop_view(self._workspace, statement.chain, if_exists=statement.if_exists)
            return
        if name in self._workspace.generators:
            del self._workspace.generators[name]
            return
        if name in self._workspace.temporary:
            del self._workspace.temporary[name]
            return
        if statement.temporary:
            if not statement.if_exists:
                raise NotFound("no temporary table of that name", table=".".join(statement.chain))
            return
        catalog, identifier = self._workspace.identifier(statement.chain)
        catalog.drop_table(identifier, ignore_if_not_exists=statement.if_exists)

    def rename(self, statement: s.RenameTable) -> None:
        """ALTER ... RENAME TO; a new name without a database stays in the same database."""
        if statement.view:
            workspace, chain = self._workspace, statement.chain
            rename_view(workspace, chain, statement.to, if_exists=statement.if_exists)
            return
        catalog, source = self._workspace.identifier(statement.chain)
        to = statement.to
        if len(to) == 1 and len(statement.chain) > 1:
            to = (*statement.chain[:-1], *to)
        other, target = self._workspace.identifier(to)
        if other is not catalog:
            raise Unsupported("a table cannot be moved to another catalog", table=source)
        catalog.rename_table(source, target, ignore_if_not_exists=statement.if_exists)

    def alter(self, statement: s.AlterTable) -> None:
        """ALTER TABLE with changes of the schema."""
        catalog, identifier = self._workspace.identifier(statement.chain)
        changes = statement.changes
        if statement.absent_ok:
            names = {field.name for field in self._workspace.table(statement.chain).schema.fields}
            changes = tuple(
                change
                for change in changes
                if not (isinstance(change, DropColumn) and change.path[0] not in names)
            )
        if any(isinstance(change, UpdateColumnType) for change in changes):
            found = self._workspace.find(statement.chain)
            changes = changes if found is None else tuple(in_parts(changes, found.schema))
        if changes:
            catalog.alter_table(identifier, changes, ignore_if_not_exists=statement.if_exists)

    def comment(self, statement: s.CommentOn) -> None:
        """COMMENT ON."""
        catalog, identifier = self._workspace.identifier(statement.chain)
        change = (
            SchemaChange.update_comment(statement.comment)
            if statement.column is None
            else SchemaChange.update_column_comment(statement.column, statement.comment)
        )
        catalog.alter_table(identifier, [change])

    def drop_partitions(self, statement: s.DropPartition) -> None:
        """ALTER TABLE ... DROP PARTITION, TRUNCATE TABLE ... PARTITION."""
        table = self._workspace.table(statement.chain)
        wanted = [
            partition_values(self._queries, table.schema, each) for each in statement.partitions
        ]
        table.drop_partition(*wanted)

    def change_tag(self, statement: s.ChangeTag) -> None:
        """ALTER TABLE ... CREATE | REPLACE | DELETE | RENAME TAG, as in Spark."""
        table = self._workspace.table(statement.chain)
        known = {tag.name for tag in table.tags()}
        name, retain = statement.tag, statement.retain
        match statement.verb:
            case "RENAME":
                table.rename_tag(name, statement.to or "")
            case "DELETE":
                # Several names are separated by commas, as in Spark.
                names = [name] if name in known else name.split(",")
                for each in names:
                    if each in known or not statement.if_exists:
                        table.delete_tag(each)
            case "REPLACE":
                table.replace_tag(name, statement.snapshot_id, time_retained=retain)
            case "CREATE OR REPLACE" if name in known:
                table.replace_tag(name, statement.snapshot_id, time_retained=retain)
            case _:
                if name not in known or not statement.if_not_exists:
                    table.create_tag(name, statement.snapshot_id, time_retained=retain)


def _field(column: s.Column) -> Field:
    """A column of a new table. Its id is assigned when the table is created."""
    return Field(
        id=0,
        name=column.name,
        type=parse_type(column.type, context=column.name),
        description=column.comment,
        default_value=column.default,
    )


# --- mirrors -------------------------------------------------------------------------------------

_COLUMNS = (
    *("pipeline", "checkpoint", "rows", "tables", "rows_left_out", "caught_up"),
    "tables_in_quarantine",
)
_Flags = dict[str, tuple[str, ...]]


def run_mirror(
    workspace: Workspace,
    statement: s.CreateTable | s.CreateDatabase,
    mirror: s.Mirror,
    reports: Callable[[str, Progress], None] | None,
) -> Rows:
    """Follow the source that the statement names. Returns one row: the pipeline and its counts.

    If a signal ends the pipeline, raises KeyboardInterrupt after the last commit.
    """
    source = _source(workspace, mirror)
    takes_table = isinstance(statement, s.CreateTable)
    name = source.action(takes_table=takes_table)
    flags, conf = _split(mirror.options, SYNC_ACTIONS[name].known)
    for flag, texts in _stated(statement, mirror).items():
        if flag in flags:
            raise InvalidRequest("the statement says what the option says", option=flag)
        flags[flag] = texts
    if "until" not in flags and workspace.until is not None:
        flags["until"] = (workspace.until,)
    seconds = parse_duration(workspace.commit_interval) / 1000
    flags.setdefault("interval", (f"{seconds:f} s",))
    catalog, database, table = _target(workspace, statement)
    arguments = Arguments(
        database=database,
        table=table,
        conf=source.conf(mirror.chain[1:], conf, takes_table=takes_table),
        table_conf=statement.options,
        flags={flag: texts for flag, texts in flags.items() if flag not in RUN_FLAGS},
        case_sensitive=catalog.case_sensitive,
    )
    launch = launch_of(name, arguments, flags)
    label = launch.pipeline.label
    told: list[tuple[int, bool]] = []

    def report(progress: Progress) -> None:
        # Report only changes of the progress: without changes at the source, there is nothing new.
        seen = (progress.checkpoint, progress.caught_up)
        if reports is not None and told[-1:] != [seen]:
            reports(label, progress)
            told.append(seen)

    progress, interrupted = launch.run(catalog, SYSTEM, report)
    if interrupted:
        raise KeyboardInterrupt
    row = (
        label,
        progress.checkpoint,
        progress.rows,
        len(progress.tables),
        progress.rows_left_out,
        progress.caught_up,
        len(progress.quarantine),
    )
    return _COLUMNS, [row]


def _source(workspace: Workspace, mirror: s.Mirror) -> SourceCatalog:
    name, *rest = mirror.chain
    if name not in workspace.sources or not rest:
        raise NotFound(
            "name a table or a database of a source catalog, which CREATE CATALOG s WITH "
            "('type' = 'mysql', ...) makes",
            name=".".join(mirror.chain),
            known=sorted(workspace.sources),
        )
    return workspace.sources[name]


def _split(options: Mapping[str, str], known: tuple[str, ...]) -> tuple[_Flags, dict[str, str]]:
    """The options of a hint: flags of the action, and options of its source."""
    flags: _Flags = {}
    conf: dict[str, str] = {}
    for key, text in options.items():
        flag = key.replace("-", "_")
        if flag not in known and flag not in RUN_FLAGS:
            conf[key] = text
        elif flag in flags:
            raise InvalidRequest("the option is given twice", option=key)
        else:
            flags[flag] = (text,)
    return flags, conf


def _stated(statement: s.CreateTable | s.CreateDatabase, mirror: s.Mirror) -> _Flags:
    """The action's flags that follow from the clauses of the statement."""
    found: _Flags = {}
    if isinstance(statement, s.CreateTable):
        refused = {
            "columns": bool(statement.columns),
            "COMMENT": statement.comment is not None,
            "TEMPORARY": statement.temporary,
            "OR REPLACE": statement.replace,
            "LIKE": statement.like is not None,
        }
        named = [clause for clause, given in refused.items() if given]
        if named:
            raise Unsupported(
                "a table that follows a source has the columns and the comment of the source; it "
                "may state a primary key, PARTITIONED BY and options",
                clauses=named,
            )
        found["primary_keys"] = statement.primary_keys
        found["partition_keys"] = statement.partition_keys
        found["computed_column"] = mirror.computed
    else:
        found["including_tables"] = (mirror.including,) if mirror.including is not None else ()
        found["excluding_tables"] = (mirror.excluding,) if mirror.excluding is not None else ()
    return {flag: texts for flag, texts in found.items() if texts}


def _target(
    workspace: Workspace, statement: s.CreateTable | s.CreateDatabase
) -> tuple[Catalog, str, str | None]:
    """The catalog, database and table of the target. Raises AlreadyExists without IF NOT EXISTS."""
    if isinstance(statement, s.CreateTable):
        catalog, identifier = workspace.identifier(statement.chain)
        _, database, table = workspace.full(statement.chain)
        exists = not statement.if_not_exists and catalog.table_exists(identifier)
        if exists:
            raise AlreadyExists(
                "the table exists; say IF NOT EXISTS to continue its pipeline", table=identifier
            )
        return catalog, database, table
    catalog, database = workspace.databases(statement.chain)
    if not statement.if_not_exists and catalog.database_exists(database):
        raise AlreadyExists(
            "the database exists; say IF NOT EXISTS to continue its pipeline", database=database
        )
    return catalog, database, None
