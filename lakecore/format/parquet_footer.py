"""Joins Parquet files by rewriting their footers: many small files become one without re-encoding.

Each row group is encoded as a separate Parquet file (a *part*), so that several threads can encode
at once. Joining the parts changes only footers:

1. the bytes of each part between the leading magic and the footer are concatenated;
2. every offset in a part's footer is increased by the distance that the part's bytes have moved;
3. the row groups of all parts are put into one footer, with the schema of the first part.

A column can be *relabelled*: Arrow's writer cannot write INT96 for a single column, but it encodes
twelve fixed bytes exactly as INT96. Only the type in the footer differs, and is changed here. The
statistics of such a column are dropped, because INT96 has no order.

A TIME column is *marked* as adjusted to UTC, as in files of Java Paimon. Not every version of Arrow
can write this mark.

A column can be *copied*: if two columns have the same values, they are encoded once, and the bytes
are written twice, because readers expect each column to have its own bytes.

The caller can supply the statistics of string columns that were encoded without statistics, but
only statistics that the encoder would have computed.

Each column chunk and the footer get a checksum.

The footer is Thrift (https://github.com/apache/parquet-format). Fields that this module does not
know are copied unchanged.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from lakecore.errors import CorruptTable
from lakecore.format.varints import append_varint, read_varint, unzigzag, zigzag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


# --- parquet checksums ---------------------------------------------------------------------------
# Checksums of lakecore for the parts of a Parquet file that page checksums do not cover.
#
# A page has a CRC of its body, as in Java. Page headers and the footer have no CRC in Parquet: a
# flipped bit there can drop rows, or disable the check of a page. lakecore writes a trailer
# directly before the footer, which other readers ignore as a gap. The numbers of the trailer are
# little-endian:
#
#     "LakeCRC<"               8 bytes
#     CRC-32 of the bytes of each column chunk, page headers included: row group by row group
#     count of column chunks   4 bytes
#     CRC-32 of the footer     4 bytes
#     CRC-32 of the above      4 bytes
#     ">LakeCRC"               8 bytes
#
# INVARIANT: if one of the two markers is present, the file has a trailer, and the trailer must be
# complete. The trailer is not stored as key-value metadata of the footer, because a program that
# rewrites a file may copy that metadata.

_BEGIN, _END = b"LakeCRC<", b">LakeCRC"
_NUMBER_BYTES = 4


def trailer_bytes(chunks: int) -> int:
    """The length of the trailer of a file with that many column chunks."""
    return len(_BEGIN) + (chunks + 3) * _NUMBER_BYTES + len(_END)


def trailer_of(chunks: Sequence[int], footer: bytes | bytearray) -> bytes:
    """The trailer of a file with this footer; `chunks` are the checksums of its column chunks."""
    numbers = [*chunks, len(chunks), zlib.crc32(footer)]
    data = _BEGIN + np.array(numbers, "<u4").tobytes()
    return data + zlib.crc32(data).to_bytes(_NUMBER_BYTES, "little") + _END


def read_trailer(before: bytes, chunks: int, path: str, footer: bytes | None) -> np.ndarray | None:
    """The checksums of column chunks, in order; None if the file has no trailer.

    `before`: the last bytes before the footer, at most `trailer_bytes(chunks)`. `footer`: the
    footer to check; None skips the check. Raises CorruptTable if the trailer or the footer is
    damaged.
    """
    if not (before.endswith(_END) or before.startswith(_BEGIN)):
        return None
    if len(before) != trailer_bytes(chunks) or not _is_whole(before):
        raise CorruptTable("the checksums of a Parquet file are damaged", path=path)
    numbers: np.ndarray = np.frombuffer(before, "<u4", chunks + 2, len(_BEGIN))
    if numbers[-2] != chunks:
        raise CorruptTable("the checksums of a Parquet file are of another", path=path)
    if footer is not None and numbers[-1] != zlib.crc32(footer):
        raise CorruptTable("the checksum of a Parquet footer does not match", path=path)
    return numbers[:-2]


def _is_whole(before: bytes) -> bool:
    at = len(before) - len(_END) - _NUMBER_BYTES
    own = before[at : at + _NUMBER_BYTES]
    marked = before.startswith(_BEGIN) and before.endswith(_END)
    return marked and zlib.crc32(before[:at]).to_bytes(_NUMBER_BYTES, "little") == own


# --- thrift --------------------------------------------------------------------------------------
# Reads and writes Thrift's compact protocol, as far as Parquet footers and pages need it.
#
# A struct is a list of (field id, wire type, value), so unknown fields are written back unchanged.
# Invalid Thrift (truncated, nested too deeply, or with impossible lengths) raises CorruptTable.

Struct: TypeAlias = "list[tuple[int, int, Wire]]"
Wire: TypeAlias = "bool | int | bytes | ListValue | Struct"

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, BINARY, _LIST, _SET, _MAP, STRUCT = range(1, 13)
BOOLEAN, LONG = _TRUE, _I64


@dataclass(frozen=True, slots=True)
class ListValue:
    """A Thrift list: the wire type of its elements, and the elements."""

    kind: int
    items: list[Wire]


_DEPTH_MAX = 64


def _read_int(data: memoryview, at: int) -> tuple[int, int]:
    number, at = read_varint(data, at)
    return unzigzag(number), at


def read_struct(data: memoryview, at: int) -> tuple[Struct, int]:
    """The struct at an offset, and the offset of its end. Raises CorruptTable if it is invalid."""
    try:
        return _read_struct(data, at, _DEPTH_MAX)
    except IndexError as error:
        raise CorruptTable("a struct of Thrift is cut short", size_bytes=len(data)) from error
    except ValueError as error:
        raise CorruptTable("a number of Thrift is too long", size_bytes=len(data)) from error


def _read_struct(data: memoryview, at: int, depth: int) -> tuple[Struct, int]:
    if not depth:
        raise CorruptTable("structs of Thrift are nested too deep", depth=_DEPTH_MAX)
    struct: Struct = []
    id_ = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return struct, at
        kind = head & 0x0F
        if head >> 4:
            id_ += head >> 4
        else:
            id_, at = _read_int(data, at)
        value: Wire
        if kind in (_TRUE, _FALSE):
            value, kind = kind == _TRUE, _TRUE
        else:
            value, at = _read_value(data, at, kind, depth)
        struct.append((id_, kind, value))


def _read_value(data: memoryview, at: int, kind: int, depth: int) -> tuple[Wire, int]:
    match kind:
        case 1 | 2:
            return data[at] == _TRUE, at + 1
        case 3:
            return _read_bytes(data, at, 1)
        case 4 | 5 | 6:
            return _read_int(data, at)
        case 7:
            return _read_bytes(data, at, 8)
        case 8:
            length, at = read_varint(data, at)
            return _read_bytes(data, at, length)
        case 9 | 10:
            head = data[at]
            at += 1
            count, of = head >> 4, head & 0x0F
            if count == 15:
                count, at = read_varint(data, at)
            items: list[Wire] = []
            if not depth:
                raise CorruptTable("lists of Thrift are nested too deep", depth=_DEPTH_MAX)
            for _ in range(count):
                item, at = _read_value(data, at, of, depth - 1)
                items.append(item)
            return ListValue(of, items), at
        case 12:
            return _read_struct(data, at, depth - 1)
        case _:
            raise CorruptTable("unknown part in a Parquet footer", wire_type=kind)


def _read_bytes(data: memoryview, at: int, length: int) -> tuple[bytes, int]:
    if at + length > len(data):
        raise IndexError
    return bytes(data[at : at + length]), at + length


def _write_int(out: bytearray, value: int) -> None:
    append_varint(out, zigzag(value))


def write_struct(out: bytearray, struct: Struct) -> None:
    """Append the struct, serialized, to a buffer."""
    last = 0
    for id_, kind, value in struct:
        wire = kind if kind != _TRUE else (_TRUE if value else _FALSE)
        if 0 < id_ - last <= 15:
            out.append((id_ - last) << 4 | wire)
        else:
            out.append(wire)
            _write_int(out, id_)
        last = id_
        if kind != _TRUE:
            _write_value(out, kind, value)
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Wire) -> None:
    match value:
        case bool():
            out.append(_TRUE if value else _FALSE)
        case int():
            _write_int(out, value)
        case bytes():
            # Other values are written unchanged: fixed-width numbers, and serialized structs.
            if kind == BINARY:
                append_varint(out, len(value))
            out += value
        case ListValue(of, items):
            if len(items) < 15:
                out.append(len(items) << 4 | of)
            else:
                out.append(0xF0 | of)
                append_varint(out, len(items))
            for item in items:
                _write_value(out, of, item)
        case list():
            write_struct(out, value)


# --- parquet footer ------------------------------------------------------------------------------

MAGIC = b"PAR1"
INT96_BYTES = 12

_PHYSICAL_INT96, _PHYSICAL_FIXED = 3, 7

# Field ids of the structs that are changed here.
_FILE_SCHEMA, _FILE_ROWS, _FILE_GROUPS = 2, 3, 4
_FILE_ORDERS = 7
_ELEMENT_TYPE, _ELEMENT_LENGTH, _ELEMENT_NAME, _ELEMENT_CHILDREN, _ELEMENT_ID = 1, 2, 4, 5, 9
_ELEMENT_REPETITION, _ELEMENT_CONVERTED, _ELEMENT_LOGICAL = 3, 6, 10
_REPEATED = 2
_CONVERTED_MAP, _CONVERTED_ENTRY, _CONVERTED_LIST = 1, 2, 3
_CONVERTED_TIME_MILLIS = 7
_LOGICAL_TIME, _TIME_IS_ADJUSTED, _TIME_UNIT, _UNIT_MILLIS = 7, 1, 2, 1
_GROUP_COLUMNS, _GROUP_DECODED_BYTES, _GROUP_OFFSET, _GROUP_BYTES, _GROUP_ORDINAL = 1, 2, 5, 6, 7
_CHUNK_OFFSET, _CHUNK_META, _CHUNK_INDEXES = 2, 3, (4, 6)
_META_TYPE, _META_PATH, _META_DECODED_BYTES, _META_BYTES, _META_STATISTICS = 1, 3, 6, 7, 12
_META_DATA, _META_DICTIONARY = 9, 11
_NULL_COUNT, _MAX_VALUE, _MIN_VALUE, _MAX_IS_EXACT, _MIN_IS_EXACT = 3, 5, 6, 7, 8
_META_OFFSETS = (9, 10, 11, 14)


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the column `source`, with its own field id."""

    source: str
    id: int


@dataclass(frozen=True, slots=True)
class TextStatistics:
    """Statistics of a string column chunk. A bound that is too long to store is None."""

    null_count: int
    low: bytes | None
    high: bytes | None


@dataclass(slots=True)
class FooterJoin:
    """The footer of a file that is joined from parts. `size_bytes` is the offset of the next part.

    `copies` are additional columns by name, which come before the columns of the parts.
    """

    name: str
    int96: frozenset[str] = frozenset()
    copies: Mapping[str, Copy] = field(default_factory=dict)
    size_bytes: int = len(MAGIC)
    row_count: int = 0
    _footer: Struct | None = None
    _groups: list[Wire] = field(default_factory=list)
    """The row groups, serialized: a parsed row group would take twenty times the memory."""
    _checksums: list[int] = field(default_factory=list)

    def add(
        self, part: memoryview, texts: Mapping[int, TextStatistics] = MappingProxyType({})
    ) -> list[memoryview]:
        """Add the row groups of a part to the footer. Returns the bytes to append to the file.

        `texts`: by number of a leaf column, the statistics that the part does not have; empty
        unless the part has a single row group.
        """
        part = part.cast("B")
        start, footer = split(part)
        groups = _structs(_get(footer, _FILE_GROUPS))
        copied: list[memoryview] = []
        at = self.size_bytes
        for group in groups:
            _add_statistics(group, texts)
            own = _chunk_checksums(group, part)
            for place, (name, copy) in enumerate(self.copies.items()):
                chunk, data = _copied_chunk(group, part, name, copy.source, at)
                _insert_chunk(group, place, chunk)
                copied.append(data)
                at += len(data)
                own.insert(place, zlib.crc32(data))
            self._checksums += own
        body = part[len(MAGIC) : start]
        for group in groups:
            written = bytearray()
            write_struct(written, self._moved_group(group, at - len(MAGIC)))
            self._groups.append(bytes(written))
        self.row_count += _int(_get(footer, _FILE_ROWS))
        self.size_bytes = at + len(body)
        if self._footer is None:
            _set(footer, _FILE_GROUPS, ListValue(STRUCT, []))
            self._footer = footer
        return [*copied, body]

    def finish(self) -> bytes:
        """The last bytes of the file: checksums, the footer, its length, and the magic."""
        assert self._footer is not None, "a file needs one part at least"
        schema = _get(self._footer, _FILE_SCHEMA)
        assert isinstance(schema, ListValue)
        _set(self._footer, _FILE_SCHEMA, ListValue(STRUCT, self._elements(_structs(schema))))
        orders = _get(self._footer, _FILE_ORDERS)
        if isinstance(orders, ListValue):
            # All columns have the same column order: that of their type.
            orders.items.extend(orders.items[:1] * len(self.copies))
        _set(self._footer, _FILE_ROWS, self.row_count)
        _set(self._footer, _FILE_GROUPS, ListValue(STRUCT, self._groups))
        out = bytearray()
        write_struct(out, self._footer)
        checksums = trailer_of(self._checksums, out)
        return checksums + bytes(out) + len(out).to_bytes(4, "little") + MAGIC

    def _moved_group(self, group: Struct, distance: int) -> Struct:
        for place, chunk in enumerate(_structs(_get(group, _GROUP_COLUMNS))):
            if place >= len(self.copies):
                _move_chunk(chunk, distance)
            meta = _meta(chunk)
            if self.int96 and _path(_get(meta, _META_PATH)) in self.int96:
                _set(meta, _META_TYPE, _PHYSICAL_INT96)
                _drop(meta, _META_STATISTICS)
        if self.copies:
            _set(group, _GROUP_OFFSET, _begin(_meta(_structs(_get(group, _GROUP_COLUMNS))[0])))
        else:
            _move(group, _GROUP_OFFSET, distance)
        if _get(group, _GROUP_ORDINAL) is not None:
            _set(group, _GROUP_ORDINAL, min(len(self._groups), 0x7FFF))
        return group

    def _elements(self, elements: list[Struct]) -> list[Wire]:
        """The schema's elements: root renamed, copies added, INT96 relabelled, times marked.

        Elements are in depth-first order. Each states the number of its children, which come next.
        """
        root = elements[0]
        _set(root, _ELEMENT_NAME, self.name.encode())
        for element in elements:
            _mark_time(element)
        copied = [_copied_element(elements, name, copy) for name, copy in self.copies.items()]
        _set(root, _ELEMENT_CHILDREN, _int(_get(root, _ELEMENT_CHILDREN)) + len(copied))
        elements[1:1] = copied
        open_: list[tuple[str, int]] = []
        for element in elements[1:]:
            name = _get(element, _ELEMENT_NAME)
            assert isinstance(name, bytes)
            path = ".".join([*(part for part, _ in open_), name.decode()])
            if open_:
                open_[-1] = (open_[-1][0], open_[-1][1] - 1)
            children = _get(element, _ELEMENT_CHILDREN)
            if children:
                open_.append((name.decode(), _int(children)))
            elif path in self.int96:
                assert _get(element, _ELEMENT_TYPE) == _PHYSICAL_FIXED
                _set(element, _ELEMENT_TYPE, _PHYSICAL_INT96)
                _drop(element, _ELEMENT_LENGTH)
            while open_ and open_[-1][1] == 0:
                open_.pop()
        return list(elements)


def _mark_time(element: Struct) -> None:
    """Mark a TIME in milliseconds as adjusted to UTC; other elements stay as they are."""
    logical = _get(element, _ELEMENT_LOGICAL)
    time = _get(logical, _LOGICAL_TIME) if isinstance(logical, list) else None
    unit = _get(time, _TIME_UNIT) if isinstance(time, list) else None
    if isinstance(time, list) and isinstance(unit, list) and _get(unit, _UNIT_MILLIS) is not None:
        _set(time, _TIME_IS_ADJUSTED, True)
        _drop(element, _ELEMENT_CONVERTED)
        before = [place for place, part in enumerate(element) if part[0] < _ELEMENT_CONVERTED]
        converted = (_ELEMENT_CONVERTED, _I32, _CONVERTED_TIME_MILLIS)
        element.insert(before[-1] + 1, converted)


def split(file: memoryview) -> tuple[int, Struct]:
    """The offset of the footer in a whole Parquet file, and the footer."""
    if len(file) < 12 or bytes(file[-4:]) != MAGIC or bytes(file[:4]) != MAGIC:
        raise CorruptTable("not a whole Parquet file", size_bytes=len(file))
    length = int.from_bytes(file[-8:-4], "little")
    start = len(file) - 8 - length
    footer, _ = read_struct(file[start:-8], 0)
    return start, footer


def with_maps_as_lists(footer: memoryview) -> bytes:
    """A file that consists of this footer, in which each map is a list of its entries.

    Java Paimon before 0.9 declares map keys nullable; Arrow accepts that only in a list.
    """
    struct, _ = read_struct(footer, 0)
    _make_lists_of_maps(struct)
    return _alone(struct)


def with_times_as_bytes(footer: memoryview) -> bytes:
    """A file that consists of this footer, with INT96 as 12 fixed bytes and each map as a list."""
    struct, _ = read_struct(footer, 0)
    _make_lists_of_maps(struct)
    for element in _structs(_get(struct, _FILE_SCHEMA)):
        if _get(element, _ELEMENT_TYPE) == _PHYSICAL_INT96:
            _drop(element, _ELEMENT_LENGTH)
            _set(element, _ELEMENT_TYPE, _PHYSICAL_FIXED)
            at = next(place for place, part in enumerate(element) if part[0] == _ELEMENT_TYPE)
            element.insert(at + 1, (_ELEMENT_LENGTH, element[at][1], INT96_BYTES))
    for group in _structs(_get(struct, _FILE_GROUPS)):
        for chunk in _structs(_get(group, _GROUP_COLUMNS)):
            if _get(_meta(chunk), _META_TYPE) == _PHYSICAL_INT96:
                _set(_meta(chunk), _META_TYPE, _PHYSICAL_FIXED)
                _drop(_meta(chunk), _META_STATISTICS)
    return _alone(struct)


