"""One part of a rescale: moves the rows of some old buckets to new buckets.

No other part writes these new buckets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.table.commits.message_files import delete_files
from lakecore.table.context import with_options
from lakecore.table.reads.source import TableSource
from lakecore.table.verbs.verb_write import without_defaults
from lakecore.table.writes import overwrite
from lakecore.table.writes.write import TableWrite
from lakecore.table.writes.write_start import WriteStart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage, Split
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext


@dataclass(frozen=True, slots=True, kw_only=True)
class RescalePart:
    """Old buckets whose rows go to new buckets that no other part writes. Picklable."""

    snapshot: Snapshot
    splits: tuple[Split, ...]
    count: int

    @property
    def size_bytes(self) -> int:
        """The bytes of the files of the old buckets."""
        return sum(split.size_bytes for split in self.splits)


def target_of(context: TableContext, count: int) -> TableContext:
    """The table with the options to write the new files of a rescale. Stored rows do not change."""
    options = context.options
    texts = {**options.texts, "bucket": str(count)}
    stated = replace(
        options,
        texts=texts,
        bucket=count,
        # Row kinds were applied when the rows were first written.
        rowkind_field=None,
        # Without a compaction, each bucket has one run, which goes to the last level.
        write_only=True,
        overwrite_upgrade=True,
    )
    return with_options(replace(context, schema=without_defaults(context.schema)), stated)


def rescale_part(context: TableContext, part: RescalePart) -> Sequence[CommitMessage]:
    """Read the rows of old buckets and write them to their new ones."""
    target = target_of(context, part.count)
    source = TableSource(
        context=context,
        snapshot=part.snapshot,
        table_schema=context.schema,
        own=part.splits,
        as_stored=True,
    )
    base = WriteStart(snapshot=part.snapshot, bucket_counts={}, sequences={})
    with TableWrite(target, overwrite=True, base=base) as writer:
        for batch in source.batches():
            if batch.num_rows:
                writer.write(pa.Table.from_batches([batch]))
        messages = writer.prepare_commit()
    try:
        return overwrite.at_last_level(target, messages)
    except BaseException:
        delete_files(target, messages)
        raise


def one_by_one(context: TableContext, parts: Sequence[RescalePart]) -> Sequence[CommitMessage]:
    """Rescale the parts one after another in this process. Returns all their messages.

    If a part fails, the files of all parts are removed.
    """
    messages: list[CommitMessage] = []
    try:
        for part in parts:
            messages += rescale_part(context, part)
    except BaseException:
        delete_files(context, messages)
        raise
    return messages
