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

INVARIANT: batches have the order of the file, and every row once. So the position of a row, which
deletion vectors refer to, is the number of rows before it. `read_positions` returns it.
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

from lakecore.errors import CorruptTable, LakecoreError, Unsupported
from lakecore.io.files import parquet_open
from lakecore.io.files.avro_files import AvroWriter, avro_columns, read_avro
from lakecore.io.files.file_format import (
    BATCH_BYTES,
    BatchSize,
    Checks,
    RowGroup,
    RunWriter,
    WriteFormat,
    row_group_bytes_of,
)
from lakecore.io.files.line_files import LineWriter, read_lines
from lakecore.io.files.orc_files import TICKS, OrcWriter, orc_columns, read_orc
from lakecore.io.files.parquet_open import parquet_columns, parquet_row_groups
from lakecore.io.files.parquet_read import read_parquet
from lakecore.io.files.parquet_write import ParquetWriter
from lakecore.io.stores.store import plain_errors
from lakecore.model.arrow_arrays import CODED, as_codes, retype, rows_only, with_parts_of
from lakecore.model.types import Field, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakecore.io.stores.store import Store
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

    It raises StorageError if the storage is full: no disk space, or a quota is used up.
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
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of `read_file`, each with the position of its first row in the file.

    A batch ends at its row limit, or at about its bytes in memory, whichever comes first.

    - `known`: the values of columns that are equal in all rows, and that the file may lack;
    - `coded`: string columns returned dictionary-encoded, as type `CODED`;
    - `checks`: how often checksums are verified;
    - `lines`: the format of a file of lines; its columns are texts.
    """
    size = BatchSize(batch_rows, max(1, batch_bytes))
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
