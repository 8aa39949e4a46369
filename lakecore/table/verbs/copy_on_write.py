"""Copy-on-write for tables without a key: files with matching rows are rewritten.

1. Read the condition's columns of each file that may hold matching rows.
2. Read each file with matching rows completely, and write its rows, without deleted rows and with
   new values, to new files. If all rows are deleted, no file is written.
3. Commit one OVERWRITE snapshot that removes the old files and adds the new ones. If a concurrent
   commit has removed one of the old files, raise CommitConflict: its rows may have changed.

Rows that are appended concurrently are kept.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import Unsupported
from lakecore.frames.source import reading
from lakecore.io.files.checks import Checks
from lakecore.model.files import CommitMessage
from lakecore.table.reads.row_values import holds, values_of
from lakecore.table.splits.read import read_split
from lakecore.table.verbs.verb_write import VerbWrite
from lakecore.table.writes import overwrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from lakecore.model.files import DataFile, Split
    from lakecore.model.snapshot import CommitResult
    from lakecore.plan.row_changes import Verb
    from lakecore.table.context import TableContext
    from lakecore.table.reads.row_values import Condition
    from lakecore.table.reads.source import TableSource
    from lakecore.table.writes.batch_write import Author


class FileRewriter:
    """Replaces the files that hold rows to change; a context manager."""

    def __init__(self, context: TableContext, source: TableSource, verb: Verb) -> None:
        if context.options.deletion_vectors_enabled:
            raise Unsupported(
                f"{verb} of an append table with deletion vectors is not supported",
                option="deletion-vectors.enabled",
                table=context.identifier,
            )
        self._context = context
        self._source = source
        self._verb = verb
        # The files it removes must not be compacted in the same commit.
        options = replace(context.options, write_only=True)
        self._write = VerbWrite(replace(context, options=options), verb)
        self._replaced: dict[tuple[bytes, int, int], list[DataFile]] = defaultdict(list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write.close()

    def rewrite(self, condition: Condition | None, values: Mapping[str, object] | None) -> None:
        """Set `values` in the matching rows (no condition: all rows); None deletes the rows."""
        predicate = None if condition is None else condition.predicate
        for split in self._source.plan(predicate).splits:
            for file in split.files:
                alone = self.alone(split, file)
                count = self._count(alone, condition)
                if not count:
                    continue
                self.replace(alone)
                if values is None:
                    self.delete(count)
                if values is not None or count < file.row_count:
                    self._rewrite(alone, condition, values)

    def commit(self, by: Author) -> CommitResult:
        """Commit the changes in one snapshot; commits nothing if there is no change."""
        base = self._source.snapshot
        gone = [
            CommitMessage(
                partition=partition,
                bucket=bucket,
                total_buckets=count,
                deleted_files=tuple(files),
                base_snapshot_id=None if base is None else base.id,
                base_snapshot_uuid=None if base is None else base.uuid,
            )
            for (partition, bucket, count), files in self._replaced.items()
        ]
        return self._write.commit(
            [*gone, *self._write.prepare_commit()],
            by,
            overwrite=overwrite.nothing if gone else None,
        )

    def alone(self, split: Split, file: DataFile) -> Split:
        """A split with one file of `split`."""
        if file.name in split.vectors:
            raise Unsupported(
                f"{self._verb} of a file that has a deletion vector is not supported",
                file=file.name,
                table=self._context.identifier,
            )
        return replace(split, runs=((file,),))

    def replace(self, alone: Split) -> None:
        """Remove a file; the caller writes the rows that stay."""
        bucket = (alone.partition, alone.bucket, alone.total_buckets)
        self._replaced[bucket] += alone.files

    def keep(self, rows: pa.Table) -> None:
        """Write unchanged rows."""
        self._write.write(rows)

    def update(self, rows: pa.Table) -> None:
        """Write rows with new values."""
        self._write.write(rows)
        self._write.updated += rows.num_rows

    def delete(self, count: int) -> None:
        """Count deleted rows; the caller does not write them."""
        self._write.deleted += count

    def insert(self, rows: pa.Table) -> None:
        """Add rows; null and missing columns get their default values."""
        self._write.write(self._write.new_rows(rows))
        self._write.inserted += rows.num_rows

    def _count(self, split: Split, condition: Condition | None) -> int:
        """The number of matching rows of a file."""
        if condition is None:
            return split.row_count
        names = condition.columns or self._context.schema.names[:1]
        return sum(
            pc.sum(holds(rows, condition.expression)).as_py() or 0
            for rows in self.rows(split, names)
        )

    def _rewrite(
        self, split: Split, condition: Condition | None, values: Mapping[str, object] | None
    ) -> None:
        schema = self._context.schema
        for rows in self.rows(split, schema.names):
            if condition is None:
                chosen = pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)])
            else:
                chosen = holds(rows, condition.expression)
            self.keep(rows.filter(pc.invert(chosen)))
            if values is not None:
                changed = rows.filter(chosen)
                self.update(with_values(changed, values_of(changed, values, schema.arrow)))

    def rows(self, split: Split, names: Sequence[str]) -> Iterator[pa.Table]:
        """The columns of a file's rows; every call returns the rows in the same order."""
        context = self._context
        plan = replace(self._source.read_plan([split], names), checks=Checks.ALWAYS)
        with reading(read_split(split, plan, context.store, context.budget)) as batches:
            for batch in batches:
                yield pa.Table.from_batches([batch])


def with_values(rows: pa.Table, values: Mapping[str, pa.ChunkedArray]) -> pa.Table:
    """The rows with some columns replaced."""
    for name, column in values.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows
