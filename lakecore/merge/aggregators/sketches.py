"""Unions of sets that a column holds as bytes: roaring bitmaps, HLL and theta sketches.

The bytes are those of the Java libraries; Paimon says nothing of them itself.

NOTE: here, and nowhere else, Python is called group by group. A union of such sets is a call of the
library that knows their bytes, and none of them offers one over arrays of sets. So the call is
made only for groups with more than one set in them; every other value goes through untouched.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap, BitMap64

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.merge.aggregators import roaring64
from lakecore.merge.aggregators.fold import Aggregate, Fold
from lakecore.merge.groups import is_valid, pick, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from lakecore.merge.groups import Groups

# What the libraries raise for bytes that are no set of theirs.
_UNREADABLE = (ValueError, RuntimeError, IndexError, KeyError, struct.error, MemoryError)

# The head of a theta sketch: how many longs it has, and its flags.
_LONGS = 0x3F
_FLAGS_AT = 5
_IS_EMPTY = 0x04
_IS_SINGLE = 0x20


def rbm32(aggregate: Aggregate) -> Fold:
    """The union of 32-bit roaring bitmaps in the portable format."""

    def union(sets: Sequence[bytes]) -> bytes:
        merged = BitMap.union(*map(BitMap.deserialize, sets))
        merged.run_optimize()
        merged_bytes: bytes = merged.serialize()
        return merged_bytes

    return _union_of(aggregate, union)


def rbm64(aggregate: Aggregate) -> Fold:
    """The union of 64-bit roaring bitmaps in the form of Java's Roaring64Bitmap."""

    def union(sets: Sequence[bytes]) -> bytes:
        return roaring64.encode(BitMap64.union(*map(roaring64.decode, sets)))

    return _union_of(aggregate, union)


def hll_sketch(aggregate: Aggregate) -> Fold:
    """The union of HLL sketches of Apache DataSketches, a compact sketch of type HLL_4.

    Each sketch in turn sets the size of the union that takes in what came before.
    """
    library = _datasketches(aggregate)

    def union(sets: Sequence[bytes]) -> bytes:
        sketches = map(library.hll_sketch.deserialize, sets)
        merged = next(sketches)
        for sketch in sketches:
            step = library.hll_union(sketch.lg_config_k)
            step.update(sketch)
            step.update(merged)
            merged = step.get_result(library.tgt_hll_type.HLL_4)
        merged_bytes: bytes = merged.serialize_compact()
        return merged_bytes

    return _union_of(aggregate, union)


def theta_sketch(aggregate: Aggregate) -> Fold:
    """The union of compact theta sketches of Apache DataSketches, with 4096 nominal entries."""
    library = _datasketches(aggregate)

    def union(sets: Sequence[bytes]) -> bytes:
        merged = library.compact_theta_sketch.deserialize(sets[0])
        for data in sets[1:]:
            step = library.theta_union()
            step.update(merged)
            step.update(library.compact_theta_sketch.deserialize(data))
            merged = step.get_result()
        return _as_java(merged.serialize())

    return _union_of(aggregate, union)


def _as_java(theta: bytes) -> bytes:
    """A compact theta sketch with the head of Java: equal sketches are equal bytes.

    Java flags a single value, writes the sampling probability of more, which is 1.0, and leaves out
    the hash of the seed where there is no value; no reader heeds any of it.
    """
    longs, flags = theta[0] & _LONGS, theta[_FLAGS_AT]
    if longs > 1:
        return theta[:12] + struct.pack("<f", 1.0) + theta[16:]
    if flags & _IS_EMPTY:
        return theta[:6] + b"\0\0"
    return theta[:_FLAGS_AT] + bytes([flags | _IS_SINGLE]) + theta[_FLAGS_AT + 1 :]


def _union_of(aggregate: Aggregate, union: Callable[[Sequence[bytes]], bytes]) -> Fold:
    """The fold that unites the sets of a group, if there is more than one."""

    def checked(sets: Sequence[bytes]) -> bytes:
        try:
            return union(sets)
        except _UNREADABLE as error:
            raise InvalidRequest(
                "a value is not what the aggregate function unites",
                column=aggregate.column,
                function=aggregate.function,
                reason=error,
            ) from error

    def fold(values: pa.Array, groups: Groups, _: np.ndarray | None) -> pa.Array:
        rows, numbers, known = groups.only(is_valid(values))
        first = pick(values, rows[known.starts])
        several = np.flatnonzero(known.sizes > 1)
        if not len(several):
            return spread(first, numbers, groups.count)
        bounds = zip(known.starts[several].tolist(), known.lasts[several].tolist(), strict=True)
        united = pa.array(
            [
                checked(values.take(pa.array(rows[start : last + 1])).to_pylist())
                for start, last in bounds
            ],
            values.type,
        )
        place = np.arange(known.count)
        place[several] = known.count + np.arange(len(several))
        return spread(pick(pa.concat_arrays([first, united]), place), numbers, groups.count)

    return Fold(fold=fold, commutes=True)


def _datasketches(aggregate: Aggregate) -> ModuleType:
    """The optional library, imported at first use."""
    try:
        import datasketches  # noqa: PLC0415  an extra; most tables have no use for it
    except ImportError as error:
        raise Unsupported(
            "the aggregate function needs an extra: pip install 'lakecore[sketches]'",
            function=aggregate.function,
            column=aggregate.column,
        ) from error
    module: ModuleType = datasketches
    return module