def _make_lists_of_maps(footer: Struct) -> None:
    for element in _structs(_get(footer, _FILE_SCHEMA)):
        if _get(element, _ELEMENT_CONVERTED) == _CONVERTED_MAP and not _is_repeated(element):
            _drop(element, _ELEMENT_LOGICAL)
            _set(element, _ELEMENT_CONVERTED, _CONVERTED_LIST)
        elif _get(element, _ELEMENT_CONVERTED) in (_CONVERTED_MAP, _CONVERTED_ENTRY):
            _drop(element, _ELEMENT_LOGICAL)
            _drop(element, _ELEMENT_CONVERTED)


def _alone(footer: Struct) -> bytes:
    """A file that consists of this footer only."""
    out = bytearray(MAGIC)
    write_struct(out, footer)
    length = len(out) - len(MAGIC)
    return bytes(out) + length.to_bytes(4, "little") + MAGIC


def _is_repeated(element: Struct) -> bool:
    return _get(element, _ELEMENT_REPETITION) == _REPEATED


def _copied_chunk(
    group: Struct, part: memoryview, name: str, source: str, at: int
) -> tuple[Struct, memoryview]:
    """The column chunk `name`, a copy of `source` at the file offset `at`, and its bytes."""
    chunks = _structs(_get(group, _GROUP_COLUMNS))
    path = ListValue(BINARY, [source.encode()])
    chunk = _copy(next(c for c in chunks if _get(_meta(c), _META_PATH) == path))
    meta = _meta(chunk)
    begin = _begin(meta)
    _set(meta, _META_PATH, ListValue(BINARY, [name.encode()]))
    _move_chunk(chunk, at - begin)
    return chunk, part[begin : begin + _int(_get(meta, _META_BYTES))]


def _add_statistics(group: Struct, texts: Mapping[int, TextStatistics]) -> None:
    chunks = _structs(_get(group, _GROUP_COLUMNS))
    for leaf, known in texts.items():
        meta = _meta(chunks[leaf])
        statistics: Struct = [(_NULL_COUNT, LONG, known.null_count)]
        bounds = [(_MAX_VALUE, known.high), (_MIN_VALUE, known.low)]
        statistics += [(id_, BINARY, bound) for id_, bound in bounds if bound is not None]
        exact = [(_MAX_IS_EXACT, known.high), (_MIN_IS_EXACT, known.low)]
        statistics += [(id_, BOOLEAN, True) for id_, bound in exact if bound is not None]
        at = sum(id_ < _META_STATISTICS for id_, _, _ in meta)
        meta.insert(at, (_META_STATISTICS, STRUCT, statistics))


def _insert_chunk(group: Struct, place: int, chunk: Struct) -> None:
    columns = _get(group, _GROUP_COLUMNS)
    assert isinstance(columns, ListValue)
    columns.items.insert(place, chunk)
    sizes = ((_GROUP_DECODED_BYTES, _META_DECODED_BYTES), (_GROUP_BYTES, _META_BYTES))
    for of_group, of_chunk in sizes:
        if _get(group, of_group) is not None:
            more = _int(_get(_meta(chunk), of_chunk))
            _set(group, of_group, _int(_get(group, of_group)) + more)


