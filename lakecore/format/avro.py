"""Avro object container files <-> records, of which manifests are made.

A container is a header (magic, metadata, sync marker) and blocks (count, size, compressed records,
sync marker). fastavro reads and writes the records; the container's own frame is handled here:

1. reading: check the frame, decompress each block, and give fastavro the same bytes uncompressed
   under a simpler schema, without logical types and inner records: what it then builds for each
   record is one dictionary of plain values;
2. writing: let fastavro write an uncompressed container, compress each block, state the codec.

INVARIANT: the sync marker follows from the schema, so equal records give equal bytes.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import lzma
import struct
import zlib
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import zstandard

from lakecore.errors import CorruptTable, InvalidRequest, LakecoreError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_MAGIC = b"Obj\x01"
_OTHER_FORMATS = {b"ORC": "orc", b"PAR1": "parquet"}
_SYNC_SIZE = 16
_BLOCK_SIZE_BYTES = 64_000
_ZSTD_LEVEL = 1

# What fastavro, json and the decompressors raise on bytes that are not what the frame says.
_BROKEN = (
    EOFError,
    IndexError,
    KeyError,
    LookupError,
    OSError,
    OverflowError,
    MemoryError,
    StopIteration,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zlib.error,
    zstandard.ZstdError,
)


def codec_of(compression: str) -> str:
    """The Avro codec that a `manifest.compression` option means."""
    name = compression.strip().lower()
    codec = {"zstd": "zstandard", "none": "null", "": "null"}.get(name, name)
    if codec not in _CODECS:
        raise InvalidRequest(
            "unknown manifest compression", value=compression, known=sorted(_CODECS)
        )
    return codec


def write_container(schema: dict[str, Any], records: Iterable[object], compression: str) -> bytes:
    """The container of these records. `schema` must be parsed by fastavro."""
    codec = codec_of(compression)
    sync = hashlib.md5(json.dumps(_bare(schema)).encode(), usedforsecurity=False).digest()
    plain = io.BytesIO()
    fastavro.writer(
        plain, schema, records, codec="null", sync_interval=_BLOCK_SIZE_BYTES, sync_marker=sync
    )
    if codec == "null":
        return plain.getvalue()
    frame = _Frame(plain.getvalue(), "")
    metadata = {**frame.metadata, "avro.codec": codec.encode()}
    compress, _ = _CODECS[codec]
    return _assemble(metadata, sync, [(count, compress(block)) for count, block in frame.blocks()])


def read_container(data: bytes, path: str, schema: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The records of a container, each as the values of `schema`'s fields in their order.

    A record inside a record is flattened into its fields, also where a writer (paimon-rust) made
    it, or the whole, a union with null. A nullable field that the file lacks is None; logical types
    are the plain numbers they are. Records come one at a time, so that they need not all live at
    once. Raises CorruptTable naming `path` if the bytes are cut short, damaged or not Avro, or if a
    field has another type or, though it may not be null, is not there.
    """
    for magic, name in _OTHER_FORMATS.items():
        if data.startswith(magic):
            raise Unsupported("manifest.format must be avro", found=name, path=path)
    try:
        frame = _Frame(data, path)
        codec = frame.metadata.get("avro.codec", b"null").decode()
        if codec not in _CODECS:
            raise Unsupported("unknown Avro codec", codec=codec, path=path)
        _, decompress = _CODECS[codec]
        stored = _without_logical_types(json.loads(frame.metadata["avro.schema"]))
        inner = _inner_records(schema)
        written = _flat_fields(stored, inner)
        blocks = [(count, decompress(block)) for count, block in frame.blocks()]
        flattens = _flattens(stored, inner)
        simple = {"type": "record", "name": "record", "fields": written} if flattens else stored
        plain = _assemble({"avro.schema": json.dumps(simple).encode()}, frame.sync, blocks)
        records: Iterator[Any] = iter(fastavro.reader(io.BytesIO(plain)))
        if not flattens:
            records = (_flat_record(record, stored, inner) for record in records)
        yield from map(_values_of(_flat_fields(schema, inner), written, path), records)
    except _BROKEN as error:
        if isinstance(error, LakecoreError):
            raise
        raise CorruptTable(
            "the file is damaged or no Avro file", path=path, size_bytes=len(data), why=repr(error)
        ) from error


