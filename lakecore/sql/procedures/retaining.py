"""Procedures for retention: expiry, rollback, consumers, clean-up."""

from __future__ import annotations

from typing import Literal, cast

from lakecore.errors import InvalidRequest, NotFound
from lakecore.sql.procedures.procedure import (
    Call,
    Procedure,
    flag,
    number,
    options_of,
    partitions_of,
    text,
)
from lakecore.sql.run_rows import partition_values

__all__ = ["PROCEDURES"]

Result = list[tuple[object, ...]]

_DONE: Result = [("Success",)]
_TABLE = text("table", required=True)


def _expire_snapshots(call: Call) -> Result:
    result = call.table(options=options_of(call.text("options"))).expire_snapshots(
        retain_max=call.number("retain_max"),
        retain_min=call.number("retain_min"),
        older_than=call.text("older_than"),
        max_deletes=call.number("max_deletes"),
    )
    return [(result.snapshots_expired,)]


def _expire_changelogs(call: Call) -> Result:
    result = call.table().expire_changelogs(
        retain_max=call.number("retain_max"),
        retain_min=call.number("retain_min"),
        older_than=call.text("older_than"),
        max_deletes=call.number("max_deletes"),
        delete_all=call.flag("delete_all"),
    )
    return [(f"expired changelogs: {result.changelogs_expired}",)]


def _expire_tags(call: Call) -> Result:
    gone = call.table().expire_tags(older_than=call.text("older_than"))
    return [(each.name,) for each in gone] or [("No expired tags.",)]


def _expire_partitions(call: Call) -> Result:
    strategy = call.text("expire_strategy")
    if strategy not in {None, "values-time", "update-time"}:
        raise InvalidRequest("unknown strategy", expire_strategy=strategy)
    result = call.table(options=options_of(call.text("options"))).expire_partitions(
        expiration_time=call.text("expiration_time"),
        timestamp_formatter=call.text("timestamp_formatter"),
        timestamp_pattern=call.text("timestamp_pattern"),
        expire_strategy=cast("Literal['values-time', 'update-time'] | None", strategy),
        max_expires=call.number("max_expires"),
    )
    dropped = [
        ", ".join(f"{key}={value}" for key, value in each.items()) for each in result.partitions
    ]
    return [(each,) for each in dropped] or [("No expired partitions.",)]


def _rollback_to(call: Call) -> Result:
    """Roll back to a snapshot or a tag; a positional number is a snapshot, other text is a tag."""
    tag, snapshot_id = call.text("tag"), call.number("snapshot_id")
    is_id = tag is not None and tag.isdecimal() and snapshot_id is None
    result = call.table().rollback_to(
        snapshot_id=int(tag or 0) if is_id else snapshot_id, tag=None if is_id else tag
    )
    return [(result.previous_snapshot_id, result.snapshot_id)]


def _rollback(call: Call) -> Result:
    """Spark's rollback to a `snapshot`, a `tag`, or a `version` (a snapshot or a tag)."""
    version, tag, snapshot_id = call.text("version"), call.text("tag"), call.number("snapshot")
    if sum(each is not None for each in (version, tag, snapshot_id)) != 1:
        raise InvalidRequest("rollback takes one of version, snapshot and tag")
    if version is not None and version.isdecimal():
        snapshot_id = int(version)
    elif version is not None:
        tag = version
    result = call.table().rollback_to(snapshot_id=snapshot_id, tag=tag)
    return [(result.previous_snapshot_id, result.snapshot_id)]


def _rollback_to_timestamp(call: Call) -> Result:
    result = call.table().rollback_to(timestamp=call.number("timestamp"))
    return [(result.previous_snapshot_id, result.snapshot_id)]


def _rollback_to_watermark(call: Call) -> Result:
    """Roll back to the newest snapshot whose watermark is at most the given one."""
    table, limit = call.table(), call.number("watermark")
    assert limit is not None, "the argument is required"
    history = table.context.history
    for snapshot_id in reversed(history.snapshot_ids()):
        watermark = history.snapshot(snapshot_id).watermark
        if watermark is not None and watermark <= limit:
            result = table.rollback_to(snapshot_id=snapshot_id)
            return [(result.previous_snapshot_id, result.snapshot_id)]
    raise NotFound("no snapshot has such a watermark", table=table.identifier, watermark=limit)


def _reset_consumer(call: Call) -> Result:
    consumer, following = call.text("consumer_id") or "", call.number("next_snapshot_id")
    call.table().reset_consumer(consumer, following)
    return _DONE


def _clear_consumers(call: Call) -> Result:
    call.table().clear_consumers(
        including=call.text("including_consumers"), excluding=call.text("excluding_consumers")
    )
    return _DONE


