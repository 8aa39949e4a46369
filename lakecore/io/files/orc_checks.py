"""Checks an ORC file before Arrow decodes it: Arrow may crash the process on a damaged file.

Files written by lakecore have checksums of all bytes (`format/orc_tail.py`). In other files, the
structure is checked: magic, postscript, footer, stripes within the file, streams within their
stripe, and headers of compressed chunks within their stream. A changed value inside a chunk is not
detected.

A file is checked once in a process, unless it has changed. For a file that is not on a local disk,
the stripes are not checked, because they would be fetched twice.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING

import pyarrow as pa
import zstandard

from lakecore.errors import CorruptTable
from lakecore.format.orc_tail import (
    MAGIC,
    TRAILER_BYTES,
    read_footer,
    read_postscript,
    read_stripe_footer,
    read_trailer,
)
from lakecore.io.files.checks import Checks
from lakecore.io.stores.guarded import unguarded
from lakecore.io.stores.store import MemoryStore, plain_errors

if TYPE_CHECKING:
    from lakecore.format.orc_tail import PostScript, Stripe
    from lakecore.io.stores.store import Store

_PIECE_BYTES = 1 << 20
_POSTSCRIPT_BYTES_MAX = 256
_HEADER_BYTES = 3
_NONE = 0
_SIZES_UNKNOWN = (3, 4)
"""The codecs LZO and LZ4: their chunks do not state the decompressed size."""
_FOOTER_BYTES_MAX = 1 << 28
"""The largest size of a decompressed footer; footers of real tables are smaller."""
_KNOWN_MAX = 10_000


class _Known:
    """The files that this process has checked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[object, ...], None] = OrderedDict()

    def __contains__(self, key: tuple[object, ...]) -> bool:
        with self._lock:
            return key in self._files

    def add(self, key: tuple[object, ...]) -> None:
        with self._lock:
            self._files[key] = None
            while len(self._files) > _KNOWN_MAX:
                self._files.popitem(last=False)


_KNOWN = _Known()


def check_orc(store: Store, path: str, checks: Checks = Checks.ONCE) -> None:
    """Raise CorruptTable if a file differs from its checksums, or is not a complete ORC file."""
    local, key = store.local_path(path), None
    if local is not None:
        with plain_errors(path):
            status = os.stat(local)
        key = local, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        if checks is not Checks.ALWAYS and key in _KNOWN:
            return
    with plain_errors(path), store.open_input(path) as file:
        has_bytes = local is not None or isinstance(unguarded(store), MemoryStore)
        try:
            _OrcFile(file, path).check(stripes=has_bytes, checksum=checks is not Checks.NEVER)
        except ValueError as error:
            if isinstance(error, CorruptTable):
                raise
            raise CorruptTable(
                "the data file is not readable as ORC", path=path, cause=error
            ) from error
    if key is not None and checks is not Checks.NEVER:
        _KNOWN.add(key)


