"""Declares `lakecore sql` and `procedures`; `sql.py` carries them out."""

from __future__ import annotations

from typing import Annotated

import typer

from lakecore.cli.arguments import (
    AsCsv,
    AsJson,
    Format,
    Limit,
    Options,
    Output,
    Warehouse,
    chosen,
)
from lakecore.cli.run import run
from lakecore.errors import InvalidRequest

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.command()(sql)
    app.command()(procedures)


def sql(  # noqa: PLR0913  one parameter per option
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE|-]", help="File with statements; - is standard input."),
    ] = None,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    execute: Annotated[
        list[str] | None,
        typer.Option(
            "--execute",
            "-e",
            "--command",
            "-c",
            metavar="SQL",
            help="Run this statement; repeatable.",
        ),
    ] = None,
    script: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="The same as the argument FILE."),
    ] = None,
    database: Annotated[
        str | None, typer.Option("--database", "-d", metavar="NAME", help="The current database.")
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the warehouse if it does not exist.")
    ] = False,
    limit: Limit = None,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Run SQL: Paimon's statements, and DuckDB's queries.

    Without a statement or a file, a terminal opens a shell. Statements end with `;`.
    """
    form = chosen(output, json=json, csv=csv)
    if file is not None and script is not None:
        raise InvalidRequest("name one file of statements", files=[file, script])
    what = (execute, file or script, database, limit, form)
    run("lakecore.cli.sql", "sql", warehouse, option, *what, create=create)


def procedures(
    name: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="Only names that contain this text.")
    ] = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the procedures that CALL sys.NAME(...) runs.

    Each has its arguments; those in brackets may be left out.
    """
    run("lakecore.cli.sql", "procedures", name, chosen(output, json=json, csv=csv))
