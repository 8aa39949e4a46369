"""The command line: `lakecore COMMAND`, one command per question about tables.

This module declares the commands. The module that executes a command is imported when the command
runs: `lakecore --help` does not load Polars, DuckDB or Arrow.

Data goes to standard output; notes, progress and errors go to standard error. Exit code 0: success.
1: a lakecore error, printed in one line; `--debug` shows the traceback. 2: wrong usage. It is not
an error if the reader closes the pipe early.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lakecore import __version__
from lakecore.cli.analyze_command import add_to as add_analyze_command
from lakecore.cli.arguments import (
    AsCsv,
    AsJson,
    Columns,
    Format,
    Limit,
    Options,
    Output,
    TableName,
    Warehouse,
    Where,
    chosen,
)
from lakecore.cli.cleanup_commands import add_to as add_cleanup_commands
from lakecore.cli.inspect_command import add_to as add_inspect_command
from lakecore.cli.output import OutputFailed, flush, to_nowhere, write
from lakecore.cli.retention_commands import add_to as add_retention_commands
from lakecore.cli.run import run
from lakecore.cli.sql_command import add_to as add_sql_command
from lakecore.cli.stream_commands import add_to as add_stream_commands
from lakecore.cli.tag_commands import add_to as add_tag_commands
from lakecore.errors import LakecoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app", "main"]

PROGRAM = "lakecore"
DEBUG = "--debug"
_YEAR_SECONDS = 365 * 86_400

app = typer.Typer(
    name=PROGRAM,
    help="Read and maintain Apache Paimon tables, without a JVM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,  # importing Rich would add 0.1 s to plain help
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name, and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):  # a terminal may not have every character
            output.reconfigure(errors="backslashreplace")
    if sys.stdout is None:  # closed by the parent process
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  open until the end
    debug = DEBUG in given
    try:
        app(args=[part for part in given if part != DEBUG], prog_name=PROGRAM)
    except LakecoreError as error:
        if debug:
            raise
        lines = str(error).splitlines()
        # A syntax error marks its position with a caret, so its message keeps its lines.
        _fail("\n".join(lines) if lines[-1:] and lines[-1].strip() == "^" else " ".join(lines))
    except _polars_errors() as error:
        if debug:
            raise
        _fail(str(error).strip().partition("\n")[0])
    except OutputFailed as error:
        if debug:
            raise
        to_nowhere()
        _fail(f"the output cannot be written: {error}")
    except OSError as error:
        if debug:
            raise
        to_nowhere()
        _fail(f"the system refused a call: {error}")


def _show_version(*, asked: bool) -> None:
    if asked:
        _say(__version__)
        raise typer.Exit


@app.callback()
def _common(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show where an error came from.")] = False,
) -> None:
    del version, debug  # `main` looks for the second, which may also follow the command


@app.command()
def version(*, output: Output = Format.TABLE, json: AsJson = False, csv: AsCsv = False) -> None:
    """Print the version."""
    match chosen(output, json=json, csv=csv):
        case Format.TABLE:
            _say(__version__)
        case Format.JSON:
            _say(f'{{"version":"{__version__}"}}')
        case Format.CSV:
            _say(f"version\n{__version__}")


@app.command()
def tables(
    path: Annotated[
        str | None, typer.Argument(metavar="[WAREHOUSE]", help="Path or URI of the warehouse.")
    ] = None,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the tables of a warehouse, with keys, snapshot and rows.

    Rows are counted as stored, before a merge.
    """
    run("lakecore.cli.look", "tables", path, warehouse, option, chosen(output, json=json, csv=csv))


