"""The frame of an Avro object container file, and its codecs.

A container is a header (magic, metadata, sync marker) and blocks (count, size, compressed records,
sync marker). This module does not interpret the records.

zstd blocks include zstd's own checksum, which every zstd reader verifies. The decompressed size of
a block is limited independently of the size that the block states.
"""

from __future__ import annotations

import bz2
import io
import lzma
import struct
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import zstandard
from fastavro.schema import SchemaParseException

from lakecore.errors import CorruptTable, InvalidRequest, LakecoreError, Unsupported
from lakecore.format.varints import append_varint, read_varint, unzigzag, zigzag
from lakecore.memory import process_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_MAGIC = b"Obj\x01"
_SYNC_SIZE = 16
_LONG_BITS = 70
_ZSTD_LEVEL = 1
_PLAIN_BYTES_LEAST, _RATIO_MAX = 64 << 20, 1_000
"""Limits for metadata: a decompressed size that is always allowed; for larger ones, the ratio of
decompressed to compressed size."""
_USUAL_RATIO = 8
"""Metadata is rarely larger than this many times its compressed size."""
VALUE_BYTES_MAX = (1 << 31) - 1
"""Maximum decompressed size of a block of rows: an Arrow column holds no larger value."""
_STEP_BYTES = 2 << 10
"""Input per step for a zstd frame without a stated size; a step yields about 64 MiB at most."""

# Exceptions that fastavro, json and the decompressors raise for damaged bytes.
BROKEN = (
    EOFError,
    IndexError,
    KeyError,
    LookupError,
    OSError,
    OverflowError,
    MemoryError,
    RecursionError,
    SchemaParseException,
    StopIteration,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zlib.error,
    zstandard.ZstdError,
)


def codec_of(compression: str) -> str:
    """The Avro codec for a value of the option `manifest.compression`."""
    name = compression.strip().lower()
    codec = {"zstd": "zstandard", "none": "null", "": "null"}.get(name, name)
    if codec not in CODECS:
        raise InvalidRequest(
            "unknown manifest compression", value=compression, known=sorted(CODECS)
        )
    return codec


def compress(block: bytes, codec: str) -> bytes:
    """The block, compressed with the codec."""
    return CODECS[codec][0](block)


def decompress(block: bytes, codec: str, bytes_max: int = VALUE_BYTES_MAX) -> bytes:
    """The block, decompressed with the codec.

    Raises ValueError if the result has more than `bytes_max` bytes.
    """
    plain = CODECS[codec][1](block, bytes_max)
    if len(plain) > bytes_max:
        raise too_large(bytes_max)
    return plain


def too_large(bytes_max: int) -> ValueError:
    """The error for a block whose actual or stated decompressed size is too large."""
    return ValueError(f"a block decompresses to more than {bytes_max} bytes")


@contextmanager
def named_faults(data: bytes, path: str) -> Iterator[None]:
    """Translate the libraries' errors for damaged bytes into CorruptTable, naming `path`.

    Inside the block, the usual decompressed size is leased from the memory budget. A lease of the
    greatest possible size would empty all caches.
    """
    try:
        with process_budget().acquire_up_to(_USUAL_RATIO * len(data), 0):
            yield
    except BROKEN as error:
        if isinstance(error, LakecoreError):
            raise
        raise CorruptTable(
            "the file is damaged or no Avro file",
            path=path,
            size_bytes=len(data),
            why=type(error).__name__,
        ) from error


class Readable(Protocol):
    """A source of bytes that are read one after another."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, fewer at the end."""


class Frame:
    """A parsed container: metadata, sync marker, and blocks, which are read on demand."""

    def __init__(self, source: bytes | Readable, path: str) -> None:
        self.path = path
        self._source: Readable = io.BytesIO(source) if isinstance(source, bytes) else source
        self._at = 4
        if (magic := self._source.read(4)) != _MAGIC:
            raise CorruptTable("the file is not an Avro file", path=path, begins=magic)
        self.metadata: dict[str, bytes] = {}
        while count := self._long():
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                name = self._bytes(self._long()).decode()
                self.metadata[name] = self._bytes(self._long())
        self.sync = self._bytes(_SYNC_SIZE)
        self.codec = self.metadata.get("avro.codec", b"null").decode()

    def plain_blocks(self) -> list[tuple[int, bytes]]:
        """Each block's number of records and decompressed bytes.

        Raises Unsupported for unknown codecs.
        """
        if self.codec not in CODECS:
            raise Unsupported("unknown Avro codec", codec=self.codec, path=self.path)
        plain: list[tuple[int, bytes]] = []
        stored = opened = 0
        for count, block in self.blocks():
            # The limit is for all blocks together: many small blocks must not exceed it.
            stored += len(block)
            left = max(0, _plain_bytes_max(stored) - opened)
            plain.append((count, decompress(block, self.codec, left)))
            opened += len(plain[-1][1])
            check_count(count, plain[-1][1])
        return plain

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Each block's number of records and its bytes as stored."""
        while first := self._source.read(1):
            self._at += 1
            count, size = self._long(first[0]), self._long()
            if count < 0:
                raise CorruptTable("a block has a negative size", path=self.path, offset=self._at)
            block = self._bytes(size)
            if self._bytes(_SYNC_SIZE) != self.sync:
                raise CorruptTable("a block lacks its sync marker", path=self.path, offset=self._at)
            yield count, block
            # A row may be large: free this one before the next one is read.
            del block

    def _bytes(self, size: int) -> bytes:
        taken = self._source.read(size) if size >= 0 else b""
        if len(taken) != size:
            raise CorruptTable("the file is cut short", path=self.path, offset=self._at)
        self._at += size
        return taken

    def _long(self, first: int | None = None) -> int:
        """The next number. `first` is its first byte, if the caller has already read that byte."""
        value = shift = 0
        while True:
            byte = self._bytes(1)[0] if first is None else first
            first = None
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return unzigzag(value)
            if shift >= _LONG_BITS:
                raise CorruptTable("a number is too long", path=self.path, offset=self._at)


