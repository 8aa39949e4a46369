"""Partition values as directories: `dt=2024-01-01/region=eu`. Names and values are escaped.

A value has the string form that Java prints, because other engines use the same directories:

- with `partition.legacy-name` (the default), the internal value: a DATE is its day number, a TIME
  its milliseconds, a timestamp its ISO text without trailing zero parts (`2024-01-02T03:04`);
- without it, the value cast to a string: `2024-01-01`, `03:04:05`, `2024-01-02 03:04:05.678`.

Nulls, and empty or blank strings, become the default name. So different partitions may share a
directory: take partition values from manifests, never from a path. TIMESTAMP_LTZ is written in UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakecore.errors import Unsupported
from lakecore.model.types import BINARIES, STRINGS, TIMESTAMPS, Atomic, Field, Root, arrow_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

_ESCAPED = frozenset([*map(chr, range(0x20)), *"\"#%'*/:=?\\\x7f{}[]^"])
_ESCAPES = str.maketrans({char: f"%{ord(char):02X}" for char in _ESCAPED})
_BLANKS = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2028\u2029\u205f\u3000" + "".join(
    chr(code)
    for code in range(0x2000, 0x200B)
    if code != 0x2007  # a no-break space, which Java does not regard as blank
)
_NANOS_BY_UNIT = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_DAY_MS = 86_400_000
_DAY_NANOS = 86_400_000_000_000
_YEAR_MAX = 9999
_PLAIN_MIN, _PLAIN_MAX = -3, 7


def partition_path(
    values: pa.RecordBatch, fields: Sequence[Field], default_name: str, *, legacy_name: bool
) -> str:
    """The directories of one partition, joined by `/`; empty for an unpartitioned table.

    `values` is one row whose columns are those of `fields`, in order.
    """
    return directories_of(partition_texts(values, fields, default_name, legacy_name=legacy_name))


def directories_of(texts: Mapping[str, str]) -> str:
    """The directories of a partition with these values, joined by `/`."""
    return "/".join(f"{escape(name)}={escape(text)}" for name, text in texts.items())


def partition_texts(
    values: pa.RecordBatch, fields: Sequence[Field], default_name: str, *, legacy_name: bool
) -> Mapping[str, str]:
    """The string of each partition value, unescaped, by column name."""
    assert not fields or values.num_rows == 1, "a partition is one row"
    texts: dict[str, str] = {}
    for column, field in zip(values.columns, fields, strict=True):
        scalar = column.cast(arrow_type(field.type))[0]
        text = value_text(scalar, field, legacy=legacy_name) if scalar.is_valid else ""
        texts[field.name] = text if text.strip(_BLANKS) else default_name
    return texts


def escape(text: str) -> str:
    """The text, with special characters of paths and URIs written as `%` and two hex digits."""
    return text.translate(_ESCAPES)


def value_text(scalar: pa.Scalar, field: Field, *, legacy: bool) -> str:
    """The string of a non-null value: Java's internal form if `legacy`, else a cast to string."""
    data_type = field.type
    if isinstance(data_type, Atomic):
        match data_type.root:
            case Root.BOOLEAN:
                return "true" if scalar.as_py() else "false"
            case Root.FLOAT:
                return float_text(np.float32(scalar.as_py()))
            case Root.DOUBLE:
                return float_text(np.float64(scalar.as_py()))
            case Root.DECIMAL:
                return format(scalar.as_py(), "f")
            case Root.DATE:
                return str(scalar.value) if legacy else _date_text(scalar.value)
            case Root.TIME:
                assert data_type.precision is not None
                return (
                    str(scalar.value) if legacy else _time_text(scalar.value, data_type.precision)
                )
            case root if root in TIMESTAMPS:
                assert data_type.precision is not None
                nanos = scalar.value * _NANOS_BY_UNIT[scalar.type.unit]
                if legacy:
                    return _iso_text(nanos)
                return _timestamp_text(nanos, data_type.precision)
            case root if root in STRINGS:
                return str(scalar.as_py())
            case root if root in BINARIES:
                return _binary_text(scalar.as_py(), field, legacy=legacy)
            case _:
                return str(scalar.as_py())
    raise Unsupported("the type cannot be a partition key", column=field.name, type=data_type)


def _binary_text(value: bytes, field: Field, *, legacy: bool) -> str:
    # NOTE: Java's legacy text of a binary value is the address of an object. It differs on each
    # write, so not even Java finds such a file again.
    if legacy:
        raise Unsupported(
            "a binary partition key needs partition.legacy-name=false",
            column=field.name,
            type=field.type,
        )
    return value.decode("utf-8", errors="replace")


def float_text(value: np.floating) -> str:
    """A float or double as Java's `toString` prints it, in the fewest digits: `1.0E7`, `0.001`.

    NOTE: Java before 19 prints some numbers below 1E-3 or above 1E7 with more digits than needed.
    """
    if np.isnan(value):
        return "NaN"
    sign = "-" if np.signbit(value) else ""
    if np.isinf(value):
        return f"{sign}Infinity"
    if value == 0:
        return f"{sign}0.0"
    scientific = np.format_float_scientific(abs(value), unique=True, trim="-")
    if "." not in scientific:
        # Java prints at least two digits, and both must be the nearest: 4.9E-324, not 5.0E-324.
        scientific = f"{abs(float(value)):.1e}"
    mantissa, _, exponent_text = scientific.partition("e")
    digits, exponent = mantissa.replace(".", "").rstrip("0") or "0", int(exponent_text)
    if not _PLAIN_MIN <= exponent < _PLAIN_MAX:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"


def _year_month_day(days: int) -> tuple[int, str, str]:
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    return int(year), month, day


def _date_text(days: int) -> str:
    year, month, day = _year_month_day(days)
    return f"{year % 10_000:04d}-{month}-{day}"


def _time_text(milliseconds: int, precision: int) -> str:
    milliseconds %= _DAY_MS
    seconds, fraction = divmod(milliseconds, 1000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if precision == 0:
        return text
    digits = f"{fraction:03d}"[:precision].rstrip("0") or "0"
    return f"{text}.{digits}"


def _timestamp_text(nanos: int, precision: int) -> str:
    days, rest = divmod(nanos, _DAY_NANOS)
    seconds, fraction = divmod(rest, 1_000_000_000)
    digits = f"{fraction:09d}"
    digits = digits[:precision] + digits[precision:].rstrip("0")
    text = f"{_date_text(days)} {_time_text(seconds * 1000, 0)}"
    return f"{text}.{digits}" if digits else text


def _iso_text(nanos: int) -> str:
    days, rest = divmod(nanos, _DAY_NANOS)
    seconds, fraction = divmod(rest, 1_000_000_000)
    year, month, day = _year_month_day(days)
    plus = "+" if year > _YEAR_MAX else ""
    padded = f"-{-year:04d}" if year < 0 else f"{year:04d}"
    text = f"{plus}{padded}-{month}-{day}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    if rest % 60_000_000_000:
        text += f":{seconds % 60:02d}"
    if fraction:
        digits = f"{fraction:09d}"
        text += "." + digits[: 3 * max(1, -(-len(digits.rstrip("0")) // 3))]
    return text
