"""`Table.compact`: which buckets, one after the other, and one COMPACT snapshot in the end.

1. Take the latest snapshot, then the newest schema: it knows the columns of every live file.
2. Plan (`compact_plan.py`), compact bucket after bucket, commit.
3. If another commit has compacted or overwritten one of the files meanwhile, begin again from the
   new snapshot. What was done for buckets that nobody else touched is kept.

Writers are never in the way: their new files are of level 0, and stay there beside the compacted
ones. A process that dies leaves files that nothing names, and the table as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lakecore.errors import CommitConflict, CorruptTable, InvalidRequest, Unsupported
from lakecore.model.compaction import CompactionResult
from lakecore.options import ChangelogProducer
from lakecore.plan.conflicts import check_files
from lakecore.table import overwrite
from lakecore.table.batch_write import author
from lakecore.table.commit import CommitRequest, commit
from lakecore.table.commit_change import changes
from lakecore.table.compact_bucket import compact_bucket
from lakecore.table.compact_plan import BucketCompaction, plan_buckets
from lakecore.table.context import reload_context
from lakecore.table.message_files import delete_files
from lakecore.table.pack_files import Packing, pack_files, plan_packing
from lakecore.table.row_values import holds, parse_condition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from lakecore.model.files import CommitMessage
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

PLANS_MAX = 5
_BY_PRODUCER = frozenset({ChangelogProducer.LOOKUP, ChangelogProducer.FULL_COMPACTION})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """Which buckets to compact, None being all, and how; see `Table.compact`."""

    full: bool = False
    partitions: Sequence[Mapping[str, object]] | None = None
    where: pl.Expr | str | None = None
    buckets: Sequence[int] | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionProgress:
    """How far a compaction has come: buckets, and rows as stored, of the present plan."""

    buckets_done: int
    buckets: int
    rows_done: int
    rows: int


Progress: TypeAlias = "Callable[[CompactionProgress], None]"
Work: TypeAlias = BucketCompaction | Packing
"""What a plan holds: of one bucket each, but for those that are not kept in order."""


def compact_table(
    context: TableContext, request: CompactionRequest, progress: Progress | None = None
) -> CompactionResult:
    """Compact the buckets that are asked for, in one commit; `progress` is told after each window.

    Raises CommitConflict if others were first with every plan; then the table is as they left it.
    """
    user = author(context).user
    kept: list[CommitMessage] = []
    for attempt in range(1, PLANS_MAX + 1):
        snapshot = context.history.latest_snapshot()
        context = reload_context(context)
        _require_compactable(context, request)
        if snapshot is None:
            return CompactionResult()
        live = context.history.live_entries(snapshot)
        kept = _still_fitting(context, kept, live)
        entries = _left(context, kept, _chosen(context, request, live))
        plan = _plan(context, snapshot, entries, full=request.full)
        if request.dry_run:
            return _planned(plan)
        messages = [*kept]
        try:
            _compact_buckets(context, plan, messages, progress)
        except CorruptTable:
            if not _others_took(context, plan):
                delete_files(context, messages)
                raise
            kept = messages
            continue
        except BaseException:
            delete_files(context, messages)
            raise
        if not messages:
            return CompactionResult(attempts=attempt)
        try:
            done = commit(context, CommitRequest(messages=messages, user=user))
        except CommitConflict:
            kept = messages
        except InvalidRequest:
            delete_files(context, messages)
            raise
        else:
            return _result(messages, done.snapshot_id, attempt)
    delete_files(context, kept)
    raise CommitConflict(
        "other commits replaced the files of every plan; compact when they are done",
        table=context.identifier,
        attempts=PLANS_MAX,
    )


def _require_compactable(context: TableContext, request: CompactionRequest) -> None:
    """Raise Unsupported where compaction takes more than is there yet, naming it."""
    schema, options = context.schema, context.options
    reason = ""
    facts: dict[str, object] = {}
    if options.changelog_producer in _BY_PRODUCER:
        reason = "compaction that produces a changelog is not supported"
        facts = {"option": "changelog-producer", "value": str(options.changelog_producer)}
    elif options.deletion_vectors_enabled:
        reason = "compaction of a table with deletion vectors is not supported"
        facts = {"option": "deletion-vectors.enabled"}
    elif options.record_level_expire_time_ms is not None:
        reason = "compaction that drops rows by their age is not supported"
        facts = {"option": "record-level.expire-time"}
    elif options.needs_lookup and not request.full:
        # Rows of the files that are taken must meet those of their keys that stay where they are.
        reason = "compaction of a part of such a table takes look-ups: pass full=True"
        facts = {"merge_engine": str(options.merge_engine), "force_lookup": options.force_lookup}
    if reason:
        raise Unsupported(reason, table=context.identifier, **facts)
    # What else holds a writer back leaves compaction to somebody: here it is done.
    replace(options, write_only=True).require_writable(
        primary_keys=schema.primary_keys, partition_keys=schema.partition_keys
    )


def _left(
    context: TableContext, kept: Sequence[CommitMessage], entries: Sequence[ManifestEntry]
) -> list[ManifestEntry]:
    """The files that messages leave to be planned: none of a bucket that must be kept in order."""
    if not context.schema.primary_keys and context.options.bucket < 0:
        packed = {file.name for message in kept for file in message.compact_before}
        return [entry for entry in entries if entry.file.name not in packed]
    there = {(message.partition, message.bucket) for message in kept}
    return [entry for entry in entries if (entry.partition, entry.bucket) not in there]


def _plan(
    context: TableContext, snapshot: Snapshot, entries: Sequence[ManifestEntry], *, full: bool
) -> Sequence[Work]:
    plan = plan_buckets if context.schema.primary_keys else plan_packing
    return plan(context, snapshot, entries, full=full)


def _chosen(
    context: TableContext, request: CompactionRequest, live: Sequence[ManifestEntry]
) -> list[ManifestEntry]:
    """The live files of the buckets that are asked for."""
    partitions = list({entry.partition: None for entry in live})
    wanted = set(partitions)
    if request.partitions is not None:
        choose = overwrite.matching(context, request.partitions)
        wanted = _where_true(partitions, choose(partitions))
    if request.where is not None:
        wanted &= _where_true(partitions, _matching(context, request.where, partitions))
    numbers = None if request.buckets is None else set(request.buckets)
    return [
        entry
        for entry in live
        if entry.partition in wanted and (numbers is None or entry.bucket in numbers)
    ]


def _where_true(partitions: Sequence[bytes], mask: Sequence[bool]) -> set[bytes]:
    return {partition for partition, chosen in zip(partitions, mask, strict=True) if chosen}


def _matching(
    context: TableContext, where: pl.Expr | str, partitions: Sequence[bytes]
) -> Sequence[bool]:
    """Per partition, whether a condition on partition keys holds."""
    condition = parse_condition(where, context.schema)
    keys = context.schema.partition_keys
    others = [name for name in condition.columns if name not in keys]
    if others:
        raise InvalidRequest(
            "whole partitions are compacted: a condition may name partition keys only",
            columns=others,
            partition_keys=keys,
            table=context.identifier,
        )
    if not partitions or not keys:
        return [True] * len(partitions)
    values = pa.Table.from_batches([context.partitions.values(partitions)])
    mask: list[bool] = holds(values, condition.expression).to_pylist()
    return mask


def _compact_buckets(
    context: TableContext,
    plan: Sequence[Work],
    messages: list[CommitMessage],
    progress: Progress | None,
) -> None:
    """Add the message of each bucket of the plan."""
    rows = sum(compaction.row_count for compaction in plan)
    rows_done = 0

    def tell(buckets_done: int, more: int) -> None:
        nonlocal rows_done
        rows_done += more
        if progress is not None:
            progress(
                CompactionProgress(
                    buckets_done=buckets_done, buckets=len(plan), rows_done=rows_done, rows=rows
                )
            )

    for number, compaction in enumerate(plan):
        tell(number, 0)
        told = partial(tell, number)
        if isinstance(compaction, Packing):
            messages.append(pack_files(context, compaction, told))
        else:
            messages.append(compact_bucket(context, compaction, told))
    tell(len(plan), 0)


def _still_fitting(
    context: TableContext, messages: Sequence[CommitMessage], live: Sequence[ManifestEntry]
) -> list[CommitMessage]:
    """The messages that can still be committed; what the others made is removed."""
    kept, lost = [], []
    for message in messages:
        own = [e for e in live if (e.partition, e.bucket) == (message.partition, message.bucket)]
        _, change = changes(CommitRequest(messages=[message], user=""))
        try:
            check_files(own, change.delta, context.schema.key_fields)
        except CommitConflict:
            lost.append(message)
        else:
            kept.append(message)
    delete_files(context, lost)
    return kept


def _others_took(context: TableContext, plan: Sequence[Work]) -> bool:
    """Whether a file of the plan is no longer live, so that it may well be gone."""
    latest = context.history.latest_snapshot()
    live = () if latest is None else context.history.live_entries(latest)
    there = {(e.partition, e.bucket, e.file.name) for e in live}
    planned = {(each.partition, each.bucket, file.name) for each in plan for file in each.files}
    return not planned <= there


def _planned(plan: Sequence[Work]) -> CompactionResult:
    files = [file for compaction in plan for file in compaction.files]
    return CompactionResult(
        buckets=len({(each.partition, each.bucket) for each in plan}),
        files_before=len(files),
        files_after=None if files else 0,
        bytes_before=sum(file.size_bytes for file in files),
        bytes_after=None if files else 0,
        rows_before=sum(file.row_count for file in files),
        rows_after=None if files else 0,
    )


def _result(
    messages: Sequence[CommitMessage], snapshot_id: int | None, attempts: int
) -> CompactionResult:
    before = [file for message in messages for file in message.compact_before]
    after = [file for message in messages for file in message.compact_after]
    return CompactionResult(
        snapshot_id=snapshot_id,
        buckets=len({(message.partition, message.bucket) for message in messages}),
        files_before=len(before),
        files_after=len(after),
        files_upgraded=len({file.name for file in before} & {file.name for file in after}),
        bytes_before=sum(file.size_bytes for file in before),
        bytes_after=sum(file.size_bytes for file in after),
        rows_before=sum(file.row_count for file in before),
        rows_after=sum(file.row_count for file in after),
        attempts=attempts,
    )