class _OrcFile:
    """An opened file and its tail."""

    def __init__(self, file: pa.NativeFile, path: str) -> None:
        self._file = file
        self._path = path
        self._size_bytes = file.size()
        end = self._read(max(0, self._size_bytes - _POSTSCRIPT_BYTES_MAX), _POSTSCRIPT_BYTES_MAX)
        self._postscript: PostScript = read_postscript(end)
        self._body_end = self._size_bytes - self._postscript.tail_bytes
        if self._body_end < len(MAGIC):
            message = "the tail is longer than the file"
            raise ValueError(message)

    def check(self, *, stripes: bool, checksum: bool) -> None:
        tail = self._read(self._body_end, self._postscript.tail_bytes)
        start = self._body_end - TRAILER_BYTES
        trailer = self._read(start, TRAILER_BYTES) if start >= len(MAGIC) else b""
        body_crc = read_trailer(trailer, tail, self._path)
        if body_crc is not None and not (stripes and checksum):
            return
        if body_crc is not None:
            if self._crc(start) != body_crc:
                raise CorruptTable(
                    "an ORC file is damaged: its checksum does not match", path=self._path
                )
            return
        if stripes and self._read(0, len(MAGIC)) != MAGIC:
            message = "the file does not begin with the magic of ORC"
            raise ValueError(message)
        if self._postscript.codec in _SIZES_UNKNOWN:
            return
        start = len(tail) - self._postscript.postscript_bytes - self._postscript.footer_bytes
        footer = tail[start : -self._postscript.postscript_bytes]
        parts, types, rows = read_footer(self._plain(footer))
        if sum(part.rows for part in parts) != rows:
            message = "the stripes have other rows than the file"
            raise ValueError(message)
        at = len(MAGIC)
        for part in parts:
            end = part.offset + part.body_bytes + part.footer_bytes
            if part.offset < at or end > self._body_end:
                message = "a stripe is outside the file, or overlaps another one"
                raise ValueError(message)
            at = end
            if stripes:
                self._check_stripe(part, types)

    def _check_stripe(self, stripe: Stripe, types: int) -> None:
        footer = self._read(stripe.offset + stripe.body_bytes, stripe.footer_bytes)
        lengths, columns = read_stripe_footer(self._plain(footer))
        if sum(lengths) > stripe.body_bytes or columns != types:
            message = "a stripe has other streams or columns than its footer says"
            raise ValueError(message)
        at = stripe.offset
        for length in lengths:
            if self._postscript.codec != _NONE:
                self._check_chunks(at, at + length)
            at += length

    def _check_chunks(self, at: int, end: int) -> None:
        """Raise ValueError unless the last chunk of a stream ends where the stream ends."""
        while at < end:
            header = self._read(at, _HEADER_BYTES)
            length = int.from_bytes(header, "little") >> 1
            at += _HEADER_BYTES + length
            if not length or length > self._postscript.block_bytes:
                message = "a compressed chunk has an impossible length"
                raise ValueError(message)
        if at != end:
            message = "a compressed chunk is longer than its stream"
            raise ValueError(message)

    def _plain(self, data: bytes) -> bytes:
        """A part of the tail, decompressed."""
        if self._postscript.codec == _NONE:
            return data
        out: list[bytes] = []
        at = size_bytes = 0
        while at < len(data):
            header = int.from_bytes(data[at : at + _HEADER_BYTES], "little")
            chunk = data[at + _HEADER_BYTES :][: header >> 1]
            if len(chunk) != header >> 1:
                message = "a chunk of the tail is cut short"
                raise ValueError(message)
            out.append(chunk if header & 1 else self._decompressed(chunk))
            size_bytes += len(out[-1])
            if size_bytes > _FOOTER_BYTES_MAX:
                message = "the tail becomes too large"
                raise ValueError(message)
            at += _HEADER_BYTES + len(chunk)
        return b"".join(out)

    def _decompressed(self, chunk: bytes) -> bytes:
        most = min(self._postscript.block_bytes, _FOOTER_BYTES_MAX)
        try:
            match self._postscript.codec:
                case 1:  # zlib
                    return zlib.decompressobj(wbits=-15).decompress(chunk, most)
                case 5:  # zstd
                    size = zstandard.get_frame_parameters(chunk).content_size
                    if size not in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR):
                        most = min(most, size)
                    return zstandard.ZstdDecompressor().decompress(chunk, max_output_size=most)
                case _:
                    return _unsnapped(chunk, most)
        except (zlib.error, zstandard.ZstdError, pa.ArrowException, OSError) as error:
            message = f"a chunk of the tail cannot be decompressed: {error}"
            raise ValueError(message) from error

    def _crc(self, end: int) -> int:
        crc = at = 0
        while at < end:
            piece = self._read(at, min(_PIECE_BYTES, end - at))
            crc = zlib.crc32(piece, crc)
            at += len(piece)
        return crc

    def _read(self, at: int, size_bytes: int) -> bytes:
        size_bytes = min(size_bytes, self._size_bytes - at)
        if size_bytes < 0:
            message = "a part is outside the file"
            raise ValueError(message)
        self._file.seek(at)
        data: bytes = self._file.read(size_bytes)
        if len(data) != size_bytes:
            message = "the file is cut short"
            raise ValueError(message)
        return data


def _unsnapped(chunk: bytes, most: int) -> bytes:
    """The decompressed bytes of raw snappy data. The data begins with their number."""
    size = shift = 0
    for byte in chunk[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > most:
        message = "a chunk of the tail becomes too large"
        raise ValueError(message)
    plain: bytes = pa.Codec("snappy").decompress(chunk, size, asbytes=True)
    return plain
