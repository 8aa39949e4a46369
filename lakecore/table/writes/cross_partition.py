"""The partition and bucket of each row, for a table whose primary key lacks partition keys.

1. When the first row arrives, the index of keys is filled. The index maps each key to its *place*:
   its partition and bucket. All keys of the snapshot from which the writer starts are read, level 0
   included, except those of splits whose files are all older than
   `cross-partition-upsert.index-ttl`.
2. For each batch, `plan/bucketing.py` decides what is written where. A key that is new in a
   partition gets a bucket with room; buckets fill up as other dynamic buckets do.
3. The index is updated with the places of new and moved keys.

Nothing of the index is stored in the table, as in Paimon: see "Cross Partitions Upsert" in
https://paimon.apache.org/docs/master/primary-key-table/data-distribution/.

INVARIANT: a key is in one partition. A writer does not know the keys that other writers add
concurrently, so its commit raises CommitConflict if another commit added rows since the snapshot
from which the writer started.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format.binary_row import encode_rows, hash_rows
from lakecore.format.index_files import decode_hashes, encode_hashes
from lakecore.io.spill import SpillDirectory
from lakecore.memory import Budget, Share
from lakecore.model.files import HASH_INDEX, IndexFile, Split
from lakecore.model.rows import VALUE_KIND, RowKind
from lakecore.model.types import Atomic, Field, Root
from lakecore.options import POSTPONE_BUCKET, MergeEngine, TableOptions
from lakecore.plan.bucketing import (
    BUCKETS_MAX,
    NOWHERE,
    Assignment,
    DynamicBucketRule,
    HashIndexState,
    Moves,
    assign_dynamic,
    bucket_ids,
    moves_of,
    new_buckets,
    partition_groups,
    split_by_bucket,
    split_by_partition,
)
from lakecore.plan.partitions import bucket_key_fields
from lakecore.rows.fit import show
from lakecore.table.context import TableContext, crosses_partitions
from lakecore.table.file_reader.split_files import missing_is_corrupt
from lakecore.table.reads.scan import plan_scan
from lakecore.table.reads.source import TableSource
from lakecore.table.splits.read import read_split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakecore.model.manifest import IndexEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.writes.write_start import WriteStart


# --- dynamic index -------------------------------------------------------------------------------
# The hash index of a partition with dynamic buckets, by which a writer assigns keys to buckets.
#
# An index file lists the hashes of the keys of one bucket. A writer loads the index files of a
# partition with its first rows. For each bucket that got new keys, it writes a complete new file.
#
# INVARIANT: the index comes from the snapshot that the messages name. If a concurrent commit
# changed the index, a key could get two buckets. Then the commit of the messages is refused
# (`plan/conflicts.py`, rule 7).


class DynamicIndex:
    """The hash index of a partition; `grown` are the buckets that got new keys."""

    def __init__(self, context: TableContext, partition: bytes, snapshot: Snapshot | None) -> None:
        """The index at a snapshot; empty if there is no snapshot."""
        self._context = context
        self._partition_path = context.partitions.path(partition)
        hashes: dict[int, np.ndarray] = {}
        for entry in context.history.index_entries(snapshot):
            if entry.partition == partition and entry.file.index_type == HASH_INDEX:
                hashes[entry.bucket] = read_hashes(context, entry)
        self._state = HashIndexState.of(hashes)
        self._rule = bucket_rule(context.options)
        self.grown: set[int] = set()

    def assign(self, hashes: np.ndarray) -> Assignment:
        """Assign a bucket to each row by the hash of its key. New keys are added to the index."""
        assignment = assign_dynamic(self._state, hashes, self._rule)
        self._state = assignment.state
        self.grown |= set(assignment.new_hashes)
        return assignment

    def write(self, bucket: int) -> tuple[IndexFile, str]:
        """The new index file of a bucket, and its path."""
        context = self._context
        data, file = encode_hashes(self._state.hashes_of(bucket), context.ambient.new_uuid())
        path = context.layout.index_file(file.name, self._partition_path, bucket)
        context.store.put(path, data)
        return file, path


def read_hashes(context: TableContext, entry: IndexEntry) -> np.ndarray:
    """The hashes of a hash index file. Raises CorruptTable if the file is missing or damaged."""
    partition_path = context.partitions.path(entry.partition)
    path = context.layout.live_index_file(partition_path, entry.bucket, entry.file)
    with missing_is_corrupt(path):
        return decode_hashes(context.store.read(path), entry.file, path)


def bucket_rule(options: TableOptions) -> DynamicBucketRule:
    """The largest size and the largest number of dynamic buckets."""
    most = options.dynamic_bucket_max_buckets
    return DynamicBucketRule(
        target_row_count=options.dynamic_bucket_target_row_num,
        buckets_max=None if most < 0 else most,
        initial_buckets=options.dynamic_bucket_initial_buckets or 1,
    )


# --- key index -----------------------------------------------------------------------------------
# The place of each key of a table: an exact index with bounded memory.
#
# A key is the bytes of its BinaryRow. A place is a number that stands for the partition and bucket
# of a key. Keys are spread over shards by their hash. A shard holds sorted runs: the hashes in
# ascending order, and for each hash the key and the place. Comparing the keys distinguishes those
# with equal hashes. A run is at least twice as large as the next one, so that the cost of adding a
# batch depends on the batch, not on the index.
#
# Runs in memory hold a lease of the budget. When the lease cannot grow, the runs are moved to
# memory-mapped files, whose pages the operating system reads and drops as needed.
#
# INVARIANT: a key is in one run of one shard. If a key moves, its place in that run is changed.

UNKNOWN = -1
"""The place of a key that is not in the index."""
_SHARD_BITS = 6
_LEASE_STEP_BYTES = 4 << 20
_UNLEASED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Keys in ascending order of their hashes; `places` may change."""

    hashes: NDArray[np.int32]
    places: NDArray[np.int64]
    keys: pa.LargeBinaryArray
    size_bytes: int
    """Bytes in memory; 0 if the run is in files."""

    def __len__(self) -> int:
        return len(self.hashes)

    def find(
        self, hashes: NDArray[np.int32], keys: pa.LargeBinaryArray
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The indices of the keys that are in the run, and their positions in the run."""
        low = np.searchsorted(self.hashes, hashes, side="left")
        count = np.searchsorted(self.hashes, hashes, side="right") - low
        asked = np.repeat(np.arange(len(hashes)), count)
        starts = np.repeat(low - (np.cumsum(count) - count), count)
        at = starts + np.arange(len(asked))
        if not len(asked):
            return asked, at
        same = pc.equal(self.keys.take(pa.array(at)), keys.take(pa.array(asked)))
        mask = same.to_numpy(zero_copy_only=False)
        return asked[mask], at[mask]


class KeyIndex:
    """The place (partition and bucket) of each key. The index must be closed."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._lease = budget.acquire(0)
        self._files = SpillDirectory()
        self._shards: list[list[_Run]] = [[] for _ in range(1 << _SHARD_BITS)]

    def __len__(self) -> int:
        return sum(len(run) for runs in self._shards for run in runs)

    @property
    def size_bytes(self) -> int:
        """Bytes of the runs in memory."""
        return sum(run.size_bytes for runs in self._shards for run in runs)

    def find(self, hashes: NDArray[np.int32], keys: pa.LargeBinaryArray) -> NDArray[np.int64]:
        """The place of each key, or `UNKNOWN`."""
        places = np.full(len(hashes), UNKNOWN, np.int64)
        for shard, own in _by_shard(hashes):
            mine, my_keys = hashes[own], keys.take(pa.array(own))
            for run in self._shards[shard]:
                asked, at = run.find(mine, my_keys)
                places[own[asked]] = run.places[at]
        return places

    def move(
        self, hashes: NDArray[np.int32], keys: pa.LargeBinaryArray, places: NDArray[np.int64]
    ) -> None:
        """Change the places of keys that are in the index."""
        for shard, own in _by_shard(hashes):
            mine, my_keys = hashes[own], keys.take(pa.array(own))
            for run in self._shards[shard]:
                asked, at = run.find(mine, my_keys)
                run.places[at] = places[own[asked]]

    def add(
        self, hashes: NDArray[np.int32], keys: pa.LargeBinaryArray, places: NDArray[np.int64]
    ) -> None:
        """Add keys that are not in the index, each once."""
        for shard, own in _by_shard(hashes):
            order = own[np.argsort(hashes[own], kind="stable")]
            runs = self._shards[shard]
            runs.append(_run(hashes[order], places[order], keys.take(pa.array(order))))
            while len(runs) > 1 and len(runs[-2]) < 2 * len(runs[-1]):
                newer, older = runs.pop(), runs.pop()
                runs.append(_merged(older, newer))
        self._make_room()

    def close(self) -> None:
        """Forget all keys, and delete the files."""
        self._shards = [[] for _ in self._shards]
        self._files.close()
        self._lease.release()

    def _make_room(self, *, always: bool = False) -> None:
        """Move all runs to files if they take too much memory, or always."""
        held = self.size_bytes
        wanted = -(-held // _LEASE_STEP_BYTES) * _LEASE_STEP_BYTES
        limit = Share.KEY_INDEX.of(self._budget.size_bytes)
        small = held <= _UNLEASED_BYTES or (held <= limit and self._lease.resize(wanted))
        if small and not always:
            return
        for runs in self._shards:
            runs[:] = [self._mapped(run) for run in runs]
        self._lease.resize(0)

    def _mapped(self, run: _Run) -> _Run:
        if not run.size_bytes:
            return run
        _, offsets, data = run.keys.buffers()
        ends = np.frombuffer(offsets, np.int64)[run.keys.offset :][: len(run) + 1]
        content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        content = content[ends[0] : ends[-1]]
        return _Run(
            self._files.mapped(run.hashes),
            self._files.mapped(run.places),
            _keys(self._files.mapped(ends - ends[0]), self._files.mapped(content)),
            0,
        )


def _by_shard(hashes: NDArray[np.int32]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """For each shard that gets some of the keys: the shard, and the indexes of these keys."""
    shards = (hashes.view(np.uint32) >> np.uint32(32 - _SHARD_BITS)).astype(np.int64)
    order = np.argsort(shards, kind="stable")
    bounds = np.flatnonzero(np.diff(shards[order])) + 1
    for own in np.split(order, bounds):
        if len(own):
            yield int(shards[own[0]]), own


def _keys(offsets: NDArray[np.int64], content: NDArray[np.uint8]) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _run(hashes: NDArray[np.int32], places: NDArray[np.int64], keys: pa.LargeBinaryArray) -> _Run:
    return _Run(hashes, places, keys, hashes.nbytes + places.nbytes + keys.nbytes)


def _merged(older: _Run, newer: _Run) -> _Run:
    hashes = np.concatenate([older.hashes, newer.hashes])
    order = np.argsort(hashes, kind="stable")
    keys = pa.concat_arrays([older.keys, newer.keys]).take(pa.array(order))
    return _run(hashes[order], np.concatenate([older.places, newer.places])[order], keys)


# --- cross partition -----------------------------------------------------------------------------

_BUCKET_BITS = 16
_BUCKET_MASK = (1 << _BUCKET_BITS) - 1


class CrossPartition:
    """Routes the rows of one writer. The router must be closed."""

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
        numbers = coded.indices.to_numpy().astype(np.int64)
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


# --- routing -------------------------------------------------------------------------------------
# The partition and the bucket of each row of a writer.
#
# - keys that may move between partitions: `cross_partition.py`;
# - fixed buckets: the hash of the bucket key, by the bucket count of the partition;
# - dynamic buckets: the hash index of the partition;
# - postponed buckets: the postponed bucket, or real buckets if the writer knows their number;
# - no buckets: bucket 0.
#
# INVARIANT: the bucket of a row is computed with the bucket count of its partition. A write to a
# partition that has another bucket count than the table is refused.


@dataclass(frozen=True, slots=True, kw_only=True)
class RealBuckets:
    """The number of real buckets of partitions whose buckets are postponed.

    A partition that is not `known` gets the `default` number. Without a default, its rows go to the
    postponed bucket.
    """

    known: Mapping[bytes, int]
    default: int | None = None

    def count(self, partition: bytes) -> int:
        """The number of buckets of a partition; `POSTPONE_BUCKET` if it is not known."""
        return self.known.get(partition) or self.default or POSTPONE_BUCKET


class Routing:
    """Routes the rows of one writer. `base` returns the facts of the table that it starts from.

    `real`: the real buckets of a table with postponed buckets; None: all rows are postponed.
    """

    def __init__(
        self,
        context: TableContext,
        base: Callable[[], WriteStart],
        *,
        overwrite: bool,
        real: RealBuckets | None,
    ) -> None:
        self._context = context
        self._base = base
        self._overwrite = overwrite
        self._real = real
        self.indexes: dict[bytes, DynamicIndex] = {}
        self._crosses = crosses_partitions(context)
        self._keys: CrossPartition | None = None

    def count(self, partition: bytes) -> int:
        """The number of buckets of a partition; less than 1 if they are not fixed."""
        return self._context.options.bucket if self._real is None else self._real.count(partition)

    def route(self, rows: pa.Table) -> Iterator[tuple[bytes, int, pa.Table]]:
        """The rows of each partition and bucket, in order of arrival."""
        if self._crosses:
            if self._keys is None:
                # An overwrite replaces all rows of such a table.
                snapshot = None if self._overwrite else self._base().snapshot
                self._keys = CrossPartition(self._context, snapshot)
            yield from self._keys.route(rows)
            return
        for partition, part in split_by_partition(rows, self._context.schema.partition_fields):
            if self.count(partition) == POSTPONE_BUCKET:
                yield partition, POSTPONE_BUCKET, part
                continue
            ids, count = self._bucket_ids(partition, part)
            if ids is None:
                yield partition, 0, part
                continue
            for number, own in split_by_bucket(ids, count).cut(part):
                yield partition, number, own

    def forget(self, *, keeps_index: bool) -> bool:
        """Forget the indexes; with `keeps_index`, only which buckets got new keys.

        Returns whether the indexes are kept.
        """
        if not (keeps_index and (self.indexes or self._keys is not None)):
            self.indexes = {}
            if self._keys is not None:
                self._keys.close()
                self._keys = None
            return False
        for index in self.indexes.values():
            index.grown = set()
        return True

    @property
    def keeps_keys(self) -> bool:
        """Whether the writer holds an index of all keys, which is slow to build again."""
        return self._keys is not None

    def _bucket_ids(self, partition: bytes, rows: pa.Table) -> tuple[np.ndarray | None, int]:
        """The bucket of each row (None: always bucket 0), and a number above all bucket numbers."""
        schema, options, count = self._context.schema, self._context.options, self.count(partition)
        self._check_bucket_count(partition, count)
        if count > 0:
            if count == 1:
                return None, 1
            fields = bucket_key_fields(schema, options)
            columns = [rows.column(field.name).combine_chunks() for field in fields]
            types = [field.type for field in fields]
            return bucket_ids(columns, types, count, options.bucket_function_type), count
        if not schema.primary_keys:
            return None, 1
        index = self.indexes.get(partition)
        if index is None:
            snapshot = None if self._overwrite else self._base().snapshot
            index = self.indexes[partition] = DynamicIndex(self._context, partition, snapshot)
        fields = schema.key_fields
        columns = [rows.column(field.name).combine_chunks() for field in fields]
        assignment = index.assign(hash_rows(columns, [field.type for field in fields]))
        return assignment.buckets, int(assignment.buckets.max()) + 1

    def _check_bucket_count(self, partition: bytes, count: int) -> None:
        written = self._base().bucket_counts.get(partition)
        if written is not None and written != count and not self._overwrite:
            raise InvalidRequest(
                "the partition was written with another number of buckets: rescale or overwrite "
                "it, or set the option bucket back",
                table=self._context.identifier,
                partition=dict(self._context.partitions.texts(partition)),
                buckets=written,
                option_bucket=count,
            )
