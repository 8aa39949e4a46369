"""The command line: `lakecore COMMAND`, one command a question about tables.

What a command prints goes to standard output: tables for people, JSON lines where `--json` asks.
An error of lakecore's tree is one line on standard error, and exit code 1; `--debug` shows where it
came from. Wrong usage is exit code 2.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from lakecore import __version__
from lakecore.cli.arguments import Options, Path, point, stated
from lakecore.cli.compact import compact
from lakecore.cli.demo import demo
from lakecore.errors import LakecoreError
from lakecore.frames.polars_source import to_frame
from lakecore.session import connect, open_table
from lakecore.table.reads.explain import show_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from rich.console import JustifyMethod

    from lakecore.session import Session
    from lakecore.table.handle import Table

__all__ = ["app", "main"]

PROGRAM = "lakecore"
DEBUG = "--debug"
ROWS_SHOWN = 20
PIPE_WIDTH = 400
_CELL_MAX = 60
AsJson = Annotated[
    bool,
    typer.Option(
        "--json", help="One JSON object a line; null is also what JSON lacks: NaN, infinity."
    ),
]

app = typer.Typer(
    name=PROGRAM,
    help="Apache Paimon tables without a JVM: look at them, read them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command()(compact)
app.command()(demo)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name, and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):  # a terminal may not have every character
            output.reconfigure(errors="backslashreplace")
    if sys.stdout is None:  # closed by whoever started this
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  open until the end
    try:
        app(args=[part for part in given if part != DEBUG], prog_name=PROGRAM)
    except LakecoreError as error:
        if DEBUG in given:
            raise
        _fail(str(error))
    except pl.exceptions.PolarsError as error:
        # NOTE: an error raised while Polars pulls rows comes out as one of its own.
        if DEBUG in given:
            raise
        _fail(_first_line(str(error)))
    except OSError as error:
        # Storage raises errors of lakecore's tree: this is what is printed to.
        if DEBUG in given:
            raise
        _to_nowhere()
        _fail(f"the output cannot be written: {error.strerror or error}")


@app.callback()
def _common(
    *,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show where an error came from.")] = False,
) -> None:
    del debug  # `main` looks for it, since it also holds for errors of commands


@app.command()
def version() -> None:
    """Print the version."""
    _print(__version__)


@app.command()
def tables(
    warehouse: Annotated[str, typer.Argument(metavar="WAREHOUSE", help="Path or URI.")],
    option: Options = None,
) -> None:
    """List the tables of a warehouse, with keys, newest snapshot and rows as stored."""
    session = connect({"warehouse": warehouse, **stated(option)})
    names = [
        f"{database}.{table}"
        for database in session.list_databases()
        for table in session.list_tables(database)
    ]
    _grid(
        ["table", "primary key", "partitioned by", "snapshot", "rows stored"],
        [_table_line(session, name) for name in names],
        numbers=["snapshot", "rows stored"],
    )


@app.command()
def show(  # noqa: PLR0913  one option a part of the question
    path: Path,
    option: Options = None,
    *,
    snapshots: Annotated[bool, typer.Option("--snapshots", help="The live snapshots.")] = False,
    files: Annotated[bool, typer.Option("--files", help="The live data files.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Columns and keys.")] = False,
    options: Annotated[bool, typer.Option("--options", help="The options that were set.")] = False,
    manifests: Annotated[
        bool, typer.Option("--manifests", help="The manifests, and how many are small.")
    ] = False,
) -> None:
    """Show what a table is: its schema, options and snapshots, or what the flags ask for."""
    table = open_table(path, options=stated(option))
    everything = not (snapshots or files or schema or options or manifests)
    if schema or everything:
        _show_schema(table)
    if options or everything:
        _show_frame(table.inspect.options(), "options")
    if snapshots or everything:
        _show_frame(_snapshots(table), "snapshots")
    if files:
        _show_frame(_files(table), "files")
    if manifests:
        _show_frame(table.inspect.manifests(), "manifests")
        _print(_health(table))


@app.command()
def read(  # noqa: PLR0913  one option a part of the question
    path: Path,
    option: Options = None,
    *,
    columns: Annotated[str | None, typer.Option(help="Columns, commas between them.")] = None,
    where: Annotated[str | None, typer.Option(help="Condition, as SQL text.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help=f"Most rows; {ROWS_SHOWN} unless --json.")
    ] = None,
    snapshot_id: Annotated[int | None, typer.Option(help="Read this snapshot.")] = None,
    tag: Annotated[str | None, typer.Option(help="Read this tag.")] = None,
    json: AsJson = False,
) -> None:
    """Print the rows of a table, merged."""
    table = open_table(path, options=stated(option))
    wanted = None if columns is None else [name.strip() for name in columns.split(",")]
    if json:
        batches = table.to_batches(wanted, where, limit, snapshot_id=snapshot_id, tag=tag)
        _write_json(map(to_frame, batches))
    else:
        most = ROWS_SHOWN if limit is None else limit
        _show_frame(table.to_polars(wanted, where, most, snapshot_id=snapshot_id, tag=tag), None)


@app.command()
def changes(  # noqa: PLR0913  one option a part of the question
    path: Path,
    option: Options = None,
    *,
    start: Annotated[
        str | None, typer.Option(help="Changes after this snapshot, tag or time (ISO 8601).")
    ] = None,
    end: Annotated[str | None, typer.Option(help="Up to this snapshot, tag or time.")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns, commas between them.")] = None,
    where: Annotated[str | None, typer.Option(help="Condition on each row, as SQL text.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help=f"Most rows; {ROWS_SHOWN} unless --json.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Print what changed between two points, each row with its kind."""
    table = open_table(path, options=stated(option))
    wanted = None if columns is None else [name.strip() for name in columns.split(",")]
    frame = table.changes(point(start), point(end), wanted, where)
    if json:
        rows = frame if limit is None else frame.head(limit)
        _write_json(rows.collect_batches(maintain_order=True))
    else:
        _show_frame(frame.head(ROWS_SHOWN if limit is None else limit).collect(), None)


