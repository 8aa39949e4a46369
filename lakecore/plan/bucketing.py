"""The partition and the bucket of each row of a batch, vectorised.

1. `partition_groups` finds the rows of each partition;
2. `bucket_ids` gives each row its fixed bucket, from the hash of its bucket key
   (https://paimon.apache.org/docs/master/concepts/spec/datafile/#bucket);
3. `split_by_bucket` gives the permutation by which one `take` cuts the batch.

INVARIANT: rows of one partition and bucket keep their order, because later rows win.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.format.binary_row import encode_rows, hash_rows
from lakecore.model.arrow_arrays import byte_ranges, conform, decimal_limbs, fixed_width, size_of
from lakecore.model.files import EMPTY_ROW
from lakecore.model.types import BINARIES, STRINGS, Atomic, DataType, Field, Root
from lakecore.options import BucketFunction, MergeEngine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


# --- dynamic bucket ------------------------------------------------------------------------------
# Dynamic buckets: a known key keeps its bucket, and a new key gets a bucket that has room.
#
# For each partition, given the hashes of the trimmed primary keys in order of arrival
# (https://paimon.apache.org/docs/master/primary-key-table/data-distribution/#dynamic-bucket):
#
# 1. a known hash keeps its bucket, and equal hashes share a bucket;
# 2. new hashes fill the existing buckets, by number, up to the target size;
# 3. then they fill new buckets with the smallest unused numbers, each up to the target size;
# 4. if the maximum number of buckets is reached, they are spread over all buckets by hash.
#
# With several assigners (`dynamic-bucket.initial-buckets`) the hash h belongs to assigner |h| % n,
# which fills the buckets b where b % n is its number: n buckets grow concurrently, and n processes
# can assign concurrently if each gets the keys of its own assigner. INVARIANT: a hash never changes
# its bucket; otherwise its key would be stored twice. A bucket counts all hashes it ever got:
# deleting rows makes no room.

BUCKETS_MAX = 32_767
"""The format stores bucket numbers as signed 16-bit integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicBucketRule:
    """The target size of buckets, their maximum number, and how many grow at the same time.

    `buckets_max`: None means as many as the format allows.
    """

    target_row_count: int = 2_000_000
    buckets_max: int | None = None
    initial_buckets: int = 1

    def __post_init__(self) -> None:
        if min(self.target_row_count, self.bound, self.initial_buckets) < 1:
            raise InvalidRequest("the options of dynamic buckets must be positive", rule=self)

    @property
    def bound(self) -> int:
        """An exclusive upper bound of the bucket numbers."""
        return BUCKETS_MAX if self.buckets_max is None else min(self.buckets_max, BUCKETS_MAX)

    @property
    def assigners(self) -> int:
        """The number of buckets that grow at the same time."""
        return min(self.initial_buckets, self.bound)


@dataclass(frozen=True, slots=True, eq=False)
class HashRun:
    """Hashes in ascending order, each once, and their buckets."""

    hashes: NDArray[np.int32]
    buckets: NDArray[np.int16]


