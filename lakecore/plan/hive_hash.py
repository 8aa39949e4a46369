"""The hash of Hive's buckets, for tables with `bucket-function.type=hive`.

A row's hash folds its fields as `31 * hash + field`; null counts as 0. Arithmetic wraps in 32 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from lakecore.errors import Unsupported
from lakecore.format.arrow_buffers import byte_ranges, conform, decimal_limbs, fixed_width
from lakecore.model.types import BINARIES, STRINGS, Atomic, Root

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from lakecore.model.types import DataType

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

    It is computed from differences of one running sum over the bytes of all values.
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
