"""Declares `lakecore tag` and `lakecore branch`; `tags.py` carries them out."""

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

_MODULE = "lakecore.cli.tags"
_tags = group("List, create, replace, rename, delete and expire the tags of a table.")
_branches = group("List, create, rename, delete and fast-forward the branches of a table.")

TagName = Annotated[
    str, typer.Argument(metavar="TAG", help="The name of the tag.", show_default=False)
]
BranchName = Annotated[
    str, typer.Argument(metavar="BRANCH", help="The name of the branch.", show_default=False)
]
NewName = Annotated[str, typer.Argument(metavar="NEW", help="The new name.", show_default=False)]
SnapshotId = Annotated[
    int | None,
    typer.Option(
        "--snapshot", "--snapshot-id", metavar="N", help="This snapshot. Default: the latest."
    ),
]
Timestamp = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="The first snapshot at or after this time (ISO 8601)."),
]
Retained = Annotated[
    str | None,
    typer.Option(
        "--time-retained", metavar="TIME", help="How long to keep the tag, such as '7 d'."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to a program."""
    app.add_typer(_tags, name="tag")
    app.add_typer(_branches, name="branch")


# --- tags -----------------------------------------------------------------------------------------


@_tags.command("list")
def list_tags(
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the tags, with their snapshots and times."""
    run(_MODULE, "list_tags", table, warehouse, option, chosen(output, json=json, csv=csv))


@_tags.command("create")
def create_tag(  # noqa: PLR0913  one parameter per option
    table: TableName,
    tag: TagName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    snapshot: SnapshotId = None,
    timestamp: Timestamp = None,
    retained: Retained = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Move an existing tag to this snapshot.")
    ] = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Create a tag of a snapshot: its rows stay readable after the snapshot expires."""
    form = chosen(output, json=json, csv=csv)
    what = (snapshot, timestamp, retained, replace)
    run(_MODULE, "create_tag", table, warehouse, option, tag, what, form)


@_tags.command("rename")
def rename_tag(  # noqa: PLR0913  one parameter per option
    table: TableName,
    tag: TagName,
    new: NewName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Give a tag another name."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "rename_tag", table, warehouse, option, (tag, new), form)


@_tags.command("delete")
def delete_tag(  # noqa: PLR0913  one parameter per option
    table: TableName,
    tag: TagName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Delete a tag, and the files that only it kept."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "delete_tag", table, warehouse, option, tag, (dry_run, yes), form)


@_tags.command("expire")
def expire_tags(  # noqa: PLR0913  one parameter per option
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="TIME", help="Also tags created before this time."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Delete the tags whose time to live has ended."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "expire_tags", table, warehouse, option, older_than, (dry_run, yes), form)


# --- branches -------------------------------------------------------------------------------------


@_branches.command("list")
def list_branches(
    table: TableName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the branches, with their schemas and snapshots."""
    run(_MODULE, "list_branches", table, warehouse, option, chosen(output, json=json, csv=csv))


@_branches.command("create")
def create_branch(  # noqa: PLR0913  one parameter per option
    table: TableName,
    branch: BranchName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    tag: Annotated[
        str | None, typer.Option(metavar="TAG", help="Start from this tag. Default: no rows.")
    ] = None,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Create a branch from a tag, or an empty branch."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "create_branch", table, warehouse, option, (branch, tag), form)


@_branches.command("rename")
def rename_branch(  # noqa: PLR0913  one parameter per option
    table: TableName,
    branch: BranchName,
    new: NewName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Give a branch another name."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "rename_branch", table, warehouse, option, (branch, new), form)


@_branches.command("delete")
def delete_branch(  # noqa: PLR0913  one parameter per option
    table: TableName,
    branch: BranchName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Delete a branch with its snapshots and tags."""
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "delete_branch", table, warehouse, option, branch, (dry_run, yes), form)


@_branches.command("fast-forward")
def fast_forward(  # noqa: PLR0913  one parameter per option
    table: TableName,
    branch: BranchName,
    option: Options = None,
    warehouse: Warehouse = None,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Replace the state of the table by that of a branch.

    Commits to the table since the branch was created are lost.
    """
    form = chosen(output, json=json, csv=csv)
    run(_MODULE, "fast_forward", table, warehouse, option, branch, (dry_run, yes), form)
