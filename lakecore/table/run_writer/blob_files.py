"""Writes the values of a BLOB column to files that hold only these values.

https://paimon.apache.org/docs/master/append-table/blob/

A file is closed when it reaches `blob.target-file-size`, and the next one is opened. Values are
collected and written when they take about 1 MiB, so memory does not grow with their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import Unsupported
from lakecore.format.blob_file import (
    NULL,
    PLACEHOLDER,
    encode_entry,
    encode_index,
    is_descriptor,
)
from lakecore.format.blob_values import blobs_of, encode_value
from lakecore.format.layout import data_file_name
from lakecore.io.files.output_file import OutputFile
from lakecore.model.files import DataFile, FileSource
from lakecore.plan.row_ids import BLOB

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pyarrow as pa

    from lakecore.model.types import Field
    from lakecore.table.run_writer.bucket_place import BucketPlace
    from lakecore.table.run_writer.file_shape import FileShape


_WAITING_BYTES_MAX = 1 << 20
"""Small values are collected and written together, about this many bytes at once."""


class BlobFiles:
    """Writes the values of one BLOB column, in order, to one file after another.

    The names of the files begin with `prefix`. The commit assigns the sequence numbers.
    """

    def __init__(
        self, place: BucketPlace, field: Field, *, schema_id: int, prefix: str, target_bytes: int
    ) -> None:
        self._place = place
        self._column = field.name
        self._type = field.type
        self._schema_id = schema_id
        self._prefix = prefix
        self._target_bytes = target_bytes
        self._open: _OpenFile | None = None
        self.files: list[DataFile] = []

    def write(self, values: pa.ChunkedArray) -> None:
        """Append values, in order."""
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
            self._open = _OpenFile(self._place, self._next_name())
        if not is_new:
            self._open.lengths.append(PLACEHOLDER)
            return
        if value is not None and any(map(is_descriptor, blobs_of(value))):
            raise Unsupported(
                "a write takes BLOB values, not their descriptors", column=self._column
            )
        self._open.add(None if value is None else encode_value(value, self._type))
        if self._open.size_bytes >= self._target_bytes:
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
                name=opened.name,
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
        """Close the open file.

        Returns the files since the last call, which `abort` will not delete.
        """
        self.end_file()
        files, self.files = tuple(self.files), []
        return files

    def abort(self) -> None:
        """Delete the files that were not returned yet."""
        if self._open is not None:
            self._open.abort()
            self._open = None
        place = self._place
        for file in self.files:
            place.store.delete(place.layout.data_file(place.partition_path, place.bucket, file))
        self.files.clear()

    def _next_name(self) -> str:
        names = self._place.names
        name = data_file_name(self._prefix, names.writer, names.count, BLOB)
        names.count += 1
        return name


def blob_writers(place: BucketPlace, shape: FileShape) -> dict[str, BlobFiles]:
    """A writer for each BLOB column, by its name."""
    return {
        field.name: BlobFiles(
            place,
            field,
            schema_id=shape.schema.id,
            prefix=shape.prefix,
            target_bytes=shape.blob_target_bytes,
        )
        for field in shape.blobs
    }


class _OpenFile:
    """A file of BLOB values that is being written."""

    def __init__(self, place: BucketPlace, name: str) -> None:
        self.name = name
        self.lengths: list[int] = []
        self.size_bytes = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        path = place.layout.file_in_bucket(place.partition_path, place.bucket, name)
        self._file = OutputFile(place.store, path)

    def add(self, pieces: Sequence[bytes] | None) -> None:
        if pieces is None:
            self.lengths.append(NULL)
            return
        entry = encode_entry(pieces)
        size_bytes = sum(map(len, entry))
        self._waiting += entry
        self._waiting_bytes += size_bytes
        self.size_bytes += size_bytes
        self.lengths.append(size_bytes)
        if self._waiting_bytes >= _WAITING_BYTES_MAX:
            self._write_waiting()

    def _write_waiting(self) -> None:
        parts, self._waiting = self._waiting, []
        # Joining large values would copy them.
        joined = self._waiting_bytes <= 2 * _WAITING_BYTES_MAX
        for part in [b"".join(parts)] if joined else parts:
            self._file.write(part)
        self._waiting_bytes = 0

    def close(self) -> int:
        """End the file. Returns its size in bytes."""
        try:
            self._write_waiting()
            tail = encode_index(self.lengths)
            self._file.write(tail)
            self._file.close()
        except BaseException:
            self.abort()
            raise
        return self._file.size_bytes

    def abort(self) -> None:
        """Abandon the file and remove it."""
        self._file.abort()
