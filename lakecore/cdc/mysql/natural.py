"""Converts natural values of a MySQL column to the Arrow type of its target column.

- A zero or impossible date (`0000-00-00`) is null, and 1970-01-01 in a NOT NULL column. A column of
  a key refuses it, because several rows could become one.
- A TIMESTAMP is a point in time; the target stores its local time in the server's time zone, or the
  point in time itself if its type has a zone.
- A negative TIME, or one of 24 hours or more, has no value in Paimon and is refused. Digits after
  the milliseconds are cut, as in Paimon.
- In a STRING column, a value becomes its text in MySQL's text protocol. If a local time occurs
  twice, the offset from UTC follows the second one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.model.types import Field

__all__ = ["fitted"]

_DAY_MICROS = 86_400_000_000


def fitted(
    decode: Callable[[], pa.Array],
    show: Callable[[], pa.Array],
    field: Field,
    target: pa.DataType,
    *,
    zone: str,
    exact: bool,
) -> pa.Array:
    """The decoded values as the target type.

    - `show`: returns the values as texts, including dates that are not in the calendar;
    - `zone`: the server's time zone;
    - `exact`: whether different values must stay different, as in a key.

    Raises InvalidRequest, naming the column, for a value that the type cannot hold.
    """
    try:
        values = decode()
        is_date = pa.types.is_date(values.type) or pa.types.is_timestamp(values.type)
        if is_date and values.null_count:
            texts = pc.replace_substring_regex(show(), r"\.0*$", "")
            if texts.null_count < values.null_count:
                return _outside_calendar(values, texts, field, target, zone, exact=exact)
        return _fitted(values, field, target, zone)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise InvalidRequest(
            "a value of the source does not fit its column; `--type_mapping to-string` takes "
            "every value as text",
            column=field.name,
            type=field.type,
            cause=error,
        ) from error


def _outside_calendar(
    values: pa.Array,
    texts: pa.Array,
    field: Field,
    target: pa.DataType,
    zone: str,
    *,
    exact: bool,
) -> pa.Array:
    """The values as the target type, if some have no date of the calendar and are null."""
    outside = pc.and_(values.is_null(), texts.is_valid())
    if pa.types.is_string(target):
        return pc.if_else(outside, texts, _fitted(values, field, target, zone))
    if exact:
        raise InvalidRequest(
            "a key has a date that is not in the calendar; `--type_mapping key-dates-to-string` "
            "stores the dates of keys as text",
            column=field.name,
            value=texts[pc.index(outside, pa.scalar(True)).as_py()].as_py(),
        )
    if not field.nullable:
        width = pa.int64() if pa.types.is_timestamp(values.type) else pa.int32()
        values = values.fill_null(pa.scalar(0, width).cast(values.type))
    return _fitted(values, field, target, zone)


def _fitted(values: pa.Array, field: Field, target: pa.DataType, zone: str) -> pa.Array:
    kind = values.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        if pa.types.is_timestamp(target) and target.tz is not None:
            return values.cast(target)
        if pa.types.is_string(target):
            return _local_texts(values, zone)
        values = pc.local_timestamp(values.cast(pa.timestamp("us", zone)))
        kind = values.type
    if kind == target:
        return values
    if pa.types.is_boolean(target):
        if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return pc.not_equal(values.cast(pa.binary()), b"\0")
        return pc.not_equal(values, 0)
    if pa.types.is_time(target):
        return _times(values, field, target)
    if pa.types.is_string(target) and not pa.types.is_string(kind):
        return _texts(values)
    if pa.types.is_decimal(target) and kind == pa.uint64():
        return values.cast(pa.decimal128(20, 0)).cast(target)
    return values.cast(target)


def _local_texts(values: pa.Array, zone: str) -> pa.Array:
    """The local times of points in time, with the offset from UTC at the second of two."""
    local = pc.local_timestamp(values.cast(pa.timestamp("us", zone)))
    texts = _texts(local)
    if "/" not in zone:
        return texts  # an offset, or UTC: no local time occurs twice
    first = pc.assume_timezone(local, zone, ambiguous="earliest").cast(pa.int64())
    later = pc.not_equal(first, values.cast(pa.int64()))
    if not pc.any(later).as_py():
        return texts
    offsets = pc.divide(pc.subtract(local.cast(pa.int64()), values.cast(pa.int64())), 60_000_000)
    marked = [
        None if text is None else f"{text}{minutes // 60:+03}:{minutes % 60:02}"
        for text, minutes in zip(texts.to_pylist(), offsets.to_pylist(), strict=True)
    ]
    return pc.if_else(later, pa.array(marked, pa.string()), texts)


def _times(values: pa.Array, field: Field, target: pa.DataType) -> pa.Array:
    values = values.cast(pa.int64())
    outside = pc.or_(pc.less(values, 0), pc.greater_equal(values, _DAY_MICROS))
    if pc.any(outside).as_py():
        at = pc.index(outside, pa.scalar(True)).as_py()
        raise InvalidRequest(
            "a TIME of Paimon is within one day; `--type_mapping to-string` takes this value",
            column=field.name,
            value=_clock(values[at].as_py()),
        )
    return pc.divide(values, 1000).cast(pa.int32()).cast(pa.time32("ms")).cast(target)


def _texts(values: pa.Array) -> pa.Array:
    """The values as strings, as in MySQL's text protocol.

    Only the number of fraction digits may differ.
    """
    kind = values.type
    if pa.types.is_duration(kind):
        numbers = values.cast(pa.int64()).to_pylist()
        clocks = pa.array([None if each is None else _clock(each) for each in numbers], pa.string())
        return pc.replace_substring_regex(clocks, r"\.0+$", "")
    if pa.types.is_list(kind):
        return pc.binary_join(values, ",")
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array(
            [None if each is None else each.hex().upper() for each in values.to_pylist()],
            pa.string(),
        )
    if pa.types.is_timestamp(kind):
        return pc.replace_substring_regex(values.cast(pa.string()), r"\.0+$", "")
    return values.cast(pa.string())


def _clock(micros: int) -> str:
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    seconds, micros = divmod(micros, 1_000_000)
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
