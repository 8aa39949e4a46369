"""DELETE, UPDATE and MERGE of tables without a key: rows are marked, or files are rewritten.

With `deletion-vectors.enabled`, a changed or deleted row is marked in the deletion vector of its
file, and rows with new values are appended. Otherwise the file is rewritten (copy-on-write):

1. Read the condition's columns of each file that may hold matching rows.
2. Read each file with matching rows completely, and write its rows, without deleted rows and with
   new values, to new files.

A file whose rows are all deleted is removed in both cases, with its deletion vector.

One OVERWRITE snapshot removes files, adds files and replaces index files. If a concurrent commit
has removed one of the changed files or changed its deletion vector, the commit raises
CommitConflict: the rows may have changed. Rows that are appended concurrently are kept.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.io.files.checks import Checks
from lakecore.model.files import CommitMessage
from lakecore.model.rows import SEQUENCE_NUMBER
from lakecore.plan.row_ids import with_tracking_columns
from lakecore.table.commits.message_files import delete_files
from lakecore.table.reads.row_values import holds, values_of
from lakecore.table.splits.read import scan_at
from lakecore.table.vectors.bucket_vectors import BucketVectors
from lakecore.table.verbs.verb_write import VerbWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from lakecore.model.files import DataFile, Split
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext
    from lakecore.table.reads.row_values import Condition
    from lakecore.table.reads.source import TableSource
    from lakecore.table.verbs.verb_write import Changed
    from lakecore.table.writes.write_start import WriteStart

BucketKey: TypeAlias = tuple[bytes, int, int]
"""Partition, bucket, total buckets."""


class FileChanges:
    """Changes the data files whose rows a verb changes; a context manager.

    If `marks` is true, old rows are marked and new ones appended; otherwise files are rewritten.
    """

    def __init__(
        self, context: TableContext, source: TableSource, base: WriteStart | None = None
    ) -> None:
        self._tracked = context.options.row_tracking_enabled
        # Files that this verb removes must not be compacted in the same commit.
        context = replace(context, options=replace(context.options, write_only=True))
        self._new_rows = self._write = VerbWrite(context, base)
        if self._tracked:
            # Changed and copied rows keep their ids; the commit gives ids to new rows.
            context = replace(context, schema=with_tracking_columns(context.schema))
            source = replace(source, table_schema=context.schema)
            self._write = VerbWrite(context, base)
        self._context = context
        self._source = source
        self.marks = context.options.deletion_vectors_enabled
        self._removed: dict[BucketKey, list[DataFile]] = defaultdict(list)
        self._marked: dict[BucketKey, dict[str, list[np.ndarray]]] = defaultdict(dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write.close()
        self._new_rows.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that the rows given to `keep` and `update` must have."""
        return self._context.schema.names

    def change(self, condition: Condition | None, values: Mapping[str, object] | None) -> None:
        """Set `values` in the matching rows (no condition: all rows). None: delete the rows."""
        predicate = None if condition is None else condition.predicate
        for split in self._source.plan(predicate).splits:
            for alone in self.units(split):
                names = self._context.schema.names[:1]
                positions, row_count = matching(self.rows, alone, condition, names)
                if not len(positions):
                    continue
                if values is None:
                    self._delete(len(positions))
                everything = len(positions) == row_count
                if everything or not self.marks:
                    self._remove(alone)
                else:
                    self._mark(alone, positions)
                if values is not None or not (everything or self.marks):
                    self._rewrite(alone, condition, values)

    def changed(self) -> Changed:
        """End the changes. Returns what was removed, marked and written, for `commit_changes`."""
        changed: list[BucketVectors] = []
        try:
            messages = [
                bucket_message(
                    self._context,
                    self._source.snapshot,
                    bucket,
                    changed,
                    removed=self._removed[bucket],
                    marked=self._marked[bucket],
                )
                for bucket in dict.fromkeys((*self._removed, *self._marked))
            ]
            done = self._write.changed(self._source.snapshot, messages)
            if not self._tracked:
                return done
            try:
                new = self._new_rows.changed(self._source.snapshot)
            except BaseException:
                delete_files(self._context, done.messages)
                raise
            return replace(done, messages=(*done.messages, *new.messages), inserted=new.inserted)
        except BaseException:
            for vectors in changed:
                vectors.abort()
            raise

    def units(self, split: Split) -> Iterator[Split]:
        """The files of a split, as one split for each."""
        return files_alone(split)

    def take(self, alone: Split) -> None:
        """Begin to change a file. The caller then passes each of its rows to another method."""
        if not self.marks:
            self._remove(alone)

    def replace(self, alone: Split, positions: np.ndarray, rows: pa.Table) -> None:
        """Write new rows that replace the rows of a file at these positions."""
        self._mark(alone, positions)
        self._update(rows)

    def remove(self, alone: Split, positions: np.ndarray) -> None:
        """Delete the rows of a file at these positions."""
        self._mark(alone, positions)
        self._delete(len(positions))

    def _mark(self, alone: Split, positions: np.ndarray) -> None:
        """Mark the rows of a file at these positions: they are deleted, or have new values."""
        if self.marks and len(positions):
            (file,) = alone.files
            self._marked[unit_key(alone)].setdefault(file.name, []).append(positions)

    def keep(self, rows: pa.Table, stays: np.ndarray) -> None:
        """Keep the rows that `stays` flags: write them, if the file is rewritten."""
        if not self.marks:
            self._write.write(rows.select(list(self.names)).filter(pa.array(stays)))

    def _update(self, rows: pa.Table) -> None:
        """Write rows with new values."""
        if self._tracked:
            changed = pa.chunked_array([pa.nulls(rows.num_rows, pa.int64())])
            rows = with_values(rows, {SEQUENCE_NUMBER: changed})
        self._write.write(rows)
        self._write.updated += rows.num_rows

    def _delete(self, count: int) -> None:
        """Count deleted rows, which are not written."""
        self._write.deleted += count

    def insert(self, rows: pa.Table) -> None:
        """Add rows; null and missing columns get their default values."""
        self._new_rows.write(self._new_rows.new_rows(rows))
        self._new_rows.inserted += rows.num_rows

    def _remove(self, alone: Split) -> None:
        self._removed[unit_key(alone)] += alone.files

    def _rewrite(
        self, split: Split, condition: Condition | None, values: Mapping[str, object] | None
    ) -> None:
        schema = self._context.schema
        for _, rows in self.rows(split, schema.names):
            if condition is None:
                chosen = pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)])
            else:
                chosen = holds(rows, condition.expression)
            if not self.marks:
                self._write.write(rows.filter(pc.invert(chosen)))
            if values is not None:
                changed = rows.filter(chosen)
                self._update(with_values(changed, values_of(changed, values, schema.arrow)))

    def rows(self, split: Split, names: Sequence[str]) -> Iterator[tuple[np.ndarray, pa.Table]]:
        """The rows of a file that are not deleted: batches of these columns, each with positions.

        Every call returns the rows in the same order.
        """
        return rows_at(self._context, self._source, split, names)


