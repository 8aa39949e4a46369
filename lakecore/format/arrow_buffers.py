"""Views of the buffers of Arrow arrays, also of slices, as NumPy arrays without copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.model.types import BINARIES, STRINGS, Atomic, DataType, arrow_type

if TYPE_CHECKING:
    from numpy.typing import NDArray


Bools: TypeAlias = "NDArray[np.bool_]"
Bytes: TypeAlias = "NDArray[np.uint8]"
Ints: TypeAlias = "NDArray[np.int64]"
Words: TypeAlias = "NDArray[np.uint64]"


def conform(column: pa.Array, data_type: DataType) -> pa.Array:
    """The column as one array in the Arrow layout of the type, cast if necessary.

    Two differences are kept: large strings and binaries stay large, and a timestamp keeps its zone.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    want, have = arrow_type(data_type), array.type
    if have == want:
        return array
    is_text = isinstance(data_type, Atomic) and data_type.root in STRINGS | BINARIES
    if is_text and (pa.types.is_large_string(have) or pa.types.is_large_binary(have)):
        return array
    if pa.types.is_timestamp(want) and pa.types.is_timestamp(have):
        want = pa.timestamp(want.unit, tz=have.tz)
    try:
        return array if have == want else array.cast(want)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequest(
            "the values do not fit the type", type=data_type, arrow=have, reason=error
        ) from error


def fixed_width(array: pa.Array, dtype: str) -> NDArray[np.generic]:
    """The value buffer of an array as a NumPy array, without copying."""
    width = np.dtype(dtype).itemsize
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype=dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * width)


def byte_ranges(array: pa.Array) -> tuple[Bytes, Ints, Ints]:
    """The bytes, starts and lengths of the values of a string or binary array.

    Offsets may have 32 or 64 bits.
    """
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    dtype = np.dtype(np.int64 if wide else np.int32)
    if not len(array):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    _, offset_buffer, data = array.buffers()
    offsets = np.frombuffer(offset_buffer, dtype, len(array) + 1, array.offset * dtype.itemsize)
    first, last = int(offsets[0]), int(offsets[-1])
    content = np.zeros(0, np.uint8)
    if last > first:
        content = np.frombuffer(data, np.uint8, last - first, first)
    starts = np.subtract(offsets[:-1], first, dtype=np.int64)
    return content, starts, np.subtract(offsets[1:], offsets[:-1], dtype=np.int64)


def decimal_limbs(array: pa.Array) -> tuple[Words, NDArray[np.int64]]:
    """Low and high halves of a decimal128 column; the high half is signed."""
    buffer = array.buffers()[1]
    both = np.frombuffer(buffer, np.uint64, 2 * len(array), array.offset * 16).reshape(-1, 2)
    return both[:, 0], both[:, 1].view(np.int64)
