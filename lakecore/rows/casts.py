"""Paimon's casts from one atomic type to another, one column at a time.

If the type of a column was changed, its old files keep the old type and their values are cast when
they are read. The rules are those of Java, so that every engine reads the same values:

- integers narrow by dropping high bits; floats are truncated and saturate at the range of INT or
  BIGINT, and NaN becomes 0;
- decimals round half up; a result with too many digits becomes null;
- text is cut to its length, and CHAR is padded with blanks; text that cannot be parsed raises an
  error, as in Java;
- a timestamp with local time zone is cast as in the zone UTC.

Which pairs have a cast is decided by `may_cast`, as for ALTER TABLE; `CASTS` says how each is done.
Any other pair raises Unsupported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.casts import may_cast
from lakecore.model.types import BINARIES, INTEGERS, STRINGS, Atomic, Root, arrow_type
from lakecore.rows import cast_text as text

if TYPE_CHECKING:
    from numpy.typing import NDArray

Cast: TypeAlias = Callable[[pa.Array, Atomic, Atomic], pa.Array]

_DAY_MS = 86_400_000
_DIGITS_MAX = 38
_WIDE_DIGITS = 76
_COMPACT_DIGITS = 18


def cast(array: pa.Array, source: Atomic, target: Atomic, column: str = "") -> pa.Array:
    """The values of type `source` cast to type `target`, in its Arrow type.

    Raises Unsupported if Paimon has no such cast, and InvalidRequest if a value cannot be cast.
    """
    if replace(source, nullable=True) == replace(target, nullable=True):
        return array
    rule = rule_of(source, target, column)
    try:
        return rule(array, source, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, text.NoCast) as error:
        known = isinstance(error, text.NoCast)
        raise InvalidRequest(
            "a stored value cannot be cast to the column's type",
            column=column,
            stored=source,
            wanted=target,
            **{"value" if known else "cause": error},
        ) from error


def rule_of(source: Atomic, target: Atomic, column: str = "") -> Cast:
    """The cast between two types. Raises Unsupported, naming both, if there is none."""
    known = may_cast(source, replace(target, nullable=True), explicit=True)
    rule = CASTS.get((_family(source), _family(target))) if known else None
    if rule is None:
        raise Unsupported("no cast between the types", column=column, stored=source, wanted=target)
    return rule


def cast_may_fail(source: Atomic, target: Atomic) -> bool:
    """Whether casting a value of `source` to `target` may raise an error.

    Casts to timestamps count only if the target has nanoseconds, because int64 nanoseconds end in
    2262. The range of microseconds is far larger than any date in use.
    """
    if replace(source, nullable=True) == replace(target, nullable=True):
        return False
    families = (_family(source), _family(target))
    return families in _MAY_FAIL or (
        families in _OF_MANY_DAYS and _precision(target) > _MICROSECONDS
    )


def _family(data_type: Atomic) -> str:
    root = data_type.root
    if root in INTEGERS:
        return "integer"
    if root in STRINGS:
        return "string"
    if root in BINARIES:
        return "binary"
    return {Root.FLOAT: "float", Root.DOUBLE: "float", Root.TIMESTAMP_LTZ: "timestamp"}.get(
        root, root.lower()
    )


# --- numbers --------------------------------------------------------------------------------------


def _numbers(array: pa.Array) -> NDArray[np.generic]:
    """The values as a NumPy array, with 0 in place of nulls."""
    filled = array.fill_null(pa.scalar(0, array.type)) if array.null_count else array
    values: NDArray[np.generic] = filled.to_numpy(zero_copy_only=False)
    return values


def _int64s(array: pa.Array) -> NDArray[np.int64]:
    return np.asarray(_numbers(array.cast(pa.int64())), np.int64)


def _array(like: pa.Array, values: NDArray[np.generic], target: pa.DataType) -> pa.Array:
    """The values as an Arrow array of type `target`, null where `like` is null."""
    mask = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    return pa.array(values, mask=mask).cast(target)


def _integer_to_integer(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    return array.cast(arrow_type(target), safe=False)


def _to_float(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    return array.cast(arrow_type(target), safe=False)


def _float_to_integer(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    bits = 64 if target.root is Root.BIGINT else 32
    least, bound = -(2 ** (bits - 1)), 2.0 ** (bits - 1)
    values = _numbers(array).astype(np.float64)
    values = np.where(np.isnan(values), 0.0, values)
    inside = (values > -bound) & (values < bound)
    whole = np.where(inside, values, 0.0).astype(np.int64)
    whole[values >= bound] = -least - 1
    whole[values <= -bound] = least
    wide = _array(array, whole, pa.int64())
    return wide.cast(arrow_type(target), safe=False)


def _boolean_to_number(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    integers = array.cast(pa.int8())
    if target.root is Root.DECIMAL:
        return _integer_to_decimal(integers, source, target)
    return integers.cast(arrow_type(target))


def _integer_to_boolean(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    return pc.not_equal(array, pa.scalar(0, array.type))


def _integer_to_decimal(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    return fit(array.cast(pa.int64()).cast(pa.decimal256(_WIDE_DIGITS, 0)), target)


def _decimal_to_decimal(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    whole = _precision(source) - _scale(source)
    if _scale(target) >= _scale(source) and _precision(target) - _scale(target) >= whole:
        return array.cast(arrow_type(target))
    return fit(array.cast(pa.decimal256(_WIDE_DIGITS, _scale(source))), target)


def _float_to_decimal(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    """Cast floats to decimals through the shortest text of the double, as Java does.

    A FLOAT is widened first.
    """
    doubles = array.cast(pa.float64())
    finite = pc.is_finite(doubles)
    if pc.any(pc.invert(finite)).as_py():
        raise text.NoCast(pc.filter(doubles, pc.invert(finite))[0])
    size = pc.abs(doubles)
    null = pa.scalar(None, pa.float64())
    large = pc.if_else(
        pc.and_(pc.greater_equal(size, 1.0), pc.less(size, 10.0**_DIGITS_MAX)), doubles, null
    )
    tiny = 10.0 ** -(_scale(target) + 2)
    small = pc.if_else(pc.and_(pc.less(size, 1.0), pc.greater_equal(size, tiny)), doubles, null)
    zero = pc.if_else(pc.less(size, tiny), pa.scalar(0.0), null)
    parts = [
        fit(part.cast(pa.string()).cast(pa.decimal256(_WIDE_DIGITS, scale)), target)
        for part, scale in ((large, 20), (small, 60), (zero, 0))
    ]
    return pc.coalesce(*parts)


def _decimal_to_integer(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    """Cast decimals to integers: the fraction is cut, then the high bits are dropped."""
    # A decimal type with scale = precision has no digit for the 0 before the point.
    wide = array.cast(pa.decimal256(_WIDE_DIGITS, _scale(source)))
    whole = pc.round(wide, ndigits=0, round_mode="towards_zero")
    unscaled = whole.cast(pa.decimal128(_DIGITS_MAX, 0))
    words = np.frombuffer(unscaled.buffers()[1], np.int64)[2 * unscaled.offset :: 2]
    low = _array(array, words[: len(array)], pa.int64())
    return low.cast(arrow_type(target), safe=False)


def _decimal_to_float(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    if _precision(source) <= _COMPACT_DIGITS:
        words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset :: 2][: len(array)]
        doubles = _array(array, words / 10.0 ** _scale(source), pa.float64())
    else:
        doubles = array.cast(pa.string()).cast(pa.float64())
    return doubles.cast(arrow_type(target), safe=False)


def fit(array: pa.Array, target: Atomic) -> pa.Array:
    """Decimals of any width, rounded half up to the target type.

    Null if there are too many digits.
    """
    precision, scale = _precision(target), _scale(target)
    if scale < array.type.scale:
        array = pc.round(array, ndigits=scale, round_mode="half_towards_infinity")
    whole_digits = precision - scale
    if whole_digits + array.type.scale < _WIDE_DIGITS:
        limit = pa.scalar(Decimal(10) ** whole_digits).cast(array.type)
        fits = pc.less(pc.abs(array), limit)
        array = pc.if_else(fits, array, pa.scalar(None, array.type))
    return array.cast(arrow_type(target))


def _precision(data_type: Atomic) -> int:
    assert data_type.precision is not None
    return data_type.precision


def _scale(data_type: Atomic) -> int:
    assert data_type.scale is not None
    return data_type.scale


# --- dates and times ------------------------------------------------------------------------------


def _bare(array: pa.Array) -> pa.Array:
    """Timestamps in UTC as timestamps without a zone; the stored numbers are unchanged."""
    return array.cast(pa.timestamp(array.type.unit)) if array.type.tz else array


def _per_second(array: pa.Array) -> int:
    return {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[array.type.unit]


def _timestamp_to_timestamp(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:
    wanted = arrow_type(target)
    if _precision(target) < _precision(source):
        array = _truncated(_bare(array), _precision(target))
    numbers = _bare(array)
    unit = pa.timestamp(wanted.unit)
    return numbers.cast(unit).view(wanted)


def _truncated(array: pa.Array, digits: int) -> pa.Array:
    """Timestamps with the fraction cut to `digits` digits, as Java does it.

    With more than 3 digits, they are rounded down. Otherwise they are rounded down to milliseconds,
    then towards zero.
    """
    per_second = _per_second(array)
    values = _int64s(array)
    step = per_second // 10**digits
    if step > 1 and digits > 3:
        values = values // step * step
    elif step > 1:
        per_ms = per_second // 1_000
        ms = values // per_ms
        coarse = 10 ** (3 - digits)
        cut = np.where(ms < 0, -(-ms // coarse), ms // coarse) * coarse * per_ms
        values = np.where(values % step == 0, values, cut)
    return _array(array, values, pa.int64()).cast(array.type)


def _timestamp_to_date(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    days = _int64s(_bare(array)) // (86_400 * _per_second(array))
    return _array(array, days.astype(np.int32), pa.int32()).cast(pa.date32())


def _timestamp_to_time(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    per_ms = _per_second(array) // 1_000
    ms = _int64s(_bare(array)) // per_ms % _DAY_MS
    return _array(array, ms.astype(np.int32), pa.int32()).cast(pa.time32("ms"))


def _timestamp_to_integer(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    ms = _int64s(_bare(array)) // (_per_second(array) // 1_000)
    seconds = np.where(ms < 0, -(-ms // 1_000), ms // 1_000)
    return _array(array, seconds, pa.int64()).cast(arrow_type(target), safe=False)


def _integer_to_timestamp(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    seconds = array.cast(pa.int64()).cast(pa.timestamp("s"))
    wanted = arrow_type(target)
    return seconds.cast(pa.timestamp(wanted.unit)).view(wanted)


def _date_to_timestamp(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    wanted = arrow_type(target)
    return array.cast(pa.timestamp(wanted.unit)).view(wanted)


def _time_to_timestamp(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    ms = array.cast(pa.int32()).cast(pa.int64()).cast(pa.timestamp("ms"))
    wanted = arrow_type(target)
    return ms.cast(pa.timestamp(wanted.unit)).view(wanted)


def _string_to_decimal(array: pa.Array, source: Atomic, target: Atomic) -> pa.Array:  # noqa: ARG001
    return fit(text.to_wide_decimal(array), target)


# --- the table ------------------------------------------------------------------------------------

CASTS: dict[tuple[str, str], Cast] = {
    ("integer", "integer"): _integer_to_integer,
    ("integer", "float"): _to_float,
    ("integer", "decimal"): _integer_to_decimal,
    ("integer", "boolean"): _integer_to_boolean,
    ("integer", "timestamp"): _integer_to_timestamp,
    ("integer", "string"): text.integer_to_string,
    ("float", "float"): _to_float,
    ("float", "integer"): _float_to_integer,
    ("float", "decimal"): _float_to_decimal,
    ("float", "string"): text.float_to_string,
    ("decimal", "decimal"): _decimal_to_decimal,
    ("decimal", "integer"): _decimal_to_integer,
    ("decimal", "float"): _decimal_to_float,
    ("decimal", "string"): text.decimal_to_string,
    ("boolean", "integer"): _boolean_to_number,
    ("boolean", "float"): _boolean_to_number,
    ("boolean", "decimal"): _boolean_to_number,
    ("boolean", "string"): text.boolean_to_string,
    ("string", "string"): text.string_to_string,
    ("string", "binary"): text.string_to_binary,
    ("string", "boolean"): text.string_to_boolean,
    ("string", "integer"): text.string_to_integer,
    ("string", "float"): text.string_to_float,
    ("string", "decimal"): _string_to_decimal,
    ("string", "date"): text.string_to_date,
    ("string", "time"): text.string_to_time,
    ("string", "timestamp"): text.string_to_timestamp,
    ("binary", "binary"): text.binary_to_binary,
    ("binary", "string"): text.binary_to_string,
    ("date", "string"): text.date_to_string,
    ("date", "timestamp"): _date_to_timestamp,
    ("time", "string"): text.time_to_string,
    ("time", "timestamp"): _time_to_timestamp,
    ("timestamp", "string"): text.timestamp_to_string,
    ("timestamp", "timestamp"): _timestamp_to_timestamp,
    ("timestamp", "date"): _timestamp_to_date,
    ("timestamp", "time"): _timestamp_to_time,
    ("timestamp", "integer"): _timestamp_to_integer,
}
"""The cast from one family of types to another."""

_TOTAL_FROM_TEXT = {"string", "binary"}
_MAY_FAIL = {
    *(
        families
        for families in CASTS
        if families[0] == "string" and families[1] not in _TOTAL_FROM_TEXT
    ),
    ("float", "decimal"),
    ("integer", "timestamp"),
}
"""Casts that raise an error for some values."""
_OF_MANY_DAYS = {("date", "timestamp"), ("timestamp", "timestamp")}
_MICROSECONDS = 6
