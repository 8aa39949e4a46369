"""`lakecore snapshot`, `lakecore expire` and `lakecore rollback`.

Each command that removes something first determines what it would remove. With `--dry-run` it
prints this. Otherwise it asks for confirmation, unless `--yes` is given or there is nothing to
remove, and then removes it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Literal

import polars as pl

from lakecore.cli.confirm import confirmed, require_consent
from lakecore.cli.printing import write_frame, write_record
from lakecore.cli.target import table_of
from lakecore.table.reads.told import told_snapshot

if TYPE_CHECKING:
    from lakecore.cli.arguments import Format
    from lakecore.model.retention import (
        ExpiredChangelogs,
        ExpiredPartitions,
        ExpiredSnapshots,
        RolledBack,
    )

    Result = ExpiredChangelogs | ExpiredPartitions | ExpiredSnapshots | RolledBack

__all__ = [
    "expire_changelogs",
    "expire_partitions",
    "expire_snapshots",
    "list_snapshots",
    "rollback",
]

Bounds = tuple[int | None, int | None, str | None, int | None]


def list_snapshots(
    name: str, warehouse: str | None, option: list[str] | None, form: Format
) -> None:
    """Print the snapshots, oldest first."""
    table = table_of(name, warehouse, option)
    history = table.context.history
    tags, consumers = defaultdict(list), defaultdict(list)
    for tag in table.tags():
        tags[tag.snapshot.id].append(tag.name)
    for consumer in table.consumers():
        consumers[consumer.next_snapshot].append(consumer.consumer_id)
    rows = [
        {
            "snapshot_id": found.id,
            "kind": str(found.commit_kind),
            "time_ms": found.time_ms,
            "schema_id": found.schema_id,
            "rows_stored": found.total_record_count,
            "rows_changed": found.delta_record_count,
            "user": found.commit_user,
            "tags": ", ".join(tags[found.id]) or None,
            "next_of_consumers": ", ".join(consumers[found.id]) or None,
        }
        for each in map(history.snapshot_if_there, history.snapshot_ids())
        if each is not None
        for found in [told_snapshot(each, table.context)]
    ]
    schema = {
        "snapshot_id": pl.Int64,
        "kind": pl.String,
        "time_ms": pl.Int64,
        "schema_id": pl.Int64,
        "rows_stored": pl.Int64,
        "rows_changed": pl.Int64,
        "user": pl.String,
        "tags": pl.String,
        "next_of_consumers": pl.String,
    }
    frame = pl.DataFrame(rows, schema)
    time = pl.from_epoch("time_ms", "ms").dt.replace_time_zone("UTC").alias("time")
    frame = frame.with_columns(time).select("snapshot_id", "kind", "time", *frame.columns[3:])
    write_frame(frame, form, null="")


def expire_snapshots(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    what: Bounds,
    how: tuple[bool, bool],
    form: Format,
) -> None:
    """Expire snapshots."""
    table = table_of(name, warehouse, option)
    most, least, older_than, deletes = what
    dry_run, yes = how
    result = confirmed(
        partial(
            table.expire_snapshots,
            retain_max=most,
            retain_min=least,
            older_than=older_than,
            max_deletes=deletes,
        ),
        lambda plan: _question("expire", plan.snapshots_expired, "snapshots"),
        dry_run=dry_run,
        yes=yes,
    )
    _print(result, form)


def expire_changelogs(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    what: Bounds,
    how: tuple[bool, bool, bool],
    form: Format,
) -> None:
    """Expire long-lived changelogs."""
    table = table_of(name, warehouse, option)
    most, least, older_than, deletes = what
    everything, dry_run, yes = how
    result = confirmed(
        partial(
            table.expire_changelogs,
            retain_max=most,
            retain_min=least,
            older_than=older_than,
            max_deletes=deletes,
            delete_all=everything,
        ),
        lambda plan: _question("expire", plan.changelogs_expired, "changelogs"),
        dry_run=dry_run,
        yes=yes,
    )
    _print(result, form)


def expire_partitions(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    what: tuple[
        str | None, str | None, str | None, Literal["values-time", "update-time"] | None, int | None
    ],
    how: tuple[bool, bool],
    form: Format,
) -> None:
    """Drop expired partitions."""
    table = table_of(name, warehouse, option)
    age, formatter, pattern, strategy, most = what
    dry_run, yes = how
    result = confirmed(
        partial(
            table.expire_partitions,
            expiration_time=age,
            timestamp_formatter=formatter,
            timestamp_pattern=pattern,
            expire_strategy=strategy,
            max_expires=most,
        ),
        lambda plan: _question("drop", len(plan.partitions), "partitions"),
        dry_run=dry_run,
        yes=yes,
    )
    _print(result, form)


def _question(verb: str, count: int, what: str) -> str | None:
    return f"{verb} {count} {what}?" if count else None


def rollback(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    what: tuple[int | None, str | None, str | None],
    how: tuple[bool, bool],
    form: Format,
) -> None:
    """Go back to a snapshot."""
    table = table_of(name, warehouse, option)
    snapshot, tag, time = what

    dry_run, yes = how
    result = table.rollback_to(snapshot, tag, time, dry_run=True)
    if not dry_run:
        if result.snapshots_removed or result.tags_removed:
            count = result.snapshots_removed
            tags = f" and {len(result.tags_removed)} tags" if result.tags_removed else ""
            question = f"go back to snapshot {result.snapshot_id}, and remove {count} later ones"
            require_consent(f"{question}{tags}?", yes=yes)
        result = table.rollback_to(snapshot, tag, time)
    _print(result, form)


def _print(result: Result, form: Format) -> None:
    write_record(asdict(result), form, str(result))
