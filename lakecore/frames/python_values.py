"""Python values as Arrow arrays: dicts, lists, numbers, times.

Arrow infers the type of most values. These cases are handled here, because Arrow would lose
information or does not know the column's type:

1. `None`, `pd.NA`, `pd.NaT`, NumPy's NaT and masked NumPy values are null, at any depth.
2. The column's type, if known, determines the meaning of a dict: the entries of a MAP or MULTISET,
   or the fields of a ROW. Entries may also be pairs, or dicts `key`, `value`.
3. Nested parts are separate arrays, and each is treated like a column.
4. A mix of several kinds of times raises an error, and nanoseconds of pandas are kept.

NaN is null in pandas values, and a number elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import chain
from math import isnan
from typing import TYPE_CHECKING, cast

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.frames.python_leaves import (
    NO_COMMON_TYPE,
    REFUSED_BY_ARROW,
    Column,
    arrow_of,
    as_instants,
    is_of_pandas,
    leaves_of,
)
from lakecore.model.types import Array, Atomic, Map, Multiset, Row, inner_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PAIR = 2
_NUMBERS = frozenset({bool, int, float})
_OF_ARROW = frozenset({str, bytes, *_NUMBERS})


def array_of(values: Sequence[object], column: Column) -> pa.Array:
    """The values as an Arrow array of one type.

    InvalidRequest names the first that cannot be converted.
    """
    if _first_kind(values) in _OF_ARROW and not (column.is_part and column.nan_is_null):
        # If the first value is one of these, Arrow converts all values without inspecting each.
        with suppress(*REFUSED_BY_ARROW):
            array = pa.array(values, from_pandas=column.nan_is_null)
            if isinstance(array, pa.Array):
                return array
    values, kinds = _without_absent(values, nan_is_null=column.nan_is_null)
    if not kinds:
        return pa.nulls(len(values))
    mappings = {kind for kind in kinds if issubclass(kind, Mapping)}
    lists = {kind for kind in kinds if _is_list(kind)}
    if isinstance(column.type, Map | Multiset) and kinds == mappings | lists:
        return _maps(values, column)
    if mappings == kinds:
        return _structs(cast("Sequence[Mapping[object, object] | None]", values), column)
    if lists == kinds:
        return _lists(values, column)
    if mappings or lists:
        there = [each for each in values if each is not None]
        odd = next(each for each in there if _shape(type(each)) != _shape(type(there[0])))
        raise InvalidRequest(NO_COMMON_TYPE, column=column.name, value=odd)
    return leaves_of(values, kinds, column)


def bytes_of(values: Sequence[object], enough: int) -> int:
    """An upper estimate of the bytes that the values take in Arrow.

    The estimate is at most twice the true number, or four times if it is not above `enough`.
    """
    total = 16 * len(values)
    first = _first_kind(values)
    if first in _NUMBERS:
        return total  # otherwise Arrow raises an error for a later value
    if first is str or first is bytes:
        with suppress(TypeError, ValueError):
            bound = 4 * sum(map(len, filter(None, cast("Sequence[str | None]", values))))
            if bound <= enough:
                return total + bound
    kinds = set(map(type, values))
    for kind in kinds:
        if issubclass(kind, str | bytes | bytearray):
            texts = cast("Sequence[str]", _of_type(values, kind, kinds))
            total += sum(map(sys.getsizeof, texts))
        elif issubclass(kind, Mapping):
            found = cast("Sequence[Mapping[object, object]]", _of_type(values, kind, kinds))
            total += bytes_of(list(chain.from_iterable(map(kind.values, found))), enough)
            total += bytes_of(list(chain.from_iterable(found)), enough)
        elif issubclass(kind, np.ndarray):
            arrays = cast("Sequence[np.ndarray]", _of_type(values, kind, kinds))
            total += sum(each.nbytes for each in arrays if each.dtype != object)
            boxed = (each.ravel().tolist() for each in arrays if each.dtype == object)
            total += bytes_of(list(chain.from_iterable(boxed)), enough)
        elif _is_list(kind):
            found_lists = cast("Sequence[Iterable[object]]", _of_type(values, kind, kinds))
            total += bytes_of(list(chain.from_iterable(found_lists)), enough)
    return total


def _first_kind(values: Sequence[object]) -> type | None:
    """The type of the first value that is not None; also None for NaN, which may be null."""
    first = next((each for each in values if each is not None), None)
    return None if first is None or (isinstance(first, float) and isnan(first)) else type(first)


def _of_type(values: Sequence[object], kind: type, kinds: set[type]) -> Sequence[object]:
    return values if len(kinds) == 1 else [each for each in values if type(each) is kind]


def _is_list(kind: type) -> bool:
    return issubclass(
        kind, list | tuple | AbstractSet | np.ndarray | range | pl.Series | pa.Array
    ) or (is_of_pandas(kind) and hasattr(kind, "tolist"))


def _shape(kind: type) -> str:
    if issubclass(kind, Mapping):
        return "mapping"
    return "list" if _is_list(kind) else "leaf"


def _without_absent(
    values: Sequence[object], *, nan_is_null: bool
) -> tuple[Sequence[object], set[type]]:
    """The values with None in place of missing ones, and the types of the other values."""
    kinds = set(map(type, values)) - {type(None)}
    missing = {k for k in kinds if is_of_pandas(k) and k.__name__ in {"NAType", "NaTType"}}
    missing |= {kind for kind in kinds if kind is type(np.ma.masked)}
    if missing:
        values = [None if type(each) in missing else each for each in values]
        kinds -= missing
    if np.datetime64 in kinds:
        values = [
            None if isinstance(each, np.datetime64) and np.isnat(each) else each for each in values
        ]
        kinds = set(map(type, values)) - {type(None)}
    floats = {kind for kind in kinds if issubclass(kind, float)}
    if nan_is_null and floats and floats != kinds:
        values = [None if isinstance(each, float) and isnan(each) else each for each in values]
        kinds = set(map(type, values)) - {type(None)}
    return values, kinds


# --- values with parts ----------------------------------------------------------------------------


def _structs(values: Sequence[Mapping[object, object] | None], column: Column) -> pa.Array:
    """Dicts as Arrow structs. The fields are the names in all dicts; a missing name is null."""
    known = column.type.fields if isinstance(column.type, Row) else ()
    types = {field.name: field.type for field in known}
    names = list(dict.fromkeys(chain.from_iterable(each for each in values if each is not None)))
    mask = pa.array([each is None for each in values], pa.bool_())
    if not names:
        return pa.array([None if each is None else {} for each in values], pa.struct([]))
    parts = []
    for name in names:
        if not isinstance(name, str):
            raise InvalidRequest(
                "the name of a field must be a string; only a MAP column accepts other keys",
                column=column.name,
                key=name,
            )
        own = [None if each is None else each.get(name) for each in values]
        parts.append(array_of(own, column.inside(name, types.get(name))))
    try:
        return pa.StructArray.from_arrays(parts, names=names, mask=mask)
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "the name of a field is not valid Unicode", column=column.name, parts=names
        ) from error


def _lists(values: Sequence[object], column: Column) -> pa.Array:
    kind = column.type
    inner = column.inside("element", kind.element if isinstance(kind, Array) else None)
    arrays = [each for each in values if isinstance(each, np.ndarray)]
    there = [each for each in values if each is not None]
    if len(arrays) == len(there) and _same_numbers(arrays):
        lengths = [0 if each is None else len(cast("np.ndarray", each)) for each in values]
        return _list_array(values, lengths, _of_numbers(arrays, inner))
    plain = {type(each) for each in there} <= {list, tuple}
    found = cast("list[list[object]]", there if plain else list(map(_elements, there)))
    lengths = list(map(len, found))
    if len(found) < len(values):
        rest = iter(lengths)
        lengths = [0 if each is None else next(rest) for each in values]
    return _list_array(values, lengths, array_of(list(chain.from_iterable(found)), inner))


def _of_numbers(arrays: Sequence[np.ndarray], column: Column) -> pa.Array:
    """The values of all masked arrays of DuckDB; masked values are null."""
    numbers = np.concatenate([np.asarray(each) for each in arrays])
    if not any(isinstance(each, np.ma.MaskedArray) for each in arrays):
        return as_instants(arrow_of(numbers, column), column)
    mask = np.concatenate([np.ma.getmaskarray(each) for each in arrays])
    return as_instants(pa.array(numbers, mask=mask, from_pandas=column.nan_is_null), column)


def _same_numbers(arrays: Sequence[np.ndarray]) -> bool:
    kinds = {each.dtype for each in arrays}
    return len(kinds) == 1 and kinds.pop().kind in "biufM" and all(a.ndim == 1 for a in arrays)


def _elements(value: object) -> list[object]:
    if isinstance(value, pl.Series):
        return value.to_list()
    if isinstance(value, pa.Array):
        return cast("list[object]", value.to_pylist())
    if isinstance(value, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(value)
        return [None if gone else each for each, gone in zip(value.data, masked, strict=True)]
    return list(cast("Iterable[object]", value))


def _maps(values: Sequence[object], column: Column) -> pa.Array:
    """Maps as lists of structs `key`, `value`."""
    assert isinstance(column.type, Map | Multiset)
    key_type, value_type = inner_types(column.type)
    entries = [
        None if each is None else _entries(each, column, nested=not isinstance(key_type, Atomic))
        for each in values
    ]
    flat = list(chain.from_iterable(each for each in entries if each is not None))
    keys = array_of([key for key, _ in flat], column.inside("key", key_type))
    items = array_of([item for _, item in flat], column.inside("value", value_type))
    pairs = pa.StructArray.from_arrays([keys, items], names=["key", "value"])
    return _list_array(values, [0 if each is None else len(each) for each in entries], pairs)


def _entries(value: object, column: Column, *, nested: bool) -> list[tuple[object, object]]:
    """The pairs of one map. DuckDB returns a map with nested keys as two lists."""
    if isinstance(value, Mapping):
        if nested and set(value) == {"key", "value"}:
            return list(zip(_elements(value["key"]), _elements(value["value"]), strict=True))
        return list(value.items())
    pairs = []
    for entry in _elements(value):
        if isinstance(entry, Mapping) and set(entry) == {"key", "value"}:
            pairs.append((entry["key"], entry["value"]))
        elif isinstance(entry, tuple | list | np.ndarray) and len(entry) == _PAIR:
            pairs.append((entry[0], entry[1]))
        else:
            raise InvalidRequest(
                "a map must be a dict, a list of pairs, or a list of dicts key, value",
                column=column.name,
                value=value,
                entry=entry,
            )
    return pairs


def _list_array(values: Sequence[object], lengths: Sequence[int], elements: pa.Array) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    mask = pa.array([each is None for each in values], pa.bool_())
    if offsets[-1] < 1 << 31:
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, mask=mask)
    return pa.LargeListArray.from_arrays(pa.array(offsets), elements, mask=mask)
