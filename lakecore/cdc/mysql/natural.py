"""Converts natural values of a MySQL column to the Arrow type of its target column.

- A zero or impossible date (`0000-00-00`) is null, and 1970-01-01 in a NOT NULL column.
- A TIMESTAMP is a point in time; the target stores its local time in the server's time zone.
- A negative TIME, or one of 24 hours or more, has no value in Paimon and is refused. Digits after
  the milliseconds are cut, as in Paimon.
- With the type mapping `to-string`, a value becomes its text in MySQL's text protocol.
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
    decode: Callable[[], pa.Array], field: Field, target: pa.DataType, *, zone: str
) -> pa.Array:
    """The decoded values as the target type. `zone` is the server's time zone.

    Raises InvalidRequest, naming the column, for a value that the type cannot hold.
    """
    try:
        return _fitted(decode(), field, target, zone)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise InvalidRequest(
            "a value of the source does not fit its column; `--type_mapping to-string` takes "
            "every value as text",
            column=field.name,
            type=field.type,
            cause=error,
        ) from error


def _fitted(values: pa.Array, field: Field, target: pa.DataType, zone: str) -> pa.Array:
    kind = values.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        values = pc.local_timestamp(values.cast(pa.timestamp("us", zone)))
        kind = values.type
    if not field.nullable and values.null_count and pa.types.is_temporal(kind):
        values = values.fill_null(
            pa.scalar(0, pa.int64()).cast(kind)
            if pa.types.is_timestamp(kind)
            else pa.scalar(0, pa.int32()).cast(kind)
        )
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


def _times(values: pa.Array, field: Field, target: pa.DataType) -> pa.Array:
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
