"""The BLOB values of a run: files of values, and the descriptors that rows hold in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.format.blob_file import (
    NULL,
    PLACEHOLDER,
    blobs_of,
    encode_entry,
    encode_index,
    encode_value,
    place_of_value,
    with_each_blob,
)
from lakecore.format.blob_references import BlobDescriptor, files_of, is_descriptor
from lakecore.format.layout import MANAGED_BLOB_SUFFIX, Layout, canonical, is_local, is_within
from lakecore.io.files.file_format import OutputFile
from lakecore.io.referenced_blobs import store_of
from lakecore.io.stores.store import Store, discard
from lakecore.model.blob_rules import is_managed
from lakecore.model.files import DataFile, FileSource
from lakecore.model.rows import RETRACTS, VALUE_KIND
from lakecore.model.types import Field, arrow_type
from lakecore.plan.row_ids import BLOB
from lakecore.table.run_writer.file_shape import BlobRules, BucketPlace, FileShape, GivenBlobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lakecore.model.schema import TableSchema
    from lakecore.options import TableOptions


# --- blob output ---------------------------------------------------------------------------------
# A file of BLOB values that is being written.
#
# Values wait until they take about 1 MiB, so memory does not grow with their number. Only then, or
# at its end, the file is opened.

_WAITING_BYTES_MAX = 1 << 20
"""Small values are written together, about so many bytes at once."""
_OPEN_BYTES = 4 << 20
"""The memory that an open file counts as: some storages buffer a part, and open files are scarce.
"""


class BlobOutput:
    """An open file of BLOB values."""

    def __init__(self, store: Store, path: str) -> None:
        self.path = path
        self.lengths: list[int] = []
        self.size_bytes = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._store = store
        self._file: OutputFile | None = None

    @property
    def held_bytes(self) -> int:
        """The memory in bytes that the file takes."""
        return self._waiting_bytes + (0 if self._file is None else _OPEN_BYTES)

    def add(self, pieces: Sequence[bytes]) -> tuple[int, int]:
        """Append a value that is in pieces. Returns its offset and length in the file."""
        entry = encode_entry(pieces)
        size_bytes = sum(map(len, entry))
        begin = self.size_bytes
        self._waiting += entry
        self._waiting_bytes += size_bytes
        self.size_bytes += size_bytes
        self.lengths.append(size_bytes)
        if self._waiting_bytes >= _WAITING_BYTES_MAX:
            self._write_waiting()
        return place_of_value(begin, size_bytes)

    def add_null(self) -> None:
        self.lengths.append(NULL)

    def add_placeholder(self) -> None:
        """Append a placeholder: an older file holds the value."""
        self.lengths.append(PLACEHOLDER)

    def _write_waiting(self) -> OutputFile:
        if self._file is None:
            self._file = OutputFile(self._store, self.path)
        parts, self._waiting = self._waiting, []
        # Joining large values would copy them.
        joined = self._waiting_bytes <= 2 * _WAITING_BYTES_MAX
        for part in [b"".join(parts)] if joined else parts:
            self._file.write(part)
        self._waiting_bytes = 0
        return self._file

    def close(self) -> int:
        """End the file. Returns its size in bytes."""
        try:
            file = self._write_waiting()
            file.write(encode_index(self.lengths))
            file.close()
        except BaseException:
            self.abort()
            raise
        return file.size_bytes

    def abort(self) -> None:
        """Abandon the file and remove it."""
        if self._file is not None:
            self._file.abort()


# --- blob files ----------------------------------------------------------------------------------
# Writes the values of a BLOB column to files that hold only these values.
#
# https://paimon.apache.org/docs/master/append-table/blob/
#
# A file is closed when it reaches `blob.target-file-size`, and the next one is opened.


class BlobFiles:
    """Writes the values of one BLOB column, in order, to one file after another.

    The names of the files begin with `prefix`. The commit assigns the sequence numbers.
    """

    def __init__(self, place: BucketPlace, field: Field, shape: FileShape) -> None:
        self._place = place
        self._column = field.name
        self._type = field.type
        self._schema_id = shape.schema.id
        self._prefix = shape.prefix
        self._rules = shape.blob_rules
        self._given = GivenBlobs(place.store, place.layout, self._rules, field.name)
        self._open: BlobOutput | None = None
        self.files: list[DataFile] = []

    def write(self, values: pa.ChunkedArray) -> None:
        for scalar in values:
            self._add(scalar.as_py(), is_new=True)

    def write_some(self, values: pa.ChunkedArray, chosen: np.ndarray, count: int) -> None:
        """Append `count` rows: the `values` at the indexes `chosen`, placeholders at all others.

        A placeholder means that an older file holds the value.
        """
        of = {int(place): number for number, place in enumerate(chosen)}
        for place in range(count):
            is_new = place in of
            self._add(values[of[place]].as_py() if is_new else None, is_new=is_new)

    def _add(self, value: object, *, is_new: bool) -> None:
        if self._open is None:
            place = self._place
            where = (place.partition_path, place.bucket, place.names.next_of(self._prefix, BLOB))
            self._open = BlobOutput(place.store, place.layout.file_in_bucket(*where))
        if not is_new:
            self._open.add_placeholder()
            return
        value = self._given.value(value)
        if value is None:
            self._open.add_null()
        else:
            self._open.add(encode_value(value, self._type))
        if self._open.size_bytes >= self._rules.target_bytes:
            self.end_file()

    def end_file(self) -> None:
        """Close the open file; the next value begins another one."""
        if self._open is None:
            return
        opened = self._open
        size_bytes = opened.close()
        self._open = None
        self.files.append(
            DataFile(
                name=opened.path.rpartition("/")[2],
                size_bytes=size_bytes,
                row_count=len(opened.lengths),
                sequence_min=0,
                sequence_max=0,
                schema_id=self._schema_id,
                creation_time_ms=self._place.ambient.local_wall_clock_ms(),
                delete_row_count=0,
                file_source=FileSource.APPEND,
                value_stats_columns=(),
                write_columns=(self._column,),
            )
        )

    def end_files(self) -> tuple[DataFile, ...]:
        """Close the open file. Returns the files that were closed since the last call.

        `abort` does not delete the returned files.
        """
        self.end_file()
        self._given.close()
        files, self.files = tuple(self.files), []
        return files

    def abort(self) -> None:
        """Delete the files that were not returned yet."""
        self._given.close()
        if self._open is not None:
            self._open.abort()
            self._open = None
        place = self._place
        for file in self.files:
            path = place.layout.data_file(place.partition_path, place.bucket, file)
            discard(place.store, path)
        self.files.clear()


def blob_writers(place: BucketPlace, shape: FileShape) -> dict[str, BlobFiles]:
    """A writer for each BLOB column, by its name."""
    return {field.name: BlobFiles(place, field, shape) for field in shape.blobs}


# --- stored blobs --------------------------------------------------------------------------------
# Moves BLOB values to files before their rows are buffered. The rows keep descriptors of the
# values.
#
# - *Managed* columns of a table with a primary key: the values are in files in the directory of the
#   data files. No manifest names them. Rows can be merged and compacted without their values.
#   https://paimon.apache.org/docs/master/primary-key-table/blob-storage/
# - Columns of `blob-external-storage-field`: the values are in the directory
#   `blob-external-storage-path`, as in Paimon 1.4.
#
# A descriptor of a file that is already in the right place is kept, so an update of other columns
# copies no value. A retraction (-U, -D) writes no value.
#
# INVARIANT: nothing deletes a managed file, because any row of the table may refer to it. Only
# `abort` deletes files, before any row refers to them.


class StoredBlobs:
    """The files of the BLOB values of one bucket, while rows are written."""

    def __init__(self, place: BucketPlace, schema: TableSchema, options: TableOptions) -> None:
        target_bytes = options.target_file_size(primary_key=bool(schema.primary_keys))
        rules = BlobRules.of(options, target_bytes, inline=(), managed=())
        external = options.blob_external_storage_field
        prefix = options.data_file_prefix
        self._columns = [
            _Column(place, field, rules, prefix, _directory(field, options, place.layout))
            for field in schema.fields
            if field.name in external or is_managed(field, schema, options)
        ]

    def stored(self, rows: pa.Table) -> pa.Table:
        """The rows, with descriptors in place of the values that were written to files."""
        for column in self._columns:
            at = rows.schema.get_field_index(column.name)
            if at >= 0:
                rows = rows.set_column(at, rows.schema.field(at), column.stored(rows))
        return rows

    @property
    def held_bytes(self) -> int:
        """The memory in bytes that open files take."""
        return sum(column.held_bytes for column in self._columns)

    def close(self) -> None:
        """End the open files; `abort` can still delete them. Later values begin other files."""
        for column in self._columns:
            column.close()

    def abort(self) -> None:
        """Delete all files that were written."""
        for column in self._columns:
            column.abort()


def managed_files(rows: pa.Table, columns: Sequence[str]) -> set[str]:
    """The managed files to which these columns of the rows refer."""
    uris = {uri for name in columns for uri in files_of(_blobs_in(rows.column(name)))}
    return {uri for uri in uris if uri.endswith(MANAGED_BLOB_SUFFIX)}


def _blobs_in(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_list(column.type):
        return pc.list_flatten(column)
    values = (value for value in column.to_pylist() if value is not None)
    return pa.array([blob for value in values for blob in blobs_of(value)], pa.binary())


def _directory(field: Field, options: TableOptions, layout: Layout) -> str:
    """The directory for the values of a column; empty for the bucket's directory.

    Raises InvalidRequest for a directory outside the table that the process does not allow: a table
    must not choose where its writers write.
    """
    if field.name not in options.blob_external_storage_field:
        return ""
    path = canonical(options.blob_external_storage_path or "").rstrip("/")
    if is_local(path) and not path.startswith("/"):
        raise InvalidRequest(
            "blob-external-storage-path must be absolute: descriptors name its files",
            path=path,
            table=options.table,
        )
    allowed = map(canonical, (layout.root, *layout.blob_roots))
    if not any(is_within(f"{path}/file", root) for root in allowed):
        raise InvalidRequest(
            "blob-external-storage-path is outside the table: to write values there, add it to the "
            "dynamic option lakecore.blob-paths",
            path=path,
            blob_paths=layout.blob_roots,
            table=options.table,
        )
    return path


class _Column:
    def __init__(
        self, place: BucketPlace, field: Field, rules: BlobRules, prefix: str, directory: str
    ) -> None:
        self.name = field.name
        self._place, self._field, self._rules = place, field, rules
        self._prefix, self._directory = prefix, directory
        self._store = place.store
        if directory:
            self._store = store_of(directory, place.store, place.layout, dict(rules.storage))
        self._given = GivenBlobs(place.store, place.layout, rules, field.name)
        self._open: BlobOutput | None = None
        self._done: list[str] = []

    @property
    def held_bytes(self) -> int:
        return 0 if self._open is None else self._open.held_bytes

    def stored(self, rows: pa.Table) -> pa.Array:
        kinds = rows.column(VALUE_KIND).to_pylist() if VALUE_KIND in rows.schema.names else ()
        values = [
            self._retracted(value) if kinds and kinds[row] in RETRACTS else self._stored(value)
            for row, value in enumerate(rows.column(self.name).to_pylist())
        ]
        return pa.array(values, arrow_type(self._field.type))

    def _stored(self, value: object) -> object:
        found = None if value is None else with_each_blob(value, self._descriptor)
        if found is None and not self._field.type.nullable:
            raise InvalidRequest("a NOT NULL column cannot hold null", column=self.name)
        return found

    def _retracted(self, value: object) -> object:
        """Null, or, in a NOT NULL column, an empty value.

        A descriptor of an external file stays: a changelog may tell the old value.
        """
        if self._directory and isinstance(value, bytes) and self._is_stored(value):
            return value
        if self._field.type.nullable:
            return None
        if pa.types.is_binary(arrow_type(self._field.type)):
            return BlobDescriptor(self._place.layout.root, 0, 0).to_bytes()
        return []

    def _descriptor(self, given: bytes) -> bytes | None:
        if self._is_stored(given):
            return given
        value = self._given.blob(given)
        if value is None:
            return None
        if self._open is None:
            self._open = BlobOutput(self._store, self._next_path())
        offset, length = self._open.add([value])
        path = self._open.path
        if self._open.size_bytes >= self._rules.target_bytes:
            self._end_file()
        return BlobDescriptor(path, offset, length).to_bytes()

    def _is_stored(self, given: bytes) -> bool:
        """Whether a value is a descriptor of a file in the right place."""
        if not is_descriptor(given):
            return False
        path = canonical(BlobDescriptor.from_bytes(given).uri)
        if self._directory:
            return is_within(path, self._directory)
        return path.endswith(MANAGED_BLOB_SUFFIX) and is_within(path, self._place.layout.root)

    def _next_path(self) -> str:
        place = self._place
        kind = "blob" if self._directory else MANAGED_BLOB_SUFFIX.removeprefix(".")
        name = place.names.next_of(self._prefix, kind)
        if self._directory:
            return f"{self._directory}/{name}"
        return place.layout.file_in_bucket(place.partition_path, place.bucket, name)

    def _end_file(self) -> None:
        if self._open is not None:
            self._done.append(self._open.path)
            opened, self._open = self._open, None
            opened.close()

    def close(self) -> None:
        self._end_file()
        self._given.close()

    def abort(self) -> None:
        self._given.close()
        if self._open is not None:
            self._open.abort()
            self._open = None
        for path in self._done:
            discard(self._store, path)
        self._done.clear()
