"""Chooses how to compact: merge runs (tables with a key), or pack or cluster files (without one).

Only this module knows all kinds of compaction; `verbs/compaction.py` commits the messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from lakecore.errors import InvalidRequest, LakecoreError, Uncomputable
from lakecore.table.compactions.cluster_files import (
    Clustering,
    cluster_files,
    plan_incremental,
    plan_sorting,
)
from lakecore.table.compactions.compact_bucket import compact_bucket
from lakecore.table.compactions.compact_plan import BucketCompaction, plan_buckets
from lakecore.table.compactions.pack_files import Packing, pack_files, plan_packing
from lakecore.table.compactions.pack_row_ranges import (
    RowRange,
    pack_row_ranges,
    plan_row_ranges,
)
from lakecore.table.reads.told import told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.merge.curves import Ordering
    from lakecore.model.files import CommitMessage
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.compactions.compact_parallel import RowsDone
    from lakecore.table.compactions.idle_picks import IdlePicks
    from lakecore.table.context import TableContext

Work: TypeAlias = BucketCompaction | Packing | RowRange | Clustering
"""An item of a plan: one for each bucket; unordered buckets may have several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkKind:
    """What a compaction does: rewrite all files (`full`), or only those that are due.

    With `ordering`, it sorts all rows. `step_bytes` is the size of an item of work, where files can
    be split that way. `idle` counts how often a long-running job found nothing to do in a bucket.
    """

    full: bool
    step_bytes: int | None = None
    ordering: Ordering | None = None
    idle: IdlePicks | None = None


def plan_work(
    context: TableContext,
    snapshot: Snapshot,
    entries: Sequence[ManifestEntry],
    kind: WorkKind,
    others: Sequence[ManifestEntry] = (),
) -> Sequence[Work]:
    """The work to do on these live files.

    `others` are the live files of all other partitions, if the caller chose only some partitions:
    see `plan_incremental`.
    """
    full = kind.full
    if context.schema.primary_keys:
        return plan_buckets(context, snapshot, entries, full=full, idle=kind.idle)
    if kind.ordering is not None:
        return plan_sorting(context, snapshot, entries, kind.ordering)
    if context.options.clustering_incremental:
        return plan_incremental(context, snapshot, entries, others, full=full)
    if context.options.data_evolution_enabled:
        return plan_row_ranges(context, snapshot, entries, full=full)
    return plan_packing(context, snapshot, entries, full=full, step_bytes=kind.step_bytes)


def do_work(context: TableContext, work: Work, rows_done: RowsDone) -> CommitMessage:
    """Write the new files of one item and return the message. A failure removes the files."""
    failure: LakecoreError | None = None
    try:
        return _done(context, work, rows_done)
    except Uncomputable:
        # Its key decides what the caller does; the verbs of a table replace this error (`gated`).
        raise
    except InvalidRequest as error:
        if not context.options.query_auth_enabled:
            raise
        failure = told(error, context)
    raise failure


def _done(context: TableContext, work: Work, rows_done: RowsDone) -> CommitMessage:
    if isinstance(work, Packing):
        return pack_files(context, work, rows_done)
    if isinstance(work, RowRange):
        return pack_row_ranges(context, work, rows_done)
    if isinstance(work, Clustering):
        return cluster_files(context, work, rows_done)
    return compact_bucket(context, work, rows_done)


def left_to_plan(
    context: TableContext,
    messages: Sequence[CommitMessage],
    entries: Sequence[ManifestEntry],
    *,
    clusters: bool = False,
) -> list[ManifestEntry]:
    """The entries that are still to be planned after these messages.

    In an unordered bucket, these are the files that no message replaces. Any other bucket with a
    message is done, and so is a partition that was clustered (`clusters`).
    """
    clusters = clusters or context.options.clustering_incremental
    if not context.schema.primary_keys and context.options.bucket < 0 and not clusters:
        packed = {file.name for message in messages for file in message.compact_before}
        return [entry for entry in entries if entry.file.name not in packed]
    there = {(message.partition, message.bucket) for message in messages}
    return [entry for entry in entries if (entry.partition, entry.bucket) not in there]
