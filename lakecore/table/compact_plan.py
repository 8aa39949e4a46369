"""The live files of buckets -> what compaction does in each of them.

`lsm/universal.py` picks the runs, `lsm/steps.py` says which of their files are merged and which
only change their level. Pure but for the clock: `compact_bucket.py` does what is planned here.

INVARIANT: deletions are dropped only where the unit says that no older row is left to hide.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakecore.errors import Unsupported
from lakecore.lsm.levels import SortedRun, level_runs
from lakecore.lsm.steps import Step, Upgrade, unit_steps
from lakecore.lsm.universal import (
    CompactionPolicy,
    CompactionUnit,
    Moment,
    last_full_ms,
    pick,
    pick_full,
)
from lakecore.model.files import DELETION_VECTORS
from lakecore.table.scan import commit_order, key_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakecore.model.files import DataFile
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketCompaction:
    """What is to be done in a bucket of a snapshot, and the level of what comes out.

    `order` numbers its files by commit.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    base_snapshot_id: int
    level: int
    keep_deletions: bool
    steps: tuple[Step, ...]
    order: Mapping[str, int]

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that will be replaced, or change their level."""
        return tuple(
            file
            for step in self.steps
            for file in ((step.file,) if isinstance(step, Upgrade) else step.files)
        )

    @property
    def row_count(self) -> int:
        """The rows of these files, as stored."""
        return sum(file.row_count for file in self.files)


def plan_buckets(
    context: TableContext, snapshot: Snapshot, entries: Iterable[ManifestEntry], *, full: bool
) -> list[BucketCompaction]:
    """What compaction is to do in the buckets of these live files, where there is any.

    `full`: everything into the last level; otherwise what universal picking takes. Raises
    Unsupported for a bucket that has deletion vectors, CorruptTable for one whose files of a level
    above 0 overlap.
    """
    buckets: dict[tuple[bytes, int, int], list[DataFile]] = defaultdict(list)
    for entry in entries:
        buckets[entry.partition, entry.bucket, entry.total_buckets].append(entry.file)
    _refuse_vectors(context, snapshot, {(partition, number) for partition, number, _ in buckets})
    policy = CompactionPolicy.of(context.options)
    found = []
    for (partition, number, total), files in sorted(buckets.items()):
        lows, highs = key_ranks(files, context.schema)
        runs = level_runs(files, lows, highs)
        unit = (
            _full_unit(runs, policy) if full else pick(runs, policy, _moment(context, runs, policy))
        )
        if unit is None:
            continue
        places = {file.name: place for place, file in enumerate(files)}
        at = np.array([places[file.name] for file in unit.files])
        steps = unit_steps(unit, lows[at], highs[at], policy)
        if steps:
            compaction = BucketCompaction(
                partition=partition,
                bucket=number,
                total_buckets=total,
                base_snapshot_id=snapshot.id,
                level=unit.level_output,
                keep_deletions=not unit.drops_deletions,
                steps=steps,
                order=commit_order(files),
            )
            found.append(compaction)
    return found


def _full_unit(runs: Sequence[SortedRun], policy: CompactionPolicy) -> CompactionUnit | None:
    # In the last level a deletion has done its work: its file is written without it.
    stale = {file.name for run in runs for file in run.files if file.delete_row_count != 0}
    return pick_full(runs, policy, stale)


def _moment(context: TableContext, runs: Sequence[SortedRun], policy: CompactionPolicy) -> Moment:
    now_ms = context.ambient.local_wall_clock_ms()
    return Moment(
        now_ms=now_ms,
        hour=now_ms // _HOUR_MS % 24,
        last_full_ms=last_full_ms(runs, policy),
    )


def _refuse_vectors(
    context: TableContext, snapshot: Snapshot, buckets: set[tuple[bytes, int]]
) -> None:
    for entry in context.history.index_entries(snapshot):
        found = entry.file.index_type == DELETION_VECTORS
        if found and (entry.partition, entry.bucket) in buckets:
            raise Unsupported(
                "compaction of a bucket that has deletion vectors is not supported",
                table=context.identifier,
                bucket=entry.bucket,
            )
