"""The size that Arrow arrays would have if each row had a copy of its value; cuts batches by it.

Dictionaries, views, run ends and list views may share one value among many rows. `nbytes` counts it
once, but a copy in another layout holds it for each row, so sizes are computed before copying.

INVARIANT: computing a size copies and decodes nothing. Values of null rows count 0 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

RowBytes: TypeAlias = "NDArray[np.int64] | int"
"""The bytes of each value, or one number if all values have the same size."""

_t = pa.types
_VIEW_WORDS = 4  # a view is 16 bytes, the first four of which are the length


def is_shared(kind: pa.DataType) -> bool:
    """Whether arrays of the type, or of its parts, may share one value among rows."""
    if isinstance(kind, pa.BaseExtensionType):
        return is_shared(kind.storage_type)
    if (
        _t.is_dictionary(kind)
        or _t.is_run_end_encoded(kind)
        or _t.is_string_view(kind)
        or _t.is_binary_view(kind)
        or _t.is_list_view(kind)
        or _t.is_large_list_view(kind)
    ):
        return True
    return any(is_shared(kind.field(at).type) for at in range(kind.num_fields))


def row_bytes(array: pa.Array) -> RowBytes:
    """The bytes of each row's value, without offsets and validity."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return row_bytes(array.storage)
    if isinstance(array, pa.DictionaryArray):
        return _taken(row_bytes(array.dictionary), array.indices)
    if isinstance(array, pa.RunEndEncodedArray):
        return _of_runs(array)
    if _is_view(kind):
        return _alive(_view_lengths(array).astype(np.int64), array)
    if _t.is_struct(kind):
        total: RowBytes = 0
        for at in range(kind.num_fields):
            total = total + row_bytes(array.field(at))
        return total if isinstance(total, int) else _alive(total, array)
    if _t.is_fixed_size_list(kind):
        ends = (np.arange(len(array) + 1) + array.offset) * kind.list_size
        return _alive(_between(row_bytes(array.values), ends[:-1], ends[1:]), array)
    if _t.is_list_view(kind) or _t.is_large_list_view(kind):
        starts = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        ends = starts + array.sizes.to_numpy(zero_copy_only=False)
        alive = np.asarray(array.is_valid())
        return _between(row_bytes(array.values), starts * alive, ends * alive)
    if _t.is_list(kind) or _t.is_large_list(kind) or _t.is_map(kind):
        offsets = _offsets(array, wide=_t.is_large_list(kind))
        parts = (array.keys, array.items) if _t.is_map(kind) else (array.values,)
        sums = [_between(row_bytes(part), offsets[:-1], offsets[1:]) for part in parts]
        return _alive(np.sum(sums, axis=0), array)
    if _is_text_or_bytes(kind):
        wide = _t.is_large_string(kind) or _t.is_large_binary(kind)
        return _alive(np.diff(_offsets(array, wide=wide)), array)
    return -(-kind.bit_width // 8) if _t.is_primitive(kind) or _has_width(kind) else 1


def total_bytes(array: pa.Array) -> int:
    """The bytes of the values of all rows."""
    if _is_view(array.type) and not array.null_count:
        return int(_view_lengths(array).sum(dtype=np.int64))
    each = row_bytes(array)
    return each * len(array) if isinstance(each, int) else int(each.sum())


def cut(batch: pa.RecordBatch, rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices within both limits. A slice has at least one row."""
    if not any(is_shared(kind) for kind in batch.schema.types):
        yield from _even(batch, rows_max, bytes_max)
    elif batch.num_rows <= rows_max:
        yield from _fitting(batch, bytes_max)
    else:
        for start in range(0, batch.num_rows, rows_max):
            yield from _fitting(batch.slice(start, rows_max), bytes_max)


def rows_within(rows: pa.Table, rows_max: int, bytes_max: int) -> int:
    """How many rows are within both limits, by the mean size of `rows`; at least one."""
    row = max(rows.nbytes // max(rows.num_rows, 1), 1)
    return int(min(max(bytes_max // row, 1), rows_max))


def _fitting(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most that many bytes. Each slice has a copy of its own values."""
    shared = [column for column in batch.columns if is_shared(column.type)]
    plain = sum(column.nbytes for column in batch.columns if not is_shared(column.type))
    if plain + sum(map(total_bytes, shared)) <= bytes_max:
        yield batch
        return
    count = batch.num_rows
    each = sum(map(row_bytes, shared))
    sizes = np.broadcast_to(np.asarray(each, np.int64), count) + -(-plain // count)
    ends = np.cumsum(sizes)
    start = 0
    while start < count:
        before = int(ends[start - 1]) if start else 0
        fits = int(np.searchsorted(ends, before + bytes_max, side="right"))
        end = min(max(fits, start + 1), count)
        yield batch.slice(start, end - start)
        start = end


def _even(batch: pa.RecordBatch, rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    pieces = max(-(-batch.num_rows // rows_max), -(-batch.nbytes // bytes_max))
    if pieces <= 1:
        yield batch
        return
    rows = max(1, -(-batch.num_rows // pieces))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _of_runs(array: pa.RunEndEncodedArray) -> RowBytes:
    each = row_bytes(array.values)
    if isinstance(each, int):
        return each
    places = np.arange(len(array)) + array.offset
    runs = np.searchsorted(array.run_ends.to_numpy(), places, side="right")
    return np.asarray(each[runs], np.int64)


def _taken(each: RowBytes, indices: pa.Array) -> RowBytes:
    if isinstance(each, int):
        return each
    if not len(each):
        return 0
    if indices.null_count:
        return _alive(np.take(each, indices.fill_null(0).to_numpy(zero_copy_only=False)), indices)
    return np.asarray(each[indices.to_numpy(zero_copy_only=False)], np.int64)


def _between(
    each: RowBytes, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The bytes of the values in each range, from `starts` to `ends` (exclusive)."""
    if isinstance(each, int):
        return (ends - starts) * each
    sums = np.concatenate([[0], np.cumsum(each)])
    return np.asarray(sums[ends] - sums[starts], np.int64)


def _alive(sizes: NDArray[np.int64], array: pa.Array) -> NDArray[np.int64]:
    return np.where(np.asarray(array.is_valid()), sizes, 0) if array.null_count else sizes


def _offsets(array: pa.Array, *, wide: bool) -> NDArray[np.int64]:
    width = 8 if wide else 4
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(1, np.int64)
    found = np.frombuffer(buffer, f"i{width}", len(array) + 1, width * array.offset)
    return found.astype(np.int64)


def _is_view(kind: pa.DataType) -> bool:
    return bool(_t.is_string_view(kind) or _t.is_binary_view(kind))


def _view_lengths(array: pa.Array) -> NDArray[np.int32]:
    lengths = np.frombuffer(array.buffers()[1] or b"", np.int32)[::_VIEW_WORDS]
    return lengths[array.offset : array.offset + len(array)]


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    kinds = (_t.is_string, _t.is_binary, _t.is_large_string, _t.is_large_binary)
    return any(is_kind(kind) for is_kind in kinds)


def _has_width(kind: pa.DataType) -> bool:
    return bool(_t.is_fixed_size_binary(kind) or _t.is_decimal(kind))
