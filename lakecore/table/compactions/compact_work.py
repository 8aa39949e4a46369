"""Chooses between merging runs (tables with a key) and packing files (tables without one).

Only this module knows both; `compaction.py` commits the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from lakecore.table.compactions.compact_bucket import compact_bucket
from lakecore.table.compactions.compact_plan import BucketCompaction, plan_buckets
from lakecore.table.compactions.pack_files import Packing, pack_files, plan_packing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.compactions.compact_parallel import RowsDone
    from lakecore.table.context import TableContext

Work: TypeAlias = BucketCompaction | Packing
"""An item of a plan: one for each bucket; unordered buckets may have several."""


def plan_work(
    context: TableContext,
    snapshot: Snapshot,
    entries: Sequence[ManifestEntry],
    *,
    full: bool,
    step_bytes: int | None = None,
) -> Sequence[Work]:
    """The work to do on these live files, in items of about `step_bytes` where possible."""
    if context.schema.primary_keys:
        return plan_buckets(context, snapshot, entries, full=full)
    return plan_packing(context, snapshot, entries, full=full, step_bytes=step_bytes)


def do_work(context: TableContext, work: Work, rows_done: RowsDone) -> CommitMessage:
    """Write the new files of one item and return the message. A failure removes the files."""
    if isinstance(work, Packing):
        return pack_files(context, work, rows_done)
    return compact_bucket(context, work, rows_done)


def left_to_plan(
    context: TableContext, messages: Sequence[CommitMessage], entries: Sequence[ManifestEntry]
) -> list[ManifestEntry]:
    """The entries that are still to be planned after these messages.

    In an unordered bucket, these are the files that no message replaces. Any other bucket has no
    work left if it has a message.
    """
    if not context.schema.primary_keys and context.options.bucket < 0:
        packed = {file.name for message in messages for file in message.compact_before}
        return [entry for entry in entries if entry.file.name not in packed]
    there = {(message.partition, message.bucket) for message in messages}
    return [entry for entry in entries if (entry.partition, entry.bucket) not in there]
