"""Declares `lakecore db`, `table` and `alter`; `define.py` carries them out."""

from __future__ import annotations

from typing import Annotated

import typer

from lakecore.cli.arguments import (
    AsCsv,
    AsJson,
    DryRun,
    Format,
    Options,
    Output,
    TableName,
    Warehouse,
    Yes,
    chosen,
    group,
    names,
)
from lakecore.cli.run import run

__all__ = ["add_to"]

_MODULE = "lakecore.cli.define"
_databases = group("List, create, describe and drop the databases of a warehouse.")
_tables = group("Create, describe, rename, empty and drop tables.")

DatabaseName = Annotated[
    str, typer.Argument(metavar="DB", help="The name of the database.", show_default=False)
]
IfExists = Annotated[
    bool, typer.Option("--if-exists", help="Do nothing if the name does not exist.")
]
IfNotExists = Annotated[
    bool, typer.Option("--if-not-exists", help="Do nothing if the name exists.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.add_typer(_databases, name="db")
    app.add_typer(_tables, name="table")
    app.command()(alter)


# --- databases ------------------------------------------------------------------------------------


@_databases.command("list")
def list_databases(
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the databases, and how many tables each has."""
    run(_MODULE, "list_databases", warehouse, option, chosen(output, json=json, csv=csv))


@_databases.command("create")
def create_database(
    database: DatabaseName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    if_not_exists: IfNotExists = False,
) -> None:
    """Create an empty database. A missing warehouse is created, too."""
    run(_MODULE, "create_database", database, warehouse, option, if_not_exists)


@_databases.command("describe")
def describe_database(
    database: DatabaseName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show the warehouse and the tables of a database."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "describe_database", database, warehouse, option, form)


@_databases.command("drop")
def drop_database(  # noqa: PLR0913  one parameter per option
    database: DatabaseName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Drop its tables with all their data, too.")
    ] = False,
    if_exists: IfExists = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Drop a database. Without --cascade it must be empty."""
    flags = (cascade, if_exists, dry_run, yes)
    run(_MODULE, "drop_database", database, warehouse, option, flags)


# --- tables ---------------------------------------------------------------------------------------


@_tables.command("list")
def list_tables(
    database: Annotated[
        str | None, typer.Argument(metavar="[DB]", help="Only tables of this database.")
    ] = None,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the names of tables."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "list_tables", database, warehouse, option, form)


@_tables.command("create")
def create_table(  # noqa: PLR0913  one parameter per option
    table: TableName,
    column: Annotated[
        list[str],
        typer.Argument(
            metavar="'NAME TYPE'...",
            help="Columns, such as 'id BIGINT' 'price DECIMAL(10, 2)'.",
            show_default=False,
        ),
    ],
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    primary_key: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Primary key, comma-separated.")
    ] = None,
    partition_by: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Partition keys, comma-separated.")
    ] = None,
    bucket: Annotated[int | None, typer.Option(metavar="N", help="Number of buckets.")] = None,
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="Comment.")] = None,
    if_not_exists: IfNotExists = False,
) -> None:
    """Create an empty table. -o KEY=VALUE sets its options."""
    what = (names(primary_key), names(partition_by), bucket, comment, if_not_exists)
    run(_MODULE, "create_table", table, column, warehouse, option, what)


@_tables.command("show")
@_tables.command("describe")
def describe_table(
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show columns, keys, options, path and latest snapshot of a table."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "describe_table", table, warehouse, option, form)


@_tables.command("ddl")
def show_ddl(table: TableName, option: Options = None, warehouse: Warehouse = None) -> None:
    """Print a CREATE TABLE statement that creates an equal table."""
    run(_MODULE, "show_ddl", table, warehouse, option)


@_tables.command("rename")
def rename_table(
    table: TableName,
    new: Annotated[
        str,
        typer.Argument(metavar="NEW|DB.NEW", help="The new name.", show_default=False),
    ],
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    if_exists: IfExists = False,
) -> None:
    """Rename a table, or move it to another database of the warehouse."""
    run(_MODULE, "rename_table", table, new, warehouse, option, if_exists)


@_tables.command("drop")
def drop_table(
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    if_exists: IfExists = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Drop a table with all its data, snapshots, tags and branches."""
    run(_MODULE, "drop_table", table, warehouse, option, (if_exists, dry_run, yes))


@_tables.command("truncate")
def truncate_table(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Remove all rows of a table, in one commit. Earlier snapshots keep theirs."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "truncate_table", table, warehouse, option, (dry_run, yes), form)


@_tables.command("drop-partition")
def drop_partition(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    partition: Annotated[
        list[str],
        typer.Option(metavar="KEY=VALUE,...", help="Partitions with these values; repeatable."),
    ],
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Remove the rows of partitions, in one commit. Earlier snapshots keep theirs."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "drop_partition", table, warehouse, option, partition, (dry_run, yes), form)


@_tables.command("purge")
def purge_table(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Remove all rows, tags, branches, consumers and earlier snapshots of a table.

    This cannot be undone, and nobody may write meanwhile.
    """
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "purge_table", table, warehouse, option, yes, form)


@_tables.command("repair-hints")
def repair_hints(table: TableName, option: Options = None, warehouse: Warehouse = None) -> None:
    """Rewrite the hint files EARLIEST and LATEST, which state the first and last snapshot ids."""
    run(_MODULE, "repair_hints", table, warehouse, option)


# --- schemas --------------------------------------------------------------------------------------


def alter(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="Rename a column; repeatable.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Drop a column; repeatable.")
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME TYPE [FIRST|AFTER NAME]'", help="Add a nullable column; repeatable."
        ),
    ] = None,
    retype: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="NAME=TYPE", help="Change the type; repeatable."),
    ] = None,
    nullable: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Allow nulls; repeatable.")
    ] = None,
    not_null: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Forbid nulls; repeatable.")
    ] = None,
    default: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Default value of a column; repeatable."),
    ] = None,
    column_comment: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TEXT", help="Comment of a column; repeatable."),
    ] = None,
    set_option: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Store an option; repeatable."),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Remove an option; repeatable.")
    ] = None,
    comment: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Comment of the table; '' removes it.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Change columns, options and comments of a table, all at once.

    The changes are made in the order of the options above. No data file is rewritten.
    """
    changes = {
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
    stated = {kind: texts for kind, texts in changes.items() if texts}
    if not stated:
        raise typer.BadParameter("say what changes, such as --add 'note STRING'")
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "alter", table, warehouse, option, stated, (dry_run, yes), form)
