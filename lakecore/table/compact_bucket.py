"""What is planned for a bucket -> its compacted files, as a CommitMessage.

Sections are merged window by window, as a read merges them, but in key order, with sequence numbers
and kinds, and written as files of the output level. Nothing is visible before the commit. What was
written for a compaction that fails is removed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lakecore.errors import LakecoreError
from lakecore.frames.source import reading
from lakecore.lsm.levels import SortedRun
from lakecore.lsm.steps import Rewrite
from lakecore.model.files import CommitMessage, FileSource, Split
from lakecore.model.rows import RETRACTS
from lakecore.plan.splits import may_hold_deletions
from lakecore.table.bucket_files import BucketPlace, FileNames, RollingWriter, data_shape
from lakecore.table.read import KIND_FIELD, merge_runs, read_data_file
from lakecore.table.source import TableSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.lsm.steps import Section
    from lakecore.model.files import DataFile
    from lakecore.table.compact_plan import BucketCompaction
    from lakecore.table.context import TableContext
    from lakecore.table.read import ReadPlan

_KIND_ROWS = 262_144

RowsDone: TypeAlias = "Callable[[int], None]"
"""Is told of rows that were read, how many more."""


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
