"""SQL literals as Arrow scalars, typed as DuckDB types them.

A number is an integer, a decimal if it has a point, a double if it has an exponent; beside a FLOAT
the first two are rounded to one. A string takes the type of the column it stands beside;
`DATE '...'` and casts name theirs. Only what is certain to
mean the same in DuckDB is read: a text with more digits than its type holds would be rounded, and
a TIMESTAMP_LTZ without its offset depends on a session.
"""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
from sqlglot import exp

_t = pa.types
_INTEGER = re.compile(r"[+-]?\d{1,38}")
_DECIMAL = re.compile(r"\d{0,38}\.\d{0,38}")
_DOUBLE = re.compile(r"(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?")
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?)?(?:(Z|[+-]\d\d)(?::?(\d\d))?)?"
)
_BLOB = re.compile(r"(?:[^\\]|\\x[0-9A-Fa-f]{2})*", re.ASCII | re.DOTALL)
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_CASTS = {
    exp.DType.DATE: pa.date32(),
    exp.DType.TIME: pa.time64("us"),
    exp.DType.TIMESTAMP: pa.timestamp("us"),
    exp.DType.TIMESTAMPNTZ: pa.timestamp("us"),
    exp.DType.TIMESTAMP_NS: pa.timestamp("ns"),
    exp.DType.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    exp.DType.TIMESTAMPLTZ: pa.timestamp("us", "UTC"),
    exp.DType.TEXT: pa.string(),
    exp.DType.VARCHAR: pa.string(),
    exp.DType.VARBINARY: pa.binary(),
    exp.DType.BINARY: pa.binary(),
    exp.DType.DOUBLE: pa.float64(),
    exp.DType.FLOAT: pa.float32(),
    exp.DType.TINYINT: pa.int8(),
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.INT: pa.int32(),
    exp.DType.BIGINT: pa.int64(),
}


def literal(tree: exp.Expr, beside: pa.DataType) -> pa.Scalar | None:
    """The value that a literal has beside a column of that type; None if that is not certain."""
    match tree:
        case exp.Paren(this=inner):
            return literal(inner, beside)
        case exp.Null():
            return pa.scalar(None)
        case exp.Boolean(this=value):
            return pa.scalar(bool(value))
        case exp.Literal() if tree.is_string:
            return _of_text(tree.name, beside)
        case exp.Literal():
            return _beside(_number(tree.name), beside)
        case exp.Neg(this=inner):
            value = literal(inner, beside)
            if value is None or not value.is_valid or not _is_number(value.type):
                return None
            number = value.as_py()
            # A minus sign would round to the digits of the thread's decimal context.
            negated = number.copy_negate() if isinstance(number, Decimal) else -number
            return (
                pa.scalar(negated, value.type)
                if _t.is_floating(value.type)
                else _number_scalar(negated)
            )
        case exp.Cast() if not isinstance(tree, exp.TryCast) and not tree.to.expressions:
            target = _CASTS.get(tree.to.this)
            return None if target is None else _cast(tree.this, target)
        case _:
            return None


def _cast(tree: exp.Expr, target: pa.DataType) -> pa.Scalar | None:
    if isinstance(tree, exp.Literal) and tree.is_string:
        return _of_text(tree.name, target)
    value = literal(tree, target)
    if value is None or not value.is_valid or not _is_number(value.type):
        return None
    if _t.is_floating(target):
        return pa.scalar(float(value.as_py()), target)
    exact = _t.is_integer(target) and _t.is_integer(value.type)
    bits = target.bit_width if exact else 0
    return value if exact and -(1 << bits - 1) <= value.as_py() < 1 << bits - 1 else None


def _number(text: str) -> pa.Scalar | None:
    if _INTEGER.fullmatch(text):
        return _number_scalar(int(text))
    if _DECIMAL.fullmatch(text) and len(text) <= 39 and text != ".":
        return _number_scalar(Decimal(text))
    return pa.scalar(float(text)) if _DOUBLE.fullmatch(text) else None


def _beside(value: pa.Scalar | None, column: pa.DataType) -> pa.Scalar | None:
    """The number as it is compared with the column: a FLOAT rounds what is no double."""
    if value is None or not _t.is_float32(column) or _t.is_floating(value.type):
        return value
    return pa.scalar(_to_float(value.as_py()), column)


def _to_float(value: Decimal | int) -> float:
    """The FLOAT of a number that is not negative, rounded where DuckDB rounds."""
    if isinstance(value, int):
        return float(np.float32(np.int64(value)))
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits)))
    return float(np.float32(unscaled / 10**-exponent))


def _number_scalar(value: Decimal | float) -> pa.Scalar:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return pa.scalar(Decimal(value), pa.decimal128(38, 0))
    return pa.scalar(value)


def _of_text(text: str, target: pa.DataType) -> pa.Scalar | None:
    if _t.is_string(target):
        return pa.scalar(text)
    if _t.is_binary(target):
        return _blob(text)
    if _t.is_integer(target) and _INTEGER.fullmatch(text):
        return _number_scalar(int(text))
    if _t.is_boolean(target) and text.lower() in ("true", "false"):
        return pa.scalar(text.lower() == "true")
    try:
        if _t.is_date(target) and _DATE.fullmatch(text):
            return pa.scalar(text).cast(target)
        if _t.is_time(target) and (match := _TIME.fullmatch(text)):
            return _time(match, target)
        if _t.is_timestamp(target):
            return _timestamp(text, target)
    except pa.ArrowInvalid:
        return None  # a 13th month
    return None


def _time(match: re.Match[str], target: pa.DataType) -> pa.Scalar | None:
    hours, minutes, seconds, fraction = match.groups(default="")
    if len(fraction) > _DIGITS[target.unit]:
        return None
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return pa.scalar(whole * 10**9 + int(fraction.ljust(9, "0")), pa.time64("ns"))


def _timestamp(text: str, target: pa.DataType) -> pa.Scalar | None:
    match = _TIMESTAMP.fullmatch(text)
    if match is None or len(match[3] or "") > _DIGITS[target.unit]:
        return None
    date, time, fraction, zone, minutes = match.groups()
    if bool(zone) != bool(target.tz):
        return None
    seconds = time if time is None or time.count(":") > 1 else f"{time}:00"
    plain = f"{date} {seconds or '00:00:00'}" + (f".{fraction}" if fraction else "")
    offset = "" if zone is None else "Z" if zone == "Z" else f"{zone}:{minutes or '00'}"
    return pa.scalar(plain + offset).cast(target)


def _blob(text: str) -> pa.Scalar | None:
    """DuckDB's text of a BLOB: ASCII as it is, any byte as a backslash and `xAB`."""
    if not text.isascii() or not _BLOB.fullmatch(text):
        return None
    return pa.scalar(
        re.sub(
            rb"\\x([0-9A-Fa-f]{2})", lambda match: bytes.fromhex(match[1].decode()), text.encode()
        )
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(_t.is_integer(kind) or _t.is_floating(kind) or _t.is_decimal(kind))
