"""Joins files that hold different columns of the same rows, by position.

https://paimon.apache.org/docs/master/append-table/data-evolution/

A column that no file holds is null. In a read of a state, such a column was added after the rows
were written. In a read of changes, the snapshots did not write the column.

INVARIANT: no row is dropped before the files are joined, because a row has the same position in
each of them.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import CorruptTable
from lakecore.model.blob_rules import in_blob_files
from lakecore.model.rows import TRACKING_FIELDS
from lakecore.model.types import arrow_schema, arrow_type
from lakecore.plan.row_ids import BLOB, anchor_of, columns_of_file, rows_of
from lakecore.table.splits.blob_column import BlobColumn
from lakecore.table.stored_rows.kept_rows import KeptRows
from lakecore.table.stored_rows.known_values import partition_values
from lakecore.table.stored_rows.late_casts import late_casts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from lakecore.io.files.data_files import BatchSize
    from lakecore.model.files import DataFile
    from lakecore.model.types import Field
    from lakecore.table.stored_rows.read_plan import ReadPlan
    from lakecore.table.stored_rows.split_files import SplitFiles


def joined_rows(
    files: SplitFiles, fields: Sequence[Field], size: BatchSize
) -> Iterator[tuple[np.ndarray | range, pa.RecordBatch]]:
    """The rows of a split whose files hold columns of the same rows, the newest file first.

    Each batch has the positions of its rows, unless the plan has a row filter. Rows that a deletion
    vector marks are dropped, and then values are cast. Raises CorruptTable if no file has a column
    that is NOT NULL.
    """
    group = files.split.files
    late = late_casts(group, fields, files.plan.schemas)
    late = replace(late, row_filter=files.plan.row_filter)
    files, fields = replace(files, late=late), (*fields, *late.fields)
    sources = _sources(files, fields)
    partition = partition_values(files.split, files.plan.schema, fields)
    deleted = files.deleted_rows(anchor_of(group)) if files.split.vectors else None
    kept = KeptRows(deleted, None)
    schema, position = arrow_schema(fields), 0
    with ExitStack() as open_files:
        readers: dict[str, _Reader | BlobColumn] = {}
        for file in (each for each in group if each.format != BLOB):
            own = [field for field in fields if sources.get(field.name) == file.name]
            if own or (not sources and not readers):
                rows = files.stored_rows(file, own, size, row_groups=None)
                readers[file.name] = _Reader(open_files.enter_context(closing(rows)))
        for field in fields:
            if field.name in sources and _has_blob_files(files, field):
                blobs = [f for f in group if f.format == BLOB and field.id in _ids(files.plan, f)]
                column = BlobColumn(files, field, blobs, size)
                readers[field.name] = open_files.enter_context(closing(column))
        if not readers:
            readers[""] = _Reader(_without_columns(len(rows_of(group)), size))
        while (count := min(reader.ready for reader in readers.values())) > 0:
            parts = {name: reader.take(count) for name, reader in readers.items()}
            columns = [
                parts[sources[field.name]].column(field.name)
                if field.name in sources
                else _repeated(partition.get(field.name), count, field)
                for field in fields
            ]
            batch = (
                pa.RecordBatch.from_arrays(columns, schema=schema)
                if columns
                else next(iter(parts.values())).select([])
            )
            places, batch = kept.of(batch, position)
            position += count
            for rows in late.cast(pa.Table.from_batches([batch])).to_batches() if late else [batch]:
                yield places[: rows.num_rows], rows
                places = places[rows.num_rows :]
                del rows
            del batch, parts, columns
        if position != len(rows_of(group)):
            raise CorruptTable(
                "files that hold the same rows end at different rows", files=list(readers)
            )


def _repeated(value: pa.Scalar | None, count: int, field: Field) -> pa.Array:
    kind = arrow_type(field.type)
    return pa.nulls(count, kind) if value is None else pa.repeat(value, count).cast(kind)


def _sources(files: SplitFiles, fields: Sequence[Field]) -> dict[str, str]:
    """For each column, the name of the reader that provides it: a file, or a BLOB column.

    Columns without a reader are null.
    """
    held = [(file, _ids(files.plan, file)) for file in files.split.files]
    found: dict[str, str] = {}
    for field in fields:
        holder = next((file for file, ids in held if field.id in ids), None)
        if holder is not None:
            found[field.name] = field.name if _has_blob_files(files, field) else holder.name
        elif not field.nullable and field.name not in files.plan.schema.partition_keys:
            raise CorruptTable(
                "no file holds a column that is NOT NULL",
                column=field.name,
                files=[file.name for file, _ in held],
            )
    return found


def _has_blob_files(files: SplitFiles, field: Field) -> bool:
    return in_blob_files(field, files.plan.schema, files.plan.options)


def _ids(plan: ReadPlan, file: DataFile) -> frozenset[int]:
    """The ids of the columns that a file provides.

    Any file provides row ids and sequence numbers.
    """
    stored = columns_of_file(file, plan.schemas[file.schema_id])
    return frozenset(field.id for field in (*stored, *TRACKING_FIELDS))


def _without_columns(count: int, size: BatchSize) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of `count` rows without columns, with the position of their first row."""
    for at in range(0, count, size.rows):
        nothing = pa.nulls(min(size.rows, count - at))
        yield at, pa.RecordBatch.from_arrays([nothing], ["_"]).select([])


class _Reader:
    """A reader of a file, which returns a requested number of rows at a time."""

    def __init__(self, batches: Iterator[tuple[int, pa.RecordBatch]]) -> None:
        self._batches = batches
        self._waiting: deque[pa.RecordBatch] = deque()

    @property
    def ready(self) -> int:
        """The number of rows that can be taken at once; 0 at the end of the file."""
        while not self._waiting:
            _, batch = next(self._batches, (0, None))
            if batch is None:
                return 0
            if batch.num_rows:
                self._waiting.append(batch)
        return int(self._waiting[0].num_rows)

    def take(self, count: int) -> pa.RecordBatch:
        """The next `count` rows; the caller has read `ready`, which is at least `count`."""
        batch = self._waiting.popleft()
        if batch.num_rows > count:
            self._waiting.appendleft(batch.slice(count))
        return batch.slice(0, count)
