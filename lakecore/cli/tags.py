"""`lakecore tag` and `lakecore branch`: execution and output.

A command that deletes tags, branches or snapshots asks first, unless `--yes` or `--dry-run` is
given.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from lakecore.cli.confirm import confirmed
from lakecore.cli.printing import write_frame, write_record
from lakecore.cli.target import table_of

if TYPE_CHECKING:
    from lakecore.cli.arguments import Format
    from lakecore.model.snapshot import Branch, Tag

__all__ = [
    "create_branch",
    "create_tag",
    "delete_branch",
    "delete_tag",
    "expire_tags",
    "fast_forward",
    "list_branches",
    "list_tags",
    "rename_branch",
    "rename_tag",
]

Care = tuple[bool, bool]
"""Whether it is a dry run, and whether `--yes` was given."""
_TAGS = {
    "tag": pl.String(),
    "snapshot_id": pl.Int64(),
    "schema_id": pl.Int64(),
    "rows": pl.Int64(),
    "committed": pl.Datetime("ms", "UTC"),
    "created": pl.Datetime("ms"),
    "retained_seconds": pl.Float64(),
}
_BRANCHES = {
    "branch": pl.String(),
    "schema_id": pl.Int64(),
    "earliest_snapshot_id": pl.Int64(),
    "latest_snapshot_id": pl.Int64(),
}
_DRY = "\ndry run: nothing was changed"


# --- tags -----------------------------------------------------------------------------------------


def list_tags(name: str, warehouse: str | None, option: list[str] | None, form: Format) -> None:
    """Print the tags of a table."""
    rows = [_tag_cells(tag) for tag in table_of(name, warehouse, option).tags()]
    frame = pl.DataFrame(rows, {**_TAGS, "committed": pl.Int64()}, orient="row")
    write_frame(frame.cast({"committed": _TAGS["committed"]}), form)


def create_tag(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    tag: str,
    what: tuple[int | None, str | None, str | None, bool],
    form: Format,
) -> None:
    """Create or replace a tag."""
    snapshot, timestamp, retained, replaces = what
    table = table_of(name, warehouse, option)
    verb = table.replace_tag if replaces else table.create_tag
    _write_tag(verb(tag, snapshot, timestamp, retained), form)


def rename_tag(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    names: tuple[str, str],
    form: Format,
) -> None:
    """Rename a tag."""
    _write_tag(table_of(name, warehouse, option).rename_tag(*names), form)


def delete_tag(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    tag: str,
    care: Care,
    form: Format,
) -> None:
    """Delete a tag."""
    dry_run, yes = care
    done = confirmed(
        partial(table_of(name, warehouse, option).delete_tag, tag),
        lambda plan: f"delete the tag {tag} of snapshot {plan.snapshot_id}?",
        dry_run=dry_run,
        yes=yes,
    )
    write_record(asdict(done), form, str(done))


def expire_tags(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    older_than: str | None,
    care: Care,
    form: Format,
) -> None:
    """Delete the tags past their time to live."""
    dry_run, yes = care
    done = confirmed(
        partial(table_of(name, warehouse, option).expire_tags, older_than),
        lambda plan: f"delete {len(plan)} tags?" if plan else None,
        dry_run=dry_run,
        yes=yes,
    )
    lines = "\n".join(each.name for each in done) or "no tag is due"
    record = {"tags": [each.name for each in done], "dry_run": dry_run}
    write_record(record, form, lines + (_DRY if dry_run else ""))


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


def list_branches(name: str, warehouse: str | None, option: list[str] | None, form: Format) -> None:
    """Print the branches of a table."""
    found = table_of(name, warehouse, option).branches()
    rows = [tuple(_branch_record(branch).values()) for branch in found]
    write_frame(pl.DataFrame(rows, _BRANCHES, orient="row"), form)


def create_branch(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    what: tuple[str, str | None],
    form: Format,
) -> None:
    """Create a branch."""
    _write_branch(table_of(name, warehouse, option).create_branch(*what), form)


def rename_branch(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    names: tuple[str, str],
    form: Format,
) -> None:
    """Rename a branch."""
    _write_branch(table_of(name, warehouse, option).rename_branch(*names), form)


def delete_branch(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    branch: str,
    care: Care,
    form: Format,
) -> None:
    """Delete a branch."""
    dry_run, yes = care
    found = confirmed(
        partial(table_of(name, warehouse, option).delete_branch, branch),
        lambda _plan: f"delete the branch {branch}?",
        dry_run=dry_run,
        yes=yes,
    )
    _write_branch(found, form, _DRY if dry_run else "")


def fast_forward(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    branch: str,
    care: Care,
    form: Format,
) -> None:
    """Give a table the state of a branch."""
    dry_run, yes = care
    done = confirmed(
        partial(table_of(name, warehouse, option).fast_forward, branch),
        lambda plan: (
            f"fast-forward to {branch}, and delete {plan.snapshots_deleted} snapshots and "
            f"{plan.tags_deleted} tags of the table?"
        ),
        dry_run=dry_run,
        yes=yes,
    )
    write_record(asdict(done), form, str(done) + (_DRY if dry_run else ""))


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
