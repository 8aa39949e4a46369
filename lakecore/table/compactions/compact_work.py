"""What compaction plans and does, by whether the table has a key: merging runs, or packing files.

The one place that knows both; `compaction.py` commits whatever comes out.
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
"""What a plan holds: of one bucket each, but for those that are not kept in order."""


def plan_work(
    context: TableContext,
    snapshot: Snapshot,
    entries: Sequence[ManifestEntry],
    *,
    full: bool,
    step_bytes: int | None = None,
) -> Sequence[Work]:
    """What there is to do with these live files, to be cut into steps of about so many bytes."""
    if context.schema.primary_keys:
        return plan_buckets(context, snapshot, entries, full=full)
    return plan_packing(context, snapshot, entries, full=full, step_bytes=step_bytes)


def do_work(context: TableContext, work: Work, rows_done: RowsDone) -> CommitMessage:
    """The new files of one piece of work, written, as a message. A failure leaves none behind."""
    if isinstance(work, Packing):
        return pack_files(context, work, rows_done)
    return compact_bucket(context, work, rows_done)


def left_to_plan(
    context: TableContext, messages: Sequence[CommitMessage], entries: Sequence[ManifestEntry]
) -> list[ManifestEntry]:
    """The files that messages leave to be planned: none of a bucket that must be kept in order."""
    if not context.schema.primary_keys and context.options.bucket < 0:
        packed = {file.name for message in messages for file in message.compact_before}
        return [entry for entry in entries if entry.file.name not in packed]
    there = {(message.partition, message.bucket) for message in messages}
    return [entry for entry in entries if (entry.partition, entry.bucket) not in there]
