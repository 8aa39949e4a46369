"""Declares `lakecore stream` and `lakecore consumer`; `streams.py` carries them out."""

from __future__ import annotations

from typing import Annotated

import typer

from lakecore.cli.arguments import (
    AsCsv,
    AsJson,
    Columns,
    DryRun,
    Format,
    Options,
    Output,
    TableName,
    Warehouse,
    Where,
    Yes,
    chosen,
    group,
)
from lakecore.cli.run import run

__all__ = ["add_to"]

_MODULE = "lakecore.cli.streams"
_consumers = group("List, set and delete the consumers of a table.")

ConsumerId = Annotated[
    str, typer.Argument(metavar="CONSUMER", help="The id of the consumer.", show_default=False)
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.command()(stream)
    app.add_typer(_consumers, name="consumer")


def stream(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="POINT",
            help="Begin with this snapshot, tag or time (ISO 8601). Default: all rows as they are.",
        ),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="MODE", help="Where to begin: Paimon's scan.mode.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="ID|latest", help="End after this snapshot. Default: wait for new ones."
        ),
    ] = None,
    consumer: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Continue where this consumer is, and record what was printed."
        ),
    ] = None,
    poll: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Look for new snapshots this often, such as '10 s'."),
    ] = None,
    columns: Columns = None,
    where: Where = None,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Print changes snapshot by snapshot, and wait for new ones until Ctrl-C.

    The column _row_kind is +I (new), -U and +U (before and after an update) or -D (deleted). A
    table shows the first 20 rows of each snapshot.
    """
    form = chosen(output, json=json, csv=csv)
    what = (columns, where)
    run(
        _MODULE,
        "stream",
        table,
        warehouse,
        option,
        what,
        (start, mode, until, consumer, poll),
        form,
    )


@_consumers.command("list")
def list_consumers(
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the consumers, the snapshot that each reads next, and how far behind it is."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "list_consumers", table, warehouse, option, form)


@_consumers.command("reset")
def reset_consumer(  # noqa: PLR0913  one parameter per option
    table: TableName,
    consumer: ConsumerId,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    next_snapshot: Annotated[
        int | None,
        typer.Option("--next", metavar="ID", help="Continue with this snapshot."),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the consumer.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Set the next snapshot that a consumer reads, or delete the consumer.

    Stop its stream first.
    """
    form = chosen(output, json=json, csv=csv)
    if (next_snapshot is None) is not delete:
        raise typer.BadParameter("give one of --next ID and --delete")
    what = (next_snapshot, dry_run, yes)
    run(_MODULE, "reset_consumer", table, warehouse, option, consumer, what, form)


@_consumers.command("clear")
def clear_consumers(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    including: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only consumers whose whole id matches. Default: all."),
    ] = None,
    excluding: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Keep consumers whose whole id matches.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Delete consumers. Snapshots that only they need may expire."""
    form = chosen(output, json=json, csv=csv)
    what = (including, excluding, dry_run, yes)
    run(_MODULE, "clear_consumers", table, warehouse, option, what, form)
