"""The procedures: each is a function whose name and parameters are those of the procedure."""

from __future__ import annotations

import re
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

from lakecore.catalog import compact_database as databases
from lakecore.catalog.views import DIALECT, AddDialect, DropDialect, UpdateDialect, ViewChange
from lakecore.errors import AlreadyExists, InvalidRequest, NotFound, Unsupported
from lakecore.model.schema_change import SchemaChange
from lakecore.sql.cursor import Cursor
from lakecore.sql.parse_rows import set_values
from lakecore.sql.procedures.procedure import Call, Rows, chain_of, options_of, procedure
from lakecore.sql.run_rows import RowStatements
from lakecore.sql.statements import AlterView, Merge, MergeClause
from lakecore.sql.stored_views import alter_view
from lakecore.sql.tokens import quoted, split
from lakecore.table.maintenance.tags import create_automatic_tags, expire_due_tags
from lakecore.table.verbs.compact_choice import idle_ms
from lakecore.table.verbs.repair_verbs import manifests_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakecore.model.compaction import CompactionResult
    from lakecore.table.handle import Table


@procedure(target_alias="the name of the table")
def merge_into(  # noqa: PLR0913  the arguments of the procedure
    call: Call,
    target_table: str,
    *,
    target_alias: str | None,
    source_sqls: str | None,
    source_table: str,
    merge_condition: str,
    matched_upsert_condition: str | None,
    matched_upsert_setting: str | None,
    not_matched_insert_condition: str | None,
    not_matched_insert_values: str | None,
    matched_delete_condition: str | None,
    not_matched_by_source_upsert_condition: str | None,
    not_matched_by_source_upsert_setting: str | None,
    not_matched_by_source_delete_condition: str | None,
) -> None:
    """MERGE INTO by arguments.

    Run MERGE INTO with the arguments of the Flink action.

    `*` means all columns: by name if both tables have the same names, otherwise by position.
    """
    target = chain_of(target_table)
    alias = target_alias or target[-1]
    for statement in split(source_sqls or ""):
        # The statements that prepare the source make temporary views and tables.
        call.run(statement)
    source = chain_of(source_table)
    table = call.open(target_table)
    names = {alias, target[-1]}
    whole = partial(_all_columns, call, table, source, alias)

    def updates(match: str, setting: str | None, condition: str | None) -> list[MergeClause]:
        if setting is None:
            return []
        values = whole() if setting.strip() == "*" else set_values(Cursor(setting), names)
        if values is not None and setting.strip() == "*":  # the keys of matched rows are equal
            keys = table.schema.primary_keys
            values = {path: text for path, text in values.items() if path[0] not in keys}
        return [MergeClause(match=match, action="update", condition=condition, values=values)]

    def deletes(match: str, condition: str | None) -> list[MergeClause]:
        if condition is None:
            return []
        return [MergeClause(match=match, action="delete", condition=condition)]

    clauses = [
        *updates("matched", matched_upsert_setting, matched_upsert_condition),
        *deletes("matched", matched_delete_condition),
        *_inserts(table, not_matched_insert_values, not_matched_insert_condition, whole),
        *updates(
            "by_source",
            not_matched_by_source_upsert_setting,
            not_matched_by_source_upsert_condition,
        ),
        *deletes("by_source", not_matched_by_source_delete_condition),
    ]
    if not clauses:
        raise InvalidRequest("merge_into needs at least one setting or condition")
    merge = Merge(
        chain=target,
        alias=alias,
        source=".".join(map(quoted, source)),
        source_chain=source,
        source_alias=None,
        on=merge_condition,
        clauses=tuple(clauses),
    )
    rows = RowStatements(call.workspace, call.queries)
    rows.merge(merge, None, lambda _name: None)


def _all_columns(
    call: Call, table: Table, source: tuple[str, ...], alias: str
) -> dict[tuple[str, ...], str] | None:
    """The values that `*` stands for; None if a column gets the value of its namesake."""
    columns = table.schema.names
    given = call.queries.relation(f"FROM {'.'.join(map(quoted, source))}").columns
    if {name.lower() for name in given} == {name.lower() for name in columns}:
        return None
    if len(given) != len(columns):
        raise InvalidRequest(
            "`*` takes as many columns as the table has", source=given, columns=columns
        )
    side = "source" if source[-1].lower() == alias.lower() else quoted(source[-1])
    values = (f"{side}.{quoted(name)}" for name in given)
    return dict(zip(((name,) for name in columns), values, strict=True))


