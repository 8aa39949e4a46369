"""Plans reads of the files of changes: rows are read as they were stored, without a merge.

With data evolution, files that hold columns of the same rows are joined, as Paimon does
(https://paimon.apache.org/docs/master/append-table/data-evolution/). Only the given files are
joined: a column that none of them holds is null, whatever older files hold.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from lakecore.plan.row_ids import BLOB, written_together
from lakecore.table.reads.live_files import vectors_of
from lakecore.table.reads.scan import commit_order, keep_entries, split_of
from lakecore.table.reads.value_statistics import matching_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.model.files import DataFile, Split
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.options import TableOptions
    from lakecore.plan.predicate import Predicate
    from lakecore.table.reads.scan import Bucket, ScanContext


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
    vectors = vectors_of(context.history, snapshot)
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
            vectors=vectors.get(place[:2], {}),
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
