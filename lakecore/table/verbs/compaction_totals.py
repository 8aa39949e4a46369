"""The result of a compaction, computed from its messages and summed over its commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.model.compaction import CompactionResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage


def result_of(
    messages: Sequence[CommitMessage], snapshot_id: int, attempts: int
) -> CompactionResult:
    """The result of one commit."""
    before = [file for message in messages for file in message.compact_before]
    after = [file for message in messages for file in message.compact_after]
    return CompactionResult(
        snapshot_ids=(snapshot_id,),
        buckets=len({(message.partition, message.bucket) for message in messages}),
        files_before=len(before),
        files_after=len(after),
        files_upgraded=len({file.name for file in before} & {file.name for file in after}),
        bytes_before=sum(file.size_bytes for file in before),
        bytes_after=sum(file.size_bytes for file in after),
        rows_before=sum(file.row_count for file in before),
        rows_after=sum(file.row_count for file in after),
        steps=1,
        attempts=attempts,
    )


def sum_of(done: CompactionResult, step: CompactionResult, *, buckets: int) -> CompactionResult:
    """The sum of two results. A last step that found nothing to do is not counted as an attempt.

    A dry run writes nothing, so its result has no written files.
    """
    idle = bool(done.steps) and not step.snapshot_ids
    return CompactionResult(
        snapshot_ids=(*done.snapshot_ids, *step.snapshot_ids),
        buckets=buckets,
        files_before=done.files_before + step.files_before,
        files_after=_both(done.files_after, step.files_after),
        files_upgraded=done.files_upgraded + step.files_upgraded,
        bytes_before=done.bytes_before + step.bytes_before,
        bytes_after=_both(done.bytes_after, step.bytes_after),
        rows_before=done.rows_before + step.rows_before,
        rows_after=_both(done.rows_after, step.rows_after),
        steps=done.steps + step.steps,
        attempts=done.attempts + step.attempts - idle,
    )


def _both(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second
