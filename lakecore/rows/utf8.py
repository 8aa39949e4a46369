"""Strings with invalid UTF-8, as a cast from BYTES can produce.

Java keeps the bytes of such a string and displays U+FFFD for invalid parts. Arrow strings must be
UTF-8, so invalid parts are replaced when a string is read.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from lakecore.model.arrow_arrays import inner_of, nested_like
from lakecore.model.types import BINARIES, STRINGS, Atomic, DataType

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_WORD_BYTES = 8
_HIGH_BITS = 0x8080808080808080
_ASCII_MAX = 0x7F
_t = pa.types


def decode_text(array: pa.Array) -> pa.Array:
    """Bytes as strings; each invalid part becomes U+FFFD, with the same parts as in Java.

    A part is the longest valid beginning of a character, or one byte. The three bytes of a
    surrogate are one part (Unicode recommends three).
    """
    data = array.cast(pa.binary())
    try:
        return data.cast(pa.string())
    except pa.ArrowInvalid:
        shown = [None if value is None else _shown(value) for value in data.to_pylist()]
        return pa.array(shown, pa.string())


def text_of(array: pa.Array, stored: DataType, read: DataType) -> pa.Array | None:
    """The array as strings whose UTF-8 is not checked; None for a column that is not text.

    `stored` and `read` are the types of the column in the file and in the result.

    If a BYTES column became STRING, its bytes are read as strings.
    """
    if holds_text(array.type):
        return array
    if not isinstance(stored, Atomic) or stored.root not in BINARIES:
        return None
    is_text = isinstance(read, Atomic) and read.root in STRINGS
    return array.cast(pa.binary()).view(pa.string()) if is_text else None


def is_utf8(array: pa.Array) -> bool:
    """Whether all strings in the array, also nested ones, are valid UTF-8."""
    if _t.is_string(array.type) and _is_ascii(array):
        return True
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def invalid_rows(array: pa.Array) -> list[int]:
    """The places of the rows that hold a string that is not valid UTF-8."""
    found, parts = [], [(0, len(array))]
    while parts:
        start, end = parts.pop()
        # A slice of lists would be judged with the elements outside the slice.
        if is_utf8(array.take(pa.array(range(start, end), pa.int64()))):
            continue
        half = (start + end) // 2
        parts += [(start, half), (half, end)] if end - start > 1 else []
        found += [start] if end - start == 1 else []
    return found


def with_utf8(array: pa.Array) -> pa.Array:
    """The array with every string inside decoded as by `decode_text`."""
    kind = array.type
    if _t.is_string(kind):
        return decode_text(array)
    if not _t.is_nested(kind):
        return array
    return nested_like(array, kind, [with_utf8(each) for each in inner_of(array)])


def _is_ascii(array: pa.Array) -> bool:
    """Whether all bytes of the strings are ASCII; checks eight bytes at a time, not each string."""
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return True
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    first, last = int(ends[0]), int(ends[-1])
    given = np.frombuffer(data, np.uint8)
    # Whole words; the first one may begin before the first string.
    first -= first % _WORD_BYTES
    words_end = last - last % _WORD_BYTES
    words = given[first:words_end].view(np.uint64)
    return (
        not int(np.bitwise_or.reduce(words)) & _HIGH_BITS
        and not (given[words_end:last] > _ASCII_MAX).any()
    )


def holds_text(kind: pa.DataType) -> bool:
    """Whether values of the type are strings, or have strings inside."""
    if _t.is_nested(kind):
        return any(holds_text(kind.field(index).type) for index in range(kind.num_fields))
    return bool(_t.is_string(kind))


def _shown(value: bytes) -> str:
    return _SURROGATE.sub(b"\xff", value).decode("utf-8", "replace")
