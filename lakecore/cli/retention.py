"""`lakecore snapshot`, `expire`, `rollback`, `orphans`, `repair`: care for a table.

Each command that removes something first determines what it would remove. With `--dry-run` it
prints this. Otherwise it asks for confirmation, unless `--yes` is given or there is nothing to
remove, and then removes it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, cast

from lakecore.cli.arguments import (
    Care,
    Form,
    Format,
    OfTable,
    OfWarehouse,
    Verbs,
    argument,
    confirmed,
    flag,
    partitions_of,
    require_consent,
    switch,
)
from lakecore.cli.printing import note, say, write_frame, write_record
from lakecore.deferred import deferred, deferred_module
from lakecore.display import show_bytes

if TYPE_CHECKING:
    import polars as pl

    from lakecore.model.retention import (
        ExpiredChangelogs,
        ExpiredPartitions,
        ExpiredSnapshots,
        RolledBack,
    )
    from lakecore.table.reads.told import told_snapshot

    Result = ExpiredChangelogs | ExpiredPartitions | ExpiredSnapshots | RolledBack
else:
    pl = deferred_module("polars")
    told_snapshot = deferred("lakecore.table.reads.told", "told_snapshot")

commands = Verbs()
_snapshot = commands.group("snapshot")
_expire = commands.group("expire")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    retain_max: Annotated[
        int | None, flag("N", "Expire all but the newest N, even recent ones.")
    ] = None
    retain_min: Annotated[int | None, flag("N", "Always keep the newest N.")] = None
    older_than: Annotated[
        str | None, flag("TIME", "Expire what was replaced before this time or age, such as '2 h'.")
    ] = None
    max_deletes: Annotated[int | None, flag("N", "Expire at most N.")] = None


@_snapshot("list")
def list_snapshots(of: OfTable, form: Form) -> None:
    """List the snapshots that can be read, with their tags and the consumers that hold them."""
    table = of.open()
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
    numbers = dict.fromkeys(("time_ms", "schema_id", "rows_stored", "rows_changed"), int)
    texts = dict.fromkeys(("user", "tags", "next_of_consumers"), str)
    frame = pl.DataFrame(rows, {"snapshot_id": int, "kind": str, **numbers, **texts})
    time = pl.from_epoch("time_ms", "ms").dt.replace_time_zone("UTC").alias("time")
    frame = frame.with_columns(time).select("snapshot_id", "kind", "time", *frame.columns[3:])
    write_frame(frame, form, null="")


@_expire("snapshots")
@_snapshot("expire")
def expire_snapshots(of: OfTable, limits: _Limits, care: Care, form: Form) -> None:
    """Expire the oldest snapshots, with the files that only they need.

    Limits that are not given come from the options of the table.
    """
    result = confirmed(
        partial(of.open().expire_snapshots, **asdict(limits)),
        lambda plan: _question("expire", plan.snapshots_expired, "snapshots"),
        care,
    )
    _print(result, form)


@_expire("changelogs")
def expire_changelogs(
    of: OfTable,
    limits: _Limits,
    *,
    everything: Annotated[bool, switch("Expire all that no consumer needs.", "--all")] = False,
    care: Care,
    form: Form,
) -> None:
    """Expire the oldest long-lived changelogs: the changes of snapshots that have expired."""
    result = confirmed(
        partial(of.open().expire_changelogs, **asdict(limits), delete_all=everything),
        lambda plan: _question("expire", plan.changelogs_expired, "changelogs"),
        care,
    )
    _print(result, form)


@_expire("partitions")
def expire_partitions(  # noqa: PLR0913  one parameter per option
    of: OfTable,
    *,
    expiration_time: Annotated[
        str | None, flag("AGE", "Drop partitions older than this, such as '30 d'.")
    ] = None,
    timestamp_formatter: Annotated[str | None, flag("FORMAT", "Format of the time.")] = None,
    timestamp_pattern: Annotated[
        str | None, flag("PATTERN", "The time, made of values: '$dt $hour'.")
    ] = None,
    expire_strategy: Annotated[
        str | None, flag("STRATEGY", "values-time: by the values; update-time: by the newest file.")
    ] = None,
    max_expires: Annotated[int | None, flag("N", "Drop at most N.")] = None,
    care: Care,
    form: Form,
) -> None:
    """Drop the partitions that are older than their time to live."""
    result = confirmed(
        partial(
            of.open().expire_partitions,
            expiration_time=expiration_time,
            timestamp_formatter=timestamp_formatter,
            timestamp_pattern=timestamp_pattern,
            # The verb checks the text.
            expire_strategy=cast("Literal['values-time', 'update-time'] | None", expire_strategy),
            max_expires=max_expires,
        ),
        lambda plan: _question("drop", len(plan.partitions), "partitions"),
        care,
    )
    _print(result, form)


@commands("rollback")
def rollback(
    of: OfTable,
    *,
    snapshot: Annotated[
        int | None, flag("N", "Go back to this snapshot.", "--snapshot", "--snapshot-id")
    ] = None,
    tag: Annotated[str | None, flag("NAME", "Go back to this tag.")] = None,
    timestamp: Annotated[
        str | None, flag("TIME", "Go back to the newest snapshot at this time (ISO 8601).")
    ] = None,
    care: Care,
    form: Form,
) -> None:
    """Make an earlier snapshot the latest one, and remove all later snapshots and tags.

    Stop the writers first.
    """
    table = of.open()
    result = table.rollback_to(snapshot, tag, timestamp, dry_run=True)
    if not care.dry_run:
        if result.snapshots_removed or result.tags_removed:
            count = result.snapshots_removed
            tags = f" and {len(result.tags_removed)} tags" if result.tags_removed else ""
            question = f"go back to snapshot {result.snapshot_id}, and remove {count} later ones"
            require_consent(f"{question}{tags}?", yes=care.yes)
        result = table.rollback_to(snapshot, tag, timestamp)
    _print(result, form)


def _question(verb: str, count: int, what: str) -> str | None:
    return f"{verb} {count} {what}?" if count else None


def _print(result: Result, form: Format) -> None:
    write_record(asdict(result), form, str(result))


# --- clean-up ------------------------------------------------------------------------------------

_ALL = ".*"


@commands("orphans")
def orphans(  # noqa: PLR0913  one parameter per option
    table: Annotated[
        str,
        argument("PATH|DB.TABLE|DB.*", "A table, or all tables of a database of the warehouse."),
    ],
    of: OfWarehouse,
    *,
    older_than: Annotated[str, flag("TIME", "Only files changed before this time or age.")] = "1 d",
    force: Annotated[
        bool, switch("Allow an age below 1 h. No one may write to the table.")
    ] = False,
    dry_run: Annotated[bool, switch("Only print what would be deleted.")] = False,
    yes: Annotated[bool, switch("Do not ask for confirmation.", "--yes", "-y")] = False,
    form: Form,
) -> None:
    """Delete orphan files: left by failed writes, in no snapshot, tag or branch.

    With --dry-run, only print their paths.
    """
    if table.endswith(_ALL):
        database, session = table.removesuffix(_ALL), of.session()
        tables = [session.get_table(f"{database}.{each}") for each in session.list_tables(database)]
    else:
        tables = [OfTable(table=table, option=of.option, warehouse=of.warehouse).open()]
    if not dry_run:
        require_consent(f"delete the orphan files of {table}, older than {older_than}?", yes=yes)
    rows: list[tuple[str, str]] = []
    size_bytes = 0
    for each in tables:
        result = each.remove_orphan_files(older_than, force=force, dry_run=dry_run)
        rows += ((each.identifier, path) for path in result.paths)
        size_bytes += result.bytes
    if dry_run or form is not Format.TABLE:
        write_frame(pl.DataFrame(rows, {"table": str, "path": str}, orient="row"), form)
    verb = "found" if dry_run else "deleted"
    said = f"{verb} {len(rows):,} orphan files ({show_bytes(size_bytes)}) in {len(tables):,} tables"
    (note if form is not Format.TABLE else say)(said)


@commands("repair")
def repair(
    name: Annotated[
        str | None, argument("[DB|DB.TABLE]", "What to repair; all databases by default.")
    ] = None,
    *,
    of: OfWarehouse,
    form: Form,
) -> None:
    """Register the databases and tables of a warehouse in its catalog, with their schemas.

    Use it for JDBC and Hive catalogs: after a crash, or if the warehouse was filled without the
    catalog. Prints the names of the repaired tables.
    """
    repaired = of.session().repair(name)
    write_frame(pl.DataFrame({"table": repaired}, {"table": str}), form)


@commands("partition-done")
def partition_done(
    of: OfTable,
    *,
    partition: Annotated[
        list[str], flag("KEY=VALUE,...", "Mark partitions with these values; repeatable.")
    ],
    form: Form,
) -> None:
    """Mark partitions as done, so that other jobs know that they are complete.

    The option partition.mark-done-action chooses how they are marked.
    """
    marked = of.open().mark_partition_done(*partitions_of(partition))
    write_frame(pl.DataFrame({"partition": marked}, {"partition": str}), form)


@commands("iceberg")
def iceberg(
    of: OfTable,
    *,
    rebuild: Annotated[bool, switch("Begin again from the files of the latest snapshot.")] = False,
    form: Form,
) -> None:
    """Write Iceberg metadata of the latest snapshot, for DuckDB, Spark and other readers."""
    result = of.open().export_iceberg(rebuild=rebuild)
    write_record(asdict(result), form, str(result))
