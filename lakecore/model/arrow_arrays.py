"""Converts Arrow arrays between types that differ only in layout, without copying values.

Nested arrays are rebuilt around the same values. Arrow's own casts refuse harmless changes (a
nullable field that becomes NOT NULL, other field names) and copy more than necessary.

INVARIANT: an array that already has the type is returned unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.model.types import BINARIES, STRINGS, Atomic, DataType, arrow_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

Leaf: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]
"""Converts a non-nested array to the type."""

_t = pa.types
_FEW_COLUMNS = 64


def search_sorted(values: pa.Array, asked: pa.Array, side: Literal["left", "right"]) -> pa.Array:
    """For each asked value, the position where inserting it keeps `values` sorted; null for null.

    `values` are sorted and not null. Decimals are not supported.
    """
    if hasattr(pc, "search_sorted"):
        return pc.search_sorted(values, asked, side=side).cast(pa.int64())
    # Older versions of Arrow cannot search.
    if _t.is_boolean(values.type):
        values, asked = values.cast(pa.uint8()), asked.cast(pa.uint8())
    found = pl.Series("", values).search_sorted(pl.Series("", asked), side)
    return pc.if_else(asked.is_valid(), pa.array(found.to_numpy(), pa.int64()), None)


def cast_leaf(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Arrow's cast of the array; raises ArrowInvalid if a value does not fit.

    A timestamp without a zone becomes one in UTC, and vice versa, with the same stored number.
    """
    source = array.type
    if (
        _t.is_timestamp(source)
        and _t.is_timestamp(target)
        and (source.tz is None) != (target.tz is None)
    ):
        array = array.cast(pa.timestamp(source.unit)) if source.tz else array
        array = array.cast(pa.timestamp(target.unit))
        return array.view(target)
    return array.cast(target)


def retype(array: pa.Array, target: pa.DataType, leaf: Leaf = cast_leaf) -> pa.Array:
    """The array converted to the type `target`, which has the same nesting.

    Fields are matched by position, and `leaf` converts the values.
    """
    source = array.type
    if source == target:
        return array
    if isinstance(array, pa.DictionaryArray):
        return retype(array.dictionary_decode(), target, leaf)
    if _t.is_null(source):
        return pa.nulls(len(array), target)
    if _t.is_struct(target) and _t.is_struct(source):
        children = [
            retype(array.field(index), target.field(index).type, leaf)
            for index in range(target.num_fields)
        ]
        return struct_array(array, children, list(target))
    if _t.is_map(target) and _t.is_map(source):
        keys = retype(array.keys, target.key_type, leaf)
        return nested_like(array, target, [keys, retype(array.items, target.item_type, leaf)])
    if _t.is_list(target) and _is_list_like(source):
        if not _t.is_list(source) and not _t.is_map(source):
            array = array.cast(pa.list_(source.value_field))
        return list_like(array, target, retype(array.values, target.value_type, leaf))
    if _t.is_map(target) and _is_list_like(source):
        flat = retype(array, pa.list_(pa.struct([target.key_field, target.item_field])), leaf)
        return list_like(flat, target, flat.values)
    return leaf(array, target)


def with_parts_of(array: pa.Array, target: pa.DataType, *, may_lack: bool = False) -> pa.Array:
    """The array with its struct fields matched by name to the target, and in the target's order.

    A missing field is null if `may_lack` is set and the field is nullable; otherwise ArrowInvalid.
    The types of fields, and the names of list elements, map keys and map values, do not change.
    """
    if _has_parts_of(array.type, target):
        return array
    if _t.is_struct(target) and _t.is_struct(array.type):
        children: list[pa.Array] = []
        for part in target:
            at = array.type.get_field_index(part.name)
            if at < 0 and not (may_lack and part.nullable):
                raise pa.ArrowInvalid(f"no part `{part.name}`")
            child = pa.nulls(len(array), part.type) if at < 0 else array.field(at)
            children.append(with_parts_of(child, part.type, may_lack=may_lack))
        fields = [part.with_type(child.type) for part, child in zip(target, children, strict=True)]
        return struct_array(array, children, fields)
    if _t.is_map(target) and _t.is_map(array.type):
        keys = with_parts_of(array.keys, target.key_type, may_lack=may_lack)
        items = with_parts_of(array.items, target.item_type, may_lack=may_lack)
        kind = pa.map_(keys.type, target.item_field.with_type(items.type))
        return nested_like(array, kind, [keys, items])
    values = with_parts_of(array.values, target.value_type, may_lack=may_lack)
    return list_like(array, pa.list_(array.type.value_field.with_type(values.type)), values)


