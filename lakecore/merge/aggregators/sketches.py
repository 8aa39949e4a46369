"""Unions of sets stored as bytes: roaring bitmaps, HLL sketches and theta sketches.

The bytes are those of the Java libraries; Paimon itself does not specify them.

NOTE: this is the only place that calls Python for each group. Only the libraries can read these
bytes, and none of them unites arrays of sets. The call is made only for groups with several sets;
other values are returned unchanged.
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

# Exceptions of the libraries for bytes that they cannot read.
_UNREADABLE = (ValueError, RuntimeError, IndexError, KeyError, struct.error, MemoryError)

# The header of a theta sketch: its size in longs, and its flags.
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
    """The union of 64-bit roaring bitmaps in the format of Java's Roaring64Bitmap."""

    def union(sets: Sequence[bytes]) -> bytes:
        return roaring64.encode(BitMap64.union(*map(roaring64.decode, sets)))

    return _union_of(aggregate, union)


def hll_sketch(aggregate: Aggregate) -> Fold:
    """The union of HLL sketches of Apache DataSketches, as a compact sketch of type HLL_4.

    At each step, the next sketch determines the size of the union.
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
    """A compact theta sketch with Java's header, so that equal sketches have equal bytes.

    Java sets a flag for a single value, writes the sampling probability 1.0 for several values, and
    omits the hash of the seed for an empty sketch. No reader uses these fields.
    """
    longs, flags = theta[0] & _LONGS, theta[_FLAGS_AT]
    if longs > 1:
        return theta[:12] + struct.pack("<f", 1.0) + theta[16:]
    if flags & _IS_EMPTY:
        return theta[:6] + b"\0\0"
    return theta[:_FLAGS_AT] + bytes([flags | _IS_SINGLE]) + theta[_FLAGS_AT + 1 :]


def _union_of(aggregate: Aggregate, union: Callable[[Sequence[bytes]], bytes]) -> Fold:
    """A fold that computes the union of the sets in each group.

    A group with one set is unchanged.
    """

    def checked(sets: Sequence[bytes]) -> bytes:
        try:
            return union(sets)
        except _UNREADABLE as error:
            raise InvalidRequest(
                "the aggregate function cannot read a value",
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
    """The optional library `datasketches`, imported when it is first used."""
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
