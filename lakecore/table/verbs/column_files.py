"""Writes new values of some columns of existing rows to files with the row ids of these rows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from lakecore.errors import CorruptTable, LakecoreError
from lakecore.table.run_writer.blob_files import blob_writers
from lakecore.table.run_writer.bucket_place import new_place
from lakecore.table.run_writer.file_shape import column_shape
from lakecore.table.run_writer.rolling_writer import RollingWriter
from lakecore.table.run_writer.stored_blobs import StoredBlobs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from lakecore.model.files import DataFile, Split
    from lakecore.table.context import TableContext


class ColumnFiles:
    """Writes some columns of all rows of a unit; a context manager that removes unfinished files.

    A unit is a split whose files hold columns of the same rows.
    """

    def __init__(self, context: TableContext, unit: Split, columns: Sequence[str]) -> None:
        shape = column_shape(context.schema, context.options, columns)
        place = new_place(context, unit.partition_path, unit.bucket)
        self._rows_of = unit.files[0]
        self._columns = list(shape.schema.names)
        self._writer = RollingWriter(place, replace(shape, blobs=())) if self._columns else None
        self._blobs = blob_writers(place, shape)
        self._stored = StoredBlobs(place, context.schema, context.options)
        self._written = 0
        self._is_done = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_done:
            return
        # A file that cannot be removed is an orphan; report the original error instead.
        for writer in (self._writer, self._stored, *self._blobs.values()):
            with suppress(LakecoreError, OSError):
                if writer is not None:
                    writer.abort()

    def write(self, rows: pa.Table, chosen: np.ndarray, new: pa.Table) -> None:
        """Write `rows`; at the positions `chosen`, write the rows `new` instead.

        `rows` needs no BLOB columns.
        """
        new = self._stored.stored(new)
        if self._writer is not None:
            columns = self._columns
            self._writer.write(overlaid(rows.select(columns), chosen, new.select(columns)))
        for name, blobs in self._blobs.items():
            blobs.write_some(new.column(name), chosen, rows.num_rows)
        self._written += rows.num_rows

    def close(self) -> tuple[DataFile, ...]:
        """Close the files. Returns them, with the row ids of their rows."""
        first, count = self._rows_of.first_row_id or 0, self._rows_of.row_count
        if self._written != count:
            raise CorruptTable(
                "a file has other rows than the manifest says",
                file=self._rows_of.name,
                rows=self._written,
                expected=count,
            )
        self._stored.close()
        found = [
            replace(file, first_row_id=first, sequence_min=0, sequence_max=0)
            for file in (self._writer.close() if self._writer is not None else ())
        ]
        for blobs in self._blobs.values():
            blobs.end_file()
            at = first
            for file in blobs.files:
                found.append(replace(file, first_row_id=at))
                at += file.row_count
        self._is_done = True
        return tuple(found)


def overlaid(rows: pa.Table, chosen: np.ndarray, new: pa.Table) -> pa.Table:
    """The rows `rows`, replaced at the positions `chosen` by the rows `new`."""
    if not len(chosen):
        return rows
    places = np.arange(rows.num_rows)
    places[chosen] = rows.num_rows + np.arange(len(chosen))
    return pa.concat_tables([rows, new.cast(rows.schema)]).take(pa.array(places))
