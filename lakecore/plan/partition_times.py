"""The time in the values of a partition, which decides when the partition expires.

https://paimon.apache.org/docs/master/maintenance/manage-partitions/

The text to parse is the value of the first partition key, or `partition.timestamp-pattern` with
`$key` replaced by the value of that key; if two keys match, the longer one is meant. Without
`partition.timestamp-formatter`, the text must have the form `yyyy-MM-dd`, optionally with `
HH:mm:ss` and a fraction. As in Java's lenient parsing, digits may be missing, and day 32 is the
first of the next month.

A formatter is a pattern of Java's DateTimeFormatter with numbers and fixed text only: `yyyyMMdd`,
`yyyy-MM-dd'T'HH`. Other letters are refused.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from lakecore.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS = 86_400_000
_LENIENT = re.compile(
    r"(?P<y>-?\d{1,10})-(?P<M>\d{1,2})-(?P<d>\d{1,2})"
    r"(?: (?P<H>\d{1,2}):(?P<m>\d{1,2}):(?P<s>\d{1,2})(?:\.(?P<S>\d{1,9}))?)?",
    re.ASCII,
)
_LETTERS = {
    "y": "y",
    "u": "y",
    "M": "M",
    "L": "M",
    "d": "d",
    "H": "H",
    "m": "m",
    "s": "s",
    "S": "S",
}
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']")
_PARTS = {"M": (1, 12), "d": (1, 31), "H": (0, 23), "m": (0, 59), "s": (0, 59)}
_LONG_MONTH, _TWO_DIGITS = 3, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTimes:
    """How to build a time from the values of a partition.

    `pattern` and `formatter` are optional.
    """

    pattern: str | None = None
    formatter: str | None = None

    def time_ms(self, values: Mapping[str, str | None]) -> int | None:
        """The wall clock time of a partition, in milliseconds since 1970; None if it has none.

        `values` are the texts of the partition keys, in their order; None is null.
        """
        if self.pattern is None:
            text = next(iter(values.values()), None)
        else:
            text = _filled(self.pattern, values)
        if text is None:
            return None
        return _lenient(text) if self.formatter is None else _formatted(text, self.formatter)


def check_formatter(formatter: str) -> None:
    """Raise Unsupported for a formatter with anything but numbers and fixed text."""
    _compiled(formatter)


def _filled(pattern: str, values: Mapping[str, str | None]) -> str | None:
    keys = sorted(values, key=len, reverse=True)
    names = re.compile(r"\$(" + "|".join(map(re.escape, keys)) + ")")
    used = [values[match[1]] for match in names.finditer(pattern)]
    if None in used:
        return None
    return names.sub(lambda match: values[match[1]] or "", pattern)


def _lenient(text: str) -> int | None:
    match = _LENIENT.fullmatch(text)
    if match is None:
        return None
    months = int(match["y"]) * 12 + int(match["M"]) - 1
    try:
        first = date(months // 12, months % 12 + 1, 1).toordinal()
    except (ValueError, OverflowError):
        return None
    days = first - _EPOCH.toordinal() + int(match["d"]) - 1
    clock = (int(match["H"] or 0) * 60 + int(match["m"] or 0)) * 60 + int(match["s"] or 0)
    return days * _DAY_MS + clock * 1000 + _milliseconds(match["S"])


def _formatted(text: str, formatter: str) -> int | None:
    expression, fields = _compiled(formatter)
    match = expression.fullmatch(text)
    if match is None or not {"y", "M", "d"} <= fields:
        return None
    found = {name: match[name] for name in fields}
    for name, (least, most) in _PARTS.items():
        if name in found and not least <= int(found[name]) <= most:
            return None
    year, month, day = int(found["y"]), int(found["M"]), int(found["d"])
    try:
        # A day that the month does not have means its last day.
        day = min(day, calendar.monthrange(year, month)[1])
        start = datetime(year, month, day, tzinfo=UTC)
    except (ValueError, calendar.IllegalMonthError):
        return None
    if "H" in found:
        hour, minute, second = (int(found.get(name, "0")) for name in "Hms")
        start += timedelta(hours=hour, minutes=minute, seconds=second)
    elapsed = (start - _EPOCH) // timedelta(milliseconds=1)
    return elapsed + (_milliseconds(found.get("S")) if "H" in found else 0)


def _milliseconds(fraction: str | None) -> int:
    return int((fraction or "").ljust(3, "0")[:3])


@lru_cache(maxsize=64)
def _compiled(formatter: str) -> tuple[re.Pattern[str], frozenset[str]]:
    """A regular expression for a Java pattern, and the fields that the pattern contains."""
    out: list[str] = []
    fields: set[str] = set()
    end = 0
    for match in _TOKEN.finditer(formatter):
        if match.start() != end:
            break
        end = match.end()
        token = match[0]
        if match[1] is not None:
            out.append(re.escape(match[1].replace("''", "'") or "'"))
        elif match[2] is None:
            out.append(re.escape(token))
        else:
            name, width = _LETTERS.get(match[2]), len(token)
            if name is None or name in fields or (name == "M" and width >= _LONG_MONTH):
                break
            fields.add(name)
            out.append(f"(?P<{name}>{_digits(name, width)})")
    else:
        if end == len(formatter):
            return re.compile("".join(out), re.ASCII), frozenset(fields)
    raise Unsupported(
        "a formatter of partition times is of y, M, d, H, m, s, S and fixed text, each once",
        option="partition.timestamp-formatter",
        value=formatter,
    )


def _digits(name: str, width: int) -> str:
    if name == "S":
        return rf"\d{{{width}}}"
    if name == "y":
        return rf"\d{{{width}}}" if width > 1 else r"\d{1,10}"
    return r"\d{1,2}" if width < _TWO_DIGITS else r"\d{2}"
