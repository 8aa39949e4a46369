"""Writes the values of a BLOB column to files that hold only these values.

https://paimon.apache.org/docs/master/append-table/blob/

A file is closed when it reaches `blob.target-file-size`, and the next one is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.format.blob_values import encode_value
from lakecore.model.files import DataFile, FileSource
from lakecore.plan.row_ids import BLOB
from lakecore.table.run_writer.blob_output import BlobOutput
from lakecore.table.run_writer.given_blobs import GivenBlobs

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from lakecore.model.types import Field
    from lakecore.table.run_writer.bucket_place import BucketPlace
    from lakecore.table.run_writer.file_shape import FileShape


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
            place.store.delete(place.layout.data_file(place.partition_path, place.bucket, file))
        self.files.clear()


def blob_writers(place: BucketPlace, shape: FileShape) -> dict[str, BlobFiles]:
    """A writer for each BLOB column, by its name."""
    return {field.name: BlobFiles(place, field, shape) for field in shape.blobs}