def _inner_records(schema: Any, prefix: str = "") -> frozenset[str]:
    """The flat names of the records inside a record schema."""
    inside = frozenset[str]()
    for field in schema["fields"]:
        if isinstance(field["type"], dict) and field["type"]["type"] == "record":
            name = prefix + field["name"]
            inside |= {name} | _inner_records(field["type"], name)
    return inside


def _flat_fields(schema: Any, inner: frozenset[str], prefix: str = "") -> list[dict[str, Any]]:
    """The fields of a record schema, those of the records `inner` in their place.

    Avro stores a record as its fields one after another, so the bytes mean the same.
    """
    out: list[dict[str, Any]] = []
    for field in _record(schema)["fields"]:
        name, of = prefix + field["name"], _without_logical_types(field["type"])
        if name in inner:
            out += _flat_fields(of, inner, name)
        else:
            out.append({"name": name, "type": of})
    return out


def _record(schema: Any) -> Any:
    """The record that a schema is, or is when it is not null."""
    parts = schema if isinstance(schema, list) else [schema]
    (record,) = (part for part in parts if isinstance(part, dict) and part["type"] == "record")
    return record


def _flattens(schema: Any, inner: frozenset[str], prefix: str = "") -> bool:
    """Whether the bytes are those of the flat fields: nothing that is flattened is nullable."""
    return isinstance(schema, dict) and all(
        _flattens(field["type"], inner, prefix + field["name"])
        for field in schema["fields"]
        if prefix + field["name"] in inner
    )


def _flat_record(
    record: Any, schema: Any, inner: frozenset[str], prefix: str = ""
) -> dict[str, Any]:
    """A record decoded by its nested schema, as the values of the flat fields."""
    if record is None:
        raise ValueError(f"null where a record must be: {prefix or 'the whole'}")
    out: dict[str, Any] = {}
    for field in _record(schema)["fields"]:
        name, value = prefix + field["name"], record[field["name"]]
        if name in inner:
            out |= _flat_record(value, field["type"], inner, name)
        else:
            out[name] = value
    return out


def _values_of(
    wanted: list[dict[str, Any]], written: list[dict[str, Any]], path: str
) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    names = [field["name"] for field in wanted]
    found = {field["name"]: field["type"] for field in written}
    for field in wanted:
        name, of = field["name"], field["type"]
        if name not in found:
            if not isinstance(of, list):
                raise CorruptTable("the Avro file lacks a field", path=path, field=name)
        elif not _fits(found[name], of):
            raise CorruptTable(
                "the Avro file has a field of another type", path=path, field=name, type=found[name]
            )
    values: Callable[[dict[str, Any]], tuple[Any, ...]] = itemgetter(*names)
    blank = dict.fromkeys(name for name in names if name not in found)
    return (lambda record: values(blank | record)) if blank else values


def _fits(written: Any, wanted: Any) -> bool:
    """Whether values written as one type may be taken as the other."""
    if isinstance(wanted, list):
        bare = [part for part in wanted if part != "null"]
        parts = written if isinstance(written, list) else [written]
        return all(part == "null" or _fits(part, bare[0]) for part in parts)
    if isinstance(wanted, dict) and isinstance(written, dict):
        if written["type"] != wanted["type"]:
            return False
        if wanted["type"] == "array":
            return _fits(written["items"], wanted["items"])
        if wanted["type"] == "record":
            found = {field["name"]: field["type"] for field in written["fields"]}
            return all(
                _fits(found[field["name"]], field["type"])
                if field["name"] in found
                else isinstance(field["type"], list)
                for field in wanted["fields"]
            )
        return True
    return bool(_number(written) == _number(wanted))


