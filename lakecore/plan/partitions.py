"""Converts partitions between serialized rows (as in manifests), directories, and strings."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import Unsupported
from lakecore.format.binary_row import decode_rows
from lakecore.format.layout import partition_path, partition_texts
from lakecore.merge.keys import sequence_codes
from lakecore.model.types import Atomic, Field, Root, with_nullable
from lakecore.options import POSTPONE_BUCKET, TableOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakecore.model.files import Split
    from lakecore.model.schema import TableSchema


class Partitions:
    """The partitions of one table; the path of each is computed once."""

    def __init__(self, schema: TableSchema, options: TableOptions) -> None:
        self.fields = schema.partition_fields
        self._default_name = options.partition_default_name
        self._legacy_name = options.partition_legacy_name
        self._sorts = options.scan_plan_sort_partition
        self._paths: dict[bytes, str] = {}

    def values(self, partitions: Sequence[bytes]) -> pa.RecordBatch:
        """The values of the partitions: a row for each, with a column for each partition key."""
        return decode_rows(partitions, self.fields)

    def in_scan_order(
        self, splits: Sequence[Split], seen: Sequence[bytes] | None = None
    ) -> list[Split]:
        """The splits, ordered by partition; within a partition, they keep their order.

        With `scan.plan-sort-partition`, the smaller value comes first, and null before all others.
        Otherwise, partitions are in the order of `seen`. Without `seen`, the order is unchanged.
        """
        partitions = list({split.partition: None for split in splits})
        if self._sorts and self.fields and partitions:
            ranks = self._ranks(partitions)
        elif seen is not None:
            places = {partition: place for place, partition in enumerate(dict.fromkeys(seen))}
            ranks = [places[partition] for partition in partitions]
        else:
            return list(splits)
        rank_of = dict(zip(partitions, ranks, strict=True))
        return sorted(splits, key=lambda split: rank_of[split.partition])

    def scan_order(self, partitions: Sequence[bytes]) -> list[bytes]:
        """These partitions in the order in which a scan reads them."""
        ordered = sorted(partitions)
        if not (self._sorts and self.fields and ordered):
            return ordered
        ranks = dict(zip(ordered, self._ranks(ordered), strict=True))
        return sorted(ordered, key=lambda partition: ranks[partition])

    def _ranks(self, partitions: Sequence[bytes]) -> list[int]:
        columns = [pa.chunked_array([column]) for column in self.values(partitions).columns]
        ranks: list[int] = sequence_codes(columns, descending=False).tolist()
        return ranks

    def path(self, partition: bytes) -> str:
        """The directories of a partition, joined by `/`; empty for an unpartitioned table."""
        if not self.fields:
            return ""
        if partition not in self._paths:
            self._paths[partition] = partition_path(
                self.values([partition]),
                self.fields,
                self._default_name,
                legacy_name=self._legacy_name,
            )
        return self._paths[partition]

    def spec(self, partition: bytes) -> Mapping[str, str]:
        """The partition values as strings, by column name, as catalogs name the partition."""
        return partition_texts(
            self.values([partition]),
            self.fields,
            self._default_name,
            legacy_name=self._legacy_name,
        )

    def texts(self, partition: bytes) -> Mapping[str, str]:
        """The partition values as strings, by column name, for messages."""
        return partition_texts(
            self.values([partition]), self.fields, self._default_name, legacy_name=False
        )


def bucket_key_fields(schema: TableSchema, options: TableOptions) -> tuple[Field, ...]:
    """The fields whose hash chooses the bucket; none if buckets are not chosen by hash.

    The fields are the option `bucket-key`, else the trimmed primary key. In a table with postponed
    buckets, they choose the real bucket of a row.
    """
    if options.bucket < 1 and options.bucket != POSTPONE_BUCKET:
        return ()
    names = options.bucket_key or schema.trimmed_primary_keys
    return tuple(schema.field(name) for name in names)


def hash_is_settled(fields: Sequence[Field], schemas: Iterable[TableSchema]) -> bool:
    """Whether equal values of a bucket key, as read from files, are in one bucket.

    `schemas` are all schemas that the table has had. Java allows a new type for a bucket key: its
    values then hash differently, but stored rows keep their buckets. For a CHAR the result is
    False: its trailing blanks are hashed, but ORC does not return them.
    """
    if any(isinstance(field.type, Atomic) and field.type.root is Root.CHAR for field in fields):
        return False
    kinds = {field.id: with_nullable(field.type, nullable=True) for field in fields}
    return all(
        with_nullable(column.type, nullable=True) == kinds[column.id]
        for schema in schemas
        for column in schema.fields
        if column.id in kinds
    )


# --- partition times -----------------------------------------------------------------------------
# The time in the values of a partition, which decides when the partition expires.
#
# https://paimon.apache.org/docs/master/maintenance/manage-partitions/
#
# The text to parse is the value of the first partition key, or `partition.timestamp-pattern` with
# `$key` replaced by the value of that key; if two keys match, the longer one is meant. Without
# `partition.timestamp-formatter`, the text must have the form `yyyy-MM-dd`, optionally with `
# HH:mm:ss` and a fraction. As in Java's lenient parsing, digits may be missing, and day 32 is the
# first of the next month.
#
# A formatter is a pattern of Java's DateTimeFormatter with numbers and fixed text only: `yyyyMMdd`,
# `yyyy-MM-dd'T'HH`. Other letters are refused.

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
