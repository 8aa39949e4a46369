"""SQL conditions for COPY INTO: whether a cast has kept the value of the file.

DuckDB's casts round decimals and fractions of seconds, drop the time from dates, ignore time zones,
and make large floats infinite. If a condition is not TRUE, the value does not fit its column.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakecore.model.data_types import BINARIES, LENGTH_MAX, STRINGS, Root

if TYPE_CHECKING:
    from lakecore.model.data_types import Atomic

__all__ = ["DIGITS", "parts_as", "same_as_stored", "same_as_text", "same_number", "wide"]

_PRECISION_MAX = 38
_DIGITS_MORE = 18
_DATED = (Root.DATE, Root.TIMESTAMP, Root.TIMESTAMP_LTZ)
DIGITS = "DECIMAL(38, 18)"
"""The type in which numbers of any kind are compared."""
_TIME_DIGITS_MAX = 3
"""TIME is stored in milliseconds."""
_DATE = r"\s*[0-9]+[-/ ][0-9]+[-/ ][0-9]+"
_UTC = r"(Z|[+-]00(:?00)?)?\s*"
_PARTS = re.compile(r'"(?:[^"]|"")*"|\b(?:TINYINT|SMALLINT|INTEGER|BIGINT|DECIMAL\(\d+,\d+\))')


def same_as_text(data: Atomic, text: str, value: str) -> str:
    """An SQL condition: the cast of the string `text` to `value` was exact.

    `text` is not NULL.
    """
    match data.root:
        case Root.DECIMAL:
            plain = rf"'\s*[+-]?[0-9]*(\.[0-9]{{0,{data.scale or 0}}}0*)?\s*'"
            return (
                f"(regexp_full_match({text}, {plain}) "
                f"OR (contains(lower({text}), 'e') AND {_same_decimal(data, text, value)}))"
            )
        case Root.DATE:
            # The text of a date may have a time: it must be midnight.
            return (
                f"(regexp_full_match({text}, '{_DATE}([ T][0-9:.]*)?\\s*{_UTC}') "
                f"AND TRY_CAST(trim({text}) AS TIMESTAMP) = {value})"
            )
        case Root.TIME:
            time = rf"\s*[0-9:]+{_fraction(min(data.precision or 0, _TIME_DIGITS_MAX))}\s*"
            return f"(regexp_full_match({text}, '{time}') AND {value} < TIME '24:00:00')"
        case Root.TIMESTAMP | Root.TIMESTAMP_LTZ:
            zone = _UTC if data.root is Root.TIMESTAMP else "([^0-9.:].*)?"
            time = rf"([ T][0-9:]*{_fraction(data.precision or 0)}\s*{zone})?\s*"
            return f"regexp_full_match({text}, '{_DATE}{time}')"
        case Root.FLOAT | Root.DOUBLE:
            return rf"(isfinite({value}) OR regexp_matches(lower({text}), '^\s*[+-]?(inf|nan)'))"
        case _:
            return _short_enough(data, value)


def same_as_stored(data: Atomic, own: str, value: str) -> str:
    """The same condition for a cast of `own`, which is neither a string nor NULL."""
    if data.root in STRINGS or data.root in BINARIES:
        return _short_enough(data, value)
    if data.root in (Root.FLOAT, Root.DOUBLE):
        return f"(isfinite({value}) OR NOT isfinite(CAST({own} AS DOUBLE)))"
    same = f"coalesce(TRY({value} = {own}), false)"
    if data.root not in _DATED:
        return same
    # No DATE or TIMESTAMP of Paimon is infinite. DuckDB cannot test TIMESTAMPTZ_NS.
    tested = f"CAST({value} AS TIMESTAMPTZ)" if data.root is Root.TIMESTAMP_LTZ else value
    return f"(isfinite({tested}) AND {same})"


def same_number(text: str, number: str) -> str:
    """The condition that `text`, a JSON number as DuckDB prints it, equals `number`."""
    same = f"TRY(TRY_CAST({text} AS {DIGITS}) = {number})"
    return f"coalesce({same}, contains(json::VARCHAR, {text}))"


def wide(data: Atomic) -> str:
    """A DECIMAL type of DuckDB that has more fraction digits than the DECIMAL type `data`."""
    return f"DECIMAL({_PRECISION_MAX}, {min(_PRECISION_MAX, (data.scale or 0) + _DIGITS_MORE)})"


def parts_as(kind: str) -> str:
    """The DuckDB type `kind` of a nested value, with more fraction digits in each DECIMAL.

    An integer type within `kind` becomes a DECIMAL.
    """

    def widened(found: re.Match[str]) -> str:
        if found[0].startswith('"'):
            return found[0]
        scale = int(found[0].rstrip(")").rpartition(",")[2]) if "," in found[0] else 0
        return f"DECIMAL({_PRECISION_MAX},{min(_PRECISION_MAX, scale + _DIGITS_MORE)})"

    return _PARTS.sub(widened, kind)


def _same_decimal(data: Atomic, text: str, value: str) -> str:
    """The condition for a DECIMAL: a cast to a type with more fraction digits gives an equal value.

    If the number is too large for that type, the condition is true.
    """
    return f"coalesce(TRY(TRY_CAST({text} AS {wide(data)}) = {value}), true)"


def _fraction(digits: int) -> str:
    return rf"(\.[0-9]{{0,{digits}}}0*)?"


def _short_enough(data: Atomic, value: str) -> str:
    """The condition that a string or bytes are not longer than their type allows."""
    length = data.length
    if length is None or length >= LENGTH_MAX:
        return "true"
    count = "octet_length" if data.root in BINARIES else "length"
    return f"{count}({value}) <= {length}"
