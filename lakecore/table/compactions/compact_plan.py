"""The files of buckets -> the plan of what compaction does in each bucket.

`lsm/universal.py` picks the runs. `lsm/steps.py` decides which of their files are merged and which
only change their level. Pure except for the clock: `compact_bucket.py` executes the plan.

The files are the live files of a snapshot and, within a write, the files it has just written, which
are last in commit order.

INVARIANT: tombstones are dropped only if the unit says that no older row is left to hide.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from lakecore.lsm.levels import SortedRun, level_runs
from lakecore.lsm.steps import Step, Upgrade, unit_steps
from lakecore.lsm.universal import (
    CompactionPolicy,
    CompactionUnit,
    Moment,
    Reason,
    last_full_ms,
    pick,
    pick_full,
)
from lakecore.table.reads.scan import commit_order, key_ranks, vectors_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakecore.model.files import DataFile, Vectors
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFiles:
    """The files of a bucket, in commit order; they are live in snapshot `base_snapshot_id`."""

    partition: bytes
    bucket: int
    total_buckets: int
    base_snapshot_id: int | None
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketCompaction:
    """The work planned for a bucket of a snapshot, and its output level.

    `order` numbers the files of the bucket in commit order; `others` are the unchanged files;
    `vectors` has the deletion vectors of the bucket.
    Without `keeps_changelog`, no changelog is written, as after an overwrite.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    base_snapshot_id: int | None
    level: int
    reason: Reason
    keep_deletions: bool
    steps: tuple[Step, ...]
    others: tuple[DataFile, ...]
    order: Mapping[str, int]
    vectors: Vectors
    keeps_changelog: bool = True

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that will be replaced, or change their level."""
        return tuple(chain.from_iterable(_files_of(step) for step in self.steps))

    @property
    def row_count(self) -> int:
        """The rows of these files, as stored."""
        return sum(file.row_count for file in self.files)


def plan_buckets(
    context: TableContext, snapshot: Snapshot, entries: Iterable[ManifestEntry], *, full: bool
) -> list[BucketCompaction]:
    """The plans for the buckets of these live files. Buckets without work are left out.

    With `full`, everything is merged into the last level; otherwise universal compaction picks.
    Raises CorruptTable for a bucket whose files of a level above 0 overlap.
    """
    vectors = vectors_of(context.history, snapshot)
    planned = [
        plan_bucket(context, bucket, vectors.get((bucket.partition, bucket.bucket), {}), full=full)
        for bucket in files_by_bucket(entries, snapshot.id)
    ]
    return [compaction for compaction in planned if compaction is not None]


def files_by_bucket(entries: Iterable[ManifestEntry], snapshot_id: int | None) -> list[BucketFiles]:
    """The live files of each bucket."""
    found: dict[tuple[bytes, int, int], list[DataFile]] = defaultdict(list)
    for entry in entries:
        found[entry.partition, entry.bucket, entry.total_buckets].append(entry.file)
    return [
        BucketFiles(
            partition=partition,
            bucket=number,
            total_buckets=total,
            base_snapshot_id=snapshot_id,
            files=tuple(files),
        )
        for (partition, number, total), files in sorted(found.items())
    ]


def plan_bucket(
    context: TableContext,
    bucket: BucketFiles,
    vectors: Vectors,
    *,
    full: bool,
    idle_picks: int = 0,
) -> BucketCompaction | None:
    """The plan for a bucket with these deletion vectors; None if there is nothing to do.

    If `full`, every file with a vector is rewritten.

    Raises CorruptTable if files of a level above 0 overlap.
    """
    policy = CompactionPolicy.of(context.options)
    files = bucket.files
    lows, highs = key_ranks(files, context.schema)
    runs = level_runs(files, lows, highs)
    if full:
        unit = _full_unit(runs, policy, vectors)
    else:
        unit = pick(runs, policy, _moment(context, runs, policy, idle_picks))
    if unit is None:
        return None
    places = {file.name: place for place, file in enumerate(files)}
    at = np.array([places[file.name] for file in unit.files])
    stale = {file.name for file in unit.files if full and file.name in vectors}
    steps = unit_steps(unit, lows[at], highs[at], policy, stale)
    if not steps:
        return None
    taken = {file.name for step in steps for file in _files_of(step)}
    return BucketCompaction(
        partition=bucket.partition,
        bucket=bucket.bucket,
        total_buckets=bucket.total_buckets,
        base_snapshot_id=bucket.base_snapshot_id,
        level=unit.level_output,
        reason=unit.reason,
        keep_deletions=not unit.drops_deletions,
        steps=steps,
        others=tuple(file for file in files if file.name not in taken),
        order=commit_order(files),
        vectors=vectors,
    )


def _files_of(step: Step) -> tuple[DataFile, ...]:
    return (step.file,) if isinstance(step, Upgrade) else step.files


def _full_unit(
    runs: Sequence[SortedRun], policy: CompactionPolicy, vectors: Vectors
) -> CompactionUnit | None:
    # In the last level a tombstone hides nothing more, so its file is rewritten without it.
    stale = {
        file.name
        for run in runs
        for file in run.files
        if file.delete_row_count != 0 or file.name in vectors
    }
    return pick_full(runs, policy, stale)


def _moment(
    context: TableContext, runs: Sequence[SortedRun], policy: CompactionPolicy, idle_picks: int
) -> Moment:
    now_ms = context.ambient.local_wall_clock_ms()
    return Moment(
        now_ms=now_ms,
        hour=now_ms // _HOUR_MS % 24,
        last_full_ms=last_full_ms(runs, policy),
        idle_picks=idle_picks,
    )
