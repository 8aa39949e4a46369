"""Decides by statistics which files, row groups, partitions and buckets may match a predicate.

The work is vectorised over the chunks (files, row groups): one pass of Arrow kernels per leaf of
the predicate. Each leaf gives two masks: the chunks in which a row may make the leaf true, and
those in which a row may make it false. `And`, `Or` and `Not` combine them. Unknown sets both masks
for all chunks.

INVARIANT: a chunk with a matching row is never pruned. An unknown value (no statistics, a null in
them, a NaN) may match. Statistics do not contain NaN, so any float column may hold one.

Statistics of values may exclude a file only if no other file of its bucket can overwrite its rows,
or if its whole section is excluded. The scan planner, which calls these functions, checks that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.model.arrow_arrays import search_sorted
from lakecore.model.types import Field, arrow_field
from lakecore.options import BucketFunction
from lakecore.plan.bucketing import bucket_ids
from lakecore.plan.predicate import (
    And,
    Compare,
    Constant,
    In,
    IsNotNull,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    columns_of,
    fixed_values,
    to_polars,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


Mask: TypeAlias = "NDArray[np.bool_]"
Masks: TypeAlias = "tuple[Mask, Mask]"
"""The chunks in which a row may make a predicate true, and those in which one may make it false."""

Columns: TypeAlias = "pa.RecordBatch | pa.Table"
"""One row for each chunk, columns by name; a missing column is unknown."""

FIXED_KEYS_MAX = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class _Chunks:
    minimum: Columns
    maximum: Columns
    null_count: Columns
    row_count: NDArray[np.int64]

    def bounds(self, column: str) -> tuple[pa.Array, pa.Array] | None:
        """The minimum and maximum of each chunk, null if unknown.

        None if they are unknown for all chunks.
        """
        if column not in self.minimum.schema.names or column not in self.maximum.schema.names:
            return None
        low, high = _one(self.minimum.column(column)), _one(self.maximum.column(column))
        if pa.types.is_floating(low.type):
            low, high = _without_nan(low), _without_nan(high)
        return low, high

    def nulls(self, column: str) -> tuple[Mask, Mask]:
        """Masks of the chunks that may contain a null, and of those that may contain a value."""
        if column not in self.null_count.schema.names:
            some = self.row_count > 0
            return some, some
        counts = _one(self.null_count.column(column)).cast(pa.int64())
        some_null = _mask(pc.not_equal(counts, 0))
        some_value = _mask(pc.not_equal(counts, pa.array(self.row_count)))
        return some_null, some_value


def may_match(
    predicate: Predicate,
    minimum: Columns,
    maximum: Columns,
    null_count: Columns,
    row_count: NDArray[np.int64],
) -> Mask:
    """For each chunk, whether a row of it may match.

    `minimum` and `maximum` hold bounds in the types for which the predicate was made; bounds may be
    truncated. `null_count` holds the number of nulls. A null or a missing column means unknown.
    The caller has mapped the columns to the table's schema, and leaves out columns whose values are
    ordered differently under the schema of the file.
    """
    chunks = _Chunks(minimum, maximum, null_count, np.asarray(row_count, np.int64))

    def leaf(part: Predicate) -> Masks:
        return _leaf(part, chunks)

    return _masks(predicate, leaf, len(chunks.row_count))[0]


def matches_exactly(predicate: Predicate, batch: Columns) -> Mask:
    """For each row, whether it matches; if part of the predicate is Unknown, whether it may match.

    The batch has every column that the predicate names, such as the values of partitions. Values
    may be null.
    """
    names = sorted(columns_of(predicate))
    frame = pl.DataFrame({name: pl.Series(name, _one(batch.column(name))) for name in names})

    def leaf(part: Predicate) -> Masks:
        expression = to_polars(part)
        assert expression is not None, part
        found = frame.select(expression.alias("found")).to_series()
        return (
            found.fill_null(value=False).to_numpy(),
            (~found).fill_null(value=False).to_numpy(),
        )

    return _masks(predicate, leaf, batch.num_rows)[0]


def prune_buckets(
    predicate: Predicate,
    bucket_key_fields: Sequence[Field],
    buckets: int,
    function: BucketFunction = BucketFunction.DEFAULT,
) -> set[int] | None:
    """The buckets that may hold matching rows; None if the predicate does not fix the bucket key.

    `buckets` is the bucket count of the partition, which may differ from the table's after a
    rescale.
    """
    from_fields = pa.schema([arrow_field(field) for field in bucket_key_fields])
    keys = fixed_values(predicate, from_fields, from_fields.names, FIXED_KEYS_MAX)
    if keys is None:
        return None
    if keys.num_rows == 0:
        return set()
    types = [field.type for field in bucket_key_fields]
    return set(np.unique(bucket_ids(keys.columns, types, buckets, function)).tolist())


# --- combination --------------------------------------------------------------------------------


def _masks(predicate: Predicate, leaf: Callable[[Predicate], Masks], count: int) -> Masks:
    match predicate:
        case And(parts=parts) | Or(parts=parts):
            both = [_masks(part, leaf, count) for part in parts]
            all_, any_ = (0, 1) if isinstance(predicate, And) else (1, 0)
            every = np.ones(count, np.bool_)
            some = np.zeros(count, np.bool_)
            for masks in both:
                every &= masks[all_]
                some |= masks[any_]
            return (every, some) if isinstance(predicate, And) else (some, every)
        case Not(part=part):
            true, false = _masks(part, leaf, count)
            return false, true
        case Unknown():
            return np.ones(count, np.bool_), np.ones(count, np.bool_)
        case Constant(value=value):
            return np.full(count, value is True), np.full(count, value is False)
        case _:
            return leaf(predicate)


# --- leaves against statistics ------------------------------------------------------------------


def _leaf(part: Predicate, chunks: _Chunks) -> Masks:
    assert isinstance(part, Compare | In | IsNull | IsNotNull | StartsWith)
    null, value = chunks.nulls(part.column)
    if isinstance(part, IsNull):
        return null, value
    if isinstance(part, IsNotNull):
        return value, null
    bounds = chunks.bounds(part.column)
    if bounds is None:
        return value, value
    match part:
        case Compare(op=op, value=literal):
            true = _may_compare(op, literal, *bounds)
            false = _may_compare(op.negated, literal, *bounds)
        case In(values=values):
            true, false = _may_be_in(values, *bounds)
        case StartsWith(prefix=prefix):
            true, false = _may_start(prefix, *bounds)
    return true & value, false & value


def _may_compare(op: Op, literal: pa.Scalar, low: pa.Array, high: pa.Array) -> Mask:
    """For each range from `low` to `high`, whether it may contain a value that satisfies `op`.

    NaN is above all values.
    """
    if op in (Op.GT, Op.GE, Op.NE) and pa.types.is_floating(low.type):
        return np.ones(len(low), np.bool_)
    match op:
        case Op.LT:
            return _mask(pc.less(low, literal))
        case Op.LE:
            return _mask(pc.less_equal(low, literal))
        case Op.GT:
            return _mask(pc.greater(high, literal))
        case Op.GE:
            return _mask(pc.greater_equal(high, literal))
        case Op.EQ:
            return _mask(pc.less_equal(low, literal)) & _mask(pc.greater_equal(high, literal))
        case Op.NE:
            return ~(_sure(pc.equal(low, literal)) & _sure(pc.equal(high, literal)))


def _may_be_in(values: pa.Array, low: pa.Array, high: pa.Array) -> Masks:
    if len(values) == 0:
        return np.zeros(len(low), np.bool_), np.ones(len(low), np.bool_)
    least, greatest = values[0], values[len(values) - 1]
    if pa.types.is_decimal(values.type):  # Arrow cannot search them: use the range
        true = _mask(pc.less_equal(low, greatest)) & _mask(pc.greater_equal(high, least))
    else:
        at = search_sorted(values, low, "left")
        inside = pc.min_element_wise(at, len(values) - 1, skip_nulls=False)
        true = _mask(pc.less_equal(values.take(inside), high)) & _mask(pc.less(at, len(values)))
    constant = _sure(pc.equal(low, high)) & _sure(pc.is_in(low, value_set=values))
    # No set contains NaN: a float column may always hold a value that is not in the set.
    return true, ~constant | np.full(len(low), pa.types.is_floating(low.type))


def _may_start(prefix: pa.Scalar, low: pa.Array, high: pa.Array) -> Masks:
    start = prefix.cast(pa.binary()).as_py()
    low, high = low.cast(pa.binary()), high.cast(pa.binary())
    true = _mask(pc.greater_equal(high, start))
    after = _after_prefix(start)
    if after is not None:
        true &= _mask(pc.less(low, after))
    both = _sure(pc.starts_with(low, pattern=start)) & _sure(pc.starts_with(high, pattern=start))
    return true, ~both


def _after_prefix(prefix: bytes) -> bytes | None:
    """The smallest bytes greater than all bytes with the prefix; None if no bytes are greater."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,)) if head else None


def _mask(found: pa.Array) -> Mask:
    """The chunks for which the condition is true or unknown."""
    out: Mask = pc.fill_null(found, True).to_numpy(zero_copy_only=False)
    return out


def _sure(found: pa.Array) -> Mask:
    """The chunks for which the condition is certainly true."""
    out: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return out


def _without_nan(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
