"""Python values of atomic types as Arrow arrays: numbers, strings, times.

Arrow finds their types, with two exceptions. A mix of several kinds of times raises an error, where
Arrow would silently convert them to one kind. Nanoseconds of pandas datetimes are kept, where Arrow
would drop them.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, cast
from uuid import UUID

import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.model.types import TIMESTAMPS, Atomic, DataType, Root

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

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
