"""The buffer of the postponed bucket of a partition: rows are stored in order of arrival.

A later compaction moves these rows to real buckets (`verbs/move_postponed.py`). Until then, no
batch read shows them. Rows are neither sorted nor merged, and have no sequence numbers: all are -1.

The name of a file begins with `PREFIX-u-USER-s-NUMBER-w-`, as in Paimon: the files of one writer
have the same beginning, and a compaction reads them in order of their creation times.

INVARIANT: of two files of one writer, the later one has the later creation time.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.model.rows import SEQUENCE_NUMBER
from lakecore.options import POSTPONE_BUCKET
from lakecore.table.run_writer.bucket_place import new_place
from lakecore.table.run_writer.file_shape import postponed_shape
from lakecore.table.run_writer.rolling_writer import RollingWriter
from lakecore.table.run_writer.stored_blobs import StoredBlobs
from lakecore.table.sections.windows import in_pieces

if TYPE_CHECKING:
    from lakecore.model.files import DataFile
    from lakecore.table.context import TableContext
    from lakecore.table.writes.bucket_buffer import BucketKey

_NO_SEQUENCE = -1
_PIECE_ROWS = 131_072
_PLAIN_USER = re.compile(r"[A-Za-z0-9_.]{1,64}")
_NUMBERS = 1 << 31


def postponed_prefix(context: TableContext, user: str | None) -> str:
    """The beginning of the names of the files of one new writer.

    The user is left out if its name has characters other than letters, digits, `_` and `.`, because
    Paimon splits these file names at `-`.
    """
    drawn = context.ambient.new_uuid().replace("-", "")
    stated = user is not None and _PLAIN_USER.fullmatch(user) is not None
    number = int(drawn, 16) % _NUMBERS
    prefix = context.options.data_file_prefix
    return f"{prefix}-u-{user if stated else drawn}-s-{number}-w-"


class PostponedBuffer:
    """The rows of one partition on their way to the postponed bucket.

    The class has the methods of `BucketBuffer`.
    """

    def __init__(self, context: TableContext, key: BucketKey, prefix: str) -> None:
        partition, bucket = key
        assert bucket == POSTPONE_BUCKET
        self.key = key
        self.next_sequence = 0
        self.size_bytes = self.blob_bytes = 0
        self.index_paths: list[str] = []
        self._chunks: list[pa.Table] = []
        place = new_place(context, context.partitions.path(partition), bucket)
        shape = postponed_shape(context.schema, context.options, prefix)
        self._blobs = StoredBlobs(place, context.schema, context.options)
        self._data = RollingWriter(place, shape)

    @property
    def is_small(self) -> bool:
        """Whether writing the files takes little memory: rows are neither sorted nor merged."""
        return True

    def add(self, rows: pa.Table) -> pa.Table:
        """Add rows, in order of arrival. Returns the rows as they are held, with descriptors."""
        rows = self._blobs.stored(rows)
        self.blob_bytes = self._blobs.held_bytes
        self._chunks.append(rows)
        self.size_bytes += rows.nbytes
        return rows

    def empty(self, *, spill: bool) -> None:
        """Write the buffered rows to the open data file."""
        del spill
        self._write()
        self._data.flush()

    def end_blobs(self) -> None:
        """End the open files of BLOB values."""
        self._blobs.close()
        self.blob_bytes = 0

    def finish(self) -> tuple[tuple[DataFile, ...], tuple[DataFile, ...]]:
        """Write everything. Returns the data files; there are no changelog files."""
        self.end_blobs()
        self._write()
        return tuple(_in_order(self._data.close())), ()

    def abort(self) -> None:
        """Remove all files that were written."""
        self._chunks = []
        self._data.abort()
        self._blobs.abort()

    def _write(self) -> None:
        chunks, self._chunks = self._chunks, []
        self.size_bytes = 0
        for rows in chunks:
            for piece in in_pieces([rows], _PIECE_ROWS):
                numbers = pa.array(np.full(piece.num_rows, _NO_SEQUENCE, np.int64))
                self._data.write(piece.append_column(SEQUENCE_NUMBER, numbers))


def _in_order(files: tuple[DataFile, ...]) -> list[DataFile]:
    """The files, with creation times changed so that each is later than the one before."""
    ordered: list[DataFile] = []
    for file in files:
        own = file.creation_time_ms or 0
        if ordered:
            own = max(own, (ordered[-1].creation_time_ms or 0) + 1)
        ordered.append(replace(file, creation_time_ms=own))
    return ordered
