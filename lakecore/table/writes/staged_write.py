"""A batch write to a table with postponed buckets that puts its rows into real buckets at once.

1. Rows go to real buckets if the number of buckets of their partition is known: from its files or
   from an option. Rows of other partitions go to files of the postponed bucket.
2. `prepare_commit` decides the number of buckets of these partitions from the rows and bytes of the
   files, reads the rows back and writes them to real buckets. Those files are then deleted.

Rows that wait in the postponed bucket of the table are not touched
(https://paimon.apache.org/docs/master/primary-key-table/data-distribution/#postpone-bucket).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Self

from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.options import POSTPONE_BUCKET
from lakecore.plan.postponed import batch_count
from lakecore.table.commits.message_files import delete_files
from lakecore.table.reads.postponed_rows import postponed_rows
from lakecore.table.writes.routing import RealBuckets
from lakecore.table.writes.write import TableWrite
from lakecore.table.writes.write_start import read_base

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from lakecore.model.files import CommitMessage
    from lakecore.table.context import TableContext
    from lakecore.table.writes.write_start import WriteStart


def batch_writer(
    context: TableContext, *, overwrite: bool = False, base: WriteStart | None = None
) -> TableWrite | StagedWrite:
    """The writer for a batch of rows; see `TableWrite`."""
    options = context.options
    if options.bucket == POSTPONE_BUCKET and options.postpone_batch_write_fixed_bucket:
        return StagedWrite(context, overwrite=overwrite, base=base)
    return TableWrite(context, overwrite=overwrite, base=base)


class StagedWrite:
    """Writes one batch to real buckets. A context manager, as `TableWrite`."""

    def __init__(
        self, context: TableContext, *, overwrite: bool = False, base: WriteStart | None = None
    ) -> None:
        self._context = context
        self._overwrite = overwrite
        self._base = read_base(context) if base is None else base
        known = {} if overwrite else self._base.bucket_counts
        default = context.options.postpone_default_bucket_num
        self._writer = TableWrite(
            context,
            overwrite=overwrite,
            base=self._base,
            real_buckets=RealBuckets(known=known, default=default),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def row_count(self) -> int:
        """The number of rows written so far."""
        return self._writer.row_count

    def write(self, data: object) -> int:
        """Add rows and return their number. `Table.write` describes `data`."""
        return self._writer.write(data)

    def prepare_commit(self) -> list[CommitMessage]:
        """Write all rows to real buckets. Returns one message for each changed bucket."""
        messages = self._writer.prepare_commit()
        staged = [message for message in messages if message.bucket == POSTPONE_BUCKET]
        if not staged:
            return messages
        direct = [message for message in messages if message.bucket != POSTPONE_BUCKET]
        try:
            written = self._unstaged(staged)
        except BaseException:
            delete_files(self._context, messages)
            raise
        delete_files(self._context, staged)
        return [*direct, *written]

    def close(self) -> None:
        """Close the writer and drop the rows written since the last `prepare_commit`."""
        self._writer.close()

    def _unstaged(self, staged: Sequence[CommitMessage]) -> list[CommitMessage]:
        """Write the rows of staged files to real buckets."""
        rows: dict[bytes, int] = defaultdict(int)
        size_bytes: dict[bytes, int] = defaultdict(int)
        entries: list[ManifestEntry] = []
        for message in staged:
            for file in message.new_files:
                rows[message.partition] += file.row_count
                size_bytes[message.partition] += file.size_bytes
                entries.append(
                    ManifestEntry(
                        kind=FileKind.ADD,
                        partition=message.partition,
                        bucket=message.bucket,
                        total_buckets=message.total_buckets,
                        file=file,
                    )
                )
        options = self._context.options
        counts = {each: batch_count(rows[each], size_bytes[each], options) for each in rows}
        with TableWrite(
            self._context,
            overwrite=self._overwrite,
            base=self._base,
            real_buckets=RealBuckets(known=counts),
        ) as writer:
            for part in postponed_rows(self._context, entries):
                writer.add_stored(part)
            return writer.prepare_commit()
