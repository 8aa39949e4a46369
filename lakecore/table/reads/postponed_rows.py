"""The rows of the postponed bucket, as they were written: unmerged, in order, with their kinds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.model.rows import KIND_FIELD
from lakecore.options import POSTPONE_BUCKET, ChangelogProducer
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.stored_files import plan_stored
from lakecore.table.splits.read import read_split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.model.manifest import ManifestEntry
    from lakecore.options import TableOptions
    from lakecore.table.context import TableContext


def shows_postponed(options: TableOptions) -> bool:
    """Whether changes include rows as soon as they are in the postponed bucket.

    Otherwise they include rows when a compaction moves them to their buckets.
    """
    return (
        options.bucket == POSTPONE_BUCKET and options.changelog_producer is ChangelogProducer.NONE
    )


def in_order_of_writing(entries: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """The files of the postponed bucket among these entries, oldest first.

    `entries` are in commit order. As in Paimon, files are sorted by their creation times; files
    with equal times stay in commit order.
    """
    own = [entry for entry in entries if entry.bucket == POSTPONE_BUCKET]
    return sorted(own, key=lambda entry: entry.file.creation_time_ms or 0)


def postponed_rows(context: TableContext, entries: Sequence[ManifestEntry]) -> Iterator[pa.Table]:
    """The rows of these files, one after another: all columns, and the kind of each row."""
    schema = replace(context.schema, fields=(*context.schema.fields, KIND_FIELD))
    source = TableSource(context=context, snapshot=None, table_schema=schema, as_stored=True)
    plain = TableSource(context=context, snapshot=None, table_schema=context.schema)
    splits = plan_stored(plain.scan_context, entries)
    plan = source.read_plan(splits, None)
    for split in splits:
        for batch in read_split(split, plan, context.store, context.budget):
            if batch.num_rows:
                yield pa.Table.from_batches([batch])
