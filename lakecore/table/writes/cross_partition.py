"""The partition and bucket of each row, for a table whose primary key lacks partition keys.

1. When the first row arrives, the index of keys is filled. It maps each key to its *place*: its
   partition and bucket. All keys of the snapshot from which the writer starts are read, level 0
   included, except those of splits whose files are all older than
   `cross-partition-upsert.index-ttl`.
2. For each batch, `plan/key_moves.py` decides what is written where. A key that is new in a
   partition gets a bucket with room; buckets fill up as other dynamic buckets do.
3. The index is updated with the places of new and moved keys.

Nothing of the index is stored in the table, as in Paimon: see "Cross Partitions Upsert" in
https://paimon.apache.org/docs/master/primary-key-table/data-distribution/.

INVARIANT: a key is in one partition. A writer does not know the keys that others write meanwhile.
Its commit raises CommitConflict if others added rows since the snapshot from which it started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import CorruptTable, Unsupported
from lakecore.format.binary_row import encode_rows, hash_rows
from lakecore.model.rows import VALUE_KIND, RowKind
from lakecore.model.types import Atomic, Root
from lakecore.options import MergeEngine
from lakecore.plan.bucketing import partition_groups, split_by_bucket
from lakecore.plan.dynamic_bucket import BUCKETS_MAX, new_buckets
from lakecore.plan.key_moves import NOWHERE, moves_of
from lakecore.rows.fit import show
from lakecore.table.reads.scan import plan_scan
from lakecore.table.reads.source import TableSource
from lakecore.table.splits.read import read_split
from lakecore.table.writes.dynamic_index import bucket_rule
from lakecore.table.writes.key_index import UNKNOWN, KeyIndex

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from lakecore.model.files import Split
    from lakecore.model.snapshot import Snapshot
    from lakecore.model.types import Field
    from lakecore.plan.key_moves import Moves
    from lakecore.table.context import TableContext

_BUCKET_BITS = 16
_BUCKET_MASK = (1 << _BUCKET_BITS) - 1


class CrossPartition:
    """Routes the rows of one writer. It must be closed."""

    def __init__(self, context: TableContext, snapshot: Snapshot | None) -> None:
        """Start with the keys of a snapshot; None stands for an empty table."""
        options = context.options
        if options.ignore_delete and options.merge_engine is MergeEngine.DEDUPLICATE:
            raise Unsupported(
                "a key cannot move to another partition if the table ignores deletions",
                option="ignore-delete",
                table=context.identifier,
            )
        if any(_is_char(context.schema.field(name)) for name in context.schema.primary_keys):
            raise Unsupported(
                "a CHAR column cannot be in the primary key if it lacks partition keys: some file "
                "formats do not return trailing blanks",
                primary_key=context.schema.primary_keys,
                table=context.identifier,
            )
        self._context = context
        self._rule = bucket_rule(context.options)
        self._partitions: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._counts: list[NDArray[np.int64]] = []
        self._index = KeyIndex(context.budget)
        try:
            self._fill(snapshot)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Forget the keys."""
        self._index.close()

    def route(self, rows: pa.Table) -> Iterator[tuple[bytes, int, pa.Table]]:
        """The rows to write to each partition and bucket, in order."""
        if not rows.num_rows:
            return
        schema = self._context.schema
        own = np.empty(rows.num_rows, np.int64)
        for partition, at in partition_groups(rows, schema.partition_fields):
            own[at] = self._number(partition)
        hashes, keys = _keys_of(rows, self._context)
        coded = keys.dictionary_encode()
        numbers = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        distinct = coded.dictionary
        firsts = np.zeros(len(distinct), np.int64)
        firsts[numbers[::-1]] = np.arange(len(numbers))[::-1]
        hashes = hashes[firsts]
        places = self._index.find(hashes, distinct)
        before = np.where(places == UNKNOWN, NOWHERE, places >> _BUCKET_BITS)
        moves = moves_of(numbers, own, before, self._context.options.merge_engine)
        stays = self._places(moves, hashes, places)
        after = stays[moves.last]
        new = np.flatnonzero((places == UNKNOWN) & (after != UNKNOWN))
        self._index.add(hashes[new], distinct.take(pa.array(new)), after[new])
        moved = np.flatnonzero((places != UNKNOWN) & (after != places))
        self._index.move(hashes[moved], distinct.take(pa.array(moved)), after[moved])
        yield from self._cut(rows, own, moves, stays)

    # --- the index -------------------------------------------------------------------------------

    def _fill(self, snapshot: Snapshot | None) -> None:
        context = self._context
        source = TableSource(context=context, snapshot=snapshot, table_schema=context.schema)
        splits = plan_scan(source.scan_context, snapshot, shown=list).splits
        splits = tuple(split for split in splits if self._is_young(split))
        plan = source.read_plan(splits, context.schema.primary_keys)
        for split in splits:
            place = self._number(split.partition) << _BUCKET_BITS | split.bucket
            for batch in read_split(split, plan, context.store, context.budget):
                if batch.num_rows:
                    self._learn(pa.Table.from_batches([batch]), place)

    def _is_young(self, split: Split) -> bool:
        """Whether a file of the split is younger than `cross-partition-upsert.index-ttl`."""
        ttl_ms = self._context.options.cross_partition_upsert_index_ttl_ms
        if ttl_ms is None:
            return True
        now_ms = self._context.ambient.local_wall_clock_ms()
        # Files of the oldest Paimon releases do not state their creation time.
        return any((file.creation_time_ms or now_ms) + ttl_ms >= now_ms for file in split.files)

    def _learn(self, rows: pa.Table, place: int) -> None:
        """Add the keys of stored rows that are all in one partition and bucket (`place`)."""
        hashes, keys = _keys_of(rows, self._context)
        known = self._index.find(hashes, keys)
        twice = np.flatnonzero(known != UNKNOWN)
        if len(twice) and self._context.options.cross_partition_upsert_index_ttl_ms is None:
            key = rows.slice(int(twice[0]), 1)
            raise CorruptTable(
                "a key is in two partitions: several writers wrote to a table whose primary key "
                "lacks partition keys",
                table=self._context.identifier,
                key=tuple(show(column[0]) for column in key.columns),
                partitions=[
                    dict(self._context.partitions.texts(self._partitions[each >> _BUCKET_BITS]))
                    for each in (int(known[twice[0]]), place)
                ],
                way_out="with a long cross-partition-upsert.index-ttl, delete one of the rows",
            )
        new = np.flatnonzero(known == UNKNOWN)
        self._count(place >> _BUCKET_BITS, np.full(len(new), place & _BUCKET_MASK))
        self._index.add(hashes[new], keys.take(pa.array(new)), np.full(len(new), place, np.int64))

    def _number(self, partition: bytes) -> int:
        found = self._numbers.get(partition)
        if found is None:
            found = self._numbers[partition] = len(self._partitions)
            self._partitions.append(partition)
            self._counts.append(np.zeros(0, np.int64))
        return found

    def _count(self, partition: int, buckets: NDArray[np.int64]) -> None:
        """Count keys that are new in these buckets of a partition."""
        if not len(buckets):
            return
        counts = self._counts[partition]
        added = np.bincount(buckets, minlength=len(counts))
        grown = np.full(len(added), -1, np.int64)
        grown[: len(counts)] = counts
        grown[(grown < 0) & (added > 0)] = 0
        self._counts[partition] = grown + added

    def _places(
        self, moves: Moves, hashes: NDArray[np.int32], places: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The place (partition and bucket) of each key that stays.

        New keys get buckets with room.
        """
        new = np.empty(len(moves.new_keys), np.int64)
        for partition in np.unique(moves.new_partitions).tolist():
            own = np.flatnonzero(moves.new_partitions == partition)
            counts = np.full(BUCKETS_MAX + 1, -1, np.int64)
            known = self._counts[partition]
            counts[: len(known)] = known
            buckets = new_buckets(counts, hashes[moves.new_keys[own]], self._rule)
            self._count(partition, buckets.astype(np.int64))
            new[own] = partition << _BUCKET_BITS | buckets
        stays = np.concatenate([new, places])
        for partition, bucket in _parts(stays[moves.left]):
            self._counts[partition][bucket] -= 1
        return stays

    # --- the rows --------------------------------------------------------------------------------

    def _cut(
        self, rows: pa.Table, own: NDArray[np.int64], moves: Moves, stays: NDArray[np.int64]
    ) -> Iterator[tuple[bytes, int, pa.Table]]:
        """The rows to write to each partition and bucket."""
        if len(moves.rows) != rows.num_rows or (moves.rows[1:] < moves.rows[:-1]).any():
            written = rows.take(pa.array(moves.rows))
        else:
            written = rows
        if (moves.partitions != own[moves.rows]).any():
            written = self._in_partitions(written, moves.partitions)
        if moves.deletes.any():
            at = written.schema.get_field_index(VALUE_KIND)
            kinds = written.column(at).to_numpy()
            kinds = np.where(moves.deletes, np.int8(RowKind.DELETE), kinds)
            written = written.set_column(at, VALUE_KIND, pa.array(kinds, pa.int8()))
        found, groups = np.unique(stays[moves.stays], return_inverse=True)
        parts = _parts(found)
        for group, part in split_by_bucket(groups.astype(np.int32), len(found)).cut(written):
            partition, bucket = parts[group]
            yield self._partitions[partition], bucket, part

    def _in_partitions(self, rows: pa.Table, partitions: NDArray[np.int64]) -> pa.Table:
        """The rows with the values of these partitions."""
        distinct, places = np.unique(partitions, return_inverse=True)
        values = self._context.partitions.values([self._partitions[at] for at in distinct])
        for name in self._context.schema.partition_keys:
            at = rows.schema.get_field_index(name)
            column = values.column(name).take(pa.array(places)).cast(rows.schema.field(at).type)
            rows = rows.set_column(at, rows.schema.field(at), column)
        return rows


def _is_char(field: Field) -> bool:
    return isinstance(field.type, Atomic) and field.type.root is Root.CHAR


def _parts(places: NDArray[np.int64]) -> Sequence[tuple[int, int]]:
    """The partition number and the bucket that each place stands for."""
    return list(
        zip((places >> _BUCKET_BITS).tolist(), (places & _BUCKET_MASK).tolist(), strict=True)
    )


def _keys_of(
    rows: pa.Table, context: TableContext
) -> tuple[NDArray[np.int32], pa.LargeBinaryArray]:
    """The hash and the bytes of the primary key of each row."""
    fields = [context.schema.field(name) for name in context.schema.primary_keys]
    columns = [rows.column(field.name).combine_chunks() for field in fields]
    types = [field.type for field in fields]
    encoded = encode_rows(columns, types)
    buffers = [None, pa.py_buffer(encoded.offsets), pa.py_buffer(encoded.data)]
    keys = pa.LargeBinaryArray.from_buffers(pa.large_binary(), rows.num_rows, buffers)
    return hash_rows(columns, types), keys
