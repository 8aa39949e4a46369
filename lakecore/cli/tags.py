"""`lakecore tag` and `lakecore branch`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

from lakecore.cli.arguments import (
    DRY,
    Care,
    Form,
    Format,
    OfTable,
    Verbs,
    argument,
    confirmed,
    flag,
    switch,
)
from lakecore.cli.printing import write_frame, write_record
from lakecore.deferred import deferred_module

if TYPE_CHECKING:
    import polars as pl

    from lakecore.model.snapshot import Branch, Tag
else:
    pl = deferred_module("polars")

commands = Verbs()
_tag = commands.group("tag")
_branch = commands.group("branch")

TagName = Annotated[str, argument("TAG", "The name of the tag.")]
BranchName = Annotated[str, argument("BRANCH", "The name of the branch.")]
NewName = Annotated[str, argument("NEW", "The new name.")]
SnapshotId = Annotated[
    int | None, flag("N", "This snapshot. Default: the latest.", "--snapshot", "--snapshot-id")
]
Timestamp = Annotated[
    str | None, flag("TIME", "The first snapshot at or after this time (ISO 8601).")
]
Retained = Annotated[
    str | None, flag("TIME", "How long to keep the tag, such as '7 d'.", "--time-retained")
]


# --- tags -----------------------------------------------------------------------------------------


@_tag("list")
def list_tags(of: OfTable, form: Form) -> None:
    """List the tags, with their snapshots and times."""
    columns = {
        "tag": pl.String(),
        "snapshot_id": pl.Int64(),
        "schema_id": pl.Int64(),
        "rows": pl.Int64(),
        "committed": pl.Int64(),
        "created": pl.Datetime("ms"),
        "retained_seconds": pl.Float64(),
    }
    frame = pl.DataFrame([_tag_cells(tag) for tag in of.open().tags()], columns, orient="row")
    write_frame(frame.cast({"committed": pl.Datetime("ms", "UTC")}), form)


@_tag("create")
def create_tag(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    tag: TagName,
    *,
    snapshot: SnapshotId = None,
    timestamp: Timestamp = None,
    retained: Retained = None,
    replace: Annotated[bool, switch("Move an existing tag to this snapshot.")] = False,
    form: Form,
) -> None:
    """Create a tag of a snapshot: its rows stay readable after the snapshot expires."""
    table = of.open()
    verb = table.replace_tag if replace else table.create_tag
    _write_tag(verb(tag, snapshot, timestamp, retained), form)


@_tag("rename")
def rename_tag(of: OfTable, tag: TagName, new: NewName, form: Form) -> None:
    """Give a tag another name."""
    _write_tag(of.open().rename_tag(tag, new), form)


@_tag("delete")
def delete_tag(of: OfTable, tag: TagName, care: Care, form: Form) -> None:
    """Delete a tag, and the files that only it kept."""
    done = confirmed(
        partial(of.open().delete_tag, tag),
        lambda plan: f"delete the tag {tag} of snapshot {plan.snapshot_id}?",
        care,
    )
    write_record(asdict(done), form, str(done))


@_tag("expire")
def expire_tags(
    of: OfTable,
    *,
    older_than: Annotated[str | None, flag("TIME", "Also tags created before this time.")] = None,
    care: Care,
    form: Form,
) -> None:
    """Delete the tags whose time to live has ended."""
    done = confirmed(
        partial(of.open().expire_tags, older_than),
        lambda plan: f"delete {len(plan)} tags?" if plan else None,
        care,
    )
    lines = "\n".join(each.name for each in done) or "no tag is due"
    record = {"tags": [each.name for each in done], "dry_run": care.dry_run}
    write_record(record, form, lines + (f"\n{DRY}" if care.dry_run else ""))


def _tag_cells(tag: Tag) -> tuple[object, ...]:
    made = tag.create_time
    return (
        tag.name,
        tag.snapshot.id,
        tag.snapshot.schema_id,
        tag.snapshot.total_record_count,
        tag.snapshot.time_ms,
        None if made is None else datetime(*made[:6], microsecond=made[6] // 1000),  # type: ignore[arg-type, misc]
        tag.retained_seconds,
    )


def _write_tag(tag: Tag, form: Format) -> None:
    record = {
        "tag": tag.name,
        "snapshot_id": tag.snapshot.id,
        "retained_seconds": tag.retained_seconds,
    }
    write_record(record, form, f"{tag.name}: snapshot {tag.snapshot.id}")


# --- branches -------------------------------------------------------------------------------------


@_branch("list")
def list_branches(of: OfTable, form: Form) -> None:
    """List the branches, with their schemas and snapshots."""
    rows = [tuple(_branch_record(branch).values()) for branch in of.open().branches()]
    columns = {
        "branch": str,
        "schema_id": int,
        "earliest_snapshot_id": int,
        "latest_snapshot_id": int,
    }
    write_frame(pl.DataFrame(rows, columns, orient="row"), form)


@_branch("create")
def create_branch(
    of: OfTable,
    branch: BranchName,
    *,
    tag: Annotated[str | None, flag("TAG", "Start from this tag. Default: no rows.")] = None,
    form: Form,
) -> None:
    """Create a branch from a tag, or an empty branch."""
    _write_branch(of.open().create_branch(branch, tag), form)


@_branch("rename")
def rename_branch(of: OfTable, branch: BranchName, new: NewName, form: Form) -> None:
    """Give a branch another name."""
    _write_branch(of.open().rename_branch(branch, new), form)


@_branch("delete")
def delete_branch(of: OfTable, branch: BranchName, care: Care, form: Form) -> None:
    """Delete a branch with its snapshots and tags."""
    verb = partial(of.open().delete_branch, branch)
    found = confirmed(verb, lambda _plan: f"delete the branch {branch}?", care)
    _write_branch(found, form, f"\n{DRY}" if care.dry_run else "")


@_branch("fast-forward")
def fast_forward(of: OfTable, branch: BranchName, care: Care, form: Form) -> None:
    """Replace the state of the table by that of a branch.

    Commits to the table since the branch was created are lost.
    """
    done = confirmed(
        partial(of.open().fast_forward, branch),
        lambda plan: (
            f"fast-forward to {branch}, and delete {plan.snapshots_deleted} snapshots and "
            f"{plan.tags_deleted} tags of the table?"
        ),
        care,
    )
    write_record(asdict(done), form, str(done) + (f"\n{DRY}" if care.dry_run else ""))


def _branch_record(branch: Branch) -> dict[str, object]:
    return {
        "branch": branch.name,
        "schema_id": branch.schema_id,
        "earliest_snapshot_id": branch.earliest_snapshot_id,
        "latest_snapshot_id": branch.latest_snapshot_id,
    }


def _write_branch(branch: Branch, form: Format, more: str = "") -> None:
    latest = branch.latest_snapshot_id
    state = "no snapshot" if latest is None else f"snapshot {latest}"
    write_record(_branch_record(branch), form, f"{branch.name}: {state}{more}")
