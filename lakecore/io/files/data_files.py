"""Data files: writing a run of rows to a file, and reading it, in Parquet, ORC, Avro, or lines.

The columns are the *physical* ones of the file: they include keys, sequence number and kind, and
have the names of the schema that wrote the file. `rows/evolution.py` converts them to the columns
of the schema to read with.

A file that was migrated from Hive lacks its partition columns, and columns that were added later;
the caller passes their values. If the file has a partition column, the file's values are used,
because manifests of other engines may be less precise. The passed value is used for two kinds of
values that ORC does not store exactly: times in the last second before 1970, and strings with
blanks at the end. The fields of a ROW are matched by name: other programs write them in another
order, or write more.

INVARIANT: batches have the order of the file, and every row once. Therefore the position of a row,
which deletion vectors refer to, is the number of rows before it. `read_positions` returns it.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable, InvalidRequest, LakecoreError, Unsupported
from lakecore.format.text_lines import csv_columns, csv_header, csv_text, json_columns, json_text
from lakecore.io.files import parquet_open
from lakecore.io.files.avro_files import AvroWriter, avro_columns, read_avro
from lakecore.io.files.file_format import (
    BATCH_BYTES,
    BatchSize,
    Checks,
    OutputFile,
    RowFile,
    RowGroup,
    RunWriter,
    WriteFormat,
    row_group_bytes_of,
)
from lakecore.io.files.orc_files import TICKS, OrcWriter, orc_columns, read_orc
from lakecore.io.files.parquet_open import parquet_columns, parquet_row_groups
from lakecore.io.files.parquet_read import read_parquet
from lakecore.io.files.parquet_write import ParquetWriter
from lakecore.io.stores.store import Store, plain_errors
from lakecore.model.arrow_arrays import CODED, as_codes, retype, rows_only, with_parts_of
from lakecore.model.types import Field, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakecore.model.line_format import LineFormat

__all__ = [
    "FORMATS",
    "BatchSize",
    "RowGroup",
    "RunWriter",
    "WriteFormat",
    "file_columns",
    "open_writer",
    "read_file",
    "read_positions",
    "row_group_bounds",
    "row_group_bytes_of",
    "small_dictionaries",
]

BATCH_ROWS = 131_072
_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class _Open(Protocol):
    def __call__(
        self, store: Store, path: str, fields: Sequence[Field], write_format: WriteFormat, /
    ) -> RunWriter: ...


class _Read(Protocol):
    def __call__(
        self,
        store: Store,
        path: str,
        fields: Sequence[Field],
        batch: BatchSize,
        row_groups: Iterable[int] | None,
        /,
    ) -> Iterator[tuple[int, pa.RecordBatch]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """The operations of one file format. Batches have the file's own names and types."""

    open: _Open
    read: _Read
    columns: Callable[[Store, str], tuple[str, ...]]


FORMATS: Mapping[str, FileFormat] = {
    "parquet": FileFormat(open=ParquetWriter, read=read_parquet, columns=parquet_columns),
    "orc": FileFormat(open=OrcWriter, read=read_orc, columns=orc_columns),
    "avro": FileFormat(open=AvroWriter, read=read_avro, columns=avro_columns),
}
"""The file formats, by the option `file.format` and by the last suffix of a file's name."""


def open_writer(
    store: Store, path: str, fields: Sequence[Field], write_format: WriteFormat
) -> RunWriter:
    """A writer of a new file; the rows must have these columns in this order.

    The writer raises StorageError if the storage is full: no disk space, or a quota is used up.
    """
    with _refusals(path):
        if write_format.lines is not None:
            return _Translated(LineWriter(store, path, write_format.lines, write_format), path)
        return _Translated(
            _format(write_format.format, path).open(store, path, fields, write_format), path
        )


