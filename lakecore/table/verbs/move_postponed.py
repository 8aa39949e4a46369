"""Moves the rows of the postponed bucket to real buckets, where reads show them.

1. Read the latest snapshot, and take the files of the postponed bucket of the chosen partitions.
2. A partition keeps its number of real buckets. For a partition that has none yet,
   `plan/postponed.py` chooses the number.
3. Read the rows in the order in which they were written, and write them to real buckets as a writer
   does: with sequence numbers, merged, one run of level 0 in each bucket.
4. One COMPACT snapshot deletes the postponed files and adds the new ones, with their changelog.

Rows that writers add to the postponed bucket meanwhile stay there until the next compaction. If
another compaction moved the same files, the call starts again from the new snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.errors import AlreadyExists, CommitConflict, CommitUnknown, LakecoreError
from lakecore.model.compaction import CompactionResult
from lakecore.model.files import CommitMessage
from lakecore.options import POSTPONE_BUCKET
from lakecore.plan.postponed import compaction_count
from lakecore.table.commits.commit import CommitRequest
from lakecore.table.commits.message_files import delete_files
from lakecore.table.context import newest_schema_id, reload_context, with_options
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.reads.postponed_rows import in_order_of_writing, postponed_rows
from lakecore.table.verbs.compaction_totals import result_of, sum_of
from lakecore.table.writes.batch_write import author
from lakecore.table.writes.routing import RealBuckets
from lakecore.table.writes.write import TableWrite
from lakecore.table.writes.write_start import read_start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

ATTEMPTS_MAX = 10


def move_postponed(
    context: TableContext,
    chosen: Callable[[Sequence[ManifestEntry]], Sequence[ManifestEntry]],
    *,
    max_bytes: int | None,
    dry_run: bool,
    stepped: Callable[[CompactionResult], None] | None = None,
) -> CompactionResult:
    """Move the chosen files of the postponed bucket. `stepped` is called after each commit.

    With `max_bytes`, each commit moves whole partitions: at least one, and up to that many bytes.
    """
    done = CompactionResult(attempts=0)
    if context.options.bucket != POSTPONE_BUCKET:
        return done
    attempts = 0
    while True:
        if newest_schema_id(context) != context.schema.id:
            context = reload_context(context)
        snapshot = context.history.latest_snapshot()
        live = () if snapshot is None else context.history.live_entries(snapshot)
        entries = in_order_of_writing(chosen(live))
        if snapshot is None or not entries:
            return done
        if dry_run:
            return _planned(entries)
        attempts += 1
        portion = _portion(entries, max_bytes)
        messages = _written(context, snapshot, portion)
        snapshot_id = _commit(context, messages)
        if snapshot_id is not None:
            step = result_of(messages, snapshot_id, attempts)
            done = sum_of(done, step, buckets=done.buckets + step.buckets)
            if stepped is not None:
                stepped(step)
            attempts = 0
            if len(portion) == len(entries):
                return done
        elif attempts == ATTEMPTS_MAX:
            raise CommitConflict(
                "other commits changed the buckets that postponed rows move to; compact when they "
                "are done",
                table=context.identifier,
                attempts=attempts,
            )


def _portion(entries: list[ManifestEntry], max_bytes: int | None) -> list[ManifestEntry]:
    """The files of the first partitions, up to `max_bytes`."""
    if max_bytes is None:
        return entries
    sizes: dict[bytes, int] = defaultdict(int)
    for entry in entries:
        sizes[entry.partition] += entry.file.size_bytes
    taken: set[bytes] = set()
    total = 0
    for partition, size_bytes in sizes.items():
        total += size_bytes
        if taken and total > max_bytes:
            break
        taken.add(partition)
    return [entry for entry in entries if entry.partition in taken]


def _written(
    context: TableContext, snapshot: Snapshot, entries: Sequence[ManifestEntry]
) -> list[CommitMessage]:
    """Write the rows of these files to real buckets; the messages replace the files."""
    base = read_start(context, snapshot)
    rows: dict[bytes, int] = defaultdict(int)
    size_bytes: dict[bytes, int] = defaultdict(int)
    for entry in entries:
        rows[entry.partition] += entry.file.row_count
        size_bytes[entry.partition] += entry.file.size_bytes
    options = context.options
    counts = {
        each: base.bucket_counts.get(each)
        or compaction_count(rows[each], size_bytes[each], options)
        for each in rows
    }
    # Compactions that are due in the real buckets run after this commit.
    alone = with_options(context, replace(options, write_only=True))
    with TableWrite(alone, base=base, real_buckets=RealBuckets(known=counts)) as writer:
        for part in postponed_rows(context, entries):
            writer.add_stored(part)
        written = writer.prepare_commit()
    taken: dict[bytes, list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        taken[entry.partition].append(entry)
    return [
        *(
            CommitMessage(
                partition=partition,
                bucket=POSTPONE_BUCKET,
                total_buckets=own[0].total_buckets,
                compact_before=tuple(entry.file for entry in own),
                compact_schema_id=context.schema.id,
                base_snapshot_id=snapshot.id,
                base_snapshot_uuid=snapshot.uuid,
            )
            for partition, own in taken.items()
        ),
        *(
            replace(
                message,
                new_files=(),
                changelog_files=(),
                compact_after=message.new_files,
                compact_changelog_files=message.changelog_files,
                compact_schema_id=context.schema.id,
            )
            for message in written
        ),
    ]


def _commit(context: TableContext, messages: Sequence[CommitMessage]) -> int | None:
    """Commit the messages. Returns the snapshot id; None if another commit was first."""
    try:
        request = CommitRequest(messages=messages, user=author(context).user)
        return commit_and_maintain(context, request).snapshot_id
    except (CommitUnknown, AlreadyExists):
        # The files are, or may be, part of the table.
        raise
    except CommitConflict:
        delete_files(context, messages)
        return None
    except (LakecoreError, OSError):
        delete_files(context, messages)
        raise


def _planned(entries: Sequence[ManifestEntry]) -> CompactionResult:
    return CompactionResult(
        buckets=len({entry.partition for entry in entries}),
        files_before=len(entries),
        files_after=None,
        bytes_before=sum(entry.file.size_bytes for entry in entries),
        bytes_after=None,
        rows_before=sum(entry.file.row_count for entry in entries),
        rows_after=None,
        steps=1,
    )