def _number(name: Any) -> Any:
    """The name of a primitive type, `int` counted as the `long` that it is stored as."""
    of = name["type"] if isinstance(name, dict) and len(name) == 1 else name
    return "long" if of == "int" else of


# --- the frame ----------------------------------------------------------------------------------


class _Frame:
    """A container taken apart: its metadata, its sync marker, and where its blocks begin."""

    def __init__(self, data: bytes, path: str) -> None:
        self.data = data
        self.path = path
        if data[:4] != _MAGIC:
            raise CorruptTable("the file is no Avro file", path=path, size_bytes=len(data))
        self.at = 4
        self.metadata: dict[str, bytes] = {}
        while count := self._long():
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                name = self._bytes(self._long()).decode()
                self.metadata[name] = self._bytes(self._long())
        self.sync = self._bytes(_SYNC_SIZE)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Each block's number of records and its bytes as stored."""
        while self.at < len(self.data):
            count, size = self._long(), self._long()
            if count < 0:
                raise CorruptTable("a block has a negative size", path=self.path, offset=self.at)
            block = self._bytes(size)
            if self._bytes(_SYNC_SIZE) != self.sync:
                raise CorruptTable("a block lacks its sync marker", path=self.path, offset=self.at)
            yield count, block

    def _bytes(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self.data):
            raise CorruptTable(
                "the file is cut short", path=self.path, offset=self.at, size_bytes=len(self.data)
            )
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def _long(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self._bytes(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)


def _assemble(
    metadata: Mapping[str, bytes], sync: bytes, blocks: Sequence[tuple[int, bytes]]
) -> bytes:
    parts = [_MAGIC, _long(len(metadata))]
    for name, value in metadata.items():
        parts += [_long(len(name)), name.encode("ascii"), _long(len(value)), value]
    parts += [_long(0), sync]
    for count, block in blocks:
        parts += [_long(count), _long(len(block)), block, sync]
    return b"".join(parts)


def _long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bare(schema: Any) -> Any:
    """The schema without the marks that fastavro's parser leaves."""
    if isinstance(schema, dict):
        return {name: _bare(part) for name, part in schema.items() if not name.startswith("__")}
    return [_bare(part) for part in schema] if isinstance(schema, list) else schema


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            name: _without_logical_types(part)
            for name, part in schema.items()
            if name != "logicalType"
        }
    return [_without_logical_types(part) for part in schema] if isinstance(schema, list) else schema


# --- codecs -------------------------------------------------------------------------------------


def _zstd_compress(block: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(block)


def _zstd_decompress(block: bytes) -> bytes:
    # A frame of Java's stream compressor does not state its size, which `decompress` asks for.
    return zstandard.ZstdDecompressor().decompressobj().decompress(block)


def _deflate_compress(block: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(block) + packer.flush()


def _deflate_decompress(block: bytes) -> bytes:
    return zlib.decompress(block, wbits=-15)


def _snappy_compress(block: bytes) -> bytes:
    packed: bytes = pa.Codec("snappy").compress(block, asbytes=True)
    return packed + struct.pack(">I", zlib.crc32(block))


def _snappy_decompress(block: bytes) -> bytes:
    # Raw snappy begins with the size of what comes out, as a base-128 number; Avro adds a checksum.
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    plain: bytes = pa.Codec("snappy").decompress(block[:-4], size, asbytes=True)
    if struct.pack(">I", zlib.crc32(plain)) != block[-4:]:
        raise ValueError("checksum of a snappy block differs")
    return plain


_CODECS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "null": (bytes, bytes),
    "zstandard": (_zstd_compress, _zstd_decompress),
    "deflate": (_deflate_compress, _deflate_decompress),
    "snappy": (_snappy_compress, _snappy_decompress),
    "bzip2": (bz2.compress, bz2.decompress),
    "xz": (lzma.compress, lzma.decompress),
}
