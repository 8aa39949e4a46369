"""Plans reads of the files of changes: rows are read as they were stored, without a merge.

With data evolution, files that hold columns of the same rows are joined, as Paimon does
(https://paimon.apache.org/docs/master/append-table/data-evolution/). Only the given files are
joined: a column that none of them holds is null, whatever older files hold.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.model.rows import KIND_FIELD
from lakecore.options import POSTPONE_BUCKET, ChangelogProducer, TableOptions
from lakecore.plan.row_ids import BLOB, written_together
from lakecore.table.reads.file_selection import matching_values
from lakecore.table.reads.scan import (
    Bucket,
    ScanContext,
    VectorsOfBuckets,
    commit_order,
    keep_entries,
    split_of,
)
from lakecore.table.reads.source import TableSource
from lakecore.table.splits.read import read_split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.model.files import DataFile, Split
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.plan.predicate import Predicate
    from lakecore.table.context import TableContext


def plan_stored(
    context: ScanContext,
    entries: Sequence[ManifestEntry],
    predicate: Predicate | None = None,
    snapshot: Snapshot | None = None,
) -> list[Split]:
    """One split for each file, in order, without a merge.

    Files may be pruned by any of their statistics, because no row hides another. With data
    evolution, the files that hold columns of the same rows are one split. Rows that a deletion
    vector of `snapshot` marks are left out.
    """
    kept = keep_entries(context, entries, predicate)
    vectors = VectorsOfBuckets(context.history, snapshot)
    matching = matching_values(
        [entry.file for entry in kept], context.history, context.schema, predicate
    )
    match = {entry.file.name: bool(fits) for entry, fits in zip(kept, matching, strict=True)}
    return [
        split_of(
            place,
            tuple((file,) for file in group),
            raw=len(group) == 1 and group[0].format != BLOB,
            order=commit_order(group),
            vectors=vectors.of(*place[:2]),
            context=context,
        )
        for place, group in _with_same_rows(kept, context.options)
        if any(match[file.name] for file in group)
    ]


def _with_same_rows(
    entries: Sequence[ManifestEntry], options: TableOptions
) -> Iterator[tuple[Bucket, Sequence[DataFile]]]:
    """Files that hold columns of the same rows (else single files), each group with its bucket."""
    if not options.data_evolution_enabled:
        for entry in entries:
            yield (entry.partition, entry.bucket, entry.total_buckets), (entry.file,)
        return
    buckets: dict[Bucket, list[DataFile]] = defaultdict(list)
    for entry in entries:
        buckets[entry.partition, entry.bucket, entry.total_buckets].append(entry.file)
    for place, files in buckets.items():
        for group in written_together(files, options):
            yield place, group


# --- postponed rows ------------------------------------------------------------------------------
# The rows of the postponed bucket, as they were written: unmerged, in order, with their kinds.


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