def read_file(
    store: Store,
    path: str,
    *,
    fields: Sequence[Field],
    batch_rows: int = BATCH_ROWS,
    row_groups: Iterable[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Batches of these columns in the order of the file; each column has the `arrow_type(field)`.

    `row_groups` are ascending indexes of Parquet row groups; None reads all. If it is an iterator,
    the next index is requested after the rows of the previous group have been returned.
    Raises NotFound if the file does not exist, CorruptTable if it is damaged or lacks a column.
    """
    for _, batch in read_positions(
        store, path, fields=fields, batch_rows=batch_rows, row_groups=row_groups
    ):
        yield batch


def read_positions(  # noqa: PLR0913  what is read, how much at once, what stands for columns
    store: Store,
    path: str,
    *,
    fields: Sequence[Field],
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    row_groups: Iterable[int] | None = None,
    known: Mapping[str, pa.Scalar] = MappingProxyType({}),
    coded: frozenset[str] = frozenset(),
    checks: Checks = Checks.ONCE,
    lines: LineFormat | None = None,
    few: bool = False,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of `read_file`, each with the position of its first row in the file.

    A batch ends at its row limit, or at about its bytes in memory, whichever comes first.

    - `known`: the values of columns that are equal in all rows, and that the file may lack;
    - `coded`: string columns returned dictionary-encoded, as type `CODED`;
    - `checks`: how often checksums are verified;
    - `lines`: the format of a file of lines; its columns are texts;
    - `few`: the caller may stop after the first batch.
    """
    size = BatchSize(batch_rows, max(1, batch_bytes), few)
    schema = arrow_schema(fields)
    for name in coded:
        at = schema.get_field_index(name)
        schema = schema.set(at, schema.field(at).with_type(CODED))
    if lines is not None:
        yield from read_lines(store, path, lines, [*schema], size)
        return
    file_format = _format(path.rpartition(".")[2], path)
    read: _Read = file_format.read
    if read is read_parquet:
        read = partial(read_parquet, coded=coded, checks=checks)
    elif read is read_orc:
        read = partial(read_orc, checks=checks)
    for at, batch in read(store, path, fields, size, row_groups):
        yield at, _typed(batch, schema, path, known) if fields else rows_only(batch.num_rows)
        # Free this batch before the next one is read: a row may be large.
        del batch


def file_columns(store: Store, path: str) -> tuple[str, ...]:
    """The names of the file's columns, in order. In thin mode, none begins with `_KEY_`."""
    return _format(path.rpartition(".")[2], path).columns(store, path)


def row_group_bounds(
    store: Store, path: str, columns: Sequence[str]
) -> tuple[RowGroup, ...] | None:
    """The row groups of a Parquet file, with bounds of these columns; None for other formats."""
    if path.rpartition(".")[2] != "parquet":
        return None
    return parquet_row_groups(store, path, columns)


def small_dictionaries(store: Store, path: str, columns: Sequence[str]) -> tuple[str, ...]:
    """The string columns of a Parquet file with few distinct values; empty for other formats."""
    if path.rpartition(".")[2] != "parquet":
        return ()
    return parquet_open.small_dictionaries(store, path, columns)


class _Translated:
    """A writer that translates storage errors into lakecore's errors."""

    def __init__(self, writer: RunWriter, path: str) -> None:
        self._writer = writer
        self._path = path

    def holds(self, size_bytes: int) -> bool:
        with _refusals(self._path):
            return self._writer.holds(size_bytes)

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        with _refusals(self._path):
            self._writer.write(rows)

    def flush(self) -> None:
        with _refusals(self._path):
            self._writer.flush()

    def close(self) -> tuple[int, int]:
        with _refusals(self._path):
            return self._writer.close()

    @property
    def text_bounds(self) -> Mapping[str, tuple[str, str]]:
        return self._writer.text_bounds

    def abort(self) -> None:
        self._writer.abort()


@contextmanager
def _refusals(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, LakecoreError) or error.errno not in _REFUSALS:
            raise
        with plain_errors(path):
            raise


def _format(name: str, path: str) -> FileFormat:
    file_format = FORMATS.get(name.lower())
    if file_format is None:
        raise Unsupported("unknown file format", format=name, path=path, known=tuple(FORMATS))
    return file_format


def _typed(
    batch: pa.RecordBatch, schema: pa.Schema, path: str, known: Mapping[str, pa.Scalar]
) -> pa.RecordBatch:
    """The batch with the columns and types of the schema.

    A column that already has its type is not copied.
    """
    columns: list[pa.Array] = []
    for node in schema:
        index, value = batch.schema.get_field_index(node.name), known.get(node.name)
        if index < 0 and value is not None:
            repeated = pa.repeat(value, batch.num_rows)
            columns.append(as_codes(repeated) if node.type == CODED else repeated)
            continue
        if index < 0:
            raise CorruptTable(
                "the data file lacks a column", path=path, column=node.name,
                columns=batch.schema.names,
            )  # fmt: skip
        try:
            stored = batch.column(index)
            if node.type == CODED:
                columns.append(as_codes(stored))
                continue
            # As in Java, a nested field that is missing in an ORC file is null.
            stored = with_parts_of(stored, node.type, may_lack=path.endswith(".orc"))
            column = retype(stored, node.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise CorruptTable(
                "a column of the data file is of another type than its schema says",
                path=path,
                column=node.name,
                stored=batch.column(index).type,
                wanted=node.type,
            ) from error
        columns.append(column if value is None else _as_known(column, value))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_known(column: pa.Array, value: pa.Scalar) -> pa.Array:
    """A column that repeats the known `value`, corrected where a file stores it inexactly.

    ORC loses the blanks at the end of a string, and stores some times a second too late (ORC-763).
    """
    if pa.types.is_string(column.type) and value.is_valid:
        return pa.repeat(value, len(column))
    if not (pa.types.is_timestamp(column.type) and value.is_valid):
        return column
    second = TICKS[column.type.unit]
    if not -second < value.value < 0:
        return column
    ticks = column.cast(pa.int64())
    early = pc.if_else(pc.greater_equal(ticks, 0), pc.subtract(ticks, second), ticks)
    return early.cast(column.type)


# --- files of lines -------------------------------------------------------------------------------
# Data files of lines: CSV, JSON and text, without compression. All columns are strings.
#
# A file has no footer, checksum or row groups; the manifest says how many rows it has. Lines end
# with a line feed, a carriage return, or both, in any file.

_READ_BYTES = 1 << 20
_CHUNK_ROWS = 16_384
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LineWriter(RowFile):
    """A CSV, JSON or text file being written. All columns are strings."""

    def __init__(
        self, store: Store, path: str, lines: LineFormat, write_format: WriteFormat
    ) -> None:
        if write_format.codec != "none":
            raise Unsupported(
                "files of lines are not compressed: set file.compression=none",
                format=lines.kind, compression=write_format.compression, path=path,
            )  # fmt: skip
        self._lines = lines
        head = csv_header(lines).encode() if lines.header else b""
        super().__init__(OutputFile(store, path, head=head))

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        table = pa.table(rows) if isinstance(rows, pa.RecordBatch) else rows
        for start in range(0, table.num_rows, _CHUNK_ROWS):
            part = table.slice(start, _CHUNK_ROWS)
            self._file.write(_text_of(part, self._lines).encode())
            self._row_count += part.num_rows


def read_lines(
    store: Store, path: str, lines: LineFormat, wanted: Sequence[pa.Field], size: BatchSize
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of these columns as strings, each with the position of its first row (from 0)."""
    at, left = 0, 1 if lines.header else 0
    with _opened(store, path) as file:
        for texts in _texts(file, min(_READ_BYTES, size.size_bytes)):
            if left:
                texts, left = texts[left:], max(0, left - len(texts))  # noqa: PLW2901
            for start in range(0, len(texts), size.rows):
                part = texts[start : start + size.rows]
                columns = _columns_of(part, lines, wanted, path)
                batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(wanted))
                yield at, batch if wanted else rows_only(len(part))
                at += len(part)
                del batch, columns


def _text_of(rows: pa.Table, lines: LineFormat) -> str:
    if lines.kind == "csv":
        return csv_text(rows, lines)
    if lines.kind == "json":
        return json_text(rows, lines.line_end)
    (column,) = rows.columns
    wrong = pc.or_(
        pc.match_substring_regex(column, "[\r\n]"), pc.starts_with(column, "\ufeff")
    ).fill_null(True)
    if pc.any(wrong).as_py():
        (value, *_) = pc.filter(column, wrong).to_pylist()
        raise InvalidRequest(
            "a text file holds no nulls, line breaks and byte order marks",
            column=rows.schema.names[0], value=value,
        )  # fmt: skip
    return "".join(f"{value}{lines.line_end}" for value in column.to_pylist())


def _columns_of(
    texts: Sequence[str], lines: LineFormat, wanted: Sequence[pa.Field], path: str
) -> list[pa.Array]:
    if lines.kind == "csv":
        lacking = [field.name for field in wanted if field.name not in lines.columns]
        if lacking:
            raise CorruptTable(
                "the data file lacks a column", path=path, column=lacking[0], columns=lines.columns
            )
        return csv_columns(texts, lines, [field.name for field in wanted])
    if lines.kind == "json":
        return json_columns(texts, wanted, path)
    return [pa.array(texts, pa.string()) for _ in wanted]


def _texts(file: pa.NativeFile, read_bytes: int) -> Iterator[list[str]]:
    """The lines of a file, as lists of some lines."""
    rest = bytes(file.read(len(_BYTE_ORDER_MARK))).removeprefix(_BYTE_ORDER_MARK)
    ended = False
    while not ended:
        data = bytes(file.read(max(1, read_bytes)))
        ended = not data
        rest += data
        # A carriage return at the end may be half of the end of a line.
        held = rest.endswith(b"\r") and not ended
        whole = (rest[:-1] if held else rest).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        head, found, tail = whole.rpartition(b"\n")
        rest = tail + (b"\r" if held else b"")
        if found:
            yield head.decode(errors="replace").split("\n")
    if rest:
        yield [rest.decode(errors="replace")]


@contextmanager
def _opened(store: Store, path: str) -> Iterator[pa.NativeFile]:
    """Open a file for reading forwards.

    A remote file is fetched at once, because each call is slow.
    """
    if store.local_path(path) is None:
        yield pa.BufferReader(store.read(path))
        return
    with plain_errors(path), store.open_input(path) as file:
        yield file
