"""Which types a column may change to, and which strings are valid default values of a type.

An implicit cast keeps the meaning of every value (Paimon includes shorter strings and DECIMALs); an
explicit cast may lose values. The rules are the casts that Paimon supports when it reads a file
with an older schema (https://paimon.apache.org/docs/master/concepts/spec/schema/). Reads use the
same table (`rows/casts.py`): a column may change exactly if a read can cast it.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import (
    BINARIES,
    INTEGERS,
    LENGTH_MAX,
    STRINGS,
    TIMESTAMPS,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Root,
    Row,
    Variant,
    Vector,
    inner_types,
    is_blob,
    with_nullable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_FLOATS = frozenset({Root.FLOAT, Root.DOUBLE})
_NUMBERS = frozenset({*INTEGERS, *_FLOATS, Root.DECIMAL})
_TIMES = frozenset({Root.DATE, Root.TIME, *TIMESTAMPS})
_TO_INTEGER = frozenset({*_NUMBERS, *STRINGS, Root.BOOLEAN})

_IMPLICIT: Mapping[Root, frozenset[Root]] = {
    Root.CHAR: frozenset({Root.CHAR}),
    Root.VARCHAR: STRINGS,
    Root.BINARY: frozenset({Root.BINARY}),
    Root.VARBINARY: BINARIES,
    Root.DECIMAL: _NUMBERS,
    Root.SMALLINT: frozenset(INTEGERS[:1]),
    Root.INT: frozenset(INTEGERS[:2]),
    Root.BIGINT: frozenset(INTEGERS[:3]),
    Root.FLOAT: frozenset({*INTEGERS, Root.DECIMAL}),
    Root.DOUBLE: _NUMBERS,
    Root.DATE: frozenset({Root.TIMESTAMP}),
    Root.TIME: frozenset({Root.TIMESTAMP}),
    Root.TIMESTAMP: TIMESTAMPS,
    Root.TIMESTAMP_LTZ: TIMESTAMPS,
}
_EXPLICIT: Mapping[Root, frozenset[Root]] = {
    Root.CHAR: frozenset({*STRINGS, *BINARIES, *_NUMBERS, Root.BOOLEAN}),
    Root.VARCHAR: frozenset({*BINARIES, *_NUMBERS, *_TIMES, Root.BOOLEAN}),
    Root.BOOLEAN: frozenset({*STRINGS, *INTEGERS}),
    Root.BINARY: frozenset({*STRINGS, Root.VARBINARY}),
    Root.VARBINARY: STRINGS,
    Root.DECIMAL: frozenset({*STRINGS, Root.BOOLEAN}),
    Root.TINYINT: _TO_INTEGER,
    Root.SMALLINT: _TO_INTEGER,
    Root.INT: _TO_INTEGER | TIMESTAMPS,
    Root.BIGINT: _TO_INTEGER | TIMESTAMPS,
    Root.FLOAT: _TO_INTEGER,
    Root.DOUBLE: frozenset({*STRINGS, Root.BOOLEAN}),
    Root.DATE: frozenset({*TIMESTAMPS, *STRINGS}),
    Root.TIME: frozenset({*TIMESTAMPS, *STRINGS}),
    Root.TIMESTAMP: frozenset({Root.INT, Root.BIGINT, Root.DATE, Root.TIME, *STRINGS}),
    Root.TIMESTAMP_LTZ: frozenset({Root.INT, Root.BIGINT, Root.DATE, Root.TIME, *STRINGS}),
}


def may_cast(source: DataType, target: DataType, *, explicit: bool) -> bool:
    """Whether a column of the source type may become one of the target type.

    Nullability does not matter, with one exception: a date or time cannot become STRING NOT NULL.
    Java can cast it only to a nullable STRING, and could not read older files. A nested type never
    changes as a whole, only its parts do; but an explicit cast may turn it into a STRING, if its
    parts may become STRINGs.
    """
    if with_nullable(source, nullable=True) == with_nullable(target, nullable=True):
        return True
    if not isinstance(target, Atomic) or is_blob(source) or is_blob(target):
        return False
    whole = target.root is Root.VARCHAR and target.length == LENGTH_MAX
    if not isinstance(source, Atomic):
        nested = isinstance(source, Array | Map | Row) and not isinstance(source, Variant | Vector)
        text = with_nullable(target, nullable=True)
        parts = (may_cast(each, text, explicit=True) for each in inner_types(source))
        return explicit and whole and nested and all(parts)
    if source.root is Root.TIME and target.root is Root.TIME:
        return False
    if source.root in _TIMES and target.root is Root.VARCHAR:
        return explicit and whole and target.nullable
    if source.root is target.root or source.root in _IMPLICIT.get(target.root, ()):
        return True
    return explicit and source.root in _EXPLICIT.get(target.root, ())


def narrowed_columns(before: Sequence[Field], after: Sequence[Field]) -> list[str]:
    """The columns, as `v: STRING to INT`, whose new type may not hold each value of the old one."""
    old = {field.id: field.type for field in before}
    return [
        f"{field.name}: {old[field.id]} to {field.type}"
        for field in after
        if field.id in old and _narrows(old[field.id], field.type)
    ]


def _narrows(old: DataType, new: DataType) -> bool:
    if not (isinstance(old, Atomic) and isinstance(new, Atomic)):
        if isinstance(old, Row) and isinstance(new, Row):
            return bool(narrowed_columns(old.fields, new.fields))
        pairs = zip(inner_types(old), inner_types(new), strict=False)
        return any(_narrows(*pair) for pair in pairs)
    sizes = [((each.length or each.digits) - each.decimals, each.decimals) for each in (old, new)]
    if old.root is new.root or {old.root, new.root} <= STRINGS:
        return any(less < more for more, less in zip(*sizes, strict=True))
    return not may_cast(old, new, explicit=False)


_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})
_INTEGER_BITS = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}


def check_default(data_type: DataType, text: str | None, *, column: str) -> None:
    """Raise InvalidRequest unless the string is a value of the type; quotes around it are ignored.

    None, for no default value, is always valid.
    """
    if text is None:
        return
    if not isinstance(data_type, Atomic):
        raise Unsupported(
            "default values of nested types are not supported", column=column, type=data_type
        )
    bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text
    if not _is_value(data_type, bare.strip()):
        raise InvalidRequest(
            "the default value is not a value of the column's type",
            column=column,
            type=data_type,
            default_value=text,
        )


def _is_value(data_type: Atomic, text: str) -> bool:
    try:
        match data_type.root:
            case Root.CHAR | Root.VARCHAR | Root.BINARY | Root.VARBINARY | Root.BLOB:
                return True
            case Root.BOOLEAN:
                return text.lower() in _TRUE | _FALSE
            case Root.TINYINT | Root.SMALLINT | Root.INT | Root.BIGINT as root:
                half = 1 << (_INTEGER_BITS[root] - 1)
                return bool(re.fullmatch(r"[+-]?\d+", text)) and -half <= int(text) < half
            case Root.FLOAT | Root.DOUBLE:
                float(text)
                return True
            case Root.DECIMAL:
                return _fits(Decimal(text), data_type)
            case Root.DATE:
                dt.date.fromisoformat(text)
                return True
            case Root.TIME:
                dt.time.fromisoformat(text)
                return True
            case Root.TIMESTAMP | Root.TIMESTAMP_LTZ:
                return _is_timestamp(text)
    except (ValueError, InvalidOperation):
        return False


def _fits(number: Decimal, data_type: Atomic) -> bool:
    assert data_type.precision is not None
    assert data_type.scale is not None
    return number.is_finite() and number.copy_abs() < Decimal(10) ** (
        data_type.precision - data_type.scale
    )


def _is_timestamp(text: str) -> bool:
    whole, _, digits = text.partition(".")
    if digits and not (digits.isdecimal() and len(digits) <= 9 and ":" in whole):
        return False
    return dt.datetime.fromisoformat(whole).tzinfo is None
