"""The kinds of option values, and how each is parsed from text.

A `Kind` turns the text of a schema file into a value, and a value back into the text of a document.
For an invalid text, a `Kind` raises `ValueError`, whose message states what is valid; `parse.py`
adds the key and the table.

Texts follow Paimon: sizes are powers of 1024 (`128 mb`), a duration without a unit is in
milliseconds (`10 s`), and flags and choices ignore case.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from datetime import UTC, timedelta, timezone, tzinfo
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakecore.options.choices import Effect, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# --- zones ---------------------------------------------------------------------------------------
# Time zones as Java's `ZoneId.of` reads them: `Asia/Shanghai`, `UTC`, `+08:00`, `GMT+8`.

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
_ALLOWED = "a time zone such as Europe/Berlin, UTC or +08:00"
_HOURS_MAX = 18


def parse_zone(text: str) -> tzinfo:
    """The time zone. Raises ValueError for a text that names none."""
    name = text.strip()
    if name in {"Z", "UTC", "GMT", "UT"}:
        return UTC
    found = _OFFSET.fullmatch(name)
    if found is not None:
        sign, *parts = found.groups()
        hours, minutes, seconds = (int(part or 0) for part in parts)
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if offset > timedelta(hours=_HOURS_MAX) or max(minutes, seconds) > 59:
            raise ValueError(_ALLOWED)
        return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(_ALLOWED) from error


# --- option --------------------------------------------------------------------------------------
# The declaration of an option: its key, kind, default, meaning, and what needs it.

T = TypeVar("T")
D = TypeVar("D")

READ, WRITE, MAINTAIN, OTHER = Effect.READ, Effect.WRITE, Effect.MAINTAIN, Effect.OTHER
KEYED, APPEND = Scope.PRIMARY_KEY, Scope.APPEND
IGNORE_KEY = "lakecore.ignore-options"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """The declaration of one option; `default` is the value, `default_text` its form in documents.

    `supported` is False if lakecore honours only the default value. `ignorable`: whether the rows
    are still right if another value is ignored. `no_effect` says why lakecore accepts any value
    without effect; it is empty if the value has an effect. `fallbacks` are older keys of the same
    meaning. An `immutable` option cannot change once there are snapshots. An option that is not
    `stored` counts only if the process that uses the table gives it: no table and no view states
    it.
    """

    key: str
    kind: Kind[object]
    default: object
    effect: Effect
    meaning: str
    scope: Scope = Scope.ALL
    supported: bool = True
    ignorable: bool = False
    immutable: bool = False
    stored: bool = True
    no_effect: str = ""
    fallbacks: tuple[str, ...] = ()

    @property
    def default_text(self) -> str:
        """The default as documents show it; empty if there is none."""
        return "" if self.default in (None, (), "", {}) else self.kind.show(self.default)


def option(  # noqa: PLR0913  one declaration says all about an option
    key: str,
    kind: Kind[T],
    default: D,
    effect: Effect,
    meaning: str,
    *,
    scope: Scope = Scope.ALL,
    supported: bool = True,
    ignorable: bool = False,
    immutable: bool = False,
    stored: bool = True,
    no_effect: str = "",
    fallbacks: tuple[str, ...] = (),
) -> T | D:
    """A dataclass field that declares an option: its metadata has the text form and the meaning."""
    declared = Option(
        key=key,
        kind=cast("Kind[object]", kind),
        default=default,
        effect=effect,
        meaning=meaning,
        scope=scope,
        supported=supported,
        ignorable=ignorable,
        immutable=immutable,
        stored=stored,
        no_effect=no_effect,
        fallbacks=fallbacks,
    )
    metadata = {"option": declared}
    if isinstance(default, dict):
        return cast("T | D", field(default_factory=dict, metadata=metadata))
    return cast("T | D", field(default=default, metadata=metadata))


def keyed_family(
    pattern: str, kind: Kind[T], effect: Effect, meaning: str, *, ignorable: bool = False
) -> Mapping[str, T]:
    """A dataclass field for a family of keys.

    The field maps the text in place of `#` to the option's value.
    """
    declared = Option(
        key=pattern,
        kind=cast("Kind[object]", kind),
        default=None,
        effect=effect,
        meaning=meaning,
        ignorable=ignorable,
    )
    return cast("Mapping[str, T]", field(default_factory=dict, metadata={"option": declared}))


def family(
    suffix: str, kind: Kind[T], effect: Effect, meaning: str, *, scope: Scope = Scope.ALL
) -> Mapping[str, T]:
    """A dataclass field that maps each column X to the value of its option `fields.X.suffix`."""
    declared = Option(
        key=f"fields.#.{suffix}",
        kind=cast("Kind[object]", kind),
        default=None,
        effect=effect,
        meaning=meaning,
        scope=scope,
    )
    return cast("Mapping[str, T]", field(default_factory=dict, metadata={"option": declared}))


# --- nearest -------------------------------------------------------------------------------------
# Suggests known keys for an unknown one.

_MOST = 3
_TYPO, _SIMILAR = 0.85, 0.6


def nearest(key: str, known: Mapping[str, str]) -> tuple[str, ...]:
    """Up to three current keys that may be meant by the unknown key, the likeliest first.

    `known` maps each key, older ones included, to its current key. The first rule that finds a key
    decides:

    1. the same words with other separators: `writeOnly`, `write_only`;
    2. one key with nearly the same spelling: `merge-engin`;
    3. keys that contain all words of the given one: `retained.max`;
    4. keys with a similar spelling.
    """
    words = _words(key)
    if not words:
        return ()
    bare = "".join(words)
    same = [each for each in known if "".join(_words(each)) == bare]
    if same:
        return _today(same, known)
    typo = difflib.get_close_matches(key.lower(), known, 1, _TYPO)
    if typo:
        return _today(typo, known)
    holding = [each for each in known if set(words) <= set(_words(each))]
    if holding:
        return _today(sorted(holding, key=lambda each: (len(_words(each)), each)), known)
    return _today(difflib.get_close_matches(key.lower(), known, _MOST, _SIMILAR), known)


def _words(key: str) -> list[str]:
    """The words of a key: parts between dots, dashes, underscores, blanks and capitals."""
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", key)
    return [word for word in re.split(r"[^a-z0-9]+", spread.lower()) if word]


def _today(keys: list[str], known: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(known[each] for each in keys))[:_MOST]


# --- kinds ---------------------------------------------------------------------------------------

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
