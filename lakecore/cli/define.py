"""`lakecore db`, `table` and `alter`: databases, tables and their schemas."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING

import polars as pl

from lakecore.catalog.identifier import parse_identifier
from lakecore.cli.arguments import Format, stated
from lakecore.cli.confirm import require_consent
from lakecore.cli.imports import rows_text
from lakecore.cli.look import columns_frame
from lakecore.cli.printing import note, say, write_frame, write_record
from lakecore.cli.target import place_of, session_of, table_of
from lakecore.errors import InvalidRequest, NotFound
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import Move, SchemaChange
from lakecore.session import sql_engine
from lakecore.sql.tokens import quoted
from lakecore.table.reads.told import told_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakecore.model.schema_change import Change
    from lakecore.model.snapshot import CommitResult

_COLUMN = re.compile(r"\s*(`[^`]+`|\S+)\s+(.+?)\s*", re.DOTALL)
_PLACE = re.compile(r"(?P<type>.*?)\s+(?:(?P<first>FIRST)|AFTER\s+(?P<after>\S+))", re.IGNORECASE)
_DRY = "dry run: nothing was changed"


def list_databases(warehouse: str | None, option: list[str] | None, form: Format) -> None:
    """Print the databases."""
    session = session_of(None, warehouse, option)
    rows = [(name, len(session.list_tables(name))) for name in session.list_databases()]
    write_frame(pl.DataFrame(rows, {"database": pl.String, "tables": pl.Int64}, orient="row"), form)


def create_database(
    database: str,
    warehouse: str | None,
    option: list[str] | None,
    if_not_exists: bool,  # noqa: FBT001  the flag of the command line
) -> None:
    """Create a database."""
    session = session_of(None, warehouse, option, create=True)
    existed = session.database_exists(database)
    session.create_database(database, ignore_if_exists=if_not_exists)
    note(f"the database {database} exists" if existed else f"created the database {database}")


def describe_database(
    database: str, warehouse: str | None, option: list[str] | None, form: Format
) -> None:
    """Print the facts of a database."""
    session = session_of(None, warehouse, option)
    if not session.database_exists(database):
        raise NotFound(
            "no database of that name", database=database, known=session.list_databases()
        )
    tables = list(session.list_tables(database))
    record = {"database": database, "warehouse": session.warehouse, "tables": tables}
    lines = [f"database   {database}", f"warehouse  {session.warehouse}"]
    write_record(record, form, "\n".join([*lines, f"tables     {', '.join(tables) or 'none'}"]))


def drop_database(
    database: str,
    warehouse: str | None,
    option: list[str] | None,
    flags: tuple[bool, bool, bool, bool],
) -> None:
    """Drop a database."""
    cascade, if_exists, dry_run, yes = flags
    session = session_of(None, warehouse, option)
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
    if dry_run:
        note(f"would drop the database {database} with {len(tables)} tables\n{_DRY}")
        return
    require_consent(f"drop the database {database} with {len(tables)} tables?", yes=yes)
    session.drop_database(database, cascade=cascade)
    note(f"dropped the database {database}")


def list_tables(
    database: str | None, warehouse: str | None, option: list[str] | None, form: Format
) -> None:
    """Print the names of tables."""
    session = session_of(None, warehouse, option)
    databases = session.list_databases() if database is None else (database,)
    rows = [(each, name) for each in databases for name in session.list_tables(each)]
    frame = pl.DataFrame(rows, {"database": pl.String, "table": pl.String}, orient="row")
    write_frame(frame, form)


def create_table(
    name: str,
    columns: Sequence[str],
    warehouse: str | None,
    option: list[str] | None,
    what: tuple[list[str] | None, list[str] | None, int | None, str | None, bool],
) -> None:
    """Create an empty table."""
    keys, partitions, bucket, comment, if_not_exists = what
    session, identifier, own = place_of(name, warehouse, option)
    schema: dict[str, str] = {}
    for each in columns:
        column, kind = _named(each)
        if column in schema:
            raise InvalidRequest("a column is stated twice", column=column)
        schema[column] = kind
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
        primary_keys=keys or (),
        partition_keys=partitions or (),
        options=own,
        comment=comment,
        ignore_if_exists=if_not_exists,
    )
    note(f"the table {identifier} exists" if existed else f"created the table {identifier}")


def describe_table(
    name: str, warehouse: str | None, option: list[str] | None, form: Format
) -> None:
    """Print the facts of a table."""
    table = table_of(name, warehouse, option)
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


def show_ddl(name: str, warehouse: str | None, option: list[str] | None) -> None:
    """Print a CREATE TABLE statement that creates an equal table."""
    session, identifier, _ = place_of(name, warehouse, option)
    named = parse_identifier(identifier)
    text = f"SHOW CREATE TABLE {quoted(named.database)}.{quoted(named.table)}"
    ((statement,),) = sql_engine(session).run(text).fetchall()
    say(f"{statement};")


def rename_table(
    name: str,
    new: str,
    warehouse: str | None,
    option: list[str] | None,
    if_exists: bool,  # noqa: FBT001  the flag of the command line
) -> None:
    """Rename a table."""
    session, identifier, _ = place_of(name, warehouse, option)
    database = identifier.rpartition(".")[0]
    target = new if "." in new else f"{database}.{new}"
    if if_exists and not session.table_exists(identifier):
        note(f"there is no table {identifier}")
        return
    session.rename_table(identifier, target)
    note(f"renamed {identifier} to {target}")


def drop_table(
    name: str, warehouse: str | None, option: list[str] | None, flags: tuple[bool, bool, bool]
) -> None:
    """Drop a table."""
    if_exists, dry_run, yes = flags
    session, identifier, _ = place_of(name, warehouse, option)
    if not session.table_exists(identifier):
        if not if_exists:
            session.get_table(identifier)  # raises, and names what exists
        note(f"there is no table {identifier}")
        return
    if dry_run:
        note(f"would drop the table {identifier}\n{_DRY}")
        return
    require_consent(f"drop the table {identifier} with all its data?", yes=yes)
    session.drop_table(identifier, ignore_if_not_exists=if_exists)
    note(f"dropped the table {identifier}")


def truncate_table(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    care: tuple[bool, bool],
    form: Format,
) -> None:
    """Remove all rows."""
    table = table_of(name, warehouse, option)
    _emptied(name, f"remove all {rows_text(table.count())} of {name}?", table.truncate, care, form)


def drop_partition(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    partitions: Sequence[str],
    care: tuple[bool, bool],
    form: Format,
) -> None:
    """Remove the rows of partitions."""
    table = table_of(name, warehouse, option)
    wanted = [{**stated(each.split(","), "a partition")} for each in partitions]
    question = f"remove the rows of {len(wanted)} partitions of {name}: {'; '.join(partitions)}?"
    _emptied(name, question, lambda: table.drop_partition(*wanted), care, form)


def _emptied(
    name: str,
    question: str,
    verb: Callable[[], CommitResult],
    care: tuple[bool, bool],
    form: Format,
) -> None:
    dry_run, yes = care
    if dry_run:
        note(f"would {question.removesuffix('?')}\n{_DRY}")
        return
    require_consent(question, yes=yes)
    result = verb()
    ids = ", ".join(map(str, result.snapshot_ids))
    text = f"{name}: snapshot {ids}" if ids else f"{name}: there was nothing to remove"
    write_record({"table": name, **asdict(result)}, form, text)


def purge_table(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    yes: bool,  # noqa: FBT001  the flag of the command line
    form: Format,
) -> None:
    """Remove everything but the table itself."""
    table = table_of(name, warehouse, option)
    require_consent(
        f"remove all rows, tags, branches and earlier snapshots of {name}, for ever?", yes=yes
    )
    result = table.purge_files()
    write_record(asdict(result), form, str(result))


def repair_hints(name: str, warehouse: str | None, option: list[str] | None) -> None:
    """Write the hint files EARLIEST and LATEST again."""
    found = table_of(name, warehouse, option).repair_hints()
    note("no snapshot: no hints" if found is None else f"earliest {found[0]}, latest {found[1]}")


# --- schemas --------------------------------------------------------------------------------------


def alter(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    given: Mapping[str, Sequence[str]],
    care: tuple[bool, bool],
    form: Format,
) -> None:
    """Change the schema of a table."""
    dry_run, yes = care
    session, identifier, own = place_of(name, warehouse, option)
    if own:
        raise InvalidRequest("--set stores an option; -o is for the storage", options=sorted(own))
    table = session.get_table(identifier)
    changes = list(_changes(given))
    if dry_run:
        context = table.context
        evolve(
            context.schema,
            changes,
            now_ms=context.ambient.now_ms(),
            has_snapshots=context.history.latest_snapshot_id() is not None,
            table=identifier,
        )
        note(f"{len(changes)} changes are possible\n{_DRY}")
        return
    if given.get("drop"):
        require_consent(f"drop the columns {', '.join(given['drop'])} of {name}?", yes=yes)
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
            yield SchemaChange.rename_column(*_pair("--rename", "OLD=NEW", text))
        case "drop":
            yield SchemaChange.drop_column(text)
        case "add":
            yield _added(text)
        case "type":
            yield SchemaChange.update_column_type(*_pair("--type", "NAME=TYPE", text))
        case "nullable" | "not_null":
            yield SchemaChange.update_column_nullability(text, kind == "nullable")
        case "default":
            yield SchemaChange.update_column_default_value(*_pair("--default", "NAME=VALUE", text))
        case "column_comment":
            column, comment = _pair("--column-comment", "NAME=TEXT", text)
            yield SchemaChange.update_column_comment(column, comment or None)
        case "set":
            yield SchemaChange.set_option(*_pair("--set", "KEY=VALUE", text))
        case "unset":
            yield SchemaChange.remove_option(text)
        case _:
            yield SchemaChange.update_comment(text or None)


def _pair(flag: str, form: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InvalidRequest(f"{flag} is written {form}", given=text)
    return name.strip(), value.strip()


def _added(text: str) -> Change:
    column, kind = _named(text)
    place = _PLACE.fullmatch(kind)
    if place is None:
        return SchemaChange.add_column(column, kind)
    move = Move.first() if place["first"] else Move.after(_bare(place["after"]))
    return SchemaChange.add_column(column, place["type"], move=move)


def _named(text: str) -> tuple[str, str]:
    """The name and the type from a column definition as in CREATE TABLE."""
    found = _COLUMN.fullmatch(text)
    if found is None:
        raise InvalidRequest("a column is written 'NAME TYPE', such as 'id BIGINT'", given=text)
    return _bare(found[1]), found[2]


def _bare(name: str) -> str:
    return name[1:-1] if name.startswith("`") and name.endswith("`") else name