@app.command()
def show(  # noqa: PLR0913  one option per part of the question
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    schema: Annotated[bool, typer.Option("--schema", help="Show columns and keys.")] = False,
    options: Annotated[bool, typer.Option("--options", help="Show the options set.")] = False,
    snapshots: Annotated[
        bool, typer.Option("--snapshots", help="Show the snapshots that can be read.")
    ] = False,
    files: Annotated[
        bool, typer.Option("--files", help="Show the data files of the latest snapshot.")
    ] = False,
    manifests: Annotated[
        bool, typer.Option("--manifests", help="Show the manifests, and how many are small.")
    ] = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show the schema, options and snapshots of a table.

    With flags, show only what they name.
    """
    flags = {
        "schema": schema,
        "options": options,
        "snapshots": snapshots,
        "files": files,
        "manifests": manifests,
    }
    asked = [name for name, flag in flags.items() if flag] or ["schema", "options", "snapshots"]
    form = chosen(output, json=json, csv=csv)
    if form is Format.CSV and len(asked) > 1:
        raise typer.BadParameter(
            "CSV holds one table: name one of " + " ".join(f"--{f}" for f in flags)
        )
    run("lakecore.cli.look", "show", table, warehouse, option, asked, form)


@app.command()
def read(  # noqa: PLR0913  one option per part of the question
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    snapshot: Annotated[
        int | None,
        typer.Option("--snapshot", "--snapshot-id", metavar="N", help="Read this snapshot."),
    ] = None,
    tag: Annotated[str | None, typer.Option(metavar="NAME", help="Read this tag.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Read the newest snapshot of this time (ISO 8601)."),
    ] = None,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Print the rows of a table, merged by their keys."""
    at = {"snapshot_id": snapshot, "tag": tag, "timestamp": timestamp}
    form = chosen(output, json=json, csv=csv)
    run("lakecore.cli.rows", "read", table, warehouse, option, (columns, where, limit), at, form)


@app.command()
def changes(  # noqa: PLR0913  one option per part of the question
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="POINT", help="Changes after this snapshot, tag, date or time (ISO 8601)."
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(metavar="POINT", help="Changes up to this point."),
    ] = None,
    columns: Columns = None,
    where: Where = None,
    limit: Limit = None,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Print what changed between two points, with row kinds.

    The column _row_kind is +I (new), -U and +U (before and after an update) or -D (deleted).
    """
    form = chosen(output, json=json, csv=csv)
    run(
        "lakecore.cli.rows",
        "changes",
        table,
        warehouse,
        option,
        (columns, where, limit),
        (start, end),
        form,
    )


add_stream_commands(app)
add_retention_commands(app)
add_cleanup_commands(app)
add_inspect_command(app)
add_sql_command(app)
add_analyze_command(app)
add_tag_commands(app)


@app.command()
def explain(  # noqa: PLR0913  one option per part of the question
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    columns: Columns = None,
    where: Where = None,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show which files a read would skip, merge and read."""
    form = chosen(output, json=json, csv=csv)
    run("lakecore.cli.look", "explain", table, warehouse, option, columns, where, form)


@app.command()
def compact(  # noqa: PLR0913  one option per part of the question
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Merge everything into one sorted run per bucket.")
    ] = False,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Only such partitions; repeatable."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="Only partitions that match.")
    ] = None,
    bucket: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Only this bucket; repeatable.")
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Work in steps that read at most SIZE, such as '512 mb'."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be done.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep compacting while others write, until stopped.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            min=0.01, max=_YEAR_SECONDS, metavar="SECONDS", help="With --watch: wait between looks."
        ),
    ] = 10.0,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Merge the files of each bucket into fewer sorted runs.

    In a table without a primary key, pack small files into larger ones.
    """
    form = chosen(output, json=json, csv=csv)
    if watch and form is Format.CSV:
        raise typer.BadParameter("--watch prints text or JSON lines")
    what = {
        "full": full,
        "partitions": partition,
        "where": where,
        "buckets": bucket,
        "max_bytes": max_bytes,
        "dry_run": dry_run,
    }
    every = interval if watch else None
    run("lakecore.cli.compact", "compact", table, warehouse, option, what, every, form)


@app.command()
def demo(
    path: Annotated[
        str | None,
        typer.Option(metavar="DIRECTORY", help="Where to put the warehouse; else a new directory."),
    ] = None,
    *,
    keep: Annotated[bool, typer.Option(help="Leave the table there to be looked at.")] = True,
) -> None:
    """Show what lakecore does, with a year of real flights."""
    run("lakecore.cli.demo", "demo", path, keep)


def _polars_errors() -> tuple[type[Exception], ...]:
    """The error types of Polars, if it has been imported."""
    # NOTE: Polars wraps an error that is raised while it pulls rows in an error of its own.
    loaded = sys.modules.get("polars.exceptions")
    return () if loaded is None else (loaded.PolarsError,)


def _say(text: str) -> None:
    write(f"{text}\n")
    flush()


def _fail(message: str) -> None:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(1)
