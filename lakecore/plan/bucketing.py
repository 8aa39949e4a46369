"""The partition and the bucket of each row of a batch, vectorised.

1. `partition_groups` finds the rows of each partition;
2. `bucket_ids` gives each row its fixed bucket, from the hash of its bucket key
   (https://paimon.apache.org/docs/master/concepts/spec/datafile/#bucket);
   dynamic buckets come from `dynamic_bucket.py`;
3. `split_by_bucket` gives the permutation by which one `take` cuts the batch.

INVARIANT: rows of one partition and bucket keep their order, because later rows win.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.format.arrow_buffers import conform
from lakecore.format.binary_row import encode_rows, hash_rows
from lakecore.model.arrow_arrays import size_of
from lakecore.model.files import EMPTY_ROW
from lakecore.model.types import Atomic, Root
from lakecore.options import BucketFunction
from lakecore.plan.dynamic_bucket import (
    Assignment,
    DynamicBucketRule,
    HashIndexState,
    assign_dynamic,
)
from lakecore.plan.hive_hash import hive_hash_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lakecore.model.types import DataType, Field

__all__ = [
    "Assignment",
    "DynamicBucketRule",
    "Groups",
    "HashIndexState",
    "assign_dynamic",
    "bucket_ids",
    "partition_groups",
    "split_by_bucket",
    "split_by_partition",
]

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
            values = pc.fill_null(columns[0], 0).to_numpy(zero_copy_only=False)
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
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, len(encoded.dictionary)


def _group(codes: NDArray[np.integer], count: int) -> Groups:
    """The rows, grouped by code. The sort is stable; for codes of 16 bits, it is a radix sort."""
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(codes, minlength=count), out=offsets[1:])
    if count <= 1 or bool((codes[:-1] <= codes[1:]).all()):
        return Groups(np.arange(len(codes), dtype=np.int64), offsets)
    small = codes.astype(np.uint16) if count <= 1 << 16 else codes
    return Groups(np.argsort(small, kind="stable"), offsets)
