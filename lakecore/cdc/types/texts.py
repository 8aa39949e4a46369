"""Converts strings, as sources write them, to values of a Paimon type, one column at a time.

No value is cut or rounded: too many fraction digits, too long strings and numbers out of range
raise an error. (The casts of `lakecore.rows` follow Java's casts of stored values, which cut and
round.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.cdc.types.mapping import STRING
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import (
    BINARIES,
    INTEGERS,
    LENGTH_MAX,
    STRINGS,
    TIMESTAMPS,
    Atomic,
    Root,
    arrow_type,
)
from lakecore.rows.casts import cast

if TYPE_CHECKING:
    from lakecore.model.types import DataType

__all__ = ["check_length", "from_text", "refuse", "zero_dates_to_null"]

_TRUE = pa.array(["t", "true", "y", "yes", "1"])
_FALSE = pa.array(["f", "false", "n", "no", "0"])
_PLAIN_NUMBER = r"^[+-]?[0-9]+(\.[0-9]*)?$|^[+-]?\.[0-9]+$"
_TIME = r"^([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,3}0*)?)?$"
_FLOATS = frozenset({Root.FLOAT, Root.DOUBLE})
_ZERO_DATE = r"^(0000-\d{2}-\d{2}|\d{4}-00-\d{2}|\d{4}-\d{2}-00)"


def from_text(texts: pa.Array, data_type: DataType, column: str) -> pa.Array:
    """The values of the strings in the Arrow type of `data_type`.

    Raises InvalidRequest if a value does not fit the type. The error names the column and the first
    such value.
    """
    if not isinstance(data_type, Atomic):
        raise Unsupported("no rule to read this type from text", column=column, type=data_type)
    root = data_type.root
    if root in STRINGS:
        return check_length(texts, data_type, column)
    if root in BINARIES:
        return check_length(texts.cast(pa.binary()), data_type, column)
    if root is Root.BOOLEAN:
        return _booleans(texts, data_type, column)
    if root is Root.TIME:
        _check(texts, pc.match_substring_regex(texts, _TIME), data_type, column)
        return cast(texts, STRING, data_type, column)
    wanted = arrow_type(data_type)
    given = texts
    if root is Root.DECIMAL or root in INTEGERS:
        given = _numbers(texts, data_type, column)
    elif root in TIMESTAMPS:
        wanted = pa.timestamp(wanted.unit)
    try:
        values = given.cast(wanted)
    except pa.ArrowInvalid:
        raise refuse(texts, given, data_type, wanted, column) from None
    if root in TIMESTAMPS:
        return values.view(arrow_type(data_type))
    if root in _FLOATS:
        _check(texts, _kept(texts, values, root), data_type, column)
    return values


def zero_dates_to_null(texts: pa.Array) -> pa.Array:
    """The texts of dates and timestamps, with null for those whose year, month or day is zero.

    Only MySQL stores such dates. Debezium also converts them to null.
    """
    zero = pc.match_substring_regex(texts, _ZERO_DATE).fill_null(False)
    if not pc.any(zero).as_py():
        return texts
    return pc.if_else(zero, pa.scalar(None, pa.string()), texts)


def check_length(values: pa.Array, data_type: Atomic, column: str) -> pa.Array:
    """Check that no value is longer than the type allows. Returns the values."""
    length = data_type.length or LENGTH_MAX
    if length < LENGTH_MAX:
        is_text = data_type.root in STRINGS
        sizes = pc.utf8_length(values) if is_text else pc.binary_length(values)
        _check(values, pc.less_equal(sizes, length), data_type, column)
    return values


def refuse(
    texts: pa.Array, given: pa.Array, data_type: DataType, wanted: pa.DataType, column: str
) -> InvalidRequest:
    """The error for the first string that cannot be cast. `given` has the strings to cast."""
    low, high = 0, len(given)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            given.slice(low, middle - low).cast(wanted)
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle
    return InvalidRequest(
        "a value does not fit the column's type",
        column=column,
        type=data_type,
        value=texts[low].as_py(),
    )


def _booleans(texts: pa.Array, data_type: DataType, column: str) -> pa.Array:
    lower = pc.utf8_lower(texts)
    true = pc.is_in(lower, _TRUE)
    _check(texts, pc.or_(true, pc.is_in(lower, _FALSE)), data_type, column)
    return pc.if_else(texts.is_valid(), true, pa.scalar(None, pa.bool_()))


def _numbers(texts: pa.Array, data_type: Atomic, column: str) -> pa.Array:
    """Numbers without a leading plus. Decimals also lose trailing zeros of the fraction."""
    if not len(texts):
        return texts
    if data_type.root in INTEGERS:
        _check(texts, pc.match_substring_regex(texts, r"^[+-]?[0-9]+$"), data_type, column)
        return pc.replace_substring_regex(texts, r"^\+", "")
    plain = pc.match_substring_regex(texts, _PLAIN_NUMBER).fill_null(True)
    if pc.all(plain).as_py():
        texts = pc.replace_substring_regex(texts, r"^\+", "")
        return pc.replace_substring_regex(texts, r"(\.[0-9]*?)0+$", r"\1")
    return texts


def _kept(texts: pa.Array, values: pa.Array, root: Root) -> pa.Array:
    """For each float, whether it equals its string: no overflow, and no digits of a FLOAT lost."""
    kept = pc.or_(pc.invert(pc.is_inf(values)), pc.match_substring_regex(texts, r"(?i)inf"))
    if root is Root.FLOAT:
        wide = texts.cast(pa.float64())
        same = pc.or_(pc.equal(wide, values.cast(pa.float64())), pc.is_nan(values))
        if not pc.all(same).as_py():
            same = pc.or_(same, pc.equal(wide.cast(pa.string()), values.cast(pa.string())))
        kept = pc.and_(kept, same)
    return kept


def _check(values: pa.Array, valid: pa.Array, data_type: DataType, column: str) -> None:
    bad = pc.and_(values.is_valid(), pc.invert(valid.fill_null(False)))
    if pc.any(bad).as_py():
        raise InvalidRequest(
            "a value does not fit the column's type",
            column=column,
            type=data_type,
            value=pc.filter(values, bad)[0].as_py(),
        )