def bucket_message(
    context: TableContext,
    base: Snapshot | None,
    key: BucketKey,
    changed: list[BucketVectors],
    *,
    removed: Sequence[DataFile] = (),
    marked: Mapping[str, Sequence[np.ndarray]],
) -> CommitMessage:
    """Write the index files of a bucket with removed files and marked rows; return its message.

    `marked` are the positions of rows, by the name of the file. Adds the vectors to `changed`.
    """
    partition, bucket, total_buckets = key
    gone = [file.name for file in removed]
    vectors = BucketVectors.of(context, base, partition, bucket)
    changed.append(vectors)
    vectors.drop(gone)
    for name, parts in marked.items():
        vectors.mark(name, np.concatenate(parts))
    files = vectors.write()
    return CommitMessage(
        partition=partition,
        bucket=bucket,
        total_buckets=total_buckets,
        deleted_files=tuple(removed),
        new_index_files=files.added,
        deleted_index_files=files.deleted,
        vectors_read=vectors.index_of([*gone, *marked]),
    )


def unit_key(split: Split) -> BucketKey:
    """The partition, bucket and bucket count of a split."""
    return split.partition, split.bucket, split.total_buckets


def files_alone(split: Split) -> Iterator[Split]:
    """The files of a raw split, as one split for each."""
    for file in split.files:
        vectors = {file.name: split.vectors[file.name]} if file.name in split.vectors else {}
        # An index may exclude rows that do not match, but these must be copied or counted, too.
        yield replace(split, runs=((file,),), vectors=vectors, selected={})


def rows_at(
    context: TableContext, source: TableSource, split: Split, names: Sequence[str]
) -> Iterator[tuple[np.ndarray, pa.Table]]:
    """The rows of a split that are not deleted: batches of these columns, each with positions."""
    plan = replace(source.read_plan([split], names), checks=Checks.ALWAYS)
    with closing(scan_at(split, plan, context.store, context.budget)) as batches:
        for positions, batch in batches:
            yield np.asarray(positions, np.int64), pa.Table.from_batches([batch])


def matching(
    rows_of: Callable[[Split, Sequence[str]], Iterator[tuple[np.ndarray, pa.Table]]],
    split: Split,
    condition: Condition | None,
    small: Sequence[str],
) -> tuple[np.ndarray, int]:
    """The positions of the matching rows of a split, and how many rows it has.

    If the condition names no column, the columns `small` are read to count the rows.
    """
    names: Sequence[str] = small
    if condition is not None and condition.columns:
        names = tuple(condition.columns)
    found: list[np.ndarray] = []
    row_count = 0
    for positions, rows in rows_of(split, names):
        row_count += rows.num_rows
        if condition is not None:
            positions = positions[_flags(holds(rows, condition.expression))]  # noqa: PLW2901
        found.append(positions)
    return np.concatenate(found) if found else np.zeros(0, np.int64), row_count


def _flags(chosen: pa.ChunkedArray) -> np.ndarray:
    """The result of a condition as booleans; null counts as false."""
    flags: np.ndarray = pc.fill_null(chosen, False).to_numpy()
    return flags


def with_values(rows: pa.Table, values: Mapping[str, pa.ChunkedArray]) -> pa.Table:
    """The rows with some columns replaced."""
    for name, column in values.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows
