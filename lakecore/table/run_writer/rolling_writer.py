"""Writes the ordered rows of one bucket to data files, with statistics and metadata.

A file is closed when it reaches `target-file-size`, and the next one is opened. All files of one
writer form one sorted run.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.format.binary_row import serialize_row
from lakecore.format.blob_references import are_references, encode_file_list
from lakecore.format.file_index.bitmap import BLOCK_BYTES, VERSIONS, BitmapWriter
from lakecore.format.file_index.bloom_filter import BloomFilterWriter
from lakecore.format.file_index.coded import value_form
from lakecore.format.file_index.container import StoredIndex, encode_container
from lakecore.format.file_index.range_bitmap import BsiWriter, RangeBitmapWriter
from lakecore.format.layout import BLOB_REFERENCES_SUFFIX, file_index_name
from lakecore.format.statistics import StatsCollector
from lakecore.io.files.data_files import RunWriter, open_writer
from lakecore.io.stores.store import discard
from lakecore.merge.spec import of_kinds
from lakecore.model.arrow_arrays import size_of
from lakecore.model.file_indexes import BITMAP, BLOOM_FILTER, BSI, RANGE_BITMAP, IndexedColumn
from lakecore.model.files import EMPTY_ROW, NO_STATS, DataFile
from lakecore.model.rows import KEY_PREFIX, RETRACTS, SEQUENCE_NUMBER
from lakecore.model.types import Root
from lakecore.rows.line_texts import text_fields, to_texts
from lakecore.table.run_writer.blobs import blob_writers, managed_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.schema import TableSchema
    from lakecore.table.run_writer.file_shape import BucketPlace, FileShape


# --- file indexes --------------------------------------------------------------------------------
# Builds the file indexes of a data file from its rows, in one container.
#
# Each index stays in memory until the file is closed (`format/file_index`): a Bloom filter takes
# its bits, a bitmap index its distinct values and up to four bytes for each row.

_CHUNK_BYTES = 16 << 10
_UNCHUNKED = frozenset({Root.BOOLEAN, Root.TINYINT, Root.SMALLINT})
"""Types whose chunks hold one value each unless `chunk-size` says otherwise, as in Java."""


class _IndexWriter(Protocol):
    def add(self, column: pa.Array) -> None: ...

    def finish(self) -> bytes: ...


class FileIndexes:
    """The indexes of one data file."""

    def __init__(self, columns: Sequence[IndexedColumn]) -> None:
        self._indexes = [(column, _writer(column)) for column in columns]

    def add(self, rows: pa.Table) -> None:
        """Add rows, in the order of the file."""
        for column, writer in self._indexes:
            for chunk in rows.column(column.field.name).chunks:
                values = chunk
                if column.map_key is not None:
                    values = pc.map_lookup(chunk, column.map_key, "last")
                try:
                    writer.add(values)
                except InvalidRequest as error:
                    raise InvalidRequest(
                        "a value does not fit a file index",
                        column=column.name,
                        index=column.index_type,
                        cause=error,
                    ) from error

    def finish(self) -> bytes:
        """The bytes of the container with all indexes of the file."""
        return encode_container(
            StoredIndex(column=column.name, index_type=column.index_type, body=writer.finish())
            for column, writer in self._indexes
        )


def _writer(column: IndexedColumn) -> _IndexWriter:
    form, settings = value_form(column.value_type), column.settings
    assert form is not None, "checked by `indexed_columns`"
    if column.index_type == BLOOM_FILTER:
        items, fpp = settings["items"], settings["fpp"]
        assert isinstance(items, int)
        assert isinstance(fpp, float)
        return BloomFilterWriter(form, items, fpp)
    if column.index_type == BITMAP:
        version = settings.get("version", VERSIONS[-1])
        block_bytes = settings.get("index-block-size", BLOCK_BYTES)
        assert isinstance(version, int)
        assert isinstance(block_bytes, int)
        return BitmapWriter(form, version, block_bytes)
    if column.index_type == RANGE_BITMAP:
        least = 0 if form.root in _UNCHUNKED else _CHUNK_BYTES
        chunk_bytes = settings.get("chunk-size", least)
        assert isinstance(chunk_bytes, int)
        return RangeBitmapWriter(form, chunk_bytes)
    assert column.index_type == BSI
    return BsiWriter(form)


# --- rolling writer ------------------------------------------------------------------------------


class RollingWriter:
    """Writes rows in the given order, to one file after another."""

    def __init__(self, place: BucketPlace, shape: FileShape) -> None:
        self._place = place
        self._shape = shape
        self._open: _OpenFile | None = None
        self.files: list[DataFile] = []
        self._blobs = blob_writers(place, shape)

    def write(self, rows: pa.Table, sequence_min: int = 0) -> None:
        """Append rows: the table's columns and, with keys, sequence number and kind.

        `sequence_min` is the sequence number of the first row of an append table's rows.
        """
        self._require_references(rows)
        step = self._shape.rows_between_looks(rows)
        for start in range(0, rows.num_rows, step):
            if self._open is None:
                name = self._place.names.next(self._shape)
                self._open = _OpenFile(self._place, self._shape, name)
            self._open.write(rows.slice(start, step), sequence_min + start)
            for name, blobs in self._blobs.items():
                blobs.write(rows.column(name).slice(start, step))
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
            self._open.abort()
            self._open = None
        for blobs in self._blobs.values():
            blobs.abort()
        place = self._place
        for file in self.files:
            where = (place.partition_path, place.bucket, file)
            discard(place.store, place.layout.data_file(*where))
            for name in file.extra_files:
                discard(place.store, place.layout.extra_file(*where, name))
        self.files.clear()

    def _require_references(self, rows: pa.Table) -> None:
        """Raise InvalidRequest if a column that stores references holds other bytes."""
        rules = self._shape.blob_rules
        for name in (*rules.inline, *rules.managed):
            values = rows.column(name)
            if not pa.types.is_binary(values.type) or pc.all(are_references(values)).as_py() in (
                True,
                None,
            ):
                continue
            raise InvalidRequest(
                "the column stores references to BLOB values, not the values: give descriptors "
                "(lakecore.BlobDescriptor), or views if blob-view-field names the column",
                column=name,
            )

    def _end_file(self) -> None:
        if self._open is not None:
            self.files.append(self._open.close())
            self._open = None
            # Files of BLOB values come after the file with the other columns of the same rows.
            for blobs in self._blobs.values():
                self.files += blobs.end_files()


class _OpenFile:
    def __init__(self, place: BucketPlace, shape: FileShape, name: str) -> None:
        self._place = place
        self._shape = shape
        self._name = name
        self._fields = shape.physical_fields
        path = place.layout.file_in_bucket(place.partition_path, place.bucket, name)
        text_bounds = shape.text_bounds
        write_format = replace(shape.write_format, text_bounds=tuple(text_bounds.items()))
        if write_format.lines is not None:
            text_fields(self._fields, write_format.lines.kind)
        self.writer: RunWriter = open_writer(place.store, path, self._fields, write_format)
        self._stats = StatsCollector(
            shape.schema.fields, shape.stats_modes, write_format.format, text_bounds
        )
        self._indexes = FileIndexes(shape.indexes) if shape.indexes else None
        self._managed_uris: set[str] = set()
        self._beside: list[str] = []
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
            if self._shape.blob_rules.managed:
                kept = rows if deletes is None else rows.filter(pa.array(~deletes))
                self._managed_uris |= managed_files(kept, self._shape.blob_rules.managed)
        first = self._sequence_min
        self._sequence_min = low if first is None else min(first, low)
        self._sequence_max = high if first is None else max(self._sequence_max, high)
        self._unseen.append(rows)
        self._unseen_rows += rows.num_rows
        self._unseen_bytes += size_of(rows)
        wanted = self._shape.write_format
        if (
            self._unseen_rows >= wanted.row_group_rows
            or self._unseen_bytes >= wanted.row_group_bytes
        ):
            self._see()
        if self._shape.keyed:
            stored = pa.Table.from_arrays(
                [rows.column(field.name.removeprefix(KEY_PREFIX)) for field in self._fields],
                names=[field.name for field in self._fields],
            )
        else:
            stored = rows.select(list(schema.names))
        if wanted.lines is not None:
            stored = to_texts(stored, self._fields, wanted.lines.kind)
        self.writer.write(stored)

    def flush(self) -> None:
        self._see()
        self.writer.flush()

    def _see(self) -> None:
        """Add the rows that are not counted yet to the statistics and indexes.

        Each call has a cost per column, so it is called for many rows at once.
        """
        if not self._unseen:
            return
        seen, self._unseen = self._unseen, []
        self._unseen_rows = self._unseen_bytes = 0
        # The strings of some of these Arrow tables are dictionary-encoded.
        for _, alike in groupby(seen, key=lambda rows: rows.schema):
            together = pa.concat_tables(alike)
            self._stats.update(together)
            if self._indexes is not None:
                self._indexes.add(together)

    def abort(self) -> None:
        """Remove what was written, also after `close` failed."""
        self.writer.abort()
        for name in self._beside:
            discard(self._place.store, self._path_beside(name))

    def close(self) -> DataFile:
        self._see()
        # Write the other files before the data file is closed: an abort can still remove it.
        embedded = self._stored_indexes()
        if self._shape.blob_rules.managed:
            self._put_beside(
                self._name + BLOB_REFERENCES_SUFFIX, encode_file_list(self._managed_uris)
            )
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
            extra_files=tuple(self._beside),
            embedded_index=embedded,
            creation_time_ms=self._place.ambient.local_wall_clock_ms(),
            delete_row_count=self._deletes,
            file_source=shape.source,
            write_columns=shape.write_columns,
        )

    def _stored_indexes(self) -> bytes | None:
        """The indexes for the manifest; None if there are none, or they are in a file."""
        if self._indexes is None:
            return None
        container = self._indexes.finish()
        if len(container) <= self._shape.embedded_index_bytes:
            return container
        self._put_beside(file_index_name(self._name), container)
        return None

    def _put_beside(self, name: str, data: bytes) -> None:
        """Write an extra file of the data file."""
        self._beside.append(name)
        self._place.store.put(self._path_beside(name), data)

    def _path_beside(self, name: str) -> str:
        place = self._place
        return place.layout.file_in_bucket(place.partition_path, place.bucket, name)

    def _key(self, row: pa.Table | None) -> bytes:
        if row is None:
            return EMPTY_ROW
        types = [field.type for field in self._shape.schema.key_fields]
        return serialize_row([column.combine_chunks() for column in row.columns], types)


def _refuse_nulls(rows: pa.Table, schema: TableSchema) -> None:
    """Raise InvalidRequest if a NOT NULL column holds null, for example after a retraction.

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
