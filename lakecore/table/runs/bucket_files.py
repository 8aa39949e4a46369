"""Ordered rows of one bucket -> data files, with their statistics and metadata.

A file is closed when it reaches `target-file-size`, and the next one is opened. All files of one
writer form one sorted run.

Columns of a primary-key table's files (https://paimon.apache.org/docs/master/concepts/spec/datafile/):
`_KEY_x` for each column of the trimmed primary key (unless `data-file.thin-mode`), sequence number,
kind, then every column of the table. An append table's files hold only the table's columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.format.binary_row import serialize_row
from lakecore.format.layout import data_file_name
from lakecore.format.statistics import (
    StatsCollector,
    StatsKind,
    StatsMode,
    are_bounded_texts,
    parse_stats_mode,
    stats_modes,
)
from lakecore.io.files.data_files import WriteFormat, open_writer, row_group_bytes_of
from lakecore.merge.order import of_kinds
from lakecore.model.arrow_arrays import size_of
from lakecore.model.files import EMPTY_ROW, NO_STATS, DataFile, FileSource
from lakecore.model.rows import KEY_ID_OFFSET, KEY_PREFIX, RETRACTS, SEQUENCE_NUMBER
from lakecore.model.types import Field, with_nullable
from lakecore.table.runs.split_files import KIND_FIELD, SEQUENCE_FIELD

if TYPE_CHECKING:
    from lakecore.format.layout import Layout
    from lakecore.io.ambient import Ambient
    from lakecore.io.files.data_files import RunWriter
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.options import TableOptions

_LOOK_BYTES_MIN = 1 << 20
"""Up to this many bytes of rows are written before the file size is checked."""
ENCODED_GROUPS = 6
"""Row groups in memory while a file is written: one is filled, two are encoded into bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileShape:
    """The format of the files of one kind and level; it is the same for all buckets."""

    schema: TableSchema
    write_format: WriteFormat
    prefix: str
    name_compression: bool
    target_bytes: int
    stats_modes: tuple[StatsMode, ...]
    dense_stats: bool
    thin: bool
    level: int = 0
    source: FileSource = FileSource.APPEND

    @property
    def encoding_bytes(self) -> int:
        """The memory that writing a file takes, in bytes."""
        return ENCODED_GROUPS * self.write_format.row_group_bytes

    def rows_between_looks(self, rows: pa.Table) -> int:
        """The rows to write before the file size is checked again."""
        wanted = self.write_format
        row_bytes: int = max(1, size_of(rows) // max(1, rows.num_rows))
        size_bytes = min(wanted.row_group_bytes, max(self.target_bytes, _LOOK_BYTES_MIN))
        return max(1, min(wanted.row_group_rows, size_bytes // row_bytes))

    @property
    def keyed(self) -> bool:
        """Whether the rows carry keys, sequence numbers and kinds."""
        return bool(self.schema.primary_keys)

    @property
    def bounded_names(self) -> tuple[str, ...]:
        """The columns whose statistics are stored; dense statistics leave out mode none."""
        return tuple(
            field.name
            for field, mode in zip(self.schema.fields, self.stats_modes, strict=True)
            if not (self.dense_stats and mode.kind is StatsKind.NONE)
        )

    @property
    def text_bounds(self) -> dict[str, int | None]:
        """String columns whose bounds the Parquet writer reports, with their truncation length."""
        if self.write_format.format != "parquet":
            return {}
        return {
            field.name: mode.length
            for field, mode in zip(self.schema.fields, self.stats_modes, strict=True)
            if are_bounded_texts(field.type, mode)
        }

    @property
    def physical_fields(self) -> tuple[Field, ...]:
        """The columns of the files, in order."""
        if not self.keyed:
            return self.schema.fields
        keys = () if self.thin else tuple(key_field(f) for f in self.schema.key_fields)
        return (*keys, SEQUENCE_FIELD, KIND_FIELD, *self.schema.fields)


def data_shape(schema: TableSchema, options: TableOptions, level: int = 0) -> FileShape:
    """The shape of data files at a level."""
    target_bytes = options.target_file_size(primary_key=bool(schema.primary_keys))
    default_mode, modes = options.metadata_stats_mode, options.stats_modes
    return FileShape(
        schema=schema,
        write_format=WriteFormat(
            format=options.file_format_per_level.get(level, options.file_format),
            compression=options.file_compression_per_level.get(level, options.file_compression),
            zstd_level=options.file_compression_zstd_level,
            row_group_bytes=row_group_bytes_of(len(schema.fields), target_bytes),
            copies=_copies(schema, options),
        ),
        prefix=options.data_file_prefix,
        name_compression=options.file_suffix_include_compression,
        target_bytes=target_bytes,
        stats_modes=stats_modes(schema.fields, default_mode, modes),
        dense_stats=options.metadata_stats_dense_store,
        thin=options.data_file_thin_mode,
        level=level,
    )


def changelog_shape(schema: TableSchema, options: TableOptions, level: int = 0) -> FileShape:
    """The shape of changelog files: level 0 for a flush, else the level of the compaction."""
    data = data_shape(schema, options, level)
    changed = data
    if options.changelog_file_stats_mode is not None:
        mode = parse_stats_mode(options.changelog_file_stats_mode)
        changed = replace(
            data,
            stats_modes=(mode,) * len(data.stats_modes),
        )
    return replace(
        changed,
        write_format=replace(
            data.write_format,
            format=options.changelog_file_format or data.write_format.format,
            compression=options.changelog_file_compression or data.write_format.compression,
        ),
        prefix=options.changelog_file_prefix,
    )


def key_field(field: Field) -> Field:
    """The field `_KEY_x` of a key column x."""
    return Field(
        id=field.id + KEY_ID_OFFSET,
        name=KEY_PREFIX + field.name,
        type=with_nullable(field.type, nullable=False),
    )


def _copies(schema: TableSchema, options: TableOptions) -> tuple[tuple[str, str], ...]:
    """Pairs of columns that hold the same values: `_KEY_x` and x of each key column."""
    if not schema.primary_keys or options.data_file_thin_mode:
        return ()
    return tuple((KEY_PREFIX + field.name, field.name) for field in schema.key_fields)


@dataclass(slots=True)
class FileNames:
    """The names of the files of one bucket writer; all kinds share one counter."""

    writer: str
    count: int = 0

    def next(self, shape: FileShape) -> str:
        """The next unused name."""
        name = data_file_name(
            shape.prefix,
            self.writer,
            self.count,
            shape.write_format.format,
            shape.write_format.compression if shape.name_compression else None,
        )
        self.count += 1
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlace:
    """The directory of a bucket and the names of its files."""

    store: Store
    layout: Layout
    ambient: Ambient
    partition_path: str
    bucket: int
    names: FileNames


class RollingWriter:
    """Writes rows in the given order, to one file after another."""

    def __init__(self, place: BucketPlace, shape: FileShape) -> None:
        self._place = place
        self._shape = shape
        self._open: _OpenFile | None = None
        self.files: list[DataFile] = []

    def write(self, rows: pa.Table, sequence_min: int = 0) -> None:
        """Append rows: the table's columns and, with keys, sequence number and kind.

        `sequence_min` is the sequence number of the first row of an append table's rows.
        """
        step = self._shape.rows_between_looks(rows)
        for start in range(0, rows.num_rows, step):
            if self._open is None:
                name = self._place.names.next(self._shape)
                self._open = _OpenFile(self._place, self._shape, name)
            self._open.write(rows.slice(start, step), sequence_min + start)
            if self._open.writer.holds(self._shape.target_bytes):
                self._end_file()

    def flush(self) -> None:
        """Write the buffered rows; the file stays open."""
        if self._open is not None:
            self._open.flush()

    def close(self) -> tuple[DataFile, ...]:
        """Close the last file. Returns all files, in order."""
        self._end_file()
        return tuple(self.files)

    def abort(self) -> None:
        """Delete all files of this writer."""
        if self._open is not None:
            self._open.writer.abort()
            self._open = None
        for file in self.files:
            self._place.store.delete(
                self._place.layout.data_file(self._place.partition_path, self._place.bucket, file)
            )
        self.files.clear()

    def _end_file(self) -> None:
        if self._open is not None:
            self.files.append(self._open.close())
            self._open = None


class _OpenFile:
    """A file that is being written, and the statistics of its rows so far."""

    def __init__(self, place: BucketPlace, shape: FileShape, name: str) -> None:
        self._place = place
        self._shape = shape
        self._name = name
        self._fields = shape.physical_fields
        path = place.layout.file_in_bucket(place.partition_path, place.bucket, name)
        text_bounds = shape.text_bounds
        write_format = replace(shape.write_format, text_bounds=tuple(text_bounds.items()))
        self.writer: RunWriter = open_writer(place.store, path, self._fields, write_format)
        self._stats = StatsCollector(
            shape.schema.fields, shape.stats_modes, write_format.format, text_bounds
        )
        self._unseen: list[pa.Table] = []
        self._unseen_rows = self._unseen_bytes = 0
        self._first: pa.Table | None = None
        self._last: pa.Table | None = None
        self._sequence_min: int | None = None
        self._sequence_max = 0
        self._deletes = 0

    def write(self, rows: pa.Table, sequence_min: int) -> None:
        schema = self._shape.schema
        _refuse_nulls(rows, schema)
        keys = list(schema.trimmed_primary_keys)
        low, high = sequence_min, sequence_min + rows.num_rows - 1
        if self._shape.keyed:
            self._first = rows.select(keys).slice(0, 1) if self._first is None else self._first
            self._last = rows.select(keys).slice(rows.num_rows - 1)
            numbers = rows.column(SEQUENCE_NUMBER).to_numpy()
            low, high = int(numbers.min()), int(numbers.max())
            deletes = of_kinds(rows, RETRACTS)
            self._deletes += 0 if deletes is None else int(np.count_nonzero(deletes))
        first = self._sequence_min
        self._sequence_min = low if first is None else min(first, low)
        self._sequence_max = max(self._sequence_max, high)
        self._unseen.append(rows)
        self._unseen_rows += rows.num_rows
        self._unseen_bytes += size_of(rows)
        wanted = self._shape.write_format
        if (
            self._unseen_rows >= wanted.row_group_rows
            or self._unseen_bytes >= wanted.row_group_bytes
        ):
            self._see()
        self.writer.write(
            pa.Table.from_arrays(
                [rows.column(field.name.removeprefix(KEY_PREFIX)) for field in self._fields],
                names=[field.name for field in self._fields],
            )
            if self._shape.keyed
            else rows.select(list(schema.names))
        )

    def flush(self) -> None:
        self._see()
        self.writer.flush()

    def _see(self) -> None:
        """Add the rows since the last call to the statistics; each call has a cost per column."""
        if not self._unseen:
            return
        seen, self._unseen = self._unseen, []
        self._unseen_rows = self._unseen_bytes = 0
        # Some tables hold dictionary-encoded strings, others plain ones.
        for _, alike in groupby(seen, key=lambda rows: rows.schema):
            self._stats.update(pa.concat_tables(alike))

    def close(self) -> DataFile:
        self._see()
        size_bytes, row_count = self.writer.close()
        for name, (low, high) in self.writer.text_bounds.items():
            self._stats.supply(name, low, high)
        shape = self._shape
        names = shape.bounded_names
        assert self._sequence_min is not None
        return DataFile(
            name=self._name,
            size_bytes=size_bytes,
            row_count=row_count,
            key_min=self._key(self._first),
            key_max=self._key(self._last),
            key_stats=(
                self._stats.finish(shape.schema.trimmed_primary_keys) if shape.keyed else NO_STATS
            ),
            value_stats=self._stats.finish(names),
            value_stats_columns=None if names == shape.schema.names else names,
            sequence_min=self._sequence_min,
            sequence_max=self._sequence_max,
            schema_id=shape.schema.id,
            level=shape.level,
            creation_time_ms=self._place.ambient.local_wall_clock_ms(),
            delete_row_count=self._deletes,
            file_source=shape.source,
        )

    def _key(self, row: pa.Table | None) -> bytes:
        if row is None:
            return EMPTY_ROW
        types = [field.type for field in self._shape.schema.key_fields]
        return serialize_row([column.combine_chunks() for column in row.columns], types)


def _refuse_nulls(rows: pa.Table, schema: TableSchema) -> None:
    """Raise InvalidRequest if a NOT NULL column holds null, as a retraction can leave it.

    Arrow would write such a null as an empty list, a row of zeros or a null, depending on the type
    and the format.
    """
    for field in schema.fields:
        if not field.type.nullable and rows.column(field.name).null_count:
            raise InvalidRequest(
                "merging the rows of a key leaves null in a NOT NULL column; make it nullable",
                column=field.name,
                type=field.type,
            )
