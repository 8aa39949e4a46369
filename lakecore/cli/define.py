"""`lakecore db`, `table` and `alter`: databases, tables and their schemas."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lakecore.cli.arguments import (
    DRY,
    Care,
    Form,
    Format,
    OfTable,
    OfWarehouse,
    Verbs,
    Yes,
    argument,
    flag,
    names,
    partitions_of,
    require_consent,
    switch,
)
from lakecore.cli.look import columns_frame
from lakecore.cli.printing import note, rows_text, say, write_frame, write_record
from lakecore.deferred import deferred, deferred_module
from lakecore.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import polars as pl

    from lakecore.catalog.identifier import parse_identifier
    from lakecore.model import schema_change
    from lakecore.model.evolution import evolve
    from lakecore.model.schema_change import Change
    from lakecore.model.snapshot import CommitResult
    from lakecore.session import sql_engine
    from lakecore.sql.tokens import quoted
    from lakecore.table.reads.told import told_snapshot
else:
    evolve = deferred("lakecore.model.evolution", "evolve")
    parse_identifier = deferred("lakecore.catalog.identifier", "parse_identifier")
    pl = deferred_module("polars")
    quoted = deferred("lakecore.sql.tokens", "quoted")
    schema_change = deferred_module("lakecore.model.schema_change")
    sql_engine = deferred("lakecore.session", "sql_engine")
    told_snapshot = deferred("lakecore.table.reads.told", "told_snapshot")

commands = Verbs()
_db = commands.group("db")
_table = commands.group("table")
_COLUMN = re.compile(r"\s*(`[^`]+`|\S+)\s+(.+?)\s*", re.DOTALL)
_PLACE = re.compile(r"(?P<type>.*?)\s+(?:(?P<first>FIRST)|AFTER\s+(?P<after>\S+))", re.IGNORECASE)

DatabaseName = Annotated[str, argument("DB", "The name of the database.")]
IfExists = Annotated[bool, switch("Do nothing if the name does not exist.")]
IfNotExists = Annotated[bool, switch("Do nothing if the name exists.")]


# --- databases ------------------------------------------------------------------------------------


@_db("list")
def list_databases(of: OfWarehouse, form: Form) -> None:
    """List the databases, and how many tables each has."""
    session = of.session()
    rows = [(name, len(session.list_tables(name))) for name in session.list_databases()]
    write_frame(pl.DataFrame(rows, {"database": str, "tables": int}, orient="row"), form)


@_db("create")
def create_database(
    database: DatabaseName, of: OfWarehouse, *, if_not_exists: IfNotExists = False
) -> None:
    """Create an empty database. A missing warehouse is created, too."""
    session = of.session(create=True)
    existed = session.database_exists(database)
    session.create_database(database, ignore_if_exists=if_not_exists)
    note(f"the database {database} exists" if existed else f"created the database {database}")


@_db("describe")
def describe_database(database: DatabaseName, of: OfWarehouse, form: Form) -> None:
    """Show the warehouse and the tables of a database."""
    session = of.session()
    if not session.database_exists(database):
        raise NotFound(
            "no database of that name", database=database, known=session.list_databases()
        )
    tables = list(session.list_tables(database))
    record = {"database": database, "warehouse": session.warehouse, "tables": tables}
    lines = [f"database   {database}", f"warehouse  {session.warehouse}"]
    write_record(record, form, "\n".join([*lines, f"tables     {', '.join(tables) or 'none'}"]))


@_db("drop")
def drop_database(
    database: DatabaseName,
    of: OfWarehouse,
    *,
    cascade: Annotated[bool, switch("Drop its tables with all their data, too.")] = False,
    if_exists: IfExists = False,
    care: Care,
) -> None:
    """Drop a database. Without --cascade it must be empty."""
    session = of.session()
    if if_exists and not session.database_exists(database):
        note(f"there is no database {database}")
        return
    tables = session.list_tables(database)
    if tables and not cascade:
        raise InvalidRequest(
            "the database is not empty; --cascade drops its tables, too",
            database=database,
            tables=tables,
        )
    if care.dry_run:
        note(f"would drop the database {database} with {len(tables)} tables\n{DRY}")
        return
    require_consent(f"drop the database {database} with {len(tables)} tables?", yes=care.yes)
    session.drop_database(database, cascade=cascade)
    note(f"dropped the database {database}")


# --- tables ---------------------------------------------------------------------------------------


@_table("list")
def list_tables(
    database: Annotated[str | None, argument("[DB]", "Only tables of this database.")] = None,
    *,
    of: OfWarehouse,
    form: Form,
) -> None:
    """List the names of tables."""
    session = of.session()
    databases = session.list_databases() if database is None else (database,)
    rows = [(each, name) for each in databases for name in session.list_tables(each)]
    frame = pl.DataFrame(rows, {"database": str, "table": str}, orient="row")
    write_frame(frame, form)


@_table("create")
def create_table(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    column: Annotated[
        list[str],
        argument("'NAME TYPE'...", "Columns, such as 'id BIGINT' 'price DECIMAL(10, 2)'."),
    ],
    *,
    primary_key: Annotated[str | None, flag("NAMES", "Primary key, comma-separated.")] = None,
    partition_by: Annotated[str | None, flag("NAMES", "Partition keys, comma-separated.")] = None,
    bucket: Annotated[int | None, flag("N", "Number of buckets.")] = None,
    comment: Annotated[str | None, flag("TEXT", "Comment.")] = None,
    if_not_exists: IfNotExists = False,
) -> None:
    """Create an empty table. -o KEY=VALUE sets its options."""
    session, identifier, own = of.place()
    schema: dict[str, str] = {}
    for each in column:
        name, kind = _named(each)
        if name in schema:
            raise InvalidRequest("a column is stated twice", column=name)
        schema[name] = kind
    if bucket is not None:
        own["bucket"] = str(bucket)
    database = parse_identifier(identifier).database
    if not session.database_exists(database):
        raise NotFound(
            f"no such database; lakecore db create {database} makes it",
            database=database,
            known=session.list_databases(),
        )
    existed = session.table_exists(identifier)
    session.create_table(
        identifier,
        schema,
        primary_keys=names(primary_key) or (),
        partition_keys=names(partition_by) or (),
        options=own,
        comment=comment,
        ignore_if_exists=if_not_exists,
    )
    note(f"the table {identifier} exists" if existed else f"created the table {identifier}")


@_table("show")
@_table("describe")
def describe_table(of: OfTable, form: Form) -> None:
    """Show columns, keys, options, path and latest snapshot of a table."""
    table = of.open()
    schema = table.schema
    latest = table.context.history.latest_snapshot()
    latest = None if latest is None else told_snapshot(latest, table.context)
    record: dict[str, object] = {
        "table": table.identifier,
        "path": table.path,
        "comment": schema.comment,
        "schema_id": schema.id,
        "primary_key": list(schema.primary_keys),
        "partitioned_by": list(schema.partition_keys),
        "options": table.options.shown,
        "snapshot_id": None if latest is None else latest.id,
        "rows_stored": None if latest is None else latest.total_record_count,
    }
    columns = columns_frame(table)
    if form is Format.TABLE:
        say(
            "\n".join(_fact(key, value) for key, value in record.items() if value not in (None, []))
        )
        write_frame(columns, form, null="")
        return
    write_record({**record, "columns": columns.to_dicts()}, form, "")


def _fact(key: str, value: object) -> str:
    match value:
        case dict():
            value = ", ".join(f"{name}={text}" for name, text in sorted(value.items())) or "none"
        case list():
            value = ", ".join(map(str, value))
    return f"{key.replace('_', ' '):<16}{value}"


@_table("ddl")
def show_ddl(of: OfTable) -> None:
    """Print a CREATE TABLE statement that creates an equal table."""
    session, identifier, _ = of.place()
    named = parse_identifier(identifier)
    text = f"SHOW CREATE TABLE {quoted(named.database)}.{quoted(named.table)}"
    ((statement,),) = sql_engine(session).run(text).fetchall()
    say(f"{statement};")


@_table("rename")
def rename_table(
    of: OfTable,
    new: Annotated[str, argument("NEW|DB.NEW", "The new name.")],
    *,
    if_exists: IfExists = False,
) -> None:
    """Rename a table, or move it to another database of the warehouse."""
    session, identifier, _ = of.place()
    database = identifier.rpartition(".")[0]
    target = new if "." in new else f"{database}.{new}"
    if if_exists and not session.table_exists(identifier):
        note(f"there is no table {identifier}")
        return
    session.rename_table(identifier, target)
    note(f"renamed {identifier} to {target}")


@_table("drop")
def drop_table(of: OfTable, *, if_exists: IfExists = False, care: Care) -> None:
    """Drop a table with all its data, snapshots, tags and branches."""
    session, identifier, _ = of.place()
    if not session.table_exists(identifier):
        if not if_exists:
            session.get_table(identifier)  # raises, and names what exists
        note(f"there is no table {identifier}")
        return
    if care.dry_run:
        note(f"would drop the table {identifier}\n{DRY}")
        return
    require_consent(f"drop the table {identifier} with all its data?", yes=care.yes)
    session.drop_table(identifier, ignore_if_not_exists=if_exists)
    note(f"dropped the table {identifier}")


@_table("truncate")
def truncate_table(of: OfTable, care: Care, form: Form) -> None:
    """Remove all rows of a table, in one commit. Earlier snapshots keep theirs."""
    table = of.open()
    question = f"remove all {rows_text(table.count())} of {of.table}?"
    _emptied(of.table, question, table.truncate, care, form)


@_table("drop-partition")
def drop_partition(
    of: OfTable,
    *,
    partition: Annotated[
        list[str], flag("KEY=VALUE,...", "Partitions with these values; repeatable.")
    ],
    care: Care,
    form: Form,
) -> None:
    """Remove the rows of partitions, in one commit. Earlier snapshots keep theirs."""
    table, wanted, name = of.open(), partitions_of(partition), of.table
    question = f"remove the rows of {len(wanted)} partitions of {name}: {'; '.join(partition)}?"
    _emptied(name, question, lambda: table.drop_partition(*wanted), care, form)


def _emptied(
    name: str, question: str, verb: Callable[[], CommitResult], care: Care, form: Format
) -> None:
    if care.dry_run:
        note(f"would {question.removesuffix('?')}\n{DRY}")
        return
    require_consent(question, yes=care.yes)
    result = verb()
    ids = ", ".join(map(str, result.snapshot_ids))
    text = f"{name}: snapshot {ids}" if ids else f"{name}: there was nothing to remove"
    write_record({"table": name, **asdict(result)}, form, text)


@_table("purge")
def purge_table(of: OfTable, *, yes: Yes = False, form: Form) -> None:
    """Remove all rows, tags, branches, consumers and earlier snapshots of a table.

    This cannot be undone, and nobody may write meanwhile.
    """
    table = of.open()
    require_consent(
        f"remove all rows, tags, branches and earlier snapshots of {of.table}, for ever?", yes=yes
    )
    result = table.purge_files()
    write_record(asdict(result), form, str(result))


@_table("repair-hints")
def repair_hints(of: OfTable) -> None:
    """Rewrite the hint files EARLIEST and LATEST, which state the first and last snapshot ids."""
    found = of.open().repair_hints()
    note("no snapshot: no hints" if found is None else f"earliest {found[0]}, latest {found[1]}")


# --- schemas --------------------------------------------------------------------------------------


@commands("alter")
def alter(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    *,
    rename: Annotated[list[str] | None, flag("OLD=NEW", "Rename a column; repeatable.")] = None,
    drop: Annotated[list[str] | None, flag("NAME", "Drop a column; repeatable.")] = None,
    add: Annotated[
        list[str] | None,
        flag("'NAME TYPE [FIRST|AFTER NAME]'", "Add a nullable column; repeatable."),
    ] = None,
    retype: Annotated[
        list[str] | None, flag("NAME=TYPE", "Change the type; repeatable.", "--type")
    ] = None,
    nullable: Annotated[list[str] | None, flag("NAME", "Allow nulls; repeatable.")] = None,
    not_null: Annotated[list[str] | None, flag("NAME", "Forbid nulls; repeatable.")] = None,
    default: Annotated[
        list[str] | None, flag("NAME=VALUE", "Default value of a column; repeatable.")
    ] = None,
    column_comment: Annotated[
        list[str] | None, flag("NAME=TEXT", "Comment of a column; repeatable.")
    ] = None,
    set_option: Annotated[
        list[str] | None, flag("KEY=VALUE", "Store an option; repeatable.", "--set")
    ] = None,
    unset: Annotated[list[str] | None, flag("KEY", "Remove an option; repeatable.")] = None,
    comment: Annotated[str | None, flag("TEXT", "Comment of the table; '' removes it.")] = None,
    care: Care,
    form: Form,
) -> None:
    """Change columns, options and comments of a table, all at once.

    The changes are made in the order of the options above. No data file is rewritten.
    """
    kinds = {
        "rename": rename,
        "drop": drop,
        "add": add,
        "type": retype,
        "nullable": nullable,
        "not_null": not_null,
        "default": default,
        "column_comment": column_comment,
        "set": set_option,
        "unset": unset,
        "comment": None if comment is None else [comment],
    }
    given = {kind: texts for kind, texts in kinds.items() if texts}
    if not given:
        raise typer.BadParameter("say what changes, such as --add 'note STRING'")
    session, identifier, own = of.place()
    if own:
        raise InvalidRequest("--set stores an option; -o is for the storage", options=sorted(own))
    table = session.get_table(identifier)
    changes = list(_changes(given))
    if care.dry_run:
        context = table.context
        evolve(
            context.schema,
            changes,
            now_ms=context.ambient.now_ms(),
            has_snapshots=context.history.latest_snapshot_id() is not None,
            table=identifier,
        )
        note(f"{len(changes)} changes are possible\n{DRY}")
        return
    if drop:
        require_consent(f"drop the columns {', '.join(drop)} of {of.table}?", yes=care.yes)
    session.alter_table(identifier, changes)
    changed = session.get_table(identifier)
    if form is Format.TABLE:
        note(f"schema {changed.schema.id} of {identifier}")
    write_frame(columns_frame(changed), form, null="")


def _changes(given: Mapping[str, Sequence[str]]) -> Iterator[Change]:
    """The schema changes, in the order of their kinds."""
    for kind, texts in given.items():
        for text in texts:
            yield from _change(kind, text)


def _change(kind: str, text: str) -> Iterator[Change]:
    match kind:
        case "rename":
            yield schema_change.SchemaChange.rename_column(*_pair("--rename", "OLD=NEW", text))
        case "drop":
            yield schema_change.SchemaChange.drop_column(text)
        case "add":
            yield _added(text)
        case "type":
            yield schema_change.SchemaChange.update_column_type(*_pair("--type", "NAME=TYPE", text))
        case "nullable" | "not_null":
            yield schema_change.SchemaChange.update_column_nullability(text, kind == "nullable")
        case "default":
            yield schema_change.SchemaChange.update_column_default_value(
                *_pair("--default", "NAME=VALUE", text)
            )
        case "column_comment":
            column, comment = _pair("--column-comment", "NAME=TEXT", text)
            yield schema_change.SchemaChange.update_column_comment(column, comment or None)
        case "set":
            yield schema_change.SchemaChange.set_option(*_pair("--set", "KEY=VALUE", text))
        case "unset":
            yield schema_change.SchemaChange.remove_option(text)
        case _:
            yield schema_change.SchemaChange.update_comment(text or None)


def _pair(flag: str, form: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InvalidRequest(f"{flag} is written {form}", given=text)
    return name.strip(), value.strip()


def _added(text: str) -> Change:
    column, kind = _named(text)
    place = _PLACE.fullmatch(kind)
    if place is None:
        return schema_change.SchemaChange.add_column(column, kind)
    move = (
        schema_change.Move.first()
        if place["first"]
        else schema_change.Move.after(_bare(place["after"]))
    )
    return schema_change.SchemaChange.add_column(column, place["type"], move=move)


def _named(text: str) -> tuple[str, str]:
    """The name and the type from a column definition as in CREATE TABLE."""
    found = _COLUMN.fullmatch(text)
    if found is None:
        raise InvalidRequest("a column is written 'NAME TYPE', such as 'id BIGINT'", given=text)
    return _bare(found[1]), found[2]


def _bare(name: str) -> str:
    return name[1:-1] if name.startswith("`") and name.endswith("`") else name
