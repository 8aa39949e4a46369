"""Compaction of a table with data evolution: files with adjacent row ids become one file.

https://paimon.apache.org/docs/master/append-table/data-evolution/

1. `plan_row_ranges` groups the files of a bucket that hold columns of the same rows. In order of
   the row ids, groups with adjacent row ids are joined until they have the target size. A group
   that is larger than that is not joined. A `RowRange` needs `compaction.min.file-num` files, or
   two if the compaction is full.
2. `pack_row_ranges` writes all columns of these rows to one file with the same row ids.

Files of BLOB values are not rewritten: a read finds them by their row ids. Deleted rows are copied,
because each row keeps its position; `drop_vectors.py` adds their deletion vectors to the new file.

The new file has the sequence numbers of the files that it replaces, so that columns which another
commit writes meanwhile are newer.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import LakecoreError
from lakecore.frames.source import reading
from lakecore.io.files.checks import Checks
from lakecore.lsm.packing import PackingPolicy
from lakecore.model.blob_rules import in_blob_files
from lakecore.model.files import FileSource, Split
from lakecore.plan.row_ids import BLOB, by_row_ids
from lakecore.table.compactions.compact_plan import files_by_bucket
from lakecore.table.compactions.pack_files import rewritten
from lakecore.table.reads.live_files import vectors_of
from lakecore.table.reads.source import TableSource
from lakecore.table.run_writer.bucket_place import new_place
from lakecore.table.run_writer.file_shape import column_shape
from lakecore.table.run_writer.rolling_writer import RollingWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakecore.model.files import CommitMessage, DataFile, Vectors
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.compactions.compact_plan import BucketFiles
    from lakecore.table.compactions.pack_files import RowsDone
    from lakecore.table.context import TableContext

_FULL_FILES_MIN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRange:
    """Groups of files with adjacent row ids, which become one file. Groups have no BLOB files."""

    partition: bytes
    bucket: int
    total_buckets: int
    base_snapshot_id: int | None
    groups: tuple[tuple[DataFile, ...], ...]
    vectors: Vectors

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that will be replaced."""
        return tuple(file for group in self.groups for file in group)

    @property
    def row_count(self) -> int:
        """The rows of these files."""
        return sum(group[0].row_count for group in self.groups)


def plan_row_ranges(
    context: TableContext, snapshot: Snapshot, entries: Iterable[ManifestEntry], *, full: bool
) -> list[RowRange]:
    """The groups of these live files to join, in order of partition and row ids."""
    policy = PackingPolicy.of(context.options)
    files_min = _FULL_FILES_MIN if full else max(policy.files_min, _FULL_FILES_MIN)
    vectors = vectors_of(context.history, snapshot)
    found: list[RowRange] = []
    for bucket in files_by_bucket(entries, snapshot.id):
        own = vectors.get((bucket.partition, bucket.bucket), {})
        ranges = (_row_range(bucket, groups, own) for groups in _adjacent(bucket.files, policy))
        found += [each for each in ranges if len(each.files) >= files_min]
    return found


def _row_range(
    bucket: BucketFiles, groups: tuple[tuple[DataFile, ...], ...], vectors: Vectors
) -> RowRange:
    return RowRange(
        partition=bucket.partition,
        bucket=bucket.bucket,
        total_buckets=bucket.total_buckets,
        base_snapshot_id=bucket.base_snapshot_id,
        groups=groups,
        vectors=vectors,
    )


def _adjacent(
    files: Sequence[DataFile], policy: PackingPolicy
) -> Iterator[tuple[tuple[DataFile, ...], ...]]:
    """The groups of files, collected into tuples with adjacent row ids."""
    groups = [tuple(f for f in group if f.format != BLOB) for group in by_row_ids(files)]
    held: list[tuple[DataFile, ...]] = []
    held_bytes = 0
    for group, following in pairwise([*groups, None]):
        assert group is not None
        weight = sum(max(file.size_bytes, policy.open_cost_bytes) for file in group)
        if weight > policy.target_bytes:
            if held:
                yield tuple(held)
            yield (group,)
            held, held_bytes = [], 0
            continue
        held.append(group)
        held_bytes += weight
        end = (group[0].first_row_id or 0) + group[0].row_count
        is_last = following is None or following[0].first_row_id != end
        if is_last or held_bytes > policy.target_bytes:
            yield tuple(held)
            held, held_bytes = [], 0


def pack_row_ranges(context: TableContext, work: RowRange, rows_done: RowsDone) -> CommitMessage:
    """Write the new file and return the message. A failure removes the file."""
    schema, options = context.schema, context.options
    names = [field.name for field in schema.fields if not in_blob_files(field, schema, options)]
    has_blobs = len(names) < len(context.schema.fields)
    shape = replace(
        column_shape(context.schema, context.options, names),
        states_columns=has_blobs,
        source=FileSource.COMPACT,
    )
    place = new_place(context, context.partitions.path(work.partition), work.bucket)
    writer = RollingWriter(place, shape)
    source = TableSource(
        context=context, snapshot=None, table_schema=context.schema, as_stored=True
    )
    splits = [_split(context, work, group) for group in work.groups]
    plan = replace(source.read_plan(splits, names), checks=Checks.ALWAYS)
    written = 0
    try:
        with reading(source.read(splits, plan)) as batches:
            for batch in batches:
                writer.write(pa.Table.from_batches([batch]))
                written += batch.num_rows
                rows_done(batch.num_rows)
        assert written == work.row_count, "not all rows were packed"
        (file,) = writer.close()
    except BaseException:
        # A file that cannot be removed is an orphan; report the original error instead.
        with suppress(LakecoreError, OSError):
            writer.abort()
        raise
    file = replace(
        file,
        first_row_id=work.groups[0][0].first_row_id,
        sequence_min=min(each.sequence_min for each in work.files),
        sequence_max=max(each.sequence_max for each in work.files),
    )
    return rewritten(context, work, [file])


def _split(context: TableContext, work: RowRange, group: tuple[DataFile, ...]) -> Split:
    """A split of a group, with the rows that are deleted."""
    is_one = len(group) == 1
    return Split(
        partition=work.partition,
        partition_path=context.partitions.path(work.partition),
        bucket=work.bucket,
        total_buckets=work.total_buckets,
        runs=(group,) if is_one else tuple((file,) for file in group),
        raw=is_one,
    )
