"""Reads and writes data files in ORC with Arrow's adapter.

TIME is written as int milliseconds, CHAR and VARCHAR as string (readers take lengths from the
table's schema). Every column and nested field has the attribute `paimon.id`. A timestamp with local
time zone is written as its instant, like an engine in UTC does.

NOTE: an engine whose JVM is in another zone shifts such instants by its offset, unless
`orc.timestamp-ltz.legacy.type` is false. The file does not record whether they are shifted.
lakecore reads every file like an engine in UTC.

NOTE: Arrow reads ORC timestamps as 64-bit nanoseconds, which cover the years 1677 to 2262. Other
timestamps raise an error. Writing also refuses two values that Arrow writes wrongly:

- a timestamp before 1970 with a fraction of a second, which it stores as negative nanoseconds that
  other engines refuse or misread;
- a null ROW inside a ROW, after which it writes wrong values.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict, deque
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import zstandard
from pyarrow import orc

from lakecore.deferred import deferred_module
from lakecore.errors import CorruptTable, InvalidRequest, LakecoreError, Unsupported
from lakecore.format.orc_tail import (
    MAGIC,
    TRAILER_BYTES,
    PostScript,
    Stripe,
    read_footer,
    read_postscript,
    read_stripe_footer,
    read_trailer,
    stripe_rows,
    trailer_of,
)
from lakecore.format.varints import read_varint
from lakecore.io.files.file_format import BatchSize, Checks, WriteFormat, abandon
from lakecore.io.files.parquet_types import physical_schema
from lakecore.io.freed_memory import release_freed
from lakecore.io.stores.guarded import unguarded
from lakecore.io.stores.store import MemoryStore, Store, damage_is_corrupt, plain_errors
from lakecore.memory import process_budget
from lakecore.model.arrow_arrays import inner_of, nested_like, retype_chunked, size_of
from lakecore.model.types import TIMESTAMPS, Atomic, DataType, Field, Root, arrow_type, inner_types

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    import pyarrow.dataset as ds

else:
    ds = deferred_module("pyarrow.dataset")

ID_ATTRIBUTE = "paimon.id"
_CODECS = {"none": "uncompressed", "zstd": "zstd", "snappy": "snappy", "gzip": "zlib", "lz4": "lz4"}
_STRIPE_SHARE = 2
"""A stripe takes the size of a row group divided by this. A stripe's size is in stored bytes, a row
group's in decoded bytes."""
_DICTIONARY_SHARE_MAX = 0.8
_NANOS_MAX = (1 << 63) - 1
TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class OrcWriter:
    """An ORC file being written. The zstd level is the default of the library."""

    def __init__(
        self, store: Store, path: str, fields: Sequence[Field], write_format: WriteFormat
    ) -> None:
        codec = _CODECS.get(write_format.codec)
        if codec is None:
            raise Unsupported("ORC has no such codec", codec=write_format.codec, known=[*_CODECS])
        self._store = store
        self._path = path
        self._schema = physical_schema(fields, orc_leaf, ID_ATTRIBUTE)
        self._row_count = 0
        self._stripe_bytes = write_format.row_group_bytes // _STRIPE_SHARE
        with ExitStack() as opening:
            self._sink = _Sink(opening.enter_context(store.open_output(path)))
            self._writer = orc.ORCWriter(
                pa.PythonFile(self._sink, mode="w"),
                compression=codec,
                stripe_size=self._stripe_bytes,
                dictionary_key_size_threshold=_DICTIONARY_SHARE_MAX,
            )
            self._closing = opening.pop_all()

    def holds(self, size_bytes: int) -> bool:
        # The stored size of a stripe is unknown until it is full.
        return self._sink.size_bytes >= size_bytes

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        table = pa.table(rows) if isinstance(rows, pa.RecordBatch) else rows
        if table.column_names != self._schema.names:
            raise InvalidRequest(
                "the rows do not have the columns of the file",
                path=self._path,
                columns=self._schema.names,
                given=table.column_names,
            )
        # The library checks whether a stripe is full only between writes, or every 1024 rows.
        row_bytes = max(1, size_of(table) // max(1, table.num_rows))
        step = max(1, self._stripe_bytes // row_bytes)
        for start in range(0, table.num_rows, step):
            self._write(table.slice(start, step))

    def flush(self) -> None:
        """Does nothing: a stripe ends when it is full."""

    def close(self) -> tuple[int, int]:
        try:
            if not self._row_count:
                self._write(self._schema.empty_table())
            self._sink.hold()
            self._writer.close()
            self._sink.seal()
            self._sink.check()
            self._closing.close()
        except BaseException:
            self.abort()
            raise
        return self._sink.size_bytes, self._row_count

    @property
    def text_bounds(self) -> Mapping[str, tuple[str, str]]:
        """Always empty: the ORC writer computes no bounds of strings."""
        return {}

    def abort(self) -> None:
        self._sink.discard()
        abandon(self._closing, self._store, self._path)

    def _write(self, table: pa.Table) -> None:
        for column, name in zip(table.columns, table.column_names, strict=True):
            self._refuse_far_times(column, name)
        try:
            columns = [
                _unsliced(retype_chunked(column, node.type))
                for column, node in zip(table.columns, self._schema, strict=True)
            ]
            for column, name in zip(columns, self._schema.names, strict=True):
                self._refuse_old_fractions(column, name)
                self._refuse_null_rows_in_rows(column, name)
            self._writer.write(pa.Table.from_arrays(columns, schema=self._schema))
        except pa.ArrowInvalid as error:
            raise InvalidRequest(
                "the rows do not fit the columns of the file", path=self._path, cause=error
            ) from error
        self._sink.check()
        self._row_count += table.num_rows

    def _refuse_old_fractions(self, column: pa.ChunkedArray, name: str) -> None:
        """Raise Unsupported for fractions of a second before 1970: Arrow stores them wrongly."""
        for chunk in column.chunks:
            for leaf in _timestamps(chunk):
                ticks = pc.cast(leaf.drop_null(), pa.int64()).to_numpy()
                old = ticks[np.fmod(ticks, TICKS[leaf.type.unit]) < 0]
                if len(old):
                    raise Unsupported(
                        "ORC files cannot hold a timestamp before 1970 with a fraction of a "
                        "second in a way that other engines read; use file.format=parquet",
                        column=name,
                        value=pa.array(old[:1]).cast(leaf.type).cast(pa.string())[0],
                        path=self._path,
                    )

    def _refuse_far_times(self, column: pa.ChunkedArray, name: str) -> None:
        """Raise InvalidRequest for timestamps that 64-bit nanoseconds cannot represent."""
        for chunk in column.chunks:
            for leaf in _timestamps(chunk):
                most = _NANOS_MAX * TICKS[leaf.type.unit] // TICKS["ns"]
                bounds = pc.min_max(pc.cast(leaf, pa.int64())).as_py().values()
                far = [bound for bound in bounds if bound is not None and abs(bound) > most]
                if far:
                    raise InvalidRequest(
                        "ORC files cannot hold a timestamp outside the years 1677 to 2262; "
                        "use file.format=parquet",
                        column=name,
                        value=pa.array(far[:1], pa.int64()).cast(leaf.type).cast(pa.string())[0],
                        path=self._path,
                    )

    def _refuse_null_rows_in_rows(self, column: pa.ChunkedArray, name: str) -> None:
        """Raise Unsupported for a null ROW directly in a ROW: Arrow shifts the values after it."""
        if any(_has_null_row_in_row(chunk) for chunk in column.chunks):
            raise Unsupported(
                "ORC files cannot store a null ROW inside a ROW; use file.format=parquet",
                column=name,
                path=self._path,
            )


def _has_null_row_in_row(array: pa.Array) -> bool:
    kind = array.type
    if pa.types.is_struct(kind):
        parts = array.flatten()
        inner = [part for part in parts if pa.types.is_struct(part.type)]
        if any(part.null_count > array.null_count for part in inner):
            return True
        return any(_has_null_row_in_row(part) for part in parts)
    if pa.types.is_map(kind):
        return _has_null_row_in_row(array.keys) or _has_null_row_in_row(array.items)
    return pa.types.is_list(kind) and _has_null_row_in_row(array.flatten())


def _timestamps(array: pa.Array) -> Iterator[pa.Array]:
    """The timestamps in a column at any depth; may include values under a null."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        yield array
    elif pa.types.is_struct(kind):
        for part in array.flatten():
            yield from _timestamps(part)
    elif pa.types.is_map(kind):
        yield from _timestamps(array.keys)
        yield from _timestamps(array.items)
    elif pa.types.is_list(kind):
        yield from _timestamps(array.flatten())


def _unsliced(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with nested slices copied, because Arrow writes wrong rows for a sliced struct."""
    if not pa.types.is_nested(column.type):
        return column
    return pa.chunked_array(
        [pa.concat_arrays([chunk]) for chunk in column.chunks], type=column.type
    )


class _Sink:
    """Passes bytes to a store, and never raises an error to the ORC writer.

    Arrow's ORC writer ends the process if a write fails, even during garbage collection long after
    the file was abandoned. Errors are therefore kept until `check`, and later bytes are dropped.
    """

    closed = False

    def __init__(self, out: pa.NativeFile) -> None:
        self.size_bytes = 0
        self._out: pa.NativeFile | None = out
        self._error: Exception | None = None
        self._crc = 0
        self._held: list[bytes] | None = None

    def write(self, data: bytes) -> int:
        if self._held is None:
            self._write(data)
        else:
            self._held.append(bytes(data))
        self.size_bytes += len(data)
        return len(data)

    def hold(self) -> None:
        """Keep the following bytes, which include the tail of the file, for `seal`."""
        self._held = []

    def seal(self) -> None:
        """Write the kept bytes, with checksums between the stripes and the tail."""
        held = b"".join(self._held or ())
        self._held = None
        start = len(held) - read_postscript(held).tail_bytes
        self._write(held[:start])
        trailer = trailer_of(self._crc, held[start:])
        self._write(trailer)
        self._write(held[start:])
        self.size_bytes += len(trailer)

    def _write(self, data: bytes) -> None:
        self._crc = zlib.crc32(data, self._crc)
        if self._out is not None:
            try:
                self._out.write(data)
            except (OSError, LakecoreError, pa.ArrowException) as error:
                self._error, self._out = error, None

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        """Does nothing: the store's output is flushed when it is closed."""

    def close(self) -> None:
        """Does nothing: the store's output is closed by its own context manager."""

    def discard(self) -> None:
        """Ignore all bytes that the ORC writer writes from now on."""
        self._out = None

    def check(self) -> None:
        """Raise the error of a write, if there was one."""
        if self._error is not None:
            raise self._error


def orc_leaf(data_type: Atomic) -> pa.DataType:
    """The Arrow type from which Arrow's adapter creates the ORC column for that type."""
    if data_type.root is Root.TIME:
        return pa.int32()
    if data_type.root in TIMESTAMPS:
        return pa.timestamp("ns", arrow_type(data_type).tz)
    return arrow_type(data_type)


# --- orc checks ----------------------------------------------------------------------------------
# Checks an ORC file before Arrow decodes it: Arrow may crash the process on a damaged file.
#
# Files written by lakecore have checksums of all bytes (`format/orc_tail.py`). In other files, the
# structure is checked: magic, postscript, footer, stripes within the file, streams within their
# stripe, and headers of compressed chunks within their stream. A changed value inside a chunk is
# not detected.
#
# A file is checked once in a process, unless it has changed. For a file that is not on a local
# disk, the stripes are not checked, because they would be fetched twice.

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
            if len(self._files) > _KNOWN_MAX:
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
    def __init__(self, file: pa.NativeFile, path: str) -> None:
        self._file = file
        self._path = path
        self._size_bytes = file.size()
        start = max(0, self._size_bytes - _POSTSCRIPT_BYTES_MAX)
        end = self._read(start, self._size_bytes - start)
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
                    # The size that the frame states, or -1, is allocated whatever the limit is.
                    _check_chunk(zstandard.frame_content_size(chunk), most)
                    return zstandard.ZstdDecompressor().decompress(chunk, max_output_size=most)
                case _:
                    return _unsnapped(chunk, most)
        except (zlib.error, zstandard.ZstdError, pa.ArrowException, OSError, IndexError) as error:
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
        self._file.seek(at)
        data: bytes = self._file.read(size_bytes)
        if len(data) != size_bytes:
            message = "the file is cut short"
            raise ValueError(message)
        return data


def _check_chunk(size: int, most: int) -> None:
    if size > most:
        message = "a chunk of the tail becomes too large"
        raise ValueError(message)


def _unsnapped(chunk: bytes, most: int) -> bytes:
    """The decompressed bytes of raw snappy data. The data begins with their number."""
    size, _ = read_varint(chunk, 0)
    _check_chunk(size, most)
    plain: bytes = pa.Codec("snappy").decompress(chunk, size, asbytes=True)
    return plain


# --- orc read ------------------------------------------------------------------------------------
# Reads ORC data files through Arrow's adapter; memory depends on the batch, not on the stripe.
#
# Stripes that fit into a batch are decoded completely. Larger ones, such as Java's of 64 MB and
# more, are streamed. Arrow may take a column name with a dot for a field of another column, so
# files with such names are decoded completely, with all columns.
#
# NOTE: Arrow reads ORC timestamps as 64-bit nanoseconds, which cover only the years 1677 to 2262.
# Other timestamps raise Unsupported.

_PROBE_ROWS = 1_024
_DECODED_RATIO = 4
_EXTRA_BATCHES = 3
"""Batches held while streaming: the current one, the pieces of the next, and what is read ahead."""
_PIECES = 16
"""The number of pieces that make up a streamed batch."""
_STRIPE_COPIES = 3
"""The memory for decoding a whole stripe, as a multiple of the memory of its rows."""


def orc_columns(store: Store, path: str) -> tuple[str, ...]:
    """The names of the file's top-level columns, in order."""
    check_orc(store, path)
    with _orc_errors(path), store.open_input(path) as source:
        return tuple(orc.ORCFile(source).schema.names)


def read_orc(
    store: Store,
    path: str,
    fields: Sequence[Field],
    batch: BatchSize,
    row_groups: Iterable[int] | None,
    checks: Checks = Checks.ONCE,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of these columns as stored, each with the file position of its first row."""
    if row_groups is not None:
        raise Unsupported("row groups are chosen in Parquet files only", path=path)
    check_orc(store, path, checks)
    with _orc_errors(path), store.open_input(path) as source:
        file = orc.ORCFile(source)
        stored = file.schema.names
        padded = [field for field in fields if _has_char(field.type)]
        columns = [field.name for field in fields if field.name in stored] or stored[:1]
        dotted = any("." in name for name in stored)
        stripe_rows_max = max(stripe_rows(file.reader.serialized_file_tail()), default=0)
        if dotted or stripe_rows_max <= 1:
            row_bytes = 0.0
        else:
            # The stored size is compressed: decode some rows to see how many bytes a row takes.
            row_bytes = max(1.0, _DECODED_RATIO * file.content_length / file.nrows)
            if batch.rows > 1:
                few = min(_PROBE_ROWS, _fitting(batch, row_bytes))
                with closing(_streamed(store, path, columns, few)) as probing:
                    probe = next(probing)
                    row_bytes = size_of(probe) / max(1, probe.num_rows)
                    del probe
        if dotted or stripe_rows_max * row_bytes * _STRIPE_COPIES <= batch.size_bytes:
            batches = _by_stripe(file, columns, batch.rows, by_name=not dotted)
        else:
            batches = _streamed(store, path, columns, _fitting(batch, row_bytes))
        at = 0
        with closing(batches):
            for rows in batches:
                if rows.num_rows:
                    yield at, _without_padding(rows, padded)
                at += rows.num_rows
                # A row may be large: free this one before the next one is read.
                del rows
                release_freed(process_budget().size_bytes)


def _fitting(batch: BatchSize, row_bytes: float) -> int:
    """How many rows a streamed batch may have, if each row takes `row_bytes`."""
    return max(1, min(batch.rows, int(batch.size_bytes / _EXTRA_BATCHES / row_bytes)))


def _by_stripe(
    file: orc.ORCFile, columns: Sequence[str], rows_max: int, *, by_name: bool
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a file; each stripe is decoded as a whole.

    Unless `by_name`, all columns are read.
    """
    for index in range(file.nstripes):
        stripe = file.read_stripe(index, columns=[*columns] if by_name else None)
        stripe = stripe.select([*columns])
        for start in range(0, stripe.num_rows, rows_max):
            rows = stripe.slice(start, rows_max)
            if start + rows_max >= stripe.num_rows:
                del stripe
            yield rows
            del rows


def _streamed(
    store: Store, path: str, columns: Sequence[str], rows_max: int
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a file in batches of that many rows, independent of its stripes.

    NOTE: Arrow reads ahead about sixteen batches (with threads, any number). The function therefore
    requests small batches without threads, and combines them.
    """
    piece_rows = max(1, rows_max // _PIECES)
    with store.open_input(path) as source:
        fragment = ds.OrcFileFormat().make_fragment(source)
        scanner = fragment.scanner(columns=[*columns], batch_size=piece_rows, use_threads=False)
        coming = iter(scanner.to_batches())
        try:
            while pieces := list(islice(coming, max(1, rows_max // piece_rows))):
                rows = pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)
                del pieces
                yield rows
                del rows
        finally:
            # Releasing a scan waits until it ends. Closing the source makes its next read fail.
            source.close()
            with suppress(pa.ArrowException, LakecoreError, OSError, ValueError):
                deque(coming, maxlen=0)


def _has_char(data_type: DataType) -> bool:
    """Whether the type contains CHAR, whose trailing blanks do not count.

    Java stores CHAR as ORC's CHAR, padded with blanks, and strips trailing blanks of any file.
    """
    if isinstance(data_type, Atomic):
        return data_type.root is Root.CHAR
    return any(_has_char(part) for part in inner_types(data_type))


def _without_padding(batch: pa.RecordBatch, padded: Sequence[Field]) -> pa.RecordBatch:
    for field in padded:
        at = batch.schema.get_field_index(field.name)
        if at >= 0:
            bare = _bare(batch.column(at), field.type)
            batch = batch.set_column(at, batch.schema.field(at), bare)
    return batch


def _bare(array: pa.Array, data_type: DataType) -> pa.Array:
    """The array without the trailing blanks of each CHAR in it."""
    if not _has_char(data_type):
        return array
    if not pa.types.is_nested(array.type):
        return pc.utf8_rtrim(array, characters=" ")
    pairs = zip(inner_of(array), inner_types(data_type), strict=True)
    return nested_like(array, array.type, [_bare(inner, part) for inner, part in pairs])


@contextmanager
def _orc_errors(path: str) -> Iterator[None]:
    """Translate Arrow's errors about the file's bytes into lakecore's errors."""
    with damage_is_corrupt(path, "ORC"):
        try:
            yield
        except pa.ArrowInvalid as error:
            if "nanosecond" not in str(error):
                raise
            raise Unsupported(
                "ORC timestamps outside the years 1677 to 2262 cannot be read", path=path
            ) from error
