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

import datetime as dt
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain
from math import isnan
from typing import Protocol, cast
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.model.arrow_arrays import rows_only
from lakecore.model.types import (
    TIMESTAMPS,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    check_no_objects,
    inner_types,
    with_nullable,
)
from lakecore.rows.fit import Place, check_once, fit

# --- python leaves -------------------------------------------------------------------------------
# Python values of atomic types as Arrow arrays: numbers, strings, times.
#
# Arrow finds their types, with two exceptions. A mix of several kinds of times raises an error,
# where Arrow would silently convert them to one kind. Nanoseconds of pandas datetimes are kept,
# where Arrow would drop them.

REFUSED_BY_ARROW = (TypeError, ValueError, OverflowError, pa.ArrowNotImplementedError)
"""PyArrow's exceptions for values that it cannot convert; some are not its own classes."""

NO_COMMON_TYPE = "the values of a column have no common type: one does not go with those before"
_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The target of values: a column's dotted name, its type if known, and whether NaN is null.

    `is_part`: the values are inside lists, dicts or maps.
    """

    name: str
    type: DataType | None = None
    nan_is_null: bool = False
    is_part: bool = False

    def inside(self, part: str, kind: DataType | None) -> Column:
        """The target for a nested part of the values."""
        return replace(self, name=f"{self.name}.{part}", type=kind, is_part=True)


def leaves_of(values: Sequence[object], kinds: set[type], column: Column) -> pa.Array:
    """The values as an Arrow array; `kinds` are their Python types.

    Raises InvalidRequest for the first value that does not fit.
    """
    root = column.type.root if isinstance(column.type, Atomic) else None
    if column.is_part and column.nan_is_null and root in TIMESTAMPS and kinds == {int}:
        # PyArrow's to_pandas makes integers of nanoseconds in maps, and in ROWs in lists.
        return pa.array(values, pa.timestamp("ns", "UTC" if root is Root.TIMESTAMP_LTZ else None))
    if kinds == {UUID} and root in {Root.CHAR, Root.VARCHAR}:
        values = [None if each is None else str(each) for each in values]
    if kinds == {int} and root is Root.DECIMAL:
        values = [None if each is None else Decimal(cast("int", each)) for each in values]
    if any(is_of_pandas(kind) for kind in kinds):
        nanos = _nanoseconds(values, kinds)
        if nanos is not None:
            check_times(column.name, nanos, values)
            return nanos
    array = arrow_of(values, column)
    if pa.types.is_temporal(array.type) and kinds != {dt.date}:
        check_times(column.name, array, values)
    return array


def _nanoseconds(values: Sequence[object], kinds: set[type]) -> pa.Array | None:
    """Datetimes as Arrow values with the nanoseconds of pandas.

    None if no value has nanoseconds.
    """
    if not all(issubclass(kind, dt.datetime) for kind in kinds):
        return None
    times = cast("Sequence[dt.datetime | None]", values)
    if not any(getattr(each, "nanosecond", 0) for each in times):
        return None
    zoned = any(each is not None and each.tzinfo is not None for each in times)
    try:
        numbers = [None if each is None else _since_epoch(each) for each in times]
        return pa.array(numbers, pa.timestamp("ns", "UTC" if zoned else None))
    except REFUSED_BY_ARROW:
        return None


def _since_epoch(value: dt.datetime) -> int:
    epoch = _EPOCH if value.tzinfo is None else _EPOCH_UTC
    whole = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
    return (whole - epoch) // dt.timedelta(microseconds=1) * 1000 + getattr(value, "nanosecond", 0)


def arrow_of(values: Sequence[object] | np.ndarray, column: Column) -> pa.Array:
    """The values converted by Arrow, in one chunk. Raises InvalidRequest for the first misfit."""
    try:
        array = pa.array(values, from_pandas=column.nan_is_null)
    except REFUSED_BY_ARROW as error:
        raise _odd_one_out(column, values, error) from error
    if isinstance(array, pa.ChunkedArray):
        # More than 2 GiB: a single chunk needs 64-bit offsets.
        wide = pa.large_string() if pa.types.is_string(array.type) else pa.large_binary()
        return pa.array(values, wide, from_pandas=column.nan_is_null)
    return array


def _odd_one_out(
    column: Column, values: Sequence[object] | np.ndarray, error: Exception
) -> InvalidRequest:
    """The error that names the first value that Arrow cannot convert.

    Arrow may fail on the value alone, or only together with the values before it.
    """
    fits, fails = 0, len(values)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if _is_taken(values[:middle]):
            fits = middle
        else:
            fails = middle
    value = values[fails - 1]
    if _is_taken([value]):
        message = NO_COMMON_TYPE
    else:
        message = "a value has no Arrow type: it is too large, no valid text, or of a strange kind"
    return InvalidRequest(message, column=column.name, value=value, cause=error)


def _is_taken(values: Sequence[object] | np.ndarray) -> bool:
    try:
        pa.array(values)
    except REFUSED_BY_ARROW:
        return False
    return True


def _kind_of_time(value: object) -> str:
    match value:
        case dt.datetime(tzinfo=None):
            return "datetime"
        case dt.datetime():
            return "datetime with a zone"
        case dt.date():
            return "date"
        case dt.time(tzinfo=zone) if zone is not None:
            return "time with a zone"
        case _:
            return ""


def check_times(name: str, array: pa.Array | pa.ChunkedArray, values: Iterable[object]) -> None:
    """Raise InvalidRequest for a mix of times that Arrow would convert to one kind.

    A datetime among dates would lose its time of day; one without a zone would become UTC.
    """
    if not pa.types.is_temporal(array.type):
        return
    there = array.is_valid().to_pylist()
    kinds = {_kind_of_time(each) for each, is_there in zip(values, there, strict=True) if is_there}
    kinds -= {""}
    if "time with a zone" in kinds:
        raise zoned_time(name)
    if len(kinds) > 1:
        raise InvalidRequest(NO_COMMON_TYPE, column=name, kinds=sorted(kinds))


def zoned_time(name: str) -> InvalidRequest:
    """The error for a time of day with a zone, which Arrow cannot represent."""
    return InvalidRequest("a time of day has no zone: take it off first", column=name)


def as_instants(array: pa.Array, column: Column) -> pa.Array:
    """NumPy datetimes as instants in UTC, if the column has instants.

    NumPy has no zones, so PyArrow and DuckDB drop the zone of instants in a list.
    """
    kind = column.type
    is_instant = isinstance(kind, Atomic) and kind.root is Root.TIMESTAMP_LTZ
    if is_instant and pa.types.is_timestamp(array.type) and array.type.tz is None:
        return array.cast(pa.timestamp(array.type.unit, "UTC"))
    return array


def is_of_pandas(kind: type) -> bool:
    """Whether the Python type is defined by pandas."""
    return kind.__module__.partition(".")[0] == "pandas"


# --- python values -------------------------------------------------------------------------------

_PAIR = 2
_NUMBERS = frozenset({bool, int, float})
_OF_ARROW = frozenset({str, bytes, *_NUMBERS})


def array_of(values: Sequence[object], column: Column) -> pa.Array:
    """The values as an Arrow array of one type.

    Raises InvalidRequest for the first value that cannot be converted.
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