def _inserts(
    table: Table,
    given: str | None,
    condition: str | None,
    whole: Callable[[], dict[tuple[str, ...], str] | None],
) -> list[MergeClause]:
    if given is None:
        return []
    values: dict[tuple[str, ...], str] | None
    if given.strip() == "*":
        values = whole()
    else:
        columns = table.schema.arrow.names
        cursor = Cursor(f"({given})")
        texts = cursor.listed(lambda: cursor.until(symbols=","))
        if len(texts) != len(columns):
            raise InvalidRequest(
                "not_matched_insert_values gives each column one value",
                columns=columns,
                values=len(texts),
            )
        values = dict(zip(((name,) for name in columns), texts, strict=True))
    return [MergeClause(match="not_matched", action="insert", condition=condition, values=values)]


@procedure()
def drop_partition(call: Call, table: Table, partitions: str) -> None:
    """Remove the rows of partitions."""
    table.drop_partition(*(call.partitions(table, partitions) or ()))


@procedure()
def alter_column_default_value(call: Call, table: str, column: str, default_value: str) -> None:
    """State the value of a column that a row does not give."""
    catalog, identifier = call.workspace.identifier(chain_of(table))
    change = SchemaChange.update_column_default_value(column, default_value)
    catalog.alter_table(identifier, [change])


@procedure(engine=DIALECT)
def alter_view_dialect(
    call: Call, view: str, action: str, engine: str | None, query: str | None
) -> None:
    """Add, update or drop the query of a stored view for one engine."""
    dialect = (engine or "").strip() or DIALECT
    text = (query or "").strip()
    change: ViewChange
    match action:
        case "add" | "update":
            if not text:
                raise InvalidRequest("this action needs a query", action=action)
            change = (AddDialect if action == "add" else UpdateDialect)(dialect, text)
        case "drop":
            change = DropDialect(dialect)
        case _:
            raise InvalidRequest("an action is add, update or drop", action=action)
    chain = chain_of(view)
    alter_view(call.workspace, AlterView(chain=chain, changes=(change,)), None)


# --- compaction -----------------------------------------------------------------------------------
# Procedures that compact tables, and repair metadata of a catalog, a table and its history.

_STRATEGIES = ("full", "minor")
_RANGE = re.compile(r"([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?")


@procedure(
    forms=(("table", "order_strategy", "order_by"),),
    compact_strategy="full; minor with `clustering.incremental`",
)
def compact(  # noqa: PLR0913  the arguments of the procedure
    call: Call,
    table: str,
    *,
    partitions: str | None,
    order_strategy: str | None,
    order_by: str | None,
    options: str | None,
    where: str | None,
    partition_idle_time: str | None,
    compact_strategy: str | None,
    buckets: str | None,
) -> Rows:
    """Merge the files of a table."""
    _check_one(partitions=partitions, where=where)
    found = call.open(table, options)
    numbers = None if buckets is None else _buckets(buckets, found)
    result = found.compact(
        full=_full(compact_strategy, minor=found.context.options.clustering_incremental),
        partitions=call.partitions(found, partitions),
        where=where,
        buckets=numbers,
        order_strategy=order_strategy,
        order_by=order_by or None,
        partition_idle_time=partition_idle_time,
    )
    return [(_said(result),)]


def _check_one(*, partitions: str | None, where: str | None) -> None:
    if partitions is not None and where is not None:
        raise InvalidRequest("give `partitions` or `where`, not both")


def _buckets(given: str, table: Table) -> list[int]:
    """The bucket numbers in a text such as `0-9,20`: numbers and inclusive ranges.

    Raises InvalidRequest for any other text, and for a bucket that the table does not have.
    """
    count = table.context.options.bucket
    if count < 1:
        raise InvalidRequest(
            "`buckets` is for tables with a fixed number of buckets",
            table=table.identifier,
            bucket=count,
        )
    found: set[int] = set()
    for part in given.split(","):
        match = _RANGE.fullmatch(part.strip())
        first, last = (0, -1) if match is None else (int(match[1]), int(match[2] or match[1]))
        if not first <= last < count:
            raise InvalidRequest(
                "`buckets` are numbers and ranges such as 0-9,20, within the table's buckets",
                buckets=given,
                part=part,
                bucket=count,
            )
        found.update(range(first, last + 1))
    return sorted(found)


def _full(given: str | None, *, minor: bool = False) -> bool:
    """Whether `compact_strategy` is full.

    As in Paimon, full is the default unless `minor` is set.
    """
    strategy = given or ("minor" if minor else "full")
    if strategy not in _STRATEGIES:
        raise InvalidRequest("unknown strategy", compact_strategy=strategy, known=_STRATEGIES)
    return strategy == "full"


def _said(result: CompactionResult) -> str:
    ids = ", ".join(map(str, result.snapshot_ids))
    return f"Success. snapshots: {ids}" if ids else "Success. there was nothing to compact"


