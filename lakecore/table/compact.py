"""The files of one bucket -> a CommitMessage that puts compacted files in their place.

1. `plan_buckets` takes the live files of each bucket: `lsm/universal.py` picks the runs, and
   `lsm/steps.py` says which are merged and which only change their level.
2. `compact_bucket` does it: sections are merged window by window, as a read merges them, but in key
   order, with sequence numbers and kinds, and written as files of the output level.
3. Nothing is visible before the commit. What was written for a compaction that fails is removed.

INVARIANT: deletions are dropped only where the unit says that no older row is left to hide.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lakecore.errors import LakecoreError, Unsupported
from lakecore.frames.source import reading
from lakecore.lsm.levels import SortedRun, level_runs
from lakecore.lsm.steps import Rewrite, Step, Upgrade, unit_steps
from lakecore.lsm.universal import (
    CompactionPolicy,
    CompactionUnit,
    Moment,
    last_full_ms,
    pick,
    pick_full,
)
from lakecore.model.files import DELETION_VECTORS, CommitMessage, FileSource, Split
from lakecore.model.rows import RETRACTS
from lakecore.plan.splits import may_hold_deletions
from lakecore.table.bucket_files import BucketPlace, FileNames, RollingWriter, data_shape
from lakecore.table.read import KIND_FIELD, merge_runs, read_data_file
from lakecore.table.scan import commit_order, key_ranks
from lakecore.table.source import TableSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakecore.lsm.steps import Section
    from lakecore.model.files import DataFile
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext
    from lakecore.table.read import ReadPlan

_KIND_ROWS = 262_144
_HOUR_MS = 3_600_000

RowsDone: TypeAlias = "Callable[[int], None]"
"""Is told of rows that were read, how many more."""


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


def compact_bucket(
    context: TableContext, compaction: BucketCompaction, rows_done: RowsDone
) -> CommitMessage:
    """The compacted files of a bucket, written, as a message. A failure leaves none behind."""
    rewriter = _Rewriter(context, compaction, rows_done)
    before: list[DataFile] = []
    after: list[DataFile] = []
    try:
        for step in compaction.steps:
            if isinstance(step, Rewrite):
                before += step.files
                after += rewriter.rewrite(step.sections)
            elif rewriter.must_count(step.file):
                before.append(step.file)
                after += rewriter.rewrite([rewriter.alone(step.file)])
            else:
                before.append(step.file)
                after.append(replace(step.file, level=compaction.level))
                rows_done(step.file.row_count)
    except BaseException:
        rewriter.abort()
        raise
    return CommitMessage(
        partition=compaction.partition,
        bucket=compaction.bucket,
        total_buckets=compaction.total_buckets,
        compact_before=tuple(before),
        compact_after=tuple(after),
        base_snapshot_id=compaction.base_snapshot_id,
    )


class _Rewriter:
    """Writes runs of one bucket anew."""

    def __init__(
        self, context: TableContext, compaction: BucketCompaction, rows_done: RowsDone
    ) -> None:
        self._context = context
        self._compaction = compaction
        self._rows_done = rows_done
        self._partition_path = context.partitions.path(compaction.partition)
        self._place = BucketPlace(
            store=context.store,
            layout=context.layout,
            ambient=context.ambient,
            partition_path=self._partition_path,
            bucket=compaction.bucket,
            names=FileNames(context.ambient.new_uuid()),
        )
        self._shape = replace(
            data_shape(context.schema, context.options, compaction.level),
            source=FileSource.COMPACT,
        )
        self._plan = self._read_plan()
        self._writers: list[RollingWriter] = []

    def rewrite(self, sections: Sequence[Section]) -> tuple[DataFile, ...]:
        """The merged rows of sections as one run of new files."""
        context = self._context
        writer = RollingWriter(self._place, self._shape)
        self._writers.append(writer)
        for section in sections:
            split = self._split(section)
            left = split.row_count
            with reading(merge_runs(split, self._plan, context.store, context.budget)) as windows:
                for rows in windows:
                    writer.write(rows)
                    left -= rows.num_rows
                    self._rows_done(rows.num_rows)
            # What merging made fewer.
            self._rows_done(left)
        return writer.close()

    def must_count(self, file: DataFile) -> bool:
        """Whether a file that would only change its level holds deletions that it should not.

        They are to go, or the file does not count them, as readers of higher levels trust it to.
        """
        counted = self._compaction.keep_deletions and file.delete_row_count != 0
        if counted or not may_hold_deletions(file):
            return False
        split = self._split(self.alone(file))
        retracts = [int(kind) for kind in RETRACTS]
        kinds = read_data_file(
            file, [KIND_FIELD], split, self._plan, self._context.store, _KIND_ROWS
        )
        with reading(kinds) as batches:
            return any(np.isin(batch.column(0).to_numpy(), retracts).any() for batch in batches)

    def alone(self, file: DataFile) -> Section:
        """A file as a section of its own."""
        return (SortedRun(files=(file,)),)

    def abort(self) -> None:
        """Remove what was written; what cannot be removed is an orphan."""
        for writer in self._writers:
            with suppress(LakecoreError, OSError):
                writer.abort()

    def _read_plan(self) -> ReadPlan:
        context = self._context
        source = TableSource(context=context, snapshot=None, table_schema=context.schema)
        runs = tuple((file,) for file in self._compaction.files)
        plan = source.read_plan([self._split_of(runs)], None)
        keep = self._compaction.keep_deletions
        merge = replace(plan.merge, keep_deletions=keep, in_key_order=True)
        return replace(plan, merge=merge, system_columns=True)

    def _split(self, section: Section) -> Split:
        return self._split_of(tuple(run.files for run in section))

    def _split_of(self, runs: tuple[tuple[DataFile, ...], ...]) -> Split:
        compaction = self._compaction
        return Split(
            partition=compaction.partition,
            partition_path=self._partition_path,
            bucket=compaction.bucket,
            total_buckets=compaction.total_buckets,
            runs=runs,
            raw=False,
            commit_order=compaction.order,
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
