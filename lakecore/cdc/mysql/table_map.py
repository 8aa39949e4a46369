"""Parses table maps, which describe the columns of a table at a place in the log.

mysql-replication needs 0.1 ms to parse a map. The server sends a map before each change, and most
maps are equal to an earlier one, so parsed maps are cached by their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from lakecore.cdc.mysql.binary_values import text_of
from lakecore.cdc.mysql.column import BY_SERVER, Code, LoggedColumn
from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Texts = Callable[[str, Sequence[object]], Sequence[str | None]]

__all__ = ["TableMap", "parse_table_map", "table_name"]

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
    """A table as one table map describes it. `primary_key` is empty if it has none."""

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

    `texts` lets the server decode bytes that Python does not decode exactly.

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

    Without them, it treats strings of these collations as bytes.
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
    """The undecoded names of each ENUM and SET column: the parser would decode all as UTF-8."""
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
