"""One exact written form for every value, so that rows of all engines compare by `==`.

| type | form |
|---|---|
| BOOLEAN, integers | JSON boolean, JSON number |
| FLOAT, DOUBLE | text: `repr` of it as a double, `NaN`, `Infinity`, `-Infinity`; so -0.0 differs |
| DECIMAL | text with exactly `scale` fraction digits |
| CHAR, VARCHAR, STRING | text |
| BINARY, VARBINARY, BYTES | hex text |
| DATE | `2024-01-31` |
| TIME | `03:04:05.678`, always milliseconds |
| TIMESTAMP(p) | ISO, p fraction digits, or more if the value has more; LTZ in UTC, ends in `Z` |
| ARRAY | list |
| MAP, MULTISET | list of [key, value] pairs, sorted by their JSON text |
| ROW | list of the fields |
| VARIANT | JSON text, as Java writes it |

A row is a list in schema order; a change is `[kind, row]`. Compare sorted on both sides.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.interop.columns import Column, Json, Type

Row: TypeAlias = "list[Json]"
Change: TypeAlias = "tuple[str, Row]"

INTEGERS = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT"})
FLOATS = frozenset({"FLOAT", "DOUBLE"})
TEXTS = frozenset({"CHAR", "VARCHAR", "STRING"})
BINARIES = frozenset({"BINARY", "VARBINARY", "BYTES"})
TIMESTAMPS = frozenset({"TIMESTAMP", "TIMESTAMP_LTZ"})

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS = 1_000_000_000


def canonical_rows(rows: Iterable[Sequence[Json]], columns: Sequence[Column]) -> list[Row]:
    """Rows in canonical form, from any of the forms that `canonical` reads."""
    return [
        [canonical(value, column.type) for value, column in zip(row, columns, strict=True)]
        for row in rows
    ]


def canonical(value: Json, kind: Type) -> Json:
    """The canonical form of a value that was written in a looser one."""
    if value is None:
        return None
    root = kind.root
    if root in INTEGERS:
        assert isinstance(value, int)
        return value
    if root in FLOATS:
        assert isinstance(value, (int, float, str))
        return float_text(float(value), single=root == "FLOAT")
    if root == "DECIMAL":
        assert isinstance(value, str)
        return decimal_text(Decimal(value), kind.scale)
    if root == "TIME":
        assert isinstance(value, str)
        return time_text(time_millis(value))
    if root in TIMESTAMPS:
        assert isinstance(value, str)
        return timestamp_text(timestamp_nanos(value), kind)
    if root in ("ARRAY", "ROW", "MAP", "MULTISET"):
        assert isinstance(value, list)
        return _canonical_nested(value, kind)
    return value


def _canonical_nested(value: list[Json], kind: Type) -> Json:
    if kind.root == "ARRAY":
        return [canonical(item, kind.children[0].type) for item in value]
    if kind.root == "ROW":
        fields = zip(value, kind.children, strict=True)
        return [canonical(item, child.type) for item, child in fields]
    pairs: list[Json] = []
    for pair in value:
        assert isinstance(pair, list)
        count = pair[1] if kind.root == "MULTISET" else canonical(pair[1], kind.children[1].type)
        pairs.append([canonical(pair[0], kind.children[0].type), count])
    return sort_pairs(pairs)


def sort_pairs(pairs: list[Json]) -> list[Json]:
    """The pairs of a map in their one order."""
    return sorted(pairs, key=_json_text)


def float_text(value: float, *, single: bool) -> str:
    """A float as text that only equal bits share (NaN payloads aside)."""
    if single:
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    if value != value:  # noqa: PLR0124 -- the definition of NaN
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def decimal_text(value: Decimal, scale: int) -> str:
    """A decimal with exactly `scale` fraction digits; refuses to round."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    if shift < 0:
        unscaled, lost = divmod(unscaled, 10**-shift)
        assert lost == 0, f"{value} has more than {scale} fraction digits"
    else:
        unscaled *= 10**shift
    padded = str(unscaled).rjust(scale + 1, "0")
    text = f"{padded[:-scale]}.{padded[-scale:]}" if scale else padded
    return f"-{text}" if sign and unscaled else text


def date_text(days: int) -> str:
    """A date from its days since 1970-01-01."""
    return date.fromordinal(days + date(1970, 1, 1).toordinal()).isoformat()


def date_days(text: str) -> int:
    """Days since 1970-01-01."""
    return date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()


def time_text(millis: int) -> str:
    """A time of day from its milliseconds."""
    whole = (_EPOCH + timedelta(milliseconds=millis)).time()
    return whole.isoformat(timespec="milliseconds")


def time_millis(text: str) -> int:
    """Milliseconds of the day."""
    parsed = time.fromisoformat(text)
    seconds = (parsed.hour * 60 + parsed.minute) * 60 + parsed.second
    return seconds * 1000 + parsed.microsecond // 1000


def timestamp_text(nanos: int, kind: Type) -> str:
    """A timestamp from its nanoseconds since the epoch, with the type's fraction digits or more."""
    seconds, fraction = divmod(nanos, _NANOS)
    digits = f"{fraction:09d}"
    keep = max(kind.precision, len(digits.rstrip("0")))
    whole = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    suffix = "Z" if kind.root == "TIMESTAMP_LTZ" else ""
    return whole + (f".{digits[:keep]}" if keep else "") + suffix


def timestamp_nanos(text: str) -> int:
    """Nanoseconds since the epoch of a timestamp's text."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = (datetime.fromisoformat(whole).replace(tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
    return seconds * _NANOS + int(fraction.ljust(9, "0"))


def sort_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows in their one order."""
    return sorted(rows, key=_json_text)


def difference(
    actual: Iterable[Row], expected: Iterable[Row], columns: Sequence[Column]
) -> list[str]:
    """What sets two bags of rows apart, in words; empty when they are equal.

    Rows are paired in order, so a single wrong column shows as that column alone.
    """
    seen, wanted = sort_rows(actual), sort_rows(expected)
    have, need = Counter(map(_json_text, seen)), Counter(map(_json_text, wanted))
    surplus, missing = (
        sort_rows(map(json.loads, (have - need).elements())),
        sort_rows(map(json.loads, (need - have).elements())),
    )
    if len(surplus) != len(missing) or any(len(row) != len(columns) for row in surplus):
        return [f"unexpected row {row}" for row in surplus] + [
            f"missing row {row}" for row in missing
        ]
    return [
        f"{column.name} {column.type.text}: is {is_value!r}, should be {should!r}"
        for row, other in zip(surplus, missing, strict=True)
        for column, is_value, should in zip(columns, row, other, strict=True)
        if is_value != should
    ]


def _json_text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