@app.command()
def explain(
    path: Path,
    where: Annotated[str | None, typer.Option(help="Condition, as SQL text.")] = None,
    option: Options = None,
) -> None:
    """Show what a read would do: files kept and left out, what is merged, how many bytes."""
    table = open_table(path, options=stated(option))
    _print(str(table.explain(where=where)))


def _table_line(session: Session, name: str) -> list[str]:
    table = session.get_table(f"`{name.partition('.')[0]}`.`{name.partition('.')[2]}`")
    snapshot = table.context.history.latest_snapshot()
    return [
        name,
        ", ".join(table.schema.primary_keys),
        ", ".join(table.schema.partition_keys),
        "" if snapshot is None else str(snapshot.id),
        "" if snapshot is None else f"{snapshot.total_record_count:,}",
    ]


def _health(table: Table) -> str:
    """How many manifests a reader opens, and whether a commit will merge some."""
    options, frame = table.options, table.inspect.manifests()
    target = options.manifest_target_file_size_bytes
    small = frame.filter(pl.col("file_size") < target).height
    deleting = frame.filter(pl.col("num_deleted_files") > 0).height
    return (
        f"{frame.height} manifests of {show_bytes(int(frame['file_size'].sum()))}: {small} smaller "
        f"than {show_bytes(target)} (from {options.manifest_merge_min_count} on they are merged), "
        f"{deleting} with deletions"
    )


def _snapshots(table: Table) -> pl.DataFrame:
    return table.inspect.snapshots().select(
        id="snapshot_id",
        committed=pl.col("commit_time").dt.to_string("%Y-%m-%d %H:%M:%S"),
        kind="commit_kind",
        rows="total_record_count",
        change=pl.format(
            "{}{}",
            pl.when(pl.col("delta_record_count") > 0).then(pl.lit("+")).otherwise(pl.lit("")),
            "delta_record_count",
        ),
        user="commit_user",
    )


def _files(table: Table) -> pl.DataFrame:
    return table.inspect.files().select(
        "partition",
        "bucket",
        "level",
        rows="record_count",
        size=pl.col("file_size_in_bytes").map_elements(show_bytes, return_dtype=pl.String),
        keys=pl.format("{} .. {}", "min_key", "max_key"),
        file=pl.col("file_path").str.split("/").list.last(),
    )


def _show_schema(table: Table) -> None:
    schema = table.schema
    rows = [
        [
            column.name,
            str(column.type),
            "primary key" if column.name in schema.primary_keys else "",
            "partition key" if column.name in schema.partition_keys else "",
            column.description or "",
        ]
        for column in schema.fields
    ]
    _grid(["column", "type", "", "", "comment"], rows, title=f"schema {schema.id}")


def _show_frame(frame: pl.DataFrame, title: str | None) -> None:
    rows = [["" if value is None else _cell(value) for value in row] for row in frame.rows()]
    numbers = [name for name, data_type in frame.schema.items() if data_type.is_numeric()]
    _grid(frame.columns, rows, title=title, numbers=numbers)


def _cell(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _CELL_MAX else text[: _CELL_MAX - 1] + "…"


def _grid(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    numbers: Collection[str] = (),
) -> None:
    grid = Grid(title=title, title_justify="left")
    for column in columns:
        side: JustifyMethod = "right" if column in numbers else "left"
        grid.add_column(Text(column), overflow="fold", justify=side)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    # What goes to a file or another program is not folded to the width of a screen.
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(grid)


def _write_json(batches: Iterable[pl.DataFrame]) -> None:
    """One JSON object a row, batch by batch; bytes as hex text, NaN and infinity as null."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # which JSON is always in
    try:
        for batch in batches:
            rows = batch.with_columns(pl.col(pl.Binary).bin.encode("hex"))
            sys.stdout.write(rows.write_ndjson())
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has had enough, as in `lakecore read ... | head`. What is still buffered goes
        # nowhere, so that Python does not stumble over it when it ends.
        _to_nowhere()


def _to_nowhere() -> None:
    """Let what is still to be printed go nowhere."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(text: str) -> None:
    Console(highlight=False).print(Text(text), soft_wrap=True)


def _fail(message: str) -> None:
    Console(stderr=True, highlight=False).print(Text(f"error: {message}"), soft_wrap=True)
    sys.exit(1)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
