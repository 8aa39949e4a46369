"""Parses table maps, which describe the columns of a table at a place in the log.

mysql-replication needs 0.1 ms to parse a map. The server sends a map before each change, and most
maps are equal to an earlier one, so parsed maps are cached by their bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from ipaddress import IPv4Address
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol, cast
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.cdc.mysql.column import BY_SERVER, Code, LoggedColumn
from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    Texts = Callable[[str, Sequence[object]], Sequence[str | None]]


# --- binary values -------------------------------------------------------------------------------
# Converts columns of raw values from the binary log to Arrow, in the column's natural type.
#
# Zero dates (`0000-00-00`) and impossible dates are null; `shown` returns them as strings. Times
# are durations since midnight in microseconds and may be negative; timestamps are in UTC.

_INTS = {
    Code.TINY: (pa.int8(), pa.uint8()),
    Code.SHORT: (pa.int16(), pa.uint16()),
    Code.LONG: (pa.int32(), pa.uint32()),
    Code.LONGLONG: (pa.int64(), pa.uint64()),
}
_SHORT_DECIMAL = 18
_LONG_DECIMAL = 38
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_MICROS = 1_000_000
_ZERO = "0000-00-00 00:00:00"


def decoded(  # noqa: C901, PLR0912 - a case for each type code
    column: LoggedColumn, values: Sequence[object]
) -> pa.Array:
    """The values of one column."""
    match column.code:
        case Code.TINY | Code.SHORT | Code.LONG | Code.LONGLONG:
            return pa.array(values, _INTS[column.code][column.unsigned])
        case Code.FLOAT:
            return pa.array(values, pa.float32())
        case Code.DOUBLE:
            return pa.array(values, pa.float64())
        case Code.YEAR:
            years = pa.array(values, pa.int32())
            return pc.if_else(pc.equal(years, 0), 0, pc.add(years, pa.scalar(1900, pa.int32())))
        case Code.INT24:
            found, valid = _numbers(values, 3, "little")
            if not column.unsigned:
                found = np.where(found >= 1 << 23, found - (1 << 24), found)
            return pa.array(found.astype(np.int32), mask=~valid)
        case Code.DATE:
            return _dates(*_numbers(values, 3, "little"))
        case Code.DATETIME2:
            return _datetimes(values, column.precision)
        case Code.TIMESTAMP2:
            return _timestamps(values, column.precision)
        case Code.TIME2:
            return _times(values, column.precision)
        case Code.NEWDECIMAL:
            return _decimals(values, column.precision, column.scale)
        case Code.BIT:
            return pa.array(values, pa.binary(column.size))
        case Code.ENUM:
            texts = pa.array(["", *column.values], pa.string())
            return texts.take(pa.array(values, pa.int32()))
        case Code.SET:
            return _sets(values, column)
        case Code.JSON:
            return pa.array([_json(each) for each in values], pa.string())
        case Code.GEOMETRY:
            return pa.array(values, pa.binary())
        case Code.STRING if (form := _FORMS.get(column.charset)) is not None:
            texts = [form(each) if isinstance(each, bytes) else None for each in values]
            return pa.array(texts, pa.string())
        case Code.BLOB | Code.VARCHAR | Code.VAR_STRING | Code.STRING:
            return _texts(values, column)


def _inet6(data: bytes) -> str:
    """The address as MariaDB prints it: `::` stands for the first of the longest runs of zeros."""
    words = [int.from_bytes(data[at : at + 2], "big") for at in range(0, 16, 2)]
    texts = [f"{each:x}" for each in words]
    runs = [len(list(takewhile(lambda each: each == 0, words[at:]))) for at in range(8)]
    length = max(runs)
    if length == 0:
        return ":".join(texts)
    at = runs.index(length)
    end = at + length
    if at == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        texts = [*texts[:6], str(IPv4Address(data[12:]))]
    return f"{':'.join(texts[:at])}::{':'.join(texts[end:])}"


_FORMS: dict[str, Callable[[bytes], str]] = {
    "UUID": lambda data: str(UUID(bytes=data.ljust(16, b"\0"))),
    "INET4": lambda data: str(IPv4Address(data.ljust(4, b"\0"))),
    "INET6": lambda data: _inet6(data.ljust(16, b"\0")),
}
"""The printed forms of the types of `column.PRINTED`."""


def shown(column: LoggedColumn, values: Sequence[object]) -> pa.Array:
    """The values of a DATE or DATETIME column as strings, and zero values of a TIMESTAMP column.

    The strings show dates that are not in the calendar, for which `decoded` returns null.
    """
    if column.code is Code.DATE:
        numbers, valid = _numbers(values, 3, "little")
        texts = [_date(each >> 9, each >> 5 & 15, each & 31) for each in numbers.tolist()]
    elif column.code is Code.DATETIME2:
        numbers, valid = _numbers(values, 5 + (column.precision + 1) // 2, "big")
        packed, micros = _fraction(numbers, column.precision)
        packed &= (1 << 39) - 1
        cut = column.precision + 1 if column.precision else 0
        texts = [
            f"{_date((at >> 22) // 13, (at >> 22) % 13, at >> 17 & 31)} {at >> 12 & 31:02}:"
            f"{at >> 6 & 63:02}:{at & 63:02}" + f".{micro:06}"[:cut]
            for at, micro in zip(packed.tolist(), micros.tolist(), strict=True)
        ]
    else:
        _, valid = _numbers(values, 4 + (column.precision + 1) // 2, "big")
        texts = [_ZERO] * len(values)
    return pa.array(texts, pa.string(), mask=~valid)


def _date(year: int, month: int, day: int) -> str:
    return f"{year:04}-{month:02}-{day:02}"


def _numbers(
    values: Sequence[object], size: int, order: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Unsigned integers of up to eight bytes, and the mask of the non-null values."""
    array = pa.array(values, pa.binary(size))
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if array.null_count:
        array = array.fill_null(bytes(size))
    stored = np.frombuffer(array.buffers()[1], np.uint8, len(array) * size).reshape(-1, size)
    if order == "big":
        stored = stored[:, ::-1]
    whole = np.zeros((len(array), 8), np.uint8)
    whole[:, :size] = stored
    return whole.view("<i8").reshape(-1), valid


