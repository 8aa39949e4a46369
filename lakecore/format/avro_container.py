"""Reads and writes Avro object container files, as used for manifests.

fastavro reads and writes the records; this module handles the frame around them:

- reading: check the frame and decompress each block. fastavro gets the uncompressed bytes, with a
  simpler schema without logical types and inner records, and builds one dictionary of plain values
  for each record;
- writing: let fastavro write an uncompressed container, compress each block, and state the codec.

A container is a header (magic, metadata, sync marker) and blocks (count, size, compressed records,
sync marker). zstd blocks include a checksum of their own, which every zstd reader verifies. The
decompressed size of a block is limited independently of the size that the block states.

INVARIANT: the sync marker is computed from the schema, so equal records give equal bytes.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import lzma
import struct
import zlib
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import fastavro
import numpy as np
import pyarrow as pa
import zstandard
from fastavro.schema import SchemaParseException

from lakecore.errors import CorruptTable, InvalidRequest, LakecoreError, Unsupported
from lakecore.format.varints import append_varint, read_varint, unzigzag, zigzag
from lakecore.memory import process_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

# --- avro ----------------------------------------------------------------------------------------

BLOCK_SIZE_BYTES = 64_000


def write_container(
    schema: dict[str, Any],
    records: Iterable[object],
    compression: str,
    header: dict[str, str] | None = None,
) -> bytes:
    """The Avro container with these records. fastavro must have parsed `schema` before.

    `header` is added to the metadata in the header of the container.
    """
    codec = codec_of(compression)
    sync = _sync_of(schema)
    plain = io.BytesIO()
    fastavro.writer(
        plain,
        schema,
        records,
        codec="null",
        sync_interval=BLOCK_SIZE_BYTES,
        metadata=header,
        sync_marker=sync,
    )
    if codec == "null":
        return plain.getvalue()
    frame = Frame(plain.getvalue(), "")
    metadata = {**frame.metadata, "avro.codec": codec.encode()}
    blocks = [(count, compress(block, codec)) for count, block in frame.blocks()]
    return assemble(metadata, sync, blocks)


def container(
    schema: dict[str, Any], blocks: Sequence[tuple[int, bytes]], compression: str
) -> bytes:
    """The Avro container with these blocks of encoded records, each with its number of records.

    The blocks are already compressed with the codec of `compression`.
    """
    metadata = {
        "avro.codec": codec_of(compression).encode(),
        "avro.schema": json.dumps(_bare(schema)).encode(),
    }
    return assemble(metadata, _sync_of(schema), blocks)


def plain_container(data: bytes, path: str) -> tuple[bytes, int]:
    """The container without compression and logical types, and its number of records.

    Raises CorruptTable naming `path` if the bytes are cut short, damaged or not Avro.
    """
    with named_faults(data, path):
        frame = Frame(data, path)
        blocks = frame.plain_blocks()
        schema = json.dumps(_stored(frame.metadata["avro.schema"])).encode()
        plain = assemble({"avro.codec": b"null", "avro.schema": schema}, frame.sync, blocks)
    return plain, sum(count for count, _ in blocks)


def chosen_blocks(
    data: bytes, path: str, rows: NDArray[np.int64]
) -> tuple[bytes, NDArray[np.int64]]:
    """The container with only the blocks that hold these rows, and the places of the rows in it.

    `rows` ascend. Raises CorruptTable naming `path` if the bytes are cut short or not Avro.
    """
    with named_faults(data, path):
        frame = Frame(data, path)
        blocks = list(frame.blocks())
    counts = np.array([count for count, _ in blocks], np.int64)
    ends = np.cumsum(counts)
    if len(rows) and (not len(ends) or rows[-1] >= ends[-1]):
        raise CorruptTable("the manifest has fewer entries than before", path=path)
    holding = np.searchsorted(ends, rows, "right")
    taken = np.unique(holding)
    left_out = ends - np.cumsum(np.where(np.isin(np.arange(len(blocks)), taken), counts, 0))
    chosen = assemble(frame.metadata, frame.sync, [blocks[number] for number in taken.tolist()])
    return chosen, rows - left_out[holding]


def read_container(data: bytes, path: str, schema: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The records of a container, each as the values of `schema`'s fields in their order.

    A record inside a record is flattened into its fields, even if a writer (paimon-rust) declared
    the inner or the outer record as a union with null. A nullable field that the file does not have
    is None; logical types are plain numbers. Records are decoded one at a time to save memory.
    Raises CorruptTable naming `path` if the bytes are cut short, damaged or not Avro, if a field
    has another type, or if a field that may not be null is missing.
    """
    with named_faults(data, path):
        frame = Frame(data, path)
        plan = _plan(frame.metadata["avro.schema"], schema, path)
        plain = assemble({"avro.schema": plan.simple}, frame.sync, frame.plain_blocks())
        records: Iterator[Any] = iter(fastavro.reader(io.BytesIO(plain)))
        if not plan.flattens:
            records = (_flat_record(record, plan.stored, plan.inner) for record in records)
        yield from map(plan.values, records)


