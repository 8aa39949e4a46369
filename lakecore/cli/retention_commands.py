"""Declares `lakecore snapshot`, `expire` and `rollback`; `retention.py` carries them out."""

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
)
from lakecore.cli.run import run

__all__ = ["add_to"]

_MODULE = "lakecore.cli.retention"


_snapshots = group("List the snapshots of a table, and expire old ones.")
_expire = group("Expire old snapshots, changelogs or partitions of a table.")

Most = Annotated[
    int | None,
    typer.Option(
        "--retain-max", metavar="N", help="Expire all but the newest N, even recent ones."
    ),
]
Least = Annotated[
    int | None, typer.Option("--retain-min", metavar="N", help="Always keep the newest N.")
]
OlderThan = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Expire what was replaced before this time or age, such as '2 h'."
    ),
]
MaxDeletes = Annotated[
    int | None, typer.Option("--max-deletes", metavar="N", help="Expire at most N.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.add_typer(_snapshots, name="snapshot")
    app.add_typer(_expire, name="expire")
    app.command()(rollback)


@_snapshots.command("list")
def list_snapshots(
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the snapshots that can be read, with their tags and the consumers that hold them."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "list_snapshots", table, warehouse, option, form)


@_expire.command("snapshots")
@_snapshots.command("expire")
def expire_snapshots(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    retain_max: Most = None,
    retain_min: Least = None,
    older_than: OlderThan = None,
    max_deletes: MaxDeletes = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Expire the oldest snapshots, with the files that only they need.

    Limits that are not given come from the options of the table.
    """
    form = chosen(output, json=json, csv=csv)
    what = (retain_max, retain_min, older_than, max_deletes)
    run(_MODULE, "expire_snapshots", table, warehouse, option, what, (dry_run, yes), form)


@_expire.command("changelogs")
def expire_changelogs(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    retain_max: Most = None,
    retain_min: Least = None,
    older_than: OlderThan = None,
    max_deletes: MaxDeletes = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Expire all that no consumer needs.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Expire the oldest long-lived changelogs: the changes of snapshots that have expired."""
    form = chosen(output, json=json, csv=csv)
    what = (retain_max, retain_min, older_than, max_deletes)
    asked = (everything, dry_run, yes)
    run(_MODULE, "expire_changelogs", table, warehouse, option, what, asked, form)


@_expire.command("partitions")
def expire_partitions(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--expiration-time",
            metavar="AGE",
            help="Drop partitions older than this, such as '30 d'.",
        ),
    ] = None,
    formatter: Annotated[
        str | None,
        typer.Option("--timestamp-formatter", metavar="FORMAT", help="Format of the time."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--timestamp-pattern", metavar="PATTERN", help="The time, made of values: '$dt $hour'."
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            "--expire-strategy",
            metavar="STRATEGY",
            help="values-time: by the values; update-time: by the newest file.",
        ),
    ] = None,
    max_expires: Annotated[
        int | None, typer.Option("--max-expires", metavar="N", help="Drop at most N.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Drop the partitions that are older than their time to live."""
    form = chosen(output, json=json, csv=csv)
    what = (older_than, formatter, pattern, strategy, max_expires)
    run(_MODULE, "expire_partitions", table, warehouse, option, what, (dry_run, yes), form)


def rollback(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    snapshot: Annotated[
        int | None,
        typer.Option("--snapshot", "--snapshot-id", metavar="N", help="Go back to this snapshot."),
    ] = None,
    tag: Annotated[str | None, typer.Option(metavar="NAME", help="Go back to this tag.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Go back to the newest snapshot at this time (ISO 8601)."
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Make an earlier snapshot the latest one, and remove all later snapshots and tags.

    Stop the writers first.
    """
    form = chosen(output, json=json, csv=csv)
    what = (snapshot, tag, timestamp)
    run(_MODULE, "rollback", table, warehouse, option, what, (dry_run, yes), form)
