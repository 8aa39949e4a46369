"""Compaction of a table without a key: small files are rewritten as fewer files.

1. `plan_packing`: the live files of each bucket -> groups of them (`lsm/packing.py`).
2. `pack_files`: the rows of a group's files, file by file, with the columns of the newest schema,
   are written to new files. A few files are read concurrently, within the memory budget.

A partition of an unaware-bucket table has one `Packing` for each group, so that a conflict affects
only one group. An ordered bucket has one `Packing` for all of its groups: the files of a group must
still be neighbours when the compaction is committed.

Rows that a deletion vector marks are not copied. `compact_work.py` removes the vectors.

Sequence numbers of new files begin with the first number of their group and never exceed its last
one, so that the files keep the group's position in the order.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa

from lakecore.errors import LakecoreError, Unsupported
from lakecore.frames.source import reading
from lakecore.io.files.file_format import Checks
from lakecore.lsm.packing import (
    Group,
    PackingPolicy,
    cut,
    fewer_adjacent,
    is_stale,
    pick_adjacent_full,
    pick_small,
    pick_small_full,
    with_stale,
)
from lakecore.model.blob_rules import in_blob_files
from lakecore.model.files import CommitMessage, DataFile, FileSource, Split, Vectors
from lakecore.plan.row_ids import BLOB, by_row_ids, with_tracking_columns
from lakecore.table.compactions.compact_plan import BucketFiles, files_by_bucket
from lakecore.table.reads.scan import VectorsOfBuckets
from lakecore.table.reads.source import TableSource
from lakecore.table.run_writer.file_shape import column_shape, data_shape, new_place
from lakecore.table.run_writer.rolling_writer import RollingWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

RowsDone: TypeAlias = "Callable[[int], None]"
"""Is called with the number of rows read since the last call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Files of a bucket that are rewritten as fewer files, group by group.

    `joined`: the files of a group hold columns of the same rows, and all groups become one file.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    base_snapshot_id: int | None
    groups: tuple[Group, ...]
    vectors: Vectors
    joined: bool = False

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files that will be replaced."""
        return tuple(file for group in self.groups for file in group)

    @property
    def row_count(self) -> int:
        """The rows of these files."""
        held = [group[0] for group in self.groups] if self.joined else self.files
        return sum(file.row_count for file in held)


def plan_packing(
    context: TableContext,
    snapshot: Snapshot,
    entries: Iterable[ManifestEntry],
    *,
    full: bool,
    step_bytes: int | None = None,
) -> list[Packing]:
    """The packings of these live files, in order of partition and bucket.

    With `full`, every small file is packed, even if the gain is small. Unordered files are split
    into parts of about `step_bytes`, if given. Raises Unsupported for a file whose rows cannot
    simply be copied.
    """
    policy = PackingPolicy.of(context.options)
    vectors = VectorsOfBuckets(context.history, snapshot)
    found: list[Packing] = []
    for bucket in files_by_bucket(entries, snapshot.id):
        own = vectors.of(bucket.partition, bucket.bucket)
        picked = _picked(bucket, policy, own, full=full, step_bytes=step_bytes)
        found += [_packing(bucket, groups, own) for groups in picked]
    if not context.options.row_tracking_enabled:
        check_copied(context, (file for packing in found for file in packing.files))
    return found


def check_copied(context: TableContext, files: Iterable[DataFile]) -> None:
    """Raise Unsupported for a file whose rows cannot simply be copied."""
    for file in files:
        more = _more_than_rows(file)
        if more:
            raise Unsupported(
                f"compaction of a file {more} is not supported",
                file=file.name,
                table=context.identifier,
            )


def _packing(
    bucket: BucketFiles, groups: tuple[Group, ...], vectors: Vectors, *, joined: bool = False
) -> Packing:
    return Packing(
        partition=bucket.partition,
        bucket=bucket.bucket,
        total_buckets=bucket.total_buckets,
        base_snapshot_id=bucket.base_snapshot_id,
        groups=groups,
        vectors=vectors,
        joined=joined,
    )


def _picked(
    bucket: BucketFiles,
    policy: PackingPolicy,
    vectors: Vectors,
    *,
    full: bool,
    step_bytes: int | None,
) -> list[tuple[Group, ...]]:
    """The groups of files to pack in a bucket, one tuple of groups for each packing."""
    files, in_order = bucket.files, bucket.total_buckets > 0
    stale = {
        file.name
        for file in files
        if file.name in vectors
        and (full or is_stale(file, vectors[file.name][1].cardinality, policy))
    }
    if in_order:
        groups: tuple[Group, ...]
        if full:
            group = pick_adjacent_full(files, policy)
            groups = () if group is None else (group,)
        else:
            groups = fewer_adjacent(files, policy)
        groups = with_stale(groups, stale, files)
        return [groups] if groups else []
    if full:
        group = pick_small_full(files, policy, stale)
        if group is None:
            return []
        parts = (group,) if step_bytes is None else cut(group, step_bytes, policy)
        return [(part,) for part in parts]
    # A small file with a vector is rewritten too: dropping its rows costs little.
    small_bytes = policy.small_file_bytes
    stale |= {f.name for f in files if f.name in vectors and f.size_bytes < small_bytes}
    return [(group,) for group in pick_small(files, policy, stale)]


def plan_after_write(
    context: TableContext, bucket: BucketFiles, vectors: Vectors
) -> Packing | None:
    """The packing that a writer runs on an ordered bucket after a write; None: nothing to do.

    The packing is one pick, as in a Java Paimon writer that waits for compaction before it commits.
    """
    groups = fewer_adjacent(bucket.files, PackingPolicy.of(context.options))
    if not groups or any(map(_more_than_rows, groups[0])):
        return None
    return _packing(bucket, groups[:1], vectors)


def _more_than_rows(file: DataFile) -> str:
    """The data that a plain copy of the file would lose, as text for an error; empty if none."""
    if file.first_row_id is not None:
        return "whose rows have ids"
    if file.write_columns is not None:
        return "that holds a part of the columns"
    return ""


def pack_files(context: TableContext, packing: Packing, rows_done: RowsDone) -> CommitMessage:
    """Write the new files of a packing and return the message. A failure removes the files."""
    if packing.joined:
        return _pack_row_ranges(context, packing, rows_done)
    if context.options.row_tracking_enabled:
        # The rows keep their ids.
        context = replace(context, schema=with_tracking_columns(context.schema))
    writers: list[RollingWriter] = []
    after: list[DataFile] = []
    place = new_place(context, context.partitions.path(packing.partition), packing.bucket)
    shape = replace(data_shape(context.schema, context.options), source=FileSource.COMPACT)
    try:
        for group in packing.groups:
            writer = RollingWriter(place, shape)
            writers.append(writer)
            after += _pack(context, packing, group, writer, rows_done)
    except BaseException:
        for writer in writers:
            # A file that cannot be removed is an orphan; report the original error instead.
            with suppress(LakecoreError, OSError):
                writer.abort()
        raise
    return rewritten(context, packing, after)


def rewritten(context: TableContext, work: Rewrite, after: Sequence[DataFile]) -> CommitMessage:
    """The message of a compaction that replaces the files of `work` by the files `after`."""
    return CommitMessage(
        partition=work.partition,
        bucket=work.bucket,
        total_buckets=work.total_buckets,
        compact_before=work.files,
        compact_after=tuple(after),
        compact_schema_id=context.schema.id,
        vectors_read=tuple(
            (file.name, work.vectors[file.name][0].name if file.name in work.vectors else None)
            for file in work.files
        ),
        base_snapshot_id=work.base_snapshot_id,
    )


def _pack(
    context: TableContext,
    packing: Packing,
    group: Group,
    writer: RollingWriter,
    rows_done: RowsDone,
) -> list[DataFile]:
    source = TableSource(
        context=context, snapshot=None, table_schema=context.schema, as_stored=True
    )
    splits = [alone(context, packing, file) for file in group]
    plan = replace(source.read_plan(splits, None), checks=Checks.ALWAYS)
    first = min(file.sequence_min for file in group)
    written = 0
    with reading(source.read(splits, plan)) as batches:
        for batch in batches:
            writer.write(pa.Table.from_batches([batch]), first + written)
            written += batch.num_rows
            rows_done(batch.num_rows)
    stored = sum(file.row_count for file in group)
    marked = any(file.name in packing.vectors for file in group)
    assert written == stored or (marked and written < stored), "not all rows were packed"
    rows_done(stored - written)
    files = writer.close()
    if packing.total_buckets <= 0:
        return list(files)
    # Concurrent writers may have assigned the same range of numbers.
    last = max(file.sequence_max for file in group)
    return [
        replace(
            file,
            sequence_min=min(file.sequence_min, last),
            sequence_max=min(file.sequence_max, last),
        )
        for file in files
    ]


class Rewrite(Protocol):
    """Files of a bucket that a compaction rewrites."""

    @property
    def partition(self) -> bytes: ...
    @property
    def bucket(self) -> int: ...
    @property
    def total_buckets(self) -> int: ...
    @property
    def vectors(self) -> Vectors: ...
    @property
    def files(self) -> tuple[DataFile, ...]: ...
    @property
    def base_snapshot_id(self) -> int | None: ...


def alone(context: TableContext, packing: Rewrite, file: DataFile) -> Split:
    """A split of one file."""
    return Split(
        partition=packing.partition,
        partition_path=context.partitions.path(packing.partition),
        bucket=packing.bucket,
        total_buckets=packing.total_buckets,
        runs=((file,),),
        raw=True,
        vectors={file.name: packing.vectors[file.name]} if file.name in packing.vectors else {},
    )


# --- pack row ranges -----------------------------------------------------------------------------
# Compaction of a table with data evolution: files with adjacent row ids become one file.
#
# https://paimon.apache.org/docs/master/append-table/data-evolution/
#
# 1. `plan_row_ranges` groups the files of a bucket that hold columns of the same rows. In order of
#    the row ids, groups with adjacent row ids are joined until they have the target size. A group
#    that is larger than that is not joined. A `Packing` needs `compaction.min.file-num` files, or
#    two if the compaction is full.
# 2. `pack_files` writes all columns of these rows to one file with the same row ids.
#
# Files of BLOB values are not rewritten: a read finds them by their row ids. Deleted rows are
# copied, because each row keeps its position; `compact_work.py` adds their deletion vectors to the
# new file.
#
# The new file has the sequence numbers of the files that it replaces, so that columns which another
# commit writes meanwhile are newer.

_FULL_FILES_MIN = 2


def plan_row_ranges(
    context: TableContext, snapshot: Snapshot, entries: Iterable[ManifestEntry], *, full: bool
) -> list[Packing]:
    """The groups of these live files to join, without BLOB files, by partition and row ids."""
    policy = PackingPolicy.of(context.options)
    files_min = _FULL_FILES_MIN if full else max(policy.files_min, _FULL_FILES_MIN)
    vectors = VectorsOfBuckets(context.history, snapshot)
    found: list[Packing] = []
    for bucket in files_by_bucket(entries, snapshot.id):
        own = vectors.of(bucket.partition, bucket.bucket)
        ranges = _adjacent(bucket.files, policy)
        packings = (_packing(bucket, groups, own, joined=True) for groups in ranges)
        found += [each for each in packings if len(each.files) >= files_min]
    return found


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


def _pack_row_ranges(context: TableContext, work: Packing, rows_done: RowsDone) -> CommitMessage:
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


def _split(context: TableContext, work: Packing, group: tuple[DataFile, ...]) -> Split:
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
