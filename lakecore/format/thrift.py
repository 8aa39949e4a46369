"""Reads and writes Thrift's compact protocol, as far as Parquet footers and pages need it.

A struct is a list of (field id, wire type, value), so unknown fields are written back unchanged.
Invalid Thrift (truncated, nested too deeply, or with impossible lengths) raises CorruptTable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lakecore.errors import CorruptTable
from lakecore.format.varints import append_varint, read_varint, unzigzag, zigzag

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
