"""The row ids and sequence numbers of rows in a table with row tracking.

https://paimon.apache.org/docs/master/append-table/row-tracking/

A rewritten file holds both as columns. If a file lacks these columns, or a value is null, the
manifest determines the value: a row id is the first row id of the file plus the position of the
row, and the sequence number is the largest of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable
from lakecore.model.rows import ROW_ID, SEQUENCE_NUMBER

if TYPE_CHECKING:
    from lakecore.model.files import DataFile


def with_tracking(batch: pa.RecordBatch, file: DataFile, position: int) -> pa.RecordBatch:
    """The batch with row ids and sequence numbers filled in; its first row is at `position`.

    Raises CorruptTable if a row has no id.
    """
    for name in (ROW_ID, SEQUENCE_NUMBER):
        at = batch.schema.get_field_index(name)
        if at < 0 or not batch.column(at).null_count:
            continue
        values = pc.coalesce(batch.column(at), _of_manifest(name, file, position, batch.num_rows))
        batch = batch.set_column(at, batch.schema.field(at), values)
    return batch


def _of_manifest(name: str, file: DataFile, position: int, count: int) -> pa.Array:
    if name == SEQUENCE_NUMBER:
        return pa.repeat(pa.scalar(file.sequence_max, pa.int64()), count)
    if file.first_row_id is None:
        raise CorruptTable("rows of a file have no ids", file=file.name)
    first = file.first_row_id + position
    return pa.array(np.arange(first, first + count, dtype=np.int64))