def _has_parts_of(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether structs have the target's field names in its order; True if the nesting differs."""
    if source == target or not _t.is_nested(target):
        return True
    if _t.is_struct(target) and _t.is_struct(source):
        return [part.name for part in source] == [part.name for part in target] and all(
            _has_parts_of(source.field(at).type, part.type) for at, part in enumerate(target)
        )
    if _t.is_map(target) and _t.is_map(source):
        return _has_parts_of(source.key_type, target.key_type) and _has_parts_of(
            source.item_type, target.item_type
        )
    if _t.is_list(target) and _t.is_list(source):
        return _has_parts_of(source.value_type, target.value_type)
    return True


def size_of(rows: pa.Table | pa.RecordBatch) -> int:
    """The bytes of the rows, about the same as `nbytes`, but computed faster for many columns.

    `nbytes` visits each chunk of each column. With many columns, the size of a fixed-width column
    follows from its width, without the small null bitmap.
    """
    if rows.num_columns <= _FEW_COLUMNS:
        return int(rows.nbytes)
    kinds = rows.schema.types
    walked = [at for at, kind in enumerate(kinds) if not _t.is_primitive(kind)]
    bits = sum(kind.bit_width for kind in kinds if _t.is_primitive(kind))
    return int(bits * rows.num_rows // 8 + (rows.select(walked).nbytes if walked else 0))


def retype_chunked(
    column: pa.ChunkedArray, target: pa.DataType, leaf: Leaf = cast_leaf
) -> pa.ChunkedArray:
    """The column converted to that type, chunk by chunk."""
    if column.type == target:
        return column
    return pa.chunked_array([retype(chunk, target, leaf) for chunk in column.chunks], type=target)


def inner_of(array: pa.Array) -> list[pa.Array]:
    """The children of a nested array: struct fields, map keys and values, or list elements."""
    if _t.is_struct(array.type):
        return [array.field(index) for index in range(array.type.num_fields)]
    return [array.keys, array.items] if _t.is_map(array.type) else [array.values]


def nested_like(like: pa.Array, target: pa.DataType, inner: Sequence[pa.Array]) -> pa.Array:
    """An array of the type `target` with other children, and the nulls and offsets of `like`."""
    if _t.is_struct(target):
        return struct_array(like, inner, list(target))
    if _t.is_map(target):
        fields = [target.key_field, target.item_field]
        return list_like(like, target, pa.StructArray.from_arrays(list(inner), fields=fields))
    return list_like(like, target, *inner)


def struct_array(
    like: pa.Array, children: Sequence[pa.Array], fields: Sequence[pa.Field]
) -> pa.Array:
    """A struct of these children, null where `like` is null."""
    mask = like.is_null() if like.null_count else None
    if not children:
        return pa.array([{}] * len(like), pa.struct([]), mask=mask)
    return pa.StructArray.from_arrays(children, fields=list(fields), mask=mask)


def without_nulls_under_nulls(array: pa.Array, above: pa.Array | None = None) -> pa.Array:
    """The array without nulls in NOT NULL struct fields, where the struct itself is null.

    Taking a null from a struct array makes all its children null, and Arrow's Parquet writer
    refuses a null in a NOT NULL field. Such nulls are replaced by arbitrary values. A null in a
    struct that is not null is kept, so that the writer refuses it. `above` masks the positions
    where all parents are valid; None means everywhere.
    """
    kind = array.type
    if not _t.is_nested(kind) or not len(array):
        return array
    if _t.is_struct(kind):
        here = array.is_valid() if above is None else pc.and_(above, array.is_valid())
        children = [
            without_nulls_under_nulls(_any_value(array.field(index), kind.field(index), here), here)
            for index in range(kind.num_fields)
        ]
        return nested_like(array, kind, children)
    return nested_like(array, kind, [without_nulls_under_nulls(each) for each in inner_of(array)])


def _any_value(child: pa.Array, field: pa.Field, above: pa.Array) -> pa.Array:
    """A NOT NULL child without its null bitmap, if all its nulls are below null parents."""
    if field.nullable or not child.null_count or pc.any(pc.and_(above, child.is_null())).as_py():
        return child
    kind = child.type
    if _t.is_struct(kind):
        parts = [child.field(index) for index in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind))
    parts = [child.values] if _t.is_list(kind) or _t.is_map(kind) else []
    buffers = [None, *child.buffers()[1 : kind.num_buffers]]
    return pa.Array.from_buffers(kind, len(child), buffers, 0, child.offset, children=parts)


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with offsets added to empty lists and maps that lack them.

    Arrow for Java before 19 (used by Spark 4.1) writes no offsets for empty children of lists and
    maps. Arrow C++ would then read past the buffer, and the process would crash.
    """
    columns = batch.columns
    whole = [_with_offsets(column) for column in columns]
    if all(new is old for new, old in zip(whole, columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(whole, schema=batch.schema)


def _with_offsets(array: pa.Array) -> pa.Array:
    kind = array.type
    if not len(array) and (_t.is_nested(kind) or _is_text_or_bytes(kind)):
        # `pa.nulls` cannot be used: all its children share one buffer, whose size fits only one of
        # them.
        return pa.array([], kind)
    if not _t.is_nested(kind) or _t.is_union(kind):
        return array
    parts = inner_of(array)
    whole = [_with_offsets(part) for part in parts]
    kept = all(new is old for new, old in zip(whole, parts, strict=True))
    return array if kept else nested_like(array, kind, whole)


def rows_only(count: int) -> pa.RecordBatch:
    """A batch of that many rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), count, [None]))


