"""Deletion vectors in the compaction of a bucket of a primary-key table.

1. Rows that are already marked are neither read nor found by a look-up.
2. The rows that a look-up finds above the output are marked, because the compaction writes newer
   rows of their keys. Each key then has at most one unmarked row above level 0.
3. The new index file of the bucket has the marks, without the vectors of rewritten files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakecore.frames.source import reading
from lakecore.io.files.data_files import BatchSize
from lakecore.merge.keys import order_columns
from lakecore.table.vectors.bucket_vectors import BucketVectors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lakecore.model.files import DataFile, Vectors
    from lakecore.table.compactions.compact_plan import BucketCompaction
    from lakecore.table.compactions.lookup import UpperLevels
    from lakecore.table.context import TableContext
    from lakecore.table.stored_rows.split_files import SplitFiles
    from lakecore.table.vectors.bucket_vectors import VectorFiles

_KEY_ROWS = 131_072


class Marking:
    """The deletion vectors of a bucket that is compacted."""

    def __init__(self, context: TableContext, compaction: BucketCompaction) -> None:
        self._compaction = compaction
        self._vectors = BucketVectors.with_vectors(
            context, compaction.partition, compaction.bucket, compaction.vectors
        )
        self.marks: dict[str, list[np.ndarray]] | None = None
        if context.options.deletion_vectors_enabled:
            self.marks = {}

    def of(self, runs: Sequence[Sequence[DataFile]]) -> Vectors:
        """The deletion vectors of these files, by file name."""
        vectors = self._compaction.vectors
        names = [file.name for run in runs for file in run] if vectors else []
        return {name: vectors[name] for name in names if name in vectors}

    @property
    def read(self) -> tuple[tuple[str, str | None], ...] | None:
        """For `CommitMessage.vectors_read`: the files above level 0, each with its index file.

        None without deletion vectors.
        """
        if self.marks is None and not self._vectors.files:
            return None
        files = (*self._compaction.files, *self._compaction.others)
        return self._vectors.index_of(file.name for file in files if file.level > 0)

    def write(self, gone: Collection[str]) -> VectorFiles:
        """Write the new index file if a vector has changed; drops the vectors of `gone` files."""
        self._vectors.drop(gone)
        for name, parts in (self.marks or {}).items():
            self._vectors.mark(name, np.concatenate(parts))
        return self._vectors.write()

    def abort(self) -> None:
        """Remove the index file that was written; if it cannot be removed, it is an orphan."""
        self._vectors.abort()


def mark_keys(
    files: SplitFiles, file: DataFile, upper: UpperLevels, rows_done: Callable[[int], None]
) -> None:
    """Mark the rows of the upper levels whose keys are in this file of level 0."""
    plan = files.plan
    fields = [plan.schema.field(name) for name in plan.merge.key]
    with reading(files.rows(file, fields, BatchSize(_KEY_ROWS))) as batches:
        for batch in batches:
            upper.mark(order_columns(batch.columns))
            rows_done(batch.num_rows)