@procedure(
    including_databases="`.*`", mode="divided", including_tables="`.*`", compact_strategy="full"
)
def compact_database(  # noqa: PLR0913  the arguments of the procedure
    call: Call,
    *,
    including_databases: str | None,
    mode: str | None,
    including_tables: str | None,
    excluding_tables: str | None,
    table_options: str | None,
    partition_idle_time: str | None,
    compact_strategy: str | None,
) -> Rows:
    """Merge the files of all tables whose names match."""
    request = databases.DatabaseCompaction(
        including_databases=including_databases or ".*",
        including_tables=including_tables or ".*",
        excluding_tables=excluding_tables,
        mode=mode or databases.CompactMode.DIVIDED,
        full=_full(compact_strategy),
        table_options=options_of(table_options),
        partition_idle_ms=idle_ms(partition_idle_time),
    )

    def opened(name: str) -> Table:
        database, _, table = name.partition(".")
        return call.workspace.table((database, table))

    results = databases.compact_database(call.workspace.catalog, opened, request)
    rows: Rows = [(f"{name}: {_said(result)}",) for name, result in results.items()]
    return rows or [("Success. no table matches",)]


@procedure(bucket_num="`bucket`")
def rescale(  # noqa: PLR0913  the arguments of the procedure
    call: Call,
    table: Table,
    *,
    bucket_num: int | None,
    partition: str | None,
    scan_parallelism: int | None,
    sink_parallelism: int | None,
    partitions: str | None,
    where: str | None,
) -> Rows:
    """Give partitions another number of buckets."""
    _refuse_flink(scan_parallelism=scan_parallelism, sink_parallelism=sink_parallelism)
    if (partition, partitions, where).count(None) < 2:
        raise InvalidRequest("give `partition`, `partitions` or `where`, not two of them")
    wanted = call.partitions(table, partition or partitions)
    result = table.rescale(bucket_num=bucket_num, partition=wanted, where=where)
    ids = ", ".join(map(str, result.snapshot_ids))
    said = f"Success. snapshots: {ids}" if ids else "Success. there was nothing to rescale"
    buckets, option = result.facts.get("buckets"), result.facts.get("option_bucket")
    if buckets != option:
        said += (
            f". Next: set the option bucket, which is {option}, to {buckets}, and rescale the "
            "other partitions; writers refuse partitions with another number"
        )
    return [(said,)]


@procedure()
def rewrite_file_index(call: Call, table: Table, partitions: str | None, where: str | None) -> None:
    """Index the files as the options say now."""
    _check_one(partitions=partitions, where=where)
    table.rewrite_file_index(partitions=call.partitions(table, partitions), where=where)


def _refuse_flink(**given: int | None) -> None:
    for name, value in given.items():
        if value is not None:
            raise Unsupported("lakecore has no such setting: Flink runs jobs by it", argument=name)


# --- metadata -------------------------------------------------------------------------------------


@procedure()
def repair(call: Call, identifier: str | None) -> None:
    """List again the tables of a warehouse, of databases or by name, parted by commas."""
    names = [each.strip() for each in (identifier or "").split(",") if each.strip()]
    for name in names or (None,):
        call.workspace.catalog.repair(name)


@procedure()
def compact_manifest(  # noqa: PLR0913  the arguments of the procedure
    call: Call,
    table: str,
    *,
    options: str | None,
    dry_run: bool,
    manifest_sort_enabled: bool,
    manifest_sort_partition_field: str | None,
    manifest_sort_max_rewrite_size: str | None,
) -> Rows:
    """Merge small manifests and those with entries of deleted files."""
    refused = {
        "manifest_sort_partition_field": manifest_sort_partition_field,
        "manifest_sort_max_rewrite_size": manifest_sort_max_rewrite_size,
        "manifest_sort_enabled": manifest_sort_enabled or None,
    }
    for name, value in refused.items():
        if value is not None:
            raise Unsupported("lakecore does not sort manifests by a field", argument=name)
    found = call.open(table, options)
    if dry_run:
        return [(manifests_summary(found.context),)]
    found.compact_manifests()
    return [("success",)]


@procedure()
def remove_unexisting_files(table: Table, *, dry_run: bool, parallelism: int | None) -> Rows:
    """Take data files that do not exist out of the newest snapshot; their rows are lost."""
    _refuse_flink(parallelism=parallelism)
    return [(path,) for path in table.remove_unexisting_files(dry_run=dry_run)]


@procedure(columns=("previous_earliest_snapshot_id", "current_earliest_snapshot_id"))
def repair_earliest_snapshot(table: Table, snapshot_id: int) -> Rows:
    """Let the history begin after a gap of lost snapshots."""
    return [(table.repair_earliest_snapshot(snapshot_id), snapshot_id)]


# --- tags, branches and retention -----------------------------------------------------------------
# Procedures of tags, branches and retention: expiry, rollback, consumers, clean-up.

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