# --- python rows ---------------------------------------------------------------------------------
# Python rows as Arrow batches: dicts, a dict of columns, and pandas frames.
#
# Columns that have a type (Arrow, Polars, NumPy numbers, pandas extension types) keep it; the
# values of other columns are inspected (`python_values.py`). A row may have no columns.
#
# INVARIANT: a batch is cut before its values are copied to Arrow, because a string that all rows
# share would be copied for each of them.

_ROWS_MAX = 65_536
_PANDAS_ROWS_MAX = 1 << 20
_ROW_NUMBERS = "biufM"


class _Index(Protocol):
    names: list[object]


class _Places(Protocol):
    def __getitem__(self, at: object, /) -> object: ...


class PandasFrame(Protocol):
    """The part of the pandas.DataFrame interface that lakecore uses."""

    index: _Index
    columns: Iterable[object]
    iloc: _Places

    def reset_index(self, *, drop: bool) -> PandasFrame: ...
    def droplevel(self, level: list[int]) -> PandasFrame: ...
    def __len__(self) -> int: ...


class Named:
    """The fields of the table by name, and the maximum bytes of a batch."""

    def __init__(self, fields: Sequence[Field], bytes_max: int, *, settles: bool = False) -> None:
        self._types: dict[str, DataType] = {field.name: field.type for field in fields}
        self.bytes_max = bytes_max
        self.settles = settles

    def column(self, name: str, *, nan_is_null: bool = False) -> Column:
        """The column of that name; without a type if it is not a column of the table."""
        return Column(name=name, type=self._types.get(name), nan_is_null=nan_is_null)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """Python values of one column that has no Arrow type yet."""

    values: Sequence[object]
    nan_is_null: bool = False


