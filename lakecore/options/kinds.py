"""The kinds of option values, and how each is parsed from text.

A `Kind` turns the text of a schema file into a value, and a value back into the text of a document.
For an invalid text it raises `ValueError`, whose message states what is valid; `parse.py` adds the
key and the table.

Texts follow Paimon: sizes are powers of 1024 (`128 mb`), a duration without a unit is in
milliseconds (`10 s`), and flags and choices ignore case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from lakecore.options.zones import parse_zone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import tzinfo

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

INT_MAX = 2_147_483_647
LONG_MAX = 9_223_372_036_854_775_807


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A domain of option values: `parse` reads a text or raises ValueError, `show` writes one.

    `tidy` removes what `parse` ignores (such as blanks) from a text before it is stored, because
    other engines may not ignore it.
    """

    name: str
    parse: Callable[[str], T]
    show: Callable[[T], str] = str
    tidy: Callable[[str], str] = str.strip


# --- parsers ------------------------------------------------------------------------------------

_SIZE_UNITS = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
}
_NANOS = {
    **dict.fromkeys(("d", "day", "days"), 86_400_000_000_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000_000_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000_000_000),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000_000_000),
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1_000_000),
    **dict.fromkeys(("µs", "micro", "micros", "microsecond", "microseconds"), 1_000),
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1),
}
_AMOUNT = re.compile(r"(\d+)\s*([^\d\s]*)\Z")

_FILE_NAME = re.compile(r"[^/\\\x00-\x1f\x7f\ud800-\udfff]+")
_FILE_PREFIX_BYTES_MAX = 160  # of 255: a UUID, counters and the format follow the prefix


def parse_size(text: str) -> int:
    """The bytes of a text such as `128 mb`."""
    match = _AMOUNT.match(text.strip().lower())
    if match is None or match[2] not in _SIZE_UNITS:
        raise ValueError("a size such as '128 mb', in b, kb, mb, gb or tb")
    return min(int(match[1]) * _SIZE_UNITS[match[2]], LONG_MAX)


def show_size(size_bytes: int) -> str:
    """The size as text, in the largest unit that divides it."""
    if size_bytes == LONG_MAX:
        return "infinite"
    for unit, factor in (("tb", 1 << 40), ("gb", 1 << 30), ("mb", 1 << 20), ("kb", 1 << 10)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} bytes"


def parse_duration(text: str) -> int:
    """The duration in milliseconds, from a text such as `10 s`; rounded down."""
    match = _AMOUNT.match(text.strip().lower())
    if match is None or match[2] not in _NANOS:
        raise ValueError("a duration such as '10 s', in d, h, min, s or ms")
    return int(match[1]) * _NANOS[match[2]] // 1_000_000


def show_duration(duration_ms: int) -> str:
    """The duration as text, in the largest unit that divides it."""
    for unit, factor in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if duration_ms and duration_ms % factor == 0:
            return f"{duration_ms // factor} {unit}"
    return f"{duration_ms} ms"


def parse_flag(text: str) -> bool:
    """True or false."""
    flag = {"true": True, "false": False}.get(text.strip().lower())
    if flag is None:
        raise ValueError("true or false")
    return flag