def check_count(count: int, plain: bytes) -> None:
    """Raise ValueError for a block with more records than bytes: a record has at least one byte."""
    if count > len(plain):
        raise ValueError(f"a block of {len(plain)} bytes says that it has {count} records")


def _plain_bytes_max(size_bytes: int) -> int:
    """The maximum decompressed size of metadata that has `size_bytes` when compressed."""
    return min(max(_PLAIN_BYTES_LEAST, _RATIO_MAX * size_bytes), VALUE_BYTES_MAX)


def assemble(
    metadata: Mapping[str, bytes], sync: bytes, blocks: Sequence[tuple[int, bytes]]
) -> bytes:
    """The Avro container with these blocks, each with its number of records."""
    parts = [_MAGIC, _long(len(metadata))]
    for name, value in metadata.items():
        parts += [_long(len(name)), name.encode("ascii"), _long(len(value)), value]
    parts += [_long(0), sync]
    for count, block in blocks:
        parts += [_long(count), _long(len(block)), block, sync]
    return b"".join(parts)


def _long(value: int) -> bytes:
    out = bytearray()
    append_varint(out, zigzag(value))
    return bytes(out)


# --- codecs -------------------------------------------------------------------------------------


def _zstd_compress(block: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compress(block)


def _zstd_decompress(block: bytes, bytes_max: int) -> bytes:
    said = zstandard.get_frame_parameters(block).content_size
    if said != zstandard.CONTENTSIZE_UNKNOWN and said > bytes_max:
        raise too_large(bytes_max)
    # `decompress` needs the frame's size, which frames of Java's stream compressor do not state.
    stream = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    size_bytes = 0
    step = len(block) if said != zstandard.CONTENTSIZE_UNKNOWN else _STEP_BYTES
    for at in range(0, len(block), max(1, step)):
        parts.append(stream.decompress(block[at : at + step]))
        size_bytes += len(parts[-1])
        if size_bytes > bytes_max:
            raise too_large(bytes_max)
        if stream.eof:
            break
    if not stream.eof:
        raise ValueError("a block of zstd is cut short")
    return b"".join(parts)


def _deflate_compress(block: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(block) + packer.flush()


def _deflate_decompress(block: bytes, bytes_max: int) -> bytes:
    stream = zlib.decompressobj(wbits=-15)
    return _whole(stream.decompress(block, bytes_max + 1), bytes_max, stream.eof)


def _whole(plain: bytes, bytes_max: int, ended: bool) -> bytes:  # noqa: FBT001
    if not ended and len(plain) <= bytes_max:
        raise ValueError("a block is cut short")
    return plain


def _snappy_compress(block: bytes) -> bytes:
    packed: bytes = pa.Codec("snappy").compress(block, asbytes=True)
    return packed + struct.pack(">I", zlib.crc32(block))


def _snappy_decompress(block: bytes, bytes_max: int) -> bytes:
    # Raw snappy begins with the decompressed size as a base-128 number; Avro adds a checksum.
    try:
        size, _ = read_varint(block, 0)
    except IndexError as error:
        raise ValueError("a block of snappy is cut short") from error
    if size > bytes_max:
        raise too_large(bytes_max)
    plain: bytes = pa.Codec("snappy").decompress(block[:-4], size, asbytes=True)
    if struct.pack(">I", zlib.crc32(plain)) != block[-4:]:
        raise ValueError("checksum of a snappy block differs")
    return plain


def _bzip2_decompress(block: bytes, bytes_max: int) -> bytes:
    stream = bz2.BZ2Decompressor()
    return _whole(stream.decompress(block, bytes_max + 1), bytes_max, stream.eof)


def _xz_decompress(block: bytes, bytes_max: int) -> bytes:
    stream = lzma.LZMADecompressor()
    return _whole(stream.decompress(block, bytes_max + 1), bytes_max, stream.eof)


CODECS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]] = {
    "null": (bytes, lambda block, _: block),
    "zstandard": (_zstd_compress, _zstd_decompress),
    "deflate": (_deflate_compress, _deflate_decompress),
    "snappy": (_snappy_compress, _snappy_decompress),
    "bzip2": (bz2.compress, _bzip2_decompress),
    "xz": (lzma.compress, _xz_decompress),
}