@dataclass(frozen=True, slots=True, eq=False)
class HashIndexState:
    """The hash index of one partition.

    `counts[b]` is the number of hashes in bucket b, or -1 if the bucket does not exist. The hashes
    are held in sorted runs without common hashes. Each run is at least twice as large as the next,
    so that the cost of adding a batch depends on the batch, not on the index.
    """

    runs: tuple[HashRun, ...] = ()
    counts: NDArray[np.int64] = field(default_factory=lambda: np.full(BUCKETS_MAX + 1, -1))

    @staticmethod
    def of(hashes: Mapping[int, NDArray[np.int32]]) -> HashIndexState:
        """Build the state from the index files of a partition's buckets."""
        if not hashes:
            return HashIndexState()
        if not 0 <= min(hashes) <= max(hashes) <= BUCKETS_MAX:
            raise CorruptTable("a hash index names no dynamic bucket", buckets=sorted(hashes))
        counts = HashIndexState().counts
        for bucket, own in hashes.items():
            counts[bucket] = len(own)
        buckets = np.concatenate(
            [np.full(len(own), bucket, dtype=np.int16) for bucket, own in sorted(hashes.items())]
        )
        joined = np.concatenate([own for _, own in sorted(hashes.items())]).astype(np.int32)
        distinct, firsts = np.unique(joined, return_index=True)
        return HashIndexState((HashRun(distinct, buckets[firsts]),), counts)

    def buckets_of(self, hashes: NDArray[np.int32]) -> NDArray[np.int32]:
        """The bucket of each hash, -1 if it is not known."""
        found = np.full(len(hashes), -1, dtype=np.int32)
        for run in self.runs:
            if len(run.hashes):
                at = np.minimum(np.searchsorted(run.hashes, hashes), len(run.hashes) - 1)
                found = np.where(run.hashes[at] == hashes, run.buckets[at], found)
        return found

    def hashes_of(self, bucket: int) -> NDArray[np.int32]:
        """All hashes of a bucket: the content of its index file."""
        parts = [run.hashes[run.buckets == bucket] for run in self.runs]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)

    def with_run(self, run: HashRun) -> HashIndexState:
        """The state with additional hashes, which must be new."""
        runs = [*self.runs, run]
        while len(runs) > 1 and len(runs[-2].hashes) < 2 * len(runs[-1].hashes):
            newer, older = runs.pop(), runs.pop()
            hashes = np.concatenate([older.hashes, newer.hashes])
            order = np.argsort(hashes, kind="stable")
            buckets = np.concatenate([older.buckets, newer.buckets])
            runs.append(HashRun(hashes[order], buckets[order]))
        counts = self.counts.copy()
        added = np.bincount(run.buckets, minlength=len(counts))
        counts[(counts < 0) & (added > 0)] = 0
        return HashIndexState(tuple(runs), counts + added)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignment:
    """The bucket of each row, the index afterwards, and the hashes that are new in each bucket."""

    buckets: NDArray[np.int32]
    state: HashIndexState
    new_hashes: Mapping[int, NDArray[np.int32]]


def assign_dynamic(
    known: HashIndexState, hashes: NDArray[np.int32], rule: DynamicBucketRule
) -> Assignment:
    """The bucket of each row, by the hash of its trimmed primary key."""
    distinct, firsts, places = np.unique(hashes, return_index=True, return_inverse=True)
    buckets = known.buckets_of(distinct)
    unknown = np.flatnonzero(buckets < 0)
    if not len(unknown):
        return Assignment(buckets=buckets[places], state=known, new_hashes={})
    arrival = unknown[np.argsort(firsts[unknown])]
    buckets[arrival] = new_buckets(known.counts, distinct[arrival], rule)
    run = HashRun(distinct[unknown], buckets[unknown].astype(np.int16))
    new_hashes = {
        int(bucket): run.hashes[run.buckets == bucket] for bucket in np.unique(run.buckets)
    }
    return Assignment(buckets=buckets[places], state=known.with_run(run), new_hashes=new_hashes)


def new_buckets(
    counts: NDArray[np.int64], hashes: NDArray[np.int32], rule: DynamicBucketRule
) -> NDArray[np.int32]:
    """Buckets for hashes that have none, in order of arrival.

    `counts[b]` is the number of keys in bucket b, or -1 if the bucket does not exist.
    """
    buckets = np.empty(len(hashes), dtype=np.int32)
    sizes = np.abs(hashes.astype(np.int64))
    assigners = sizes % rule.assigners
    for assigner in np.unique(assigners):
        own = np.flatnonzero(assigners == assigner)
        buckets[own] = _filled(counts, int(assigner), sizes[own], rule)
    return buckets