def batches_of_dicts(
    rows: Sequence[Mapping[object, object]], named: Named
) -> Iterator[pa.RecordBatch]:
    """The rows as batches. The columns are the names in all dicts; a missing value is null."""
    names = _texts(dict.fromkeys(chain.from_iterable(rows)))
    columns = {name: _Values(values=[row.get(name) for row in rows]) for name in names}
    return _batches(columns, len(rows), named)


def batches_of_columns(given: Mapping[object, object], named: Named) -> Iterator[pa.RecordBatch]:
    """The rows of a dict of columns, which must have equal lengths."""
    if not given:
        raise InvalidRequest("a dict of columns names at least one column")
    columns = {
        name: _column(name, column)
        for name, column in zip(_texts(given), given.values(), strict=True)
    }
    lengths = {name: len(_of(each)) for name, each in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidRequest("the columns have different numbers of values", rows=lengths)
    count = next(iter(lengths.values()))
    step = _ROWS_MAX if any(isinstance(each, _Values) for each in columns.values()) else count
    for start in range(0, max(1, count), max(1, step)):
        part = slice(start, min(count, start + step))
        yield from _batches(
            {name: _sliced(each, part) for name, each in columns.items()},
            part.stop - part.start,
            named,
        )


def batches_of_pandas(frame: PandasFrame, named: Named) -> Iterator[pa.RecordBatch]:
    """The rows of a pandas frame."""
    whole = _with_named_index(frame)
    names = [str(name) for name in whole.columns]
    check_once(names)
    for start in range(0, max(1, len(whole)), _PANDAS_ROWS_MAX):
        piece = cast("PandasFrame", whole.iloc[slice(start, start + _PANDAS_ROWS_MAX)])
        columns = {name: _of_series(name, _at(piece, at)) for at, name in enumerate(names)}
        yield from _batches(columns, len(piece), named)


def _batches(
    columns: Mapping[str, _Values | pa.Array | pa.ChunkedArray], count: int, named: Named
) -> Iterator[pa.RecordBatch]:
    """The rows of these columns, in as many batches as the bytes of the Python values require."""
    try:
        yield from _converted(columns, count, named)
    except RecursionError as error:
        raise InvalidRequest("values are nested too deep, or hold themselves") from error


def _converted(
    columns: Mapping[str, _Values | pa.Array | pa.ChunkedArray], count: int, named: Named
) -> Iterator[pa.RecordBatch]:
    boxed = [each.values for each in columns.values() if isinstance(each, _Values)]
    for part in _parts(boxed, count, named.bytes_max):
        arrays = {}
        for name, each in columns.items():
            piece = _sliced(each, part)
            if isinstance(piece, _Values):
                column = named.column(name, nan_is_null=piece.nan_is_null)
                piece = array_of(piece.values, column)
                if named.settles:
                    piece = _settled(piece, column)
            arrays[name] = piece
        yield from _joined(arrays, part.stop - part.start)


def _settled(array: pa.Array, column: Column) -> pa.Array:
    """The values cast to the type of their column, if all of them fit."""
    if column.type is None:
        return array
    with suppress(InvalidRequest):
        nullable = with_nullable(column.type, nullable=True)
        return fit(array, nullable, Place(column=column.name))
    return array


def _parts(columns: Sequence[Sequence[object]], count: int, bytes_max: int) -> Iterator[slice]:
    """Slices of the rows, found by halving, whose Python values take at most that many bytes."""
    waiting = [slice(0, count)]
    while waiting:
        part = waiting.pop()
        rows = part.stop - part.start
        whole = rows == count
        held = (bytes_of(each if whole else each[part], bytes_max) for each in columns)
        if rows <= 1 or sum(held) <= bytes_max:
            yield part
            continue
        middle = part.start + rows // 2
        waiting += [slice(middle, part.stop), slice(part.start, middle)]


def _joined(
    arrays: Mapping[str, pa.Array | pa.ChunkedArray], count: int
) -> Iterator[pa.RecordBatch]:
    if not arrays:
        yield rows_only(count)
        return
    try:
        table = pa.Table.from_arrays(list(arrays.values()), names=list(arrays))
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "the name of a column is not valid Unicode", columns=list(arrays)
        ) from error
    batches = table.to_batches()
    if batches:
        yield from batches
    else:
        yield pa.RecordBatch.from_arrays(
            [pa.nulls(0, each.type) for each in arrays.values()], names=list(arrays)
        )


