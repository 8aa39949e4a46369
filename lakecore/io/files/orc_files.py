"""Writes data files in ORC with Arrow's adapter; `orc_read.py` reads them.

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

import zlib
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from lakecore.errors import InvalidRequest, LakecoreError, Unsupported
from lakecore.format.orc_tail import read_postscript, trailer_of
from lakecore.io.files.file_format import Abandoned
from lakecore.io.files.parquet_types import physical_schema
from lakecore.model.arrow_arrays import retype_chunked, size_of
from lakecore.model.types import TIMESTAMPS, Atomic, Field, Root, arrow_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.io.files.file_format import WriteFormat
    from lakecore.io.stores.store import Store

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
        self._closing.__exit__(Abandoned, Abandoned(), None)
        self._store.delete(self._path)

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
                ticks = pc.cast(leaf.drop_null(), pa.int64()).to_numpy(zero_copy_only=False)
                old = ticks[(ticks < 0) & (ticks % TICKS[leaf.type.unit] != 0)]
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
