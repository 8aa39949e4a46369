"""Procedures of tags, branches and retention: expiry, rollback, consumers, clean-up."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Literal, cast

from lakecore.errors import AlreadyExists, InvalidRequest, NotFound
from lakecore.sql.procedures.procedure import procedure
from lakecore.table.maintenance.expire_tags import create_automatic_tags, expire_due_tags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.sql.procedures.procedure import Call, Rows
    from lakecore.table.handle import Table

_RETAINED = "`tag.default-time-retained`"
_MOST = "`snapshot.expire.limit`, if the table states it"
_STATES = ("previous_snapshot_id", "current_snapshot_id")


# --- tags and branches ----------------------------------------------------------------------------


@procedure(snapshot_id="the latest", time_retained=_RETAINED)
def create_tag(table: Table, tag: str, snapshot_id: int | None, time_retained: str | None) -> None:
    """Give a snapshot a name that keeps it."""
    table.create_tag(tag, snapshot_id=snapshot_id, time_retained=time_retained)


@procedure(time_retained=_RETAINED)
def create_tag_from_timestamp(
    table: Table, tag: str, timestamp: int, time_retained: str | None
) -> None:
    """Give the snapshot of a time a name."""
    table.create_tag(tag, timestamp=timestamp, time_retained=time_retained)


@procedure(columns=("tag", "snapshot", "commit_time", "watermark"), time_retained=_RETAINED)
def create_tag_from_watermark(
    table: Table, tag: str, watermark: int, time_retained: str | None
) -> Rows:
    """Tag the oldest snapshot with a larger watermark."""
    history = table.context.history
    for snapshot_id in history.snapshot_ids():
        snapshot = history.snapshot(snapshot_id)
        if snapshot.watermark is not None and snapshot.watermark > watermark:
            table.create_tag(tag, snapshot_id=snapshot_id, time_retained=time_retained)
            return [(tag, snapshot_id, snapshot.time_ms, snapshot.watermark)]
    raise NotFound(
        "no snapshot has a larger watermark", table=table.identifier, watermark=watermark
    )


@procedure()
def delete_tag(table: Table, tag: str) -> None:
    """Delete tags; several are parted by commas."""
    for name in _names(tag):
        table.delete_tag(name)


@procedure()
def rename_tag(table: Table, tag: str, target_tag: str) -> None:
    """Rename a tag."""
    table.rename_tag(tag, target_tag)


@procedure()
def replace_tag(table: Table, tag: str, snapshot_id: int | None, time_retained: str | None) -> None:
    """Let a tag name another snapshot, or keep it another time."""
    table.replace_tag(tag, snapshot_id=snapshot_id, time_retained=time_retained)


@procedure()
def trigger_tag_automatic_creation(table: Table) -> None:
    """Make the automatic tags that are due, and delete the expired ones."""
    create_automatic_tags(table.context, batch=False)
    expire_due_tags(table.context)


@procedure()
def create_branch(table: Table, *, branch: str, tag: str | None, ignore_if_exists: bool) -> None:
    """Make a branch, from a tag or empty."""
    with suppress(AlreadyExists) if ignore_if_exists else nullcontext():
        table.create_branch(branch, tag)


@procedure()
def delete_branch(table: Table, branch: str) -> None:
    """Delete branches; several are parted by commas."""
    for name in _names(branch):
        table.delete_branch(name)


@procedure()
def rename_branch(table: Table, from_branch: str, to_branch: str) -> None:
    """Rename a branch."""
    table.rename_branch(from_branch, to_branch)


@procedure()
def fast_forward(table: Table, branch: str) -> None:
    """Let main become what a branch is."""
    table.fast_forward(branch)


def _names(text: str) -> Iterator[str]:
    return filter(None, map(str.strip, text.split(",")))


# --- expiry ---------------------------------------------------------------------------------------


@procedure(
    columns=("deleted_snapshots_count",),
    retain_max="`snapshot.num-retained.max`",
    retain_min="`snapshot.num-retained.min`",
    older_than="`snapshot.time-retained`",
    max_deletes=_MOST,
)
def expire_snapshots(  # noqa: PLR0913  the arguments of the procedure
    call: Call,
    table: str,
    *,
    retain_max: int | None,
    retain_min: int | None,
    older_than: str | None,
    max_deletes: int | None,
    options: str | None,
) -> Rows:
    """Delete old snapshots and the files that only they need."""
    result = call.open(table, options).expire_snapshots(
        retain_max=retain_max, retain_min=retain_min, older_than=older_than, max_deletes=max_deletes
    )
    return [(result.snapshots_expired,)]


@procedure(
    retain_max="`changelog.num-retained.max`",
    retain_min="`changelog.num-retained.min`",
    older_than="`changelog.time-retained`",
    max_deletes=_MOST,
)
def expire_changelogs(
    table: Table,
    *,
    retain_max: int | None,
    retain_min: int | None,
    older_than: str | None,
    max_deletes: int | None,
    delete_all: bool,
) -> Rows:
    """Delete old long-lived changelogs."""
    result = table.expire_changelogs(
        retain_max=retain_max,
        retain_min=retain_min,
        older_than=older_than,
        max_deletes=max_deletes,
        delete_all=delete_all,
    )
    return [(f"expired changelogs: {result.changelogs_expired}",)]


@procedure(columns=("expired_tags",), older_than="the time that each tag states")
def expire_tags(table: Table, older_than: str | None) -> Rows:
    """Delete tags whose time is over."""
    gone = table.expire_tags(older_than=older_than)
    return [(each.name,) for each in gone] or [("No expired tags.",)]


@procedure(
    columns=("expired_partitions",),
    expiration_time="`partition.expiration-time`",
    timestamp_formatter="`partition.timestamp-formatter`",
    timestamp_pattern="`partition.timestamp-pattern`",
    expire_strategy="`partition.expiration-strategy`",
    max_expires="`partition.expiration-max-num`",
)
def expire_partitions(  # noqa: PLR0913  the arguments of the procedure
    call: Call,
    table: str,
    *,
    expiration_time: str | None,
    timestamp_formatter: str | None,
    timestamp_pattern: str | None,
    expire_strategy: str | None,
    max_expires: int | None,
    options: str | None,
) -> Rows:
    """Remove the rows of old partitions."""
    if expire_strategy not in {None, "values-time", "update-time"}:
        raise InvalidRequest("unknown strategy", expire_strategy=expire_strategy)
    result = call.open(table, options).expire_partitions(
        expiration_time=expiration_time,
        timestamp_formatter=timestamp_formatter,
        timestamp_pattern=timestamp_pattern,
        expire_strategy=cast("Literal['values-time', 'update-time'] | None", expire_strategy),
        max_expires=max_expires,
    )
    dropped = [
        ", ".join(f"{key}={value}" for key, value in each.items()) for each in result.partitions
    ]
    return [(each,) for each in dropped] or [("No expired partitions.",)]


# --- rollback -------------------------------------------------------------------------------------


@procedure(columns=_STATES)
def rollback_to(table: Table, tag: str | None, snapshot_id: int | None) -> Rows:
    """Go back to a snapshot or a tag.

    A positional number is a snapshot, other text is a tag.
    """
    is_id = tag is not None and tag.isdecimal() and snapshot_id is None
    return _rolled_back(table, int(tag or 0) if is_id else snapshot_id, None if is_id else tag)


@procedure(columns=_STATES)
def rollback(table: Table, version: str | None, tag: str | None, snapshot: int | None) -> Rows:
    """Go back to a snapshot or a tag, as in Spark."""
    if sum(each is not None for each in (version, tag, snapshot)) != 1:
        raise InvalidRequest("rollback takes one of version, snapshot and tag")
    if version is not None and version.isdecimal():
        snapshot = int(version)
    elif version is not None:
        tag = version
    return _rolled_back(table, snapshot, tag)


@procedure(columns=_STATES)
def rollback_to_timestamp(table: Table, timestamp: int) -> Rows:
    """Go back to the newest snapshot of a time."""
    result = table.rollback_to(timestamp=timestamp)
    return [(result.previous_snapshot_id, result.snapshot_id)]


@procedure(columns=_STATES)
def rollback_to_watermark(table: Table, watermark: int) -> Rows:
    """Go back to the newest snapshot of a watermark."""
    history = table.context.history
    for snapshot_id in reversed(history.snapshot_ids()):
        found = history.snapshot(snapshot_id).watermark
        if found is not None and found <= watermark:
            return _rolled_back(table, snapshot_id, None)
    raise NotFound("no snapshot has such a watermark", table=table.identifier, watermark=watermark)


def _rolled_back(table: Table, snapshot_id: int | None, tag: str | None) -> Rows:
    result = table.rollback_to(snapshot_id=snapshot_id, tag=tag)
    return [(result.previous_snapshot_id, result.snapshot_id)]


# --- consumers and clean-up -----------------------------------------------------------------------


@procedure(next_snapshot_id="none: the consumer is deleted")
def reset_consumer(table: Table, consumer_id: str, next_snapshot_id: int | None) -> None:
    """Set or delete a consumer."""
    table.reset_consumer(consumer_id, next_snapshot_id)


@procedure(including_consumers="all", excluding_consumers="none")
def clear_consumers(
    table: Table, including_consumers: str | None, excluding_consumers: str | None
) -> None:
    """Delete consumers whose ids match."""
    table.clear_consumers(including=including_consumers, excluding=excluding_consumers)


@procedure(
    columns=("deleted_file_count", "deleted_file_total_len_in_bytes"),
    older_than="1 d",
    parallelism="no effect",
    mode="no effect",
)
def remove_orphan_files(
    call: Call,
    table: str,
    *,
    older_than: str | None,
    dry_run: bool,
    parallelism: int | None,
    mode: str | None,
) -> Rows:
    """Delete orphan files: no snapshot, tag or branch refers to them.

    The table `db.*` means all tables of the database.
    """
    # Both arguments only say how Java distributes the work: the same files are deleted.
    if mode not in {None, "local", "distributed"}:
        raise InvalidRequest("unknown mode", mode=mode, known=["local", "distributed"])
    if parallelism is not None and parallelism < 1:
        raise InvalidRequest("parallelism must be at least 1", parallelism=parallelism)
    tables = [table]
    if table.endswith(".*"):
        database = table.removesuffix(".*")
        tables = [f"{database}.{each}" for each in call.workspace.catalog.list_tables(database)]
    results = [
        call.workspace.table(tuple(each.split(".", 1))).remove_orphan_files(
            older_than=older_than or "1 d", dry_run=dry_run
        )
        for each in tables
    ]
    return [(sum(each.files for each in results), sum(each.bytes for each in results))]


@procedure()
def purge_files(table: Table) -> None:
    """Remove all rows and all of the past."""
    table.purge_files()


@procedure()
def mark_partition_done(call: Call, table: Table, partitions: str) -> None:
    """Say that partitions are complete."""
    wanted = call.partitions(table, partitions)
    if not wanted:
        raise InvalidRequest("name the partitions", partitions=partitions)
    table.mark_partition_done(*wanted)


@procedure(columns=("metadata_path", "snapshot_id"))
def export_iceberg(table: Table, *, rebuild: bool) -> Rows:
    """Write Iceberg metadata of the latest snapshot; a procedure of lakecore alone."""
    done = table.export_iceberg(rebuild=rebuild)
    return [(done.metadata_path, done.snapshot_id)]