def _filled(
    counts: NDArray[np.int64], assigner: int, sizes: NDArray[np.int64], rule: DynamicBucketRule
) -> NDArray[np.int64]:
    """The buckets that one assigner gives to its new hashes.

    `sizes` are absolute values of the hashes.
    """
    known = np.flatnonzero(counts >= 0)
    used = known[known % rule.assigners == assigner]
    room = np.maximum(rule.target_row_count - counts[used], 0)
    missing = max(len(sizes) - int(room.sum()), 0)
    candidates = np.arange(assigner, rule.bound, rule.assigners)
    unused = candidates[counts[candidates] < 0]
    fresh = unused[: -(-missing // rule.target_row_count)]
    buckets = np.concatenate([used, fresh])
    bounds = np.cumsum(np.concatenate([room, np.full(len(fresh), rule.target_row_count)]))
    at = np.searchsorted(bounds, np.arange(len(sizes)), side="right")
    over = at == len(buckets)
    if over.any():
        if rule.buckets_max is None:
            raise InvalidRequest(
                "too many dynamic buckets: raise dynamic-bucket.target-row-num or set max-buckets",
                target_row_num=rule.target_row_count,
                buckets=BUCKETS_MAX,
            )
        at[over] = sizes[over] % len(buckets)
    return buckets[at]


# --- hive hash -----------------------------------------------------------------------------------
# The hash of Hive's buckets, for tables with `bucket-function.type=hive`.
#
# A row's hash folds its fields as `31 * hash + field`; null counts as 0. Arithmetic wraps in 32
# bits.

_CHUNK_ROWS = 1 << 16
_31 = np.uint32(31)
_LOW = np.uint64(0xFFFFFFFF)
_SMALL = {Root.TINYINT: "i1", Root.SMALLINT: "i2", Root.INT: "i4", Root.DATE: "i4", Root.TIME: "i4"}


def hive_hash_rows(columns: Sequence[pa.Array], types: Sequence[DataType]) -> NDArray[np.uint32]:
    """The Hive hash of each row, as unsigned 32-bit numbers."""
    rows = len(columns[0])
    out = np.zeros(rows, dtype=np.uint32)
    for start in range(0, rows, _CHUNK_ROWS):
        part = out[start : start + _CHUNK_ROWS]
        for column, data_type in zip(columns, types, strict=True):
            array = conform(column.slice(start, len(part)), data_type)
            part *= _31
            hashes = _hash(array, data_type)
            if array.null_count:
                hashes = np.where(pc.is_null(array), np.uint32(0), hashes)
            part += hashes
    return out


def _hash(array: pa.Array, data_type: DataType) -> NDArray[np.uint32]:
    match data_type:
        case Atomic(root=Root.BOOLEAN):
            return fixed_width(array.cast("uint8"), "u1").astype(np.uint32)
        case Atomic(root=root) if root in _SMALL:
            return fixed_width(array, _SMALL[root]).astype(np.int32).view(np.uint32)
        case Atomic(root=Root.BIGINT):
            return _folded(fixed_width(array, "u8").view(np.uint64))
        case Atomic(root=Root.FLOAT):
            return _canonical(fixed_width(array, "f4").view(np.float32)).view(np.uint32)
        case Atomic(root=Root.DOUBLE):
            return _folded(_canonical(fixed_width(array, "f8").view(np.float64)).view(np.uint64))
        case Atomic(root=root) if root in STRINGS or root in BINARIES:
            return _text_hash(array)
        case Atomic(root=Root.DECIMAL, scale=scale):
            return _decimal_hash(array, scale or 0)
    raise Unsupported("the bucket function hive does not take this type", type=data_type)


def _folded(bits: NDArray[np.uint64]) -> NDArray[np.uint32]:
    return (bits ^ (bits >> np.uint64(32))).astype(np.uint32)


def _canonical(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Negative zero as positive zero, and every NaN as the same NaN."""
    positive = np.where(values == 0, values.dtype.type(0), values)
    return np.where(np.isnan(values), values.dtype.type(np.nan), positive)


def _text_hash(array: pa.Array) -> NDArray[np.uint32]:
    """The hash of bytes b0 to bn: the sum of all `bi * 31**(n - i)`.

    Each hash is a difference of one running sum over the bytes of all values.
    """
    content, starts, lengths = byte_ranges(array)
    ends = starts + lengths
    powers = np.full(int(lengths.max(initial=0)) + 1, _31)
    powers[0] = 1
    np.multiply.accumulate(powers, out=powers)
    terms = content.view(np.int8).astype(np.int32).view(np.uint32)
    terms *= powers[np.repeat(ends - 1, lengths) - np.arange(len(content))]
    sums = np.zeros(len(content) + 1, dtype=np.uint32)
    np.cumsum(terms, dtype=np.uint32, out=sums[1:])
    hashes: NDArray[np.uint32] = sums[ends] - sums[starts]
    return hashes


def _decimal_hash(array: pa.Array, scale: int) -> NDArray[np.uint32]:
    """The hash of decimals: 31 * (hash of the unscaled integer) + scale.

    Trailing zeros of the fraction are removed first.
    """
    low, high = decimal_limbs(array)
    negative = high < 0
    limbs = _magnitude(low, high.view(np.uint64), negative)
    scales = np.where(limbs.any(axis=0), scale, 0)
    active = np.flatnonzero(scales)
    while len(active):
        quotients, rest = _tenth(limbs[:, active])
        ends_in_zero = rest == 0
        active = active[ends_in_zero]
        limbs[:, active] = quotients[:, ends_in_zero]
        scales[active] -= 1
        active = active[scales[active] > 0]
    unscaled = np.zeros(len(low), dtype=np.uint32)
    for limb in limbs:
        unscaled *= _31
        unscaled += limb.astype(np.uint32)
    signed = np.where(negative, np.uint32(0) - unscaled, unscaled)
    return signed * _31 + scales.astype(np.uint32)


def _magnitude(
    low: NDArray[np.uint64], high: NDArray[np.uint64], negative: NDArray[np.bool_]
) -> NDArray[np.uint64]:
    """The absolute values as four 32-bit limbs, highest first."""
    flip = np.where(negative, ~np.uint64(0), np.uint64(0))
    bottom = (low ^ flip) + negative.astype(np.uint64)
    top = (high ^ flip) + (negative & (bottom == 0)).astype(np.uint64)
    shift = np.uint64(32)
    return np.stack([top >> shift, top & _LOW, bottom >> shift, bottom & _LOW])


def _tenth(limbs: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Quotients and remainders of a division by ten, limb by limb."""
    quotients = np.empty_like(limbs)
    rest = np.zeros(limbs.shape[1], dtype=np.uint64)
    for place, limb in enumerate(limbs):
        dividend = (rest << np.uint64(32)) | limb
        quotients[place] = dividend // np.uint64(10)
        rest = dividend % np.uint64(10)
    return quotients, rest


# --- key moves -----------------------------------------------------------------------------------
# Where each row of a batch goes in a table whose keys may move between partitions.
#
# The primary key of such a table does not contain all partition keys. Each key is in at most one
# partition and bucket. If a row's key is in another partition, the merge engine decides what
# happens ("Cross Partitions Upsert" in
# https://paimon.apache.org/docs/master/primary-key-table/data-distribution/):
#
# - deduplicate: the key is deleted in its partition, then the row goes to its own partition;
# - partial-update and aggregation: the row goes to the partition that the key is in;
# - first-row: the row is ignored.
#
# A *stay* is the time that a key spends in one partition and bucket, between two moves. Stays 0 to
# n - 1 are new, and the caller gives each a bucket; stay n + k is where key k was before the batch.

NOWHERE = -1
"""Stands for the partition of a key that is not in the table."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moves:
    """What is written for a batch, in order.

    - `rows`: for each written row, the row of the batch that it comes from;
    - `partitions`: for each written row, the partition that stores it;
    - `stays`: for each written row, the stay of its key;
    - `deletes`: for each written row, whether it deletes its key in that partition;
    - `new_partitions`, `new_keys`: partition and key of each new stay, in order of arrival;
    - `left`: the stays that ended in this batch;
    - `last`: the stay of each key after the batch.
    """

    rows: NDArray[np.int64]
    partitions: NDArray[np.int64]
    stays: NDArray[np.int64]
    deletes: NDArray[np.bool_]
    new_partitions: NDArray[np.int64]
    new_keys: NDArray[np.int64]
    left: NDArray[np.int64]
    last: NDArray[np.int64]


def moves_of(
    keys: NDArray[np.int64],
    partitions: NDArray[np.int64],
    before: NDArray[np.int64],
    engine: MergeEngine,
) -> Moves:
    """What to write for rows in order of arrival.

    `keys` numbers the key of each row from 0, `partitions` are their partitions, and `before` is
    the partition of each key before the batch, or `NOWHERE`.
    """
    order = np.argsort(keys, kind="stable")
    key, partition = keys[order], partitions[order]
    first = np.ones(len(key), np.bool_)
    first[1:] = key[1:] != key[:-1]
    if engine is MergeEngine.DEDUPLICATE:
        previous = np.where(first, before[key], np.roll(partition, 1))
        begins = previous != partition
    else:
        # The key never moves: it stays where it is, or where its first row puts it.
        previous = np.full(len(key), NOWHERE)
        begins = first & (before[key] == NOWHERE)
    # The number of the stay of each row: new stays count up in order of arrival.
    new = np.flatnonzero(begins)
    arrival = np.argsort(order[new], kind="stable")
    stay = np.full(len(key), NOWHERE)
    stay[new[arrival]] = np.arange(len(new))
    known = first & ~begins
    stay[known] = len(new) + key[known]
    began = np.maximum.accumulate(np.where(stay != NOWHERE, np.arange(len(key)), 0))
    stay = stay[began]
    new_partitions, new_keys = partition[new[arrival]], key[new[arrival]]
    last = len(new) + np.arange(len(before))
    last[key] = stay  # the last row of a key wins
    if engine is not MergeEngine.DEDUPLICATE:
        place = np.concatenate([new_partitions, before])[stay]
        kept = place == partition if engine is MergeEngine.FIRST_ROW else np.ones(len(key), bool)
        back = np.argsort(order[kept], kind="stable")
        return Moves(
            rows=order[kept][back],
            partitions=place[kept][back],
            stays=stay[kept][back],
            deletes=np.zeros(int(kept.sum()), np.bool_),
            new_partitions=new_partitions,
            new_keys=new_keys,
            left=np.array([], np.int64),
            last=last,
        )
    leaves = np.flatnonzero(begins & (previous != NOWHERE))
    left = np.where(first[leaves], len(new) + key[leaves], np.roll(stay, 1)[leaves])
    # A deletion comes just before the row that moves the key.
    at = np.concatenate([2 * order, 2 * order[leaves] - 1])
    back = np.argsort(at, kind="stable")
    return Moves(
        rows=np.concatenate([order, order[leaves]])[back],
        partitions=np.concatenate([partition, previous[leaves]])[back],
        stays=np.concatenate([stay, left])[back],
        deletes=np.concatenate([np.zeros(len(order), np.bool_), np.ones(len(leaves), np.bool_)])[
            back
        ],
        new_partitions=new_partitions,
        new_keys=new_keys,
        left=left,
        last=last,
    )


# --- bucketing -----------------------------------------------------------------------------------

_OWN_ROWS_MIN = 4_096
_OWN_VALUE_BYTES = 2 << 10
"""Groups with more bytes per column on average are copied separately, which costs little."""


def bucket_ids(
    columns: Sequence[pa.Array],
    types: Sequence[DataType],
    buckets: int,
    function: BucketFunction = BucketFunction.DEFAULT,
) -> NDArray[np.int32]:
    """The bucket of each row, 0 to `buckets` - 1; the columns are those of the bucket key."""
    assert buckets > 0, "only fixed buckets come from the key alone"
    match function:
        case BucketFunction.DEFAULT:
            if buckets == 1:
                return np.zeros(len(columns[0]), dtype=np.int32)
            # NOTE: |h| % n, with 2**31 for |-2**31|, is equal to Java's |h % n|.
            unsigned = np.abs(hash_rows(columns, types)).view(np.uint32)
            return (unsigned % np.uint32(buckets)).astype(np.int32)
        case BucketFunction.MOD:
            return _modulo(columns, types, buckets)
        case BucketFunction.HIVE:
            hashes = hive_hash_rows(columns, types) & np.uint32(0x7FFFFFFF)
            return (hashes % np.uint32(buckets)).astype(np.int32)


def _modulo(
    columns: Sequence[pa.Array], types: Sequence[DataType], buckets: int
) -> NDArray[np.int32]:
    """The bucket as the floor modulo of the value itself; null counts as 0."""
    match types:
        case [Atomic(root=Root.INT | Root.BIGINT)]:
            values = pc.fill_null(columns[0], 0).to_numpy()
            out: NDArray[np.int32] = np.mod(values, buckets).astype(np.int32)
            return out
    raise InvalidRequest(
        "the bucket function mod takes one INT or BIGINT bucket key", types=[*types]
    )


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Rows in groups 0, 1, ...: group g is `rows[offsets[g]:offsets[g + 1]]`, in order."""

    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def cut(self, table: pa.Table) -> list[tuple[int, pa.Table]]:
        """The number and the rows of each non-empty group.

        Nothing is copied if the groups are already consecutive. Each large group has its own
        memory, which is freed with it; small groups share the memory of one `take`.
        """
        sizes = np.diff(self.offsets)
        groups = [int(group) for group in np.flatnonzero(sizes)]
        sorted_already = bool((self.rows[:-1] < self.rows[1:]).all())
        own_bytes = len(groups) * table.num_columns * _OWN_VALUE_BYTES
        large = len(self.rows) >= len(groups) * _OWN_ROWS_MIN or size_of(table) >= own_bytes
        if not sorted_already and large:
            parts = np.split(self.rows, self.offsets[1:-1])
            return [(group, table.take(pa.array(parts[group]))) for group in groups]
        ordered = table if sorted_already else table.take(pa.array(self.rows))
        return [
            (group, ordered.slice(int(self.offsets[group]), int(sizes[group]))) for group in groups
        ]


def split_by_bucket(ids: NDArray[np.int32], buckets: int) -> Groups:
    """The rows of each bucket, in their order. Bucket numbers are below `buckets`."""
    return _group(ids, buckets)


def partition_groups(
    table: pa.Table, partition_fields: Sequence[Field]
) -> list[tuple[bytes, NDArray[np.int64]]]:
    """Each partition as its serialized row, with the positions of its rows, ascending.

    Partitions are in order of first appearance. Null and the empty string are different partitions.
    """
    partitions, groups = _partitions(table, partition_fields)
    ends = groups.offsets[1:-1].tolist()
    return list(zip(partitions, np.split(groups.rows, ends), strict=True)) if partitions else []


def split_by_partition(
    table: pa.Table, partition_fields: Sequence[Field]
) -> list[tuple[bytes, pa.Table]]:
    """Each partition as its serialized row, with its rows: a slice if they are consecutive."""
    if not partition_fields:
        return [(EMPTY_ROW, table)] if table.num_rows else []
    partitions, groups = _partitions(table, partition_fields)
    return [(partitions[group], part) for group, part in groups.cut(table)]


def _partitions(table: pa.Table, fields: Sequence[Field]) -> tuple[list[bytes], Groups]:
    """The distinct partitions in order of first appearance, and the rows of each."""
    count = table.num_rows
    if not count:
        return [], _group(np.zeros(0, dtype=np.int64), 0)
    if not fields:
        return [EMPTY_ROW], _group(np.zeros(count, dtype=np.int64), 1)
    columns = [conform(table.column(field.name), field.type) for field in fields]
    codes, distinct = np.zeros(count, dtype=np.int64), 1
    for column in columns:
        own, own_distinct = _codes(column)
        if distinct == 1:
            codes, distinct = own, own_distinct
        elif own_distinct > 1:
            codes, distinct = _codes(pa.array(codes * own_distinct + own))
    groups = _group(codes, distinct)
    firsts = pa.array(groups.rows[groups.offsets[:-1]])
    values = [column.take(firsts) for column in columns]
    return encode_rows(values, [field.type for field in fields]).serialized(), groups


def _codes(column: pa.Array) -> tuple[NDArray[np.int64], int]:
    """A code for each row, and the number of codes. Equal values have equal codes.

    Codes count from 0 by first appearance; null has a code, too.
    """
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    codes = encoded.indices.to_numpy().astype(np.int64)
    return codes, len(encoded.dictionary)


def _group(codes: NDArray[np.integer], count: int) -> Groups:
    """The rows, grouped by code. The sort is stable; for codes of 16 bits, it is a radix sort."""
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(codes, minlength=count), out=offsets[1:])
    if count <= 1 or bool((codes[:-1] <= codes[1:]).all()):
        return Groups(np.arange(len(codes), dtype=np.int64), offsets)
    small = codes.astype(np.uint16) if count <= 1 << 16 else codes
    return Groups(np.argsort(small, kind="stable"), offsets)