def _days(
    years: npt.NDArray[np.int64], months: npt.NDArray[np.int64], days: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Days since 1970, and a mask of the valid dates."""
    good = (years > 0) & (months >= 1) & (months <= 12) & (days >= 1)
    since = (years - 1970) * 12 + np.where(good, months, 1) - 1
    first = since.astype("M8[M]").astype("M8[D]").astype(np.int64)
    after = (since + 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
    found = first + days - 1
    return found, good & (found < after)


def _dates(values: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_]) -> pa.Array:
    found, good = _days(values >> 9, values >> 5 & 15, values & 31)
    return pa.array(found.astype(np.int32), mask=~(valid & good)).cast(pa.date32())


def _fraction(
    values: npt.NDArray[np.int64], digits: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The whole part of a number, and its fraction in microseconds."""
    size = (digits + 1) // 2
    unit = 10 ** (6 - 2 * size)
    return values >> 8 * size, (values & (1 << 8 * size) - 1) * unit


def _datetimes(values: Sequence[object], digits: int) -> pa.Array:
    size = 5 + (digits + 1) // 2
    numbers, valid = _numbers(values, size, "big")
    packed, micros = _fraction(numbers, digits)
    packed &= (1 << 39) - 1
    months = packed >> 22
    days, good = _days(months // 13, months % 13, packed >> 17 & 31)
    seconds = (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
    found = (days * 86400 + seconds) * _MICROS + micros
    return pa.array(found, mask=~(valid & good)).cast(pa.timestamp("us"))


def _timestamps(values: Sequence[object], digits: int) -> pa.Array:
    numbers, valid = _numbers(values, 4 + (digits + 1) // 2, "big")
    seconds, micros = _fraction(numbers, digits)
    good = valid & ((seconds != 0) | (micros != 0))
    return pa.array(seconds * _MICROS + micros, mask=~good).cast(pa.timestamp("us", "UTC"))


def _times(values: Sequence[object], digits: int) -> pa.Array:
    numbers, valid = _numbers(values, 3 + (digits + 1) // 2, "big")
    signed = numbers - (1 << 23 + 8 * ((digits + 1) // 2))
    packed, micros = _fraction(np.abs(signed), digits)
    seconds = (packed >> 12 & 1023) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
    found = (seconds * _MICROS + micros) * np.sign(signed)
    return pa.array(found, pa.int64(), mask=~valid).cast(pa.duration("us"))


def _decimals(values: Sequence[object], precision: int, scale: int) -> pa.Array:
    """Decimals from MySQL's binary form.

    Four bytes hold nine digits. All bits of a negative number are inverted, except the sign.
    """
    whole = precision - scale
    groups = [_DIGIT_BYTES[whole % 9]] if whole % 9 else []
    groups += [4] * (whole // 9 + scale // 9)
    digits = [*([whole % 9] if whole % 9 else []), *[9] * (whole // 9 + scale // 9)]
    if scale % 9:
        groups.append(_DIGIT_BYTES[scale % 9])
        digits.append(scale % 9)
    array = pa.array(values, pa.binary(sum(groups)))
    mask = array.is_null().to_numpy(zero_copy_only=False)
    array = array.fill_null(b"\x80" + bytes(sum(groups) - 1)) if array.null_count else array
    size = sum(groups)
    stored = np.frombuffer(array.buffers()[1], np.uint8, len(array) * size).reshape(-1, size)
    negative = stored[:, 0] < 0x80
    stored = stored.copy()
    stored[negative] ^= 0xFF
    stored[:, 0] ^= 0x80
    kind: type = np.int64 if precision <= _SHORT_DECIMAL else object
    found: npt.NDArray[np.int64] = np.zeros(len(array), kind)
    at = 0
    for size, count in zip(groups, digits, strict=True):
        part = np.zeros((len(array), 4), np.uint8)
        part[:, 4 - size :] = stored[:, at : at + size]
        found = found * 10**count + part.view(">u4").reshape(-1).astype(np.int64).astype(kind)
        at += size
    found = np.where(negative, -found, found)
    if precision > _LONG_DECIMAL:
        return pa.array([_printed(int(each), scale) for each in found], pa.string(), mask=mask)
    if kind is np.int64:
        wide = np.empty((len(found), 2), np.int64)
        wide[:, 0] = found
        wide[:, 1] = found >> 63
        stored_units = wide.tobytes()
    else:
        stored_units = b"".join(int(each).to_bytes(16, "little", signed=True) for each in found)
    data_type = pa.decimal128(precision, scale)
    nulls = pa.array(~mask).buffers()[1]
    return pa.Array.from_buffers(data_type, len(found), [nulls, pa.py_buffer(stored_units)])


def _printed(units: int, scale: int) -> str:
    """A decimal in the form of MySQL's text protocol."""
    digits = str(abs(units)).rjust(scale + 1, "0")
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return f"{'-' if units < 0 else ''}{whole}{'.' if fraction else ''}{fraction}"


def _sets(values: Sequence[object], column: LoggedColumn) -> pa.Array:
    """For each SET value: the members whose bits are set, in the order of the definition."""
    names = column.values
    known: dict[object, list[str] | None] = {None: None}
    for each in set(values) - {None}:
        bits = int.from_bytes(each, "little") if isinstance(each, bytes) else int(str(each))
        known[each] = [name for number, name in enumerate(names) if bits >> number & 1]
    return pa.array([known[each] for each in values], pa.list_(pa.string()))


def _json(value: object) -> str | None:
    """A stored JSON value as text, as in MySQL's text protocol."""
    if value is None:
        return None
    if not value:
        return "null"
    parse = import_module("pymysqlreplication.json_binary").parse_json
    return json.dumps(_texted(parse(value[0], value[1:])), ensure_ascii=False)  # type: ignore[index]


def _texted(value: object) -> object:
    """The value with bytes, and types that JSON lacks, replaced by strings."""
    match value:
        case bytes():
            return value.decode()
        case dict():
            return {str(_texted(key)): _texted(each) for key, each in value.items()}
        case list():
            return [_texted(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _texts(values: Sequence[object], column: LoggedColumn) -> pa.Array:
    if column.encoding == BY_SERVER:  # the server has decoded the values already
        return pa.array(values, pa.string())
    array = pa.array(values, pa.binary())
    if column.encoding is None:
        if column.code is Code.STRING:
            # The log omits zero bytes at the end of a BINARY(n).
            return _padded(array, column.length_bytes)
        return array
    if column.encoding in {"utf8", "ascii"}:
        return array.cast(pa.string())
    return pa.array([text_of(each, column.encoding) for each in values], pa.string())


def _padded(array: pa.Array, size: int) -> pa.Array:
    lengths = pc.binary_length(array)
    if not pc.any(pc.less(lengths, size)).as_py():
        return array
    return pa.array(
        [None if each is None else each.ljust(size, b"\0") for each in array.to_pylist()],
        pa.binary(),
    )


def text_of(value: object, encoding: str | None) -> str | None:
    """The decoded string of a value; None for None."""
    if not isinstance(value, bytes):
        return None
    try:
        return value.decode(encoding or "utf8")
    except UnicodeDecodeError:
        if encoding != "cp1252":
            raise
        # MySQL's latin1 also defines the five bytes that are undefined in code page 1252.
        return "".join(
            chr(each) if each in {0x81, 0x8D, 0x8F, 0x90, 0x9D} else bytes([each]).decode(encoding)
            for each in value
        )


# --- table map -----------------------------------------------------------------------------------

_CHARACTER_BYTES = {
    **dict.fromkeys(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030"), 4),
    **dict.fromkeys(("utf8mb3", "utf8", "ujis", "eucjpms"), 3),
    **dict.fromkeys(("ucs2", "big5", "gbk", "gb2312", "euckr", "sjis", "cp932"), 2),
}
_ENCODINGS = {
    **dict.fromkeys(("utf8mb4", "utf8mb3", "utf8"), "utf8"),
    **dict.fromkeys(("ucs2", "utf16"), "utf-16-be"),
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "hp8": "hp-roman8",
    "koi8r": "koi8-r",
    "macroman": "mac-roman",
    "macce": "mac-latin2",
}
"""Python's names of the character sets that Python names differently."""
_EXACT = frozenset(
    {
        *("utf8mb4", "utf8mb3", "utf8", "ascii", "latin1", "latin2", "latin5", "latin7", "cp850"),
        *("hp8", "koi8r", "gb2312", "gbk", "cp1250", "cp1251", "cp1256", "cp1257", "cp852"),
        *("cp932", "ucs2", "utf16", "utf16le", "utf32", "macce", "macroman"),
    }
)
"""The character sets that Python decodes exactly as the server does. Strings in other character
sets are decoded by the server."""
_UCA_1400 = {2048: "utf8mb3", 2304: "utf8mb4", 2560: "ucs2", 2816: "utf16", 3072: "utf32"}
"""The character sets of MariaDB's Unicode 14 collations, by the first of their 256 ids."""
_NAMED = frozenset({Code.VARCHAR, Code.BLOB, Code.VAR_STRING, Code.STRING, Code.ENUM, Code.SET})
"""The type codes with a character set; the character set of byte columns is `binary`."""
_BODY = 20  # the packet's OK byte, and the header
_MEMBERS = {5: Code.SET, 6: Code.ENUM}
_LENGTH_BYTES = {252: 2, 253: 3, 254: 8}
_CHECKSUM = bytes(4)  # a placeholder: the parser expects a checksum, but `Binlog` removed it


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMap:
    """A table as one table map describes it. `primary_key` is empty for a table without one."""

    database: str
    table: str
    columns: tuple[LoggedColumn, ...]
    primary_key: tuple[str, ...]


def table_name(body: bytes) -> tuple[str, str]:
    """Database and table of a table map, without parsing the rest."""
    at = 8
    database = body[at + 1 : at + 1 + body[at]]
    at += 2 + len(database)
    return database.decode(), body[at + 1 : at + 1 + body[at]].decode()


def parse_table_map(packet: bytes, *, mariadb: bool, texts: Texts) -> TableMap:
    """The table map in a packet of the log.

    `texts`: lets the server decode bytes that Python does not decode exactly.

    Raises InvalidRequest if the map has no column names. Raises Unsupported for an old storage
    format or an unknown collation.
    """
    event = _event(packet, mariadb=mariadb)
    names = event.optional_metadata.column_name_list
    if len(names) != len(event.columns):
        raise InvalidRequest(
            "the binary log states no column names here: it was written before "
            "binlog_row_metadata was FULL. Start the pipeline behind this place",
            table=f"{event.schema}.{event.table}",
        )
    nulls = event.null_bitmask
    members = {code: iter(lists) for code, lists in _members(packet).items()}
    columns = tuple(
        _column(
            found,
            nullable=bool(nulls[number // 8] >> (number % 8) & 1),
            members=next(members[found.type]) if found.type in members else (),
            texts=texts,
        )
        for number, found in enumerate(event.columns)
    )
    keys = event.optional_metadata.simple_primary_key_list or [
        int(str(each)) for each in event.optional_metadata.primary_keys_with_prefix
    ]
    return TableMap(
        database=event.schema,
        table=event.table,
        columns=columns,
        primary_key=tuple(columns[at].name for at in keys),
    )


class _Column(Protocol):
    name: str
    type: int
    unsigned: bool
    collation_name: str | None


class _Optional(Protocol):
    column_name_list: list[str]
    simple_primary_key_list: list[int]
    primary_keys_with_prefix: Sequence[object]


class _Event(Protocol):
    schema: str
    table: str
    columns: list[_Column]
    null_bitmask: bytes
    optional_metadata: _Optional


@dataclass(frozen=True, slots=True)
class _Control:
    """Replaces the connection that the parser expects."""

    dbms: str
    charset: str = "utf8mb4"

    def _get_dbms(self) -> str:
        return self.dbms


@cache
def _add_collations() -> None:
    """Register MariaDB's newer collations with the parser.

    Without an entry, the parser treats strings of such a collation as bytes.
    """
    known = import_module("pymysqlreplication.constants.CHARSET")
    for first, charset in _UCA_1400.items():
        for number in range(first, first + 256):
            if known.charset_by_id(number, "mariadb") is None:
                name = f"{charset}_uca1400"
                known.charsets.add(known.Charset(number, charset, name, dbms="mariadb"))


def _event(packet: bytes, *, mariadb: bool) -> _Event:
    _add_collations()
    kinds = import_module("pymysqlreplication.row_event")
    wrapper = import_module("pymysqlreplication.packet").BinLogPacketWrapper
    found = wrapper(
        import_module("pymysql.protocol").MysqlPacket(packet + _CHECKSUM, "utf8mb4"),
        {},
        _Control("mariadb" if mariadb else "mysql"),
        (0, 0, 0),
        False,
        frozenset({kinds.TableMapEvent}),
        *(None, None, None, None),
        False,
        False,
        False,
        True,
        False,
    )
    return cast("_Event", found.event)


def _members(packet: bytes) -> dict[int, list[list[bytes]]]:
    """The undecoded names of each ENUM and SET column; the parser would decode them as UTF-8."""
    at = _BODY + 8
    for _ in range(2):  # the names of the database and the table
        at += 2 + packet[at]
    count, at = _length(packet, at)
    at += count
    size, at = _length(packet, at)
    at += size + (count + 7) // 8
    found: dict[int, list[list[bytes]]] = {Code.ENUM: [], Code.SET: []}
    while at < len(packet):
        kind = packet[at]
        size, at = _length(packet, at + 1)
        end = at + size
        while kind in _MEMBERS and at < end:
            count, at = _length(packet, at)
            names = []
            for _ in range(count):
                size, at = _length(packet, at)
                names.append(packet[at : at + size])
                at += size
            found[_MEMBERS[kind]].append(names)
        at = end
    return found


def _length(packet: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and the place after it."""
    first = packet[at]
    size = _LENGTH_BYTES.get(first, 0)
    return (int.from_bytes(packet[at + 1 : at + 1 + size], "little") if size else first), (
        at + 1 + size
    )


def _column(
    found: _Column, *, nullable: bool, members: Sequence[bytes], texts: Texts
) -> LoggedColumn:
    try:
        code = Code(found.type)
    except ValueError:
        raise Unsupported(
            "a storage of a column that lakecore does not read; ALTER TABLE ... FORCE gives an "
            "old column the storage of today",
            column=found.name,
            type_code=found.type,
        ) from None
    if code in _NAMED and found.collation_name is None:
        raise Unsupported("a collation that lakecore does not know", column=found.name)
    charset = (found.collation_name or "").partition("_")[0]
    encoding = None if charset in {"", "binary"} else _encoding(charset)
    size = int(getattr(found, "size", 0) or getattr(found, "length_size", 0) or 0)
    if code is Code.BIT:
        size = int(getattr(found, "bytes", 0))
    return LoggedColumn(
        name=found.name,
        code=code,
        unsigned=bool(found.unsigned),
        nullable=nullable,
        size=size,
        precision=int(
            getattr(found, "precision", 0) or getattr(found, "fsp", 0) or getattr(found, "bits", 0)
        ),
        scale=int(getattr(found, "decimals", 0)),
        length_bytes=int(getattr(found, "max_length", 0)),
        encoding=encoding,
        bytes_per_character=_CHARACTER_BYTES.get(charset, 1),
        charset=charset,
        values=_names(found, members, charset, encoding, texts),
    )


def _names(
    found: _Column, members: Sequence[bytes], charset: str, encoding: str | None, texts: Texts
) -> tuple[str, ...]:
    """The names of an ENUM or SET, decoded. One request to the server decodes all names."""
    if encoding == BY_SERVER:
        return tuple(text or "" for text in texts(charset, members))
    try:
        return tuple(text_of(each, encoding) or "" for each in members)
    except UnicodeDecodeError as error:
        raise Unsupported(
            "a name of an ENUM or SET is no text", column=found.name, cause=error
        ) from error


def _encoding(charset: str) -> str:
    """Python's name of a character set; `BY_SERVER` if only the server decodes it exactly."""
    return _ENCODINGS.get(charset, charset) if charset in _EXACT else BY_SERVER