def list_like(array: pa.Array, target: pa.DataType, values: pa.Array) -> pa.Array:
    """A list or map array around other values; it shares nulls and offsets with `array`."""
    return pa.Array.from_buffers(
        target,
        len(array),
        array.buffers()[: target.num_buffers],
        array.null_count,
        array.offset,
        children=[values],
    )


def _is_list_like(source: pa.DataType) -> bool:
    kinds = (_t.is_list, _t.is_map, _t.is_large_list, _t.is_fixed_size_list, _t.is_list_view)
    return any(is_kind(source) for is_kind in kinds)


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    kinds = (_t.is_string, _t.is_binary, _t.is_large_string, _t.is_large_binary)
    return any(is_kind(kind) for is_kind in kinds)


# --- arrow sizes ---------------------------------------------------------------------------------
# The size that Arrow arrays would have if each row had a copy of its value; cuts batches by it.
#
# Dictionaries, views, run ends and list views may share one value among many rows. `nbytes` counts
# it once, but a copy in another layout holds it for each row, so sizes are computed before copying.
#
# INVARIANT: computing a size copies and decodes nothing. Values of null rows count 0 bytes.

RowBytes: TypeAlias = "NDArray[np.int64] | int"
"""The bytes of each value, or one number if all values have the same size."""

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


