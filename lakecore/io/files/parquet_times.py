"""Timestamps finer than microseconds in Parquet: INT96, which Arrow reads as 64-bit nanoseconds.

These cover the years 1677 to 2262. Arrow silently changes a time outside this range into another
one. So the days of such columns are checked first, in their binary form. Files written by lakecore
need no check, because their values were 64-bit nanoseconds in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import Unsupported
from lakecore.format.parquet_footer import INT96_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow.parquet as pq

_INT96 = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_JULIAN_DAY_OF_EPOCH = 2_440_588
_DAY_SECONDS = 86_400
_SECOND_NANOS = 1_000_000_000
_FIRST = divmod(-(1 << 63), _SECOND_NANOS)
_LAST = divmod((1 << 63) - 1, _SECOND_NANOS)
"""The first and the last time in 64-bit nanoseconds: seconds, and nanoseconds of the second."""
_ENCODER, _ROOT = "parquet-cpp-arrow", " paimon_schema {"
_HEAD_CHARACTERS = 200


def columns_of_times(metadata: pq.FileMetaData, leaves: Sequence[int]) -> list[str]:
    """The top-level columns of these leaves that may hold times outside the nanosecond range."""
    found = [metadata.schema.column(leaf) for leaf in leaves]
    names = [each.path for each in found if each.physical_type == "INT96"]
    if not names or _is_ours(metadata):
        return []
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def check_times(batches: Iterable[pa.RecordBatch], path: str) -> None:
    """Raise Unsupported if an INT96 time, read as twelve bytes, is outside the nanosecond range."""
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if any(map(_any_far, _times_in(column))):
                raise Unsupported(
                    "timestamps of nanoseconds outside the years 1677 to 2262 cannot be read",
                    column=name,
                    path=path,
                )


def _is_ours(metadata: pq.FileMetaData) -> bool:
    """Whether lakecore wrote the file: its root is named as in Java, but Arrow encoded it."""
    encoder = str(metadata.created_by or "")
    return encoder.startswith(_ENCODER) and _ROOT in str(metadata.schema)[:_HEAD_CHARACTERS]


def _times_in(array: pa.Array) -> Iterator[pa.Array]:
    """The INT96 times in an array at any depth, as arrays of twelve bytes each."""
    kind = array.type
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == INT96_BYTES:
        yield array
    elif pa.types.is_struct(kind):
        # `flatten` makes the children of null values null; `field` would return arbitrary bytes.
        for child in array.flatten():
            yield from _times_in(child)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _times_in(array.flatten())


def _any_far(times: pa.Array) -> bool:
    data = times.buffers()[1]
    if data is None or times.null_count == len(times):
        return False
    found = np.frombuffer(data, _INT96, len(times), INT96_BYTES * times.offset)
    days = found["day"].astype(np.int64) - _JULIAN_DAY_OF_EPOCH
    # Java counts backwards within a day before 1970: its nanoseconds are negative.
    seconds = days * _DAY_SECONDS + found["nanos"] // _SECOND_NANOS
    nanos = found["nanos"] % _SECOND_NANOS
    early = (seconds < _FIRST[0]) | ((seconds == _FIRST[0]) & (nanos < _FIRST[1]))
    late = (seconds > _LAST[0]) | ((seconds == _LAST[0]) & (nanos > _LAST[1]))
    valid = times.is_valid().to_numpy(zero_copy_only=False)
    return bool(((early | late) & valid).any())