def _copied_element(elements: list[Struct], name: str, copy: Copy) -> Struct:
    """The schema element of a copy. A copied column has no child elements."""
    source = copy.source.encode()
    element = _copy(next(e for e in _columns(elements) if _get(e, _ELEMENT_NAME) == source))
    _set(element, _ELEMENT_NAME, name.encode())
    _set(element, _ELEMENT_ID, copy.id)
    return element


def _columns(elements: list[Struct]) -> Iterator[Struct]:
    """The elements of top-level columns, without their children, which may have any name."""
    at = 1
    while at < len(elements):
        yield elements[at]
        inside = _int(_get(elements[at], _ELEMENT_CHILDREN) or 0)
        at += 1
        while inside:
            inside += _int(_get(elements[at], _ELEMENT_CHILDREN) or 0) - 1
            at += 1


def _chunk_checksums(group: Struct, part: memoryview) -> list[int]:
    """The checksums of the column chunks in a row group, before columns are copied."""
    metas = [_meta(chunk) for chunk in _structs(_get(group, _GROUP_COLUMNS))]
    begins = [(_begin(meta), _int(_get(meta, _META_BYTES))) for meta in metas]
    return [zlib.crc32(part[begin : begin + size]) for begin, size in begins]


def _meta(chunk: Struct) -> Struct:
    meta = _get(chunk, _CHUNK_META)
    assert isinstance(meta, list)
    return meta


def _begin(meta: Struct) -> int:
    """The offset of the first page of a column chunk."""
    return _int(_get(meta, _META_DICTIONARY) or _get(meta, _META_DATA))


def _move_chunk(chunk: Struct, distance: int) -> None:
    _move(chunk, _CHUNK_OFFSET, distance)
    for id_ in _CHUNK_INDEXES:
        _move(chunk, id_, distance)
    for id_ in _META_OFFSETS:
        _move(_meta(chunk), id_, distance)


def _path(value: Wire | None) -> str:
    assert isinstance(value, ListValue)
    return b".".join(part for part in value.items if isinstance(part, bytes)).decode()


def _structs(value: Wire | None) -> list[Struct]:
    assert isinstance(value, ListValue)
    assert value.kind == STRUCT or not value.items
    return [item for item in value.items if isinstance(item, list)]


def _int(value: Wire | None) -> int:
    assert isinstance(value, int)
    return value


def _copy(struct: Struct) -> Struct:
    """A struct that can be changed without changing this one."""
    return [(id_, kind, _copied(value)) for id_, kind, value in struct]


def _copied(value: Wire) -> Wire:
    match value:
        case ListValue(kind, items):
            return ListValue(kind, [_copied(item) for item in items])
        case list():
            return _copy(value)
    return value


def _get(struct: Struct, id_: int) -> Wire | None:
    return next((value for found, _, value in struct if found == id_), None)


def _set(struct: Struct, id_: int, value: Wire) -> None:
    at = next(index for index, part in enumerate(struct) if part[0] == id_)
    struct[at] = (id_, struct[at][1], value)


def _drop(struct: Struct, id_: int) -> None:
    struct[:] = [part for part in struct if part[0] != id_]


def _move(struct: Struct, id_: int, distance: int) -> None:
    value = _get(struct, id_)
    if value:  # 0 and a missing offset both mean that there is no such part of the file
        _set(struct, id_, _int(value) + distance)


# --- parquet pages -------------------------------------------------------------------------------
# Reads the header of a Parquet page: the lengths of header and body, and the body's checksum.

_BODY_BYTES, _CRC = 3, 4
_UNSIGNED = 0xFFFF_FFFF


class Page(NamedTuple):
    """The sizes of a page's header and body in bytes, and the CRC-32 of the body, if stated."""

    header_bytes: int
    body_bytes: int
    crc: int | None


def page_at(data: bytes) -> Page | None:
    """The page at the start of these bytes; None if its header is incomplete or invalid."""
    try:
        header, size = read_struct(memoryview(data), 0)
    except CorruptTable:
        return None
    known = {id_: value for id_, _, value in header}
    body, crc = known.get(_BODY_BYTES), known.get(_CRC)
    if not isinstance(body, int) or body < 0:
        return None
    return Page(size, body, crc & _UNSIGNED if isinstance(crc, int) else None)