def row_bytes(array: pa.Array, value_bytes: int = 0) -> RowBytes:
    """The bytes of each row's value, without offsets and validity.

    `value_bytes` is added for each value, also for nulls and the values in nested values.
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return row_bytes(array.storage, value_bytes)
    if isinstance(array, pa.DictionaryArray):
        return _taken(row_bytes(array.dictionary, value_bytes), array.indices)
    if isinstance(array, pa.RunEndEncodedArray):
        return _of_runs(array, value_bytes)
    if _is_view(kind):
        return _alive(_view_lengths(array).astype(np.int64), array) + value_bytes
    if _t.is_struct(kind):
        total: RowBytes = 0
        for at in range(kind.num_fields):
            total = total + row_bytes(array.field(at), value_bytes)
        return (total if isinstance(total, int) else _alive(total, array)) + value_bytes
    if _t.is_fixed_size_list(kind):
        ends = (np.arange(len(array) + 1) + array.offset) * kind.list_size
        parts = _between(row_bytes(array.values, value_bytes), ends[:-1], ends[1:])
        return _alive(parts, array) + value_bytes
    if _t.is_list_view(kind) or _t.is_large_list_view(kind):
        starts = array.offsets.to_numpy().astype(np.int64)
        ends = starts + array.sizes.to_numpy()
        alive = np.asarray(array.is_valid())
        parts = _between(row_bytes(array.values, value_bytes), starts * alive, ends * alive)
        return parts + value_bytes
    if _t.is_list(kind) or _t.is_large_list(kind) or _t.is_map(kind):
        offsets = _offsets(array, wide=_t.is_large_list(kind))
        children = (array.keys, array.items) if _t.is_map(kind) else (array.values,)
        sums = [_between(row_bytes(c, value_bytes), offsets[:-1], offsets[1:]) for c in children]
        return _alive(np.sum(sums, axis=0), array) + value_bytes
    if _is_text_or_bytes(kind):
        wide = _t.is_large_string(kind) or _t.is_large_binary(kind)
        return _alive(np.diff(_offsets(array, wide=wide)), array) + value_bytes
    width = -(-kind.bit_width // 8) if _t.is_primitive(kind) or _has_width(kind) else 1
    return width + value_bytes


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
    if pieces < 2:
        yield batch
        return
    rows = max(1, -(-batch.num_rows // pieces))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _of_runs(array: pa.RunEndEncodedArray, value_bytes: int) -> RowBytes:
    each = row_bytes(array.values, value_bytes)
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
        return _alive(np.take(each, indices.fill_null(0).to_numpy()), indices)
    return np.asarray(each[indices.to_numpy()], np.int64)


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


def _has_width(kind: pa.DataType) -> bool:
    return bool(_t.is_fixed_size_binary(kind) or _t.is_decimal(kind))


# --- coded texts ---------------------------------------------------------------------------------
# Dictionary-encoded string columns: read, moved and written without decoding.
#
# A dictionary index (*code*) has four bytes. Each chunk of a column may have its own dictionary,
# which may contain strings that no row has.

CODED = pa.dictionary(pa.int32(), pa.string())


class CodedColumn(NamedTuple):
    """A dictionary-encoded column, and the bounds of its strings (None: all null).

    The dictionary has exactly the strings that occur.
    """

    texts: pa.DictionaryArray
    low: str | None
    high: str | None


def as_codes(texts: pa.Array) -> pa.DictionaryArray:
    """The strings, dictionary-encoded."""
    return texts if texts.type == CODED else texts.cast(pa.string()).dictionary_encode()


def with_texts(column: pa.DictionaryArray, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The column, with `change` applied to the strings of its dictionary."""
    return pa.DictionaryArray.from_arrays(column.indices, change(column.dictionary))


def fits(column: pa.ChunkedArray) -> bool:
    """Whether all dictionary indexes are valid. Others would be read out of bounds."""
    for chunk in column.chunks:
        bounds = pc.min_max(chunk.indices)
        least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
        if least is not None and not 0 <= least <= greatest < len(chunk.dictionary):
            return False
    return True


def one_dictionary(column: pa.ChunkedArray) -> CodedColumn:
    """The column as one chunk with one dictionary, which has only strings that occur."""
    whole = column.combine_chunks()
    codes, texts = whole.indices, whole.dictionary
    used = np.zeros(len(texts), bool)
    used[codes.drop_null().to_numpy()] = True
    if not used.all():
        places = np.cumsum(used, dtype=np.int32) - 1
        codes = pa.array(places).take(codes) if len(texts) else codes
        texts = texts.filter(pa.array(used))
    bounds = pc.min_max(texts)
    return CodedColumn(
        pa.DictionaryArray.from_arrays(codes, texts), bounds["min"].as_py(), bounds["max"].as_py()
    )


def text_bytes(rows: pa.Table) -> int:
    """The bytes of the strings in the encoded columns after decoding, without offsets."""
    return sum(
        _text_bytes(chunk)
        for column in rows.columns
        if column.type == CODED
        for chunk in column.chunks
    )


def _text_bytes(column: pa.DictionaryArray) -> int:
    lengths = pc.binary_length(column.dictionary).fill_null(0).to_numpy()
    codes = column.indices.drop_null().to_numpy()
    if not len(codes):
        return 0
    longest = int(lengths.max())
    return longest * len(codes) if lengths.min() == longest else int(lengths[codes].sum())


# --- numpy views ---------------------------------------------------------------------------------

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
