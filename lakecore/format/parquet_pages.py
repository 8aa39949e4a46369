"""Reads the header of a Parquet page: the lengths of header and body, and the body's checksum."""

from __future__ import annotations

from typing import NamedTuple

from lakecore.errors import CorruptTable
from lakecore.format.thrift import read_struct

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