def parse_names(text: str) -> tuple[str, ...]:
    """The names in a comma-separated list, without blanks around them."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def parse_folder(text: str) -> str | None:
    """A path within the table, without surrounding blanks and redundant slashes; None if empty."""
    parts = [part for part in text.strip().split("/") if part]
    leaves = text.strip().startswith("/") or ":" in text or not {".", ".."}.isdisjoint(parts)
    if leaves or not all(_FILE_NAME.fullmatch(part) for part in parts):
        raise ValueError("a path inside the table, such as 'data'")
    return "/".join(parts) or None


def parse_file_prefix(text: str) -> str:
    """A prefix of file names: it has no path, and leaves room for the rest of the name."""
    if text and not _FILE_NAME.fullmatch(text):
        raise ValueError("the beginning of a file's name: without `/`, `\\` and control characters")
    if len(text.encode(errors="replace")) > _FILE_PREFIX_BYTES_MAX:
        raise ValueError(
            f"the beginning of a file's name, of {_FILE_PREFIX_BYTES_MAX} bytes at most"
        )
    return text


def parse_per_level(text: str) -> Mapping[int, str]:
    """The value for each level in a text such as `0:avro,3:parquet`."""
    levels: dict[int, str] = {}
    for part in parse_names(text):
        level, colon, value = (piece.strip() for piece in part.partition(":"))
        if not (level.isdecimal() and colon and value):
            raise ValueError("a list such as '0:avro,3:parquet'")
        levels[int(level)] = value.lower()
    return levels


def parse_stats_mode(text: str) -> str:
    """The statistics mode, in lower case without blanks."""
    mode = re.sub(r"\s", "", text).lower()
    if not re.fullmatch(r"none|counts|full|truncate\([1-9]\d*\)", mode):
        raise ValueError("none, counts, full or truncate(LENGTH)")
    return mode


def integer(least: int, most: int = INT_MAX, *also: int) -> Kind[int]:
    """Whole numbers from `least` to `most`, and the numbers in `also`."""
    bounds = f"at least {least}" if most in (INT_MAX, LONG_MAX) else f"{least} to {most}"
    allowed = " or ".join(["a whole number, " + bounds, *map(str, also)])

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d+", text.strip()):
            raise ValueError(allowed)
        number = int(text)
        if not (least <= number <= most or number in also):
            raise ValueError(allowed)
        return number

    return Kind("integer", parse)


def fraction(least: float, most: float) -> Kind[float]:
    """Numbers from `least` to `most`, inclusive."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not least <= number <= most:
            raise ValueError(f"a number between {least} and {most}")
        return number

    return Kind("number", parse)


def choice(values: type[E]) -> Kind[E]:
    """A member of an enum, given by its text in any case."""
    known = {str(member).lower(): member for member in values}

    def parse(text: str) -> E:
        member = known.get(text.strip().lower())
        if member is None:
            raise ValueError(", ".join(str(value) for value in values))
        return member

    return Kind("one of " + ", ".join(known), parse)


def one_of(*values: str) -> Kind[str]:
    """One of these strings, in lower case."""

    def parse(text: str) -> str:
        if text.strip().lower() not in values:
            raise ValueError(", ".join(values))
        return text.strip().lower()

    return Kind("one of " + ", ".join(values), parse)


def _show_flag(flag: bool) -> str:  # noqa: FBT001  the shape of Kind.show
    return str(flag).lower()


def _show_levels(levels: Mapping[int, str]) -> str:
    return ",".join(f"{level}:{value}" for level, value in levels.items())


def _tidy_levels(text: str) -> str:
    return _show_levels(parse_per_level(text))


def _tidy_names(text: str) -> str:
    return ",".join(parse_names(text))


def _empty_is_absent(text: str) -> str | None:
    return text.strip() or None


FLAG: Kind[bool] = Kind("true or false", parse_flag, _show_flag)
COUNT = integer(1)
LONG = integer(-LONG_MAX - 1, LONG_MAX)
SIZE = Kind("size", parse_size, show_size)
DURATION = Kind("duration", parse_duration, show_duration)
ZONE: Kind[tzinfo] = Kind("time zone", parse_zone)
TEXT: Kind[str] = Kind("text", str, tidy=str)
FILE_PREFIX: Kind[str] = Kind("file prefix", parse_file_prefix, tidy=str)
NAME: Kind[str | None] = Kind("name", _empty_is_absent, str)
NAMES: Kind[tuple[str, ...]] = Kind("names", parse_names, ",".join, _tidy_names)
FOLDER: Kind[str | None] = Kind("folder", parse_folder, str)
PER_LEVEL: Kind[Mapping[int, str]] = Kind(
    "level:value list", parse_per_level, _show_levels, _tidy_levels
)
STATS_MODE = Kind("statistics mode", parse_stats_mode, tidy=parse_stats_mode)
NUMBER = fraction(float("-inf"), float("inf"))
FORMAT = one_of("parquet", "orc", "avro", "csv", "json", "text", "mosaic")
COMPRESSION = one_of(
    "zstd",
    "lz4",
    "snappy",
    "gzip",
    "none",
    "null",  # of Avro
    "uncompressed",
    "lzo",
    "brotli",
    "zlib",
    "deflate",
    "zstandard",
    "lz4_raw",
    "bzip2",
    "xz",
)