def _of(column: _Values | pa.Array | pa.ChunkedArray) -> Sequence[object]:
    return column.values if isinstance(column, _Values) else cast("Sequence[object]", column)


def _sliced(
    column: _Values | pa.Array | pa.ChunkedArray, part: slice
) -> _Values | pa.Array | pa.ChunkedArray:
    if part.start == 0 and part.stop == len(_of(column)):
        return column
    if isinstance(column, _Values):
        return _Values(values=column.values[part], nan_is_null=column.nan_is_null)
    return column.slice(part.start, part.stop - part.start)


def _column(name: str, column: object) -> _Values | pa.Array | pa.ChunkedArray:
    if isinstance(column, pl.Series):
        check_no_objects(column.to_frame(name))
        return column.to_arrow(compat_level=pl.CompatLevel.newest())
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    if isinstance(column, np.ndarray):
        numbers = column.ndim == 1 and column.dtype.kind in _ROW_NUMBERS
        return pa.array(column) if numbers else _Values(values=list(column))
    if type(column).__module__.partition(".")[0] == "pandas" and hasattr(column, "dtype"):
        return _of_series(name, column)
    if isinstance(column, list | tuple | range):
        return _Values(values=column)
    raise InvalidRequest(
        "a dict names columns, each with a list of its values; one row is a list of one dict",
        column=name,
        given=type(column).__name__,
    )


def _of_series(name: str, column: object) -> _Values | pa.Array | pa.ChunkedArray:
    """A column of a pandas frame, in which NaN is null."""
    kind = getattr(column, "dtype", None)
    if str(kind) == "object" or getattr(kind, "storage", "") == "python":
        objects = np.asarray(cast("Iterable[object]", column), object)
        return _Values(values=cast("Sequence[object]", objects), nan_is_null=True)
    if str(kind).startswith("period["):
        raise InvalidRequest(
            "a period has no type: make it a time or a text first", column=name, type=str(kind)
        )
    try:
        if str(kind).startswith("Sparse["):
            column = np.asarray(column)
        return pa.array(column, from_pandas=True)
    except REFUSED_BY_ARROW as error:
        raise InvalidRequest(
            "the values of this pandas type have no Arrow form",
            column=name,
            type=str(kind),
            cause=error,
        ) from error


def _at(frame: PandasFrame, number: int) -> object:
    return frame.iloc[(slice(None), number)]


def _with_named_index(frame: PandasFrame) -> PandasFrame:
    names = list(frame.index.names)
    unnamed = [level for level, name in enumerate(names) if name is None]
    if len(unnamed) == len(names):
        return frame
    try:
        return (frame.droplevel(unnamed) if unnamed else frame).reset_index(drop=False)
    except ValueError as error:
        raise InvalidRequest(
            "two columns have the same name: an index has the name of a column",
            column=next((name for name in names if name in list(frame.columns)), names),
        ) from error


def _texts(names: Iterable[object]) -> list[str]:
    texts = []
    for name in names:
        if not isinstance(name, str):
            raise InvalidRequest("the name of a column must be a string", column=name)
        texts.append(name)
    return texts