class _Plan(NamedTuple):
    """How records of a stored schema are read as those of a wanted one."""

    wanted: dict[str, Any]
    stored: Any
    inner: frozenset[str]
    flattens: bool
    simple: bytes
    values: Callable[[dict[str, Any]], tuple[Any, ...]]


_PLANS_MAX, _TEXT_BYTES_MAX = 64, 64 << 10
_plans: dict[tuple[bytes, int], _Plan] = {}
"""The plans of the last schemas. Small files share a few; working them out took most of a read."""


def _plan(text: bytes, wanted: dict[str, Any], path: str) -> _Plan:
    # A plan holds `wanted`, so no other schema has its id while the plan is here.
    key = text, id(wanted)
    known = _plans.get(key)
    if known is not None:
        return known
    stored, inner = _stored(text), _inner_records(wanted)
    written = _flat_fields(stored, inner)
    flattens = _flattens(stored, inner)
    simple = {"type": "record", "name": "record", "fields": written} if flattens else stored
    values = _values_of(_flat_fields(wanted, inner), written, path)
    made = _Plan(wanted, stored, inner, flattens, json.dumps(simple).encode(), values)
    if len(text) <= _TEXT_BYTES_MAX:
        if len(_plans) >= _PLANS_MAX:
            _plans.clear()
        _plans[key] = made
    return made


def _stored(text: bytes) -> Any:
    """The schema that a container was written with."""
    return without_logical_types(json.loads(text))


def _inner_records(schema: Any, prefix: str = "") -> frozenset[str]:
    """The names of the records inside a record schema, prefixed with the names of their parents."""
    inside = frozenset[str]()
    for field in schema["fields"]:
        if isinstance(field["type"], dict) and field["type"]["type"] == "record":
            name = prefix + field["name"]
            inside |= {name} | _inner_records(field["type"], name)
    return inside


def _flat_fields(schema: Any, inner: frozenset[str], prefix: str = "") -> list[dict[str, Any]]:
    """The fields of a record schema; each record named in `inner` is replaced by its fields.

    Avro stores a record as its fields one after another, so both schemas describe the same bytes.
    """
    out: list[dict[str, Any]] = []
    for field in _record(schema)["fields"]:
        name, of = prefix + field["name"], without_logical_types(field["type"])
        if name in inner:
            out += _flat_fields(of, inner, name)
        else:
            out.append({"name": name, "type": of})
    return out


def _record(schema: Any) -> Any:
    """The record schema itself, or the record schema in a union with null."""
    parts = schema if isinstance(schema, list) else [schema]
    (record,) = (part for part in parts if isinstance(part, dict) and part["type"] == "record")
    return record


def _flattens(schema: Any, inner: frozenset[str], prefix: str = "") -> bool:
    """Whether the flat schema can decode the bytes: no flattened record is in a union with null."""
    return isinstance(schema, dict) and all(
        _flattens(field["type"], inner, prefix + field["name"])
        for field in schema["fields"]
        if prefix + field["name"] in inner
    )


def _flat_record(
    record: Any, schema: Any, inner: frozenset[str], prefix: str = ""
) -> dict[str, Any]:
    """The values of the flat fields, from a record that was decoded by its nested schema."""
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
    """Whether values of the `written` type can be read as the `wanted` type."""
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
    """The name of a primitive type, with `long` for `int`: Avro stores both in the same way."""
    of = name["type"] if isinstance(name, dict) and len(name) == 1 else name
    return "long" if of == "int" else of