def _remove_orphan_files(call: Call) -> Result:
    """The number and bytes of deleted files; the table `db.*` means all tables of the database."""
    # Both arguments only say how Java distributes the work: the same files are deleted.
    mode, parallelism = call.text("mode"), call.number("parallelism")
    if mode not in {None, "local", "distributed"}:
        raise InvalidRequest("unknown mode", mode=mode, known=["local", "distributed"])
    if parallelism is not None and parallelism < 1:
        raise InvalidRequest("parallelism must be at least 1", parallelism=parallelism)
    name = call.text("table") or ""
    tables = [name]
    if name.endswith(".*"):
        database = name.removesuffix(".*")
        tables = [f"{database}.{each}" for each in call.workspace.catalog.list_tables(database)]
    results = [
        call.workspace.table(tuple(each.split(".", 1))).remove_orphan_files(
            older_than=call.text("older_than") or "1 d", dry_run=call.flag("dry_run")
        )
        for each in tables
    ]
    return [(sum(each.files for each in results), sum(each.bytes for each in results))]


def _purge_files(call: Call) -> Result:
    call.table().purge_files()
    return _DONE


def _mark_partition_done(call: Call) -> Result:
    table = call.table()
    wanted = partitions_of(call.text("partitions")) or []
    if not wanted:
        raise InvalidRequest("name the partitions", partitions=call.text("partitions"))
    typed = [partition_values(call.queries, table.schema, each) for each in wanted]
    table.mark_partition_done(*typed)
    return _DONE


PROCEDURES = (
    Procedure(
        name="expire_snapshots",
        arguments=(
            _TABLE,
            number("retain_max", "`snapshot.num-retained.max`"),
            number("retain_min", "`snapshot.num-retained.min`"),
            text("older_than", "`snapshot.time-retained`"),
            number("max_deletes", "`snapshot.expire.limit`, if the table states it"),
            text("options"),
        ),
        columns=("deleted_snapshots_count",),
        run=_expire_snapshots,
        about="delete old snapshots and the files that only they need",
    ),
    Procedure(
        name="expire_changelogs",
        arguments=(
            _TABLE,
            number("retain_max", "`changelog.num-retained.max`"),
            number("retain_min", "`changelog.num-retained.min`"),
            text("older_than", "`changelog.time-retained`"),
            number("max_deletes", "`snapshot.expire.limit`, if the table states it"),
            flag("delete_all"),
        ),
        run=_expire_changelogs,
        about="delete old long-lived changelogs",
    ),
    Procedure(
        name="expire_tags",
        arguments=(_TABLE, text("older_than", "the time that each tag states")),
        columns=("expired_tags",),
        run=_expire_tags,
        about="delete tags whose time is over",
    ),
    Procedure(
        name="expire_partitions",
        arguments=(
            _TABLE,
            text("expiration_time", "`partition.expiration-time`"),
            text("timestamp_formatter", "`partition.timestamp-formatter`"),
            text("timestamp_pattern", "`partition.timestamp-pattern`"),
            text("expire_strategy", "`partition.expiration-strategy`"),
            number("max_expires", "`partition.expiration-max-num`"),
            text("options"),
        ),
        columns=("expired_partitions",),
        run=_expire_partitions,
        about="remove the rows of old partitions",
    ),
    Procedure(
        name="rollback_to",
        arguments=(_TABLE, text("tag"), number("snapshot_id")),
        columns=("previous_snapshot_id", "current_snapshot_id"),
        run=_rollback_to,
        about="go back to a snapshot or a tag",
    ),
    Procedure(
        name="rollback",
        arguments=(_TABLE, text("version"), text("tag"), number("snapshot")),
        columns=("previous_snapshot_id", "current_snapshot_id"),
        run=_rollback,
        about="go back to a snapshot or a tag, as in Spark",
    ),
    Procedure(
        name="rollback_to_timestamp",
        arguments=(_TABLE, number("timestamp", required=True)),
        columns=("previous_snapshot_id", "current_snapshot_id"),
        run=_rollback_to_timestamp,
        about="go back to the newest snapshot of a time",
    ),
    Procedure(
        name="rollback_to_watermark",
        arguments=(_TABLE, number("watermark", required=True)),
        columns=("previous_snapshot_id", "current_snapshot_id"),
        run=_rollback_to_watermark,
        about="go back to the newest snapshot of a watermark",
    ),
    Procedure(
        name="reset_consumer",
        arguments=(
            _TABLE,
            text("consumer_id", required=True),
            number("next_snapshot_id", "none: the consumer is deleted"),
        ),
        run=_reset_consumer,
        about="set or delete a consumer",
    ),
    Procedure(
        name="clear_consumers",
        arguments=(_TABLE, text("including_consumers", "all"), text("excluding_consumers", "none")),
        run=_clear_consumers,
        about="delete consumers whose ids match",
    ),
    Procedure(
        name="remove_orphan_files",
        arguments=(
            _TABLE,
            text("older_than", "1 d"),
            flag("dry_run"),
            number("parallelism", "no effect"),
            text("mode", "no effect"),
        ),
        columns=("deleted_file_count", "deleted_file_total_len_in_bytes"),
        run=_remove_orphan_files,
        about="delete orphan files: no snapshot, tag or branch refers to them",
    ),
    Procedure(
        name="purge_files",
        arguments=(_TABLE,),
        run=_purge_files,
        about="remove all rows and all of the past",
    ),
    Procedure(
        name="mark_partition_done",
        arguments=(_TABLE, text("partitions", required=True)),
        run=_mark_partition_done,
        about="say that partitions are complete",
    ),
)
