"""Moves BLOB values to files before their rows are buffered. The rows keep descriptors of them.

- *Managed* columns of a table with a primary key: the values are in files in the directory of the
  data files. No manifest names them. Rows can be merged and compacted without their values.
  https://paimon.apache.org/docs/master/primary-key-table/blob-storage/
- Columns of `blob-external-storage-field`: the values are in the directory
  `blob-external-storage-path`, as in Paimon 1.4.

A descriptor of a file that is already in the right place is kept, so an update of other columns
copies no value. A retraction (-U, -D) writes no value.

INVARIANT: nothing deletes a managed file, because any row of the table may refer to it. Only
`abort` deletes files, before any row refers to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.format.blob_references import BlobDescriptor, files_of, is_descriptor
from lakecore.format.blob_values import blobs_of, with_each_blob
from lakecore.format.layout import MANAGED_BLOB_SUFFIX
from lakecore.format.locations import canonical, is_local, is_within
from lakecore.io.referenced_blobs import store_of
from lakecore.model.blob_rules import is_managed
from lakecore.model.rows import RETRACTS, VALUE_KIND
from lakecore.model.types import arrow_type
from lakecore.table.run_writer.blob_output import BlobOutput
from lakecore.table.run_writer.given_blobs import BlobRules, GivenBlobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.format.layout import Layout
    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field
    from lakecore.options import TableOptions
    from lakecore.table.run_writer.bucket_place import BucketPlace


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
    """All BLOBs within the values of a column."""
    if pa.types.is_binary(column.type):
        return column
    if pa.types.is_list(column.type):
        return pc.list_flatten(column)
    values = (value for value in column.to_pylist() if value is not None)
    return pa.array([blob for value in values for blob in blobs_of(value)], pa.binary())


def _directory(field: Field, options: TableOptions, layout: Layout) -> str:
    """The directory for the values of a column; empty for that of the bucket.

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
    """The files of one column."""

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
            self._store.delete(path)
        self._done.clear()