# --- schemas --------------------------------------------------------------------------------------


def _sync_of(schema: dict[str, Any]) -> bytes:
    return hashlib.md5(json.dumps(_bare(schema)).encode(), usedforsecurity=False).digest()


def _bare(schema: Any) -> Any:
    """The schema without the marks that fastavro's parser adds."""
    if isinstance(schema, dict):
        return {name: _bare(part) for name, part in schema.items() if not name.startswith("__")}
    return [_bare(part) for part in schema] if isinstance(schema, list) else schema


def without_logical_types(schema: Any) -> Any:
    """The schema with plain numbers in place of times and dates."""
    if isinstance(schema, dict):
        return {
            name: without_logical_types(part)
            for name, part in schema.items()
            if name != "logicalType"
        }
    return [without_logical_types(part) for part in schema] if isinstance(schema, list) else schema


# --- avro rows -----------------------------------------------------------------------------------
# Reads Avro containers with many rows: the names of columns, and records in batches of blocks.
#
# Only the blocks of one batch are read, decompressed and decoded together, so that reading a file
# takes the memory of one batch.

_RECORD_BYTES = 256
_VALUE_BYTES = 48
"""Size of the Python object of a record or value, in addition to its bytes."""


def container_columns(source: bytes | Readable, path: str) -> tuple[str, ...]:
    """The field names of the container's records."""
    with _damaged(path):
        schema = json.loads(Frame(source, path).metadata["avro.schema"])
        return tuple(str(field["name"]) for field in _record_of(schema)["fields"])


def block_counts(source: bytes | Readable, path: str) -> Iterator[int]:
    """The number of records in each block. Blocks are decompressed, which detects damaged bytes."""
    with _damaged(path):
        frame = Frame(source, path)
        if frame.codec not in CODECS:
            raise Unsupported("unknown Avro codec", codec=frame.codec, path=path)
        for count, block in frame.blocks():
            check_count(count, decompress(block, frame.codec))
            yield count


def read_batches(
    source: bytes | Readable, path: str, batch_rows: int, batch_bytes: int
) -> Generator[list[dict[str, Any]], None, None]:
    """The container's records in batches, limited by rows and bytes.

    A batch has at least one whole block. Values of logical types are plain numbers.
    """
    with _damaged(path):
        frame = Frame(source, path)
        if frame.codec not in CODECS:
            raise Unsupported("unknown Avro codec", codec=frame.codec, path=path)
        schema = without_logical_types(json.loads(frame.metadata["avro.schema"]))
        metadata = {"avro.schema": json.dumps(schema).encode()}
        record_bytes = _RECORD_BYTES + _VALUE_BYTES * len(_record_of(schema)["fields"])

        def records(plain: list[tuple[int, bytes]]) -> list[dict[str, Any]]:
            container = io.BytesIO(assemble(metadata, frame.sync, plain))
            plain.clear()
            return [each for each in fastavro.reader(container) if isinstance(each, dict)]

        waiting: list[tuple[int, bytes]] = []
        rows = held_bytes = 0
        for count, block in frame.blocks():
            waiting.append((count, decompress(block, frame.codec)))
            check_count(*waiting[-1])
            del block
            rows += count
            held_bytes += count * record_bytes + len(waiting[-1][1])
            if rows >= batch_rows or held_bytes >= batch_bytes:
                yield records(waiting)
                rows = held_bytes = 0
        if waiting:
            yield records(waiting)


def _record_of(schema: Any) -> Any:
    """The record type of a container's schema, or the record type in a union with null."""
    branches = schema if isinstance(schema, list) else [schema]
    return next(branch for branch in branches if isinstance(branch, dict))


@contextmanager
def _damaged(path: str) -> Iterator[None]:
    """Translate the libraries' errors for damaged bytes into CorruptTable, naming `path`."""
    try:
        yield
    except BROKEN as error:
        if isinstance(error, LakecoreError) or getattr(error, "errno", None) is not None:
            raise
        raise CorruptTable(
            "the data file is damaged or no Avro", path=path, why=type(error).__name__
        ) from error


# --- containers ----------------------------------------------------------------------------------

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
