"""Formats timestamps by patterns of Java's DateTimeFormatter, for the function `date_format`.

Known letters: y u (year), M L (month), d, D (day of the year), E (weekday), Q (quarter), a, H, k,
K, h, m, s, S (fraction), n (nanosecond of the second). Names are English. Text between single
quotes, and every character that is not a letter, stands for itself. Any other letter raises
Unsupported.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest, Unsupported

__all__ = ["compile_pattern"]

Printer: TypeAlias = Callable[[pa.Array], pa.Array]

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([a-zA-Z])\2*|[^a-zA-Z']", re.DOTALL)
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_NUMBERS: dict[str, tuple[int, Callable[[pa.Array], pa.Array]]] = {
    "M": (2, pc.month),
    "L": (2, pc.month),
    "d": (2, pc.day),
    "D": (3, pc.day_of_year),
    "Q": (2, pc.quarter),
    "H": (2, pc.hour),
    "k": (2, lambda times: _one_based(pc.hour(times), 24)),
    "K": (2, lambda times: _modulo(pc.hour(times), 12)),
    "h": (2, lambda times: _one_based(_modulo(pc.hour(times), 12), 12)),
    "m": (2, pc.minute),
    "s": (2, pc.second),
    "n": (9, lambda times: _nanoseconds(times)),  # noqa: PLW0108 - defined below
}
"""By letter: the largest number of repetitions (they pad with zeros), and the number to print."""


def compile_pattern(pattern: str, column: str) -> Printer:
    """The function that formats an array of timestamps. Raises InvalidRequest or Unsupported."""
    parts: list[Printer] = []
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise InvalidRequest(
                "a date pattern has a quote that does not end", column=column, pattern=pattern
            )
        at = token.end()
        text = token.group()
        if text.startswith("'"):
            parts.append(_constant("'" if text == "''" else token[1].replace("''", "'")))
        elif token[2]:
            parts.append(_letter(token[2], len(text), column, pattern))
        else:
            parts.append(_constant(text))
    if not parts:
        raise InvalidRequest("a date pattern is empty", column=column)
    return lambda times: pc.binary_join_element_wise(*[part(times) for part in parts], "")


def _letter(letter: str, count: int, column: str, pattern: str) -> Printer:
    if letter in "yu" and count != 3:
        return lambda times: _year(times, count)
    if letter in "ML" and count in {3, 4}:
        names = _MONTHS if count == 4 else tuple(name[:3] for name in _MONTHS)
        return lambda times: _names(names, pc.subtract(pc.month(times), 1))
    if letter == "E" and count <= 4:
        names = _WEEKDAYS if count == 4 else tuple(name[:3] for name in _WEEKDAYS)
        return lambda times: _names(names, pc.day_of_week(times))
    if letter == "a" and count == 1:
        return lambda times: _names(("AM", "PM"), pc.divide(pc.hour(times), 12))
    if letter == "S" and count <= 9:
        return lambda times: pc.utf8_slice_codeunits(_padded(_nanoseconds(times), 9), 0, count)
    most, number = _NUMBERS.get(letter, (0, pc.year))
    if count <= most:
        return lambda times: _padded(number(times), count)
    raise Unsupported(
        "a letter of a date pattern is not supported",
        column=column,
        pattern=pattern,
        letters=letter * count,
    )


def _constant(text: str) -> Printer:
    return lambda times: pc.if_else(times.is_valid(), pa.scalar(text), pa.scalar(None, pa.string()))


def _year(times: pa.Array, count: int) -> pa.Array:
    years = pc.year(times)
    return _padded(_modulo(years, 100), 2) if count == 2 else _padded(years, count)


def _names(names: tuple[str, ...], numbers: pa.Array) -> pa.Array:
    return pa.array(names).take(numbers)


def _padded(numbers: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), width, "0")


def _modulo(numbers: pa.Array, divisor: int) -> pa.Array:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, divisor), divisor))


def _one_based(numbers: pa.Array, highest: int) -> pa.Array:
    """Hours in a one-based form: 0 is written as the highest number (24 or 12)."""
    return pc.if_else(pc.equal(numbers, 0), pa.scalar(highest, numbers.type), numbers)


def _nanoseconds(times: pa.Array) -> pa.Array:
    """The nanosecond of the second."""
    milli = pc.multiply(pc.millisecond(times), 1_000_000)
    micro = pc.multiply(pc.microsecond(times), 1_000)
    return pc.add(pc.add(milli, micro), pc.nanosecond(times))
