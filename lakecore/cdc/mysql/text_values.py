"""Converts columns of a SELECT from MySQL's text protocol to the same natural types as the log.

The session uses utf8mb4 and UTC. FLOAT columns are selected as DOUBLE, because the text of a FLOAT
has only six digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.cdc.types.mysql import MySqlType

__all__ = ["parsed", "printed", "selected"]

_INTS = {
    "TINYINT": (pa.int8(), pa.uint8()),
    "SMALLINT": (pa.int16(), pa.uint16()),
    "MEDIUMINT": (pa.int32(), pa.uint32()),
    "INT": (pa.int32(), pa.uint32()),
    "INTEGER": (pa.int32(), pa.uint32()),
    "BIGINT": (pa.int64(), pa.uint64()),
}
_BYTES = frozenset(
    {"BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "BIT", "GEOMETRY"}
)
_NO_DATE = r"^0000|-00"
_TIME = r"^(?P<sign>-?)(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)(?P<fraction>\.\d+)?$"
_LONG_DECIMAL = 38


def selected(name: str, kind: MySqlType) -> str:
    """The expression that selects a column."""
    quoted = "`" + name.replace("`", "``") + "`"
    return f"{quoted} + 0e0" if kind.name == "FLOAT" else quoted


def parsed(  # noqa: C901 - a case for each type
    kind: MySqlType, values: Sequence[bytes | None]
) -> pa.Array:
    """The values of one column, parsed from the text protocol."""
    array = pa.array(values, pa.binary())
    if kind.name in _BYTES or kind.is_geometry:
        return array
    texts = array.cast(pa.string())
    match kind.name:
        case "YEAR":
            return texts.cast(pa.int32())
        case "FLOAT":
            return texts.cast(pa.float64()).cast(pa.float32(), safe=False)
        case "DOUBLE" | "REAL" | "DOUBLE PRECISION":
            return texts.cast(pa.float64())
        case "DECIMAL" | "NUMERIC" | "FIXED" | "DEC":
            precision = kind.length or 0
            if precision > _LONG_DECIMAL:
                return texts
            return texts.cast(pa.decimal128(precision, kind.scale or 0))
        case "DATE":
            return _dated(texts, pa.date32())
        case "DATETIME":
            return _dated(texts, pa.timestamp("us"))
        case "TIMESTAMP":
            return _dated(texts, pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
        case "TIME":
            return _times(texts)
        case "SET":
            members = pc.split_pattern(texts, ",")
            empty = pc.equal(texts, "")
            return pc.if_else(empty, pa.scalar([], pa.list_(pa.string())), members)
        case name if name in _INTS:
            return texts.cast(_INTS[name][kind.unsigned])
        case _:
            return texts


def printed(values: Sequence[bytes | None]) -> pa.Array:
    """The values of one column of dates or times, as the server prints them."""
    return pa.array(values, pa.binary()).cast(pa.string())


def _dated(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Dates or timestamps; null for an impossible date."""
    none = pc.match_substring_regex(texts, _NO_DATE)
    if pc.any(none).as_py():
        texts = pc.if_else(none, pa.scalar(None, pa.string()), texts)
    try:
        return texts.cast(data_type)
    except pa.ArrowInvalid:
        # The server accepts 31 February if ALLOW_INVALID_DATES is set.
        return pa.concat_arrays([_date_or_null(each, data_type) for each in texts])


def _date_or_null(text: pa.Scalar, data_type: pa.DataType) -> pa.Array:
    try:
        return pa.array([text.as_py()], pa.string()).cast(data_type)
    except pa.ArrowInvalid:
        return pa.nulls(1, data_type)


def _times(texts: pa.Array) -> pa.Array:
    """Durations since midnight in microseconds; hours go from -838 to 838."""
    parts = pc.extract_regex(texts, _TIME)
    hours, minutes, seconds = (
        pc.struct_field(parts, name).cast(pa.int64()) for name in ("hours", "minutes", "seconds")
    )
    fraction = pc.struct_field(parts, "fraction")
    digits = pc.utf8_rpad(pc.utf8_slice_codeunits(fraction, 1), 6, "0")
    micros = pc.if_else(pc.equal(fraction, ""), "0", digits).cast(pa.int64())
    total = pc.add(pc.add(pc.multiply(hours, 3600), pc.multiply(minutes, 60)), seconds)
    found = pc.add(pc.multiply(total, 1_000_000), micros)
    negative = pc.equal(pc.struct_field(parts, "sign"), "-")
    return pc.if_else(negative, pc.negate(found), found).cast(pa.duration("us"))
