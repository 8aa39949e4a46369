"""`$binlog`: the rows of `$audit_log` with each column as a list.

https://paimon.apache.org/docs/master/concepts/system-tables/#binlog-table

Each list has one value. Where the table shows changes, an update is one row of kind +U whose lists
have two values: before and after. Its sequence number is that of the old row.

A catalog may filter and mask the rows of `$audit_log`, which are packed here. If it hides one row
of an update, the other one is refused: alone, it would look like a row that is no update.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import Unsupported
from lakecore.frames.source import CheckedSource, reading
from lakecore.model.rows import KEY_PREFIX, SEQUENCE_NUMBER
from lakecore.model.types import Array, with_nullable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.frames.source import RowSource
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate

__all__ = ["KIND", "UPDATE", "UPDATE_ID", "BinlogSource"]

KIND = "rowkind"
UPDATE = f"{KEY_PREFIX}UPDATE"
"""The column that numbers the updates of a batch: -1 for a row that is not part of one."""
UPDATE_ID = 2_147_483_600


@dataclass(frozen=True, kw_only=True)
class BinlogSource:
    """The rows of `images` as lists. `images` has the columns of `$audit_log`, and `UPDATE`."""

    images: RowSource
    table: str

    @cached_property
    def table_schema(self) -> TableSchema:
        """The columns, as a schema."""
        schema = self.images.table_schema
        fields = tuple(
            field
            if field.name in (KIND, SEQUENCE_NUMBER)
            else replace(field, type=Array(element=with_nullable(field.type, nullable=True)))
            for field in schema.fields
            if field.name != UPDATE
        )
        return replace(schema, fields=fields)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of all columns."""
        return self.table_schema.arrow

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in batches of the requested columns, in the order of the changes.

        The predicate prunes nothing. `limit` is exact without a predicate. Raises Unsupported if
        one row of an update is hidden.
        """
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        wanted = list(dict.fromkeys((UPDATE, KIND, *names)))
        left = limit if predicate is None else None
        with reading(self.images.batches(wanted)) as found:
            for batch in found:
                rows = self._packed(batch, schema)
                if left is not None and rows.num_rows >= left:
                    yield rows.slice(0, left)
                    return
                left = None if left is None else left - rows.num_rows
                yield rows

    def check_files(self) -> None:
        """Raise Unsupported for a rule of the catalog that is not known."""
        if isinstance(self.images, CheckedSource):
            self.images.check_files()

    def engine_files(self, columns: Sequence[str], predicate: Predicate | None = None) -> None:
        """Always None: files store no lists."""
        del columns, predicate

    def _packed(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        numbers = batch.column(UPDATE).to_numpy(zero_copy_only=False)
        second = np.append([False], (numbers[1:] == numbers[:-1]) & (numbers[1:] >= 0))
        starts = np.flatnonzero(~second[: len(numbers)])
        ends = np.append(starts[1:], len(numbers)) - 1 if len(starts) else starts
        if ((numbers[starts] >= 0) & (starts == ends)).any():
            raise Unsupported(
                "the catalog hides one row of an update, and a row of $binlog holds both; read "
                "$audit_log, which has a row for each",
                table=self.table,
            )
        columns = []
        for field in schema:
            column = batch.column(field.name)
            if field.name == KIND:
                columns.append(column.take(pa.array(ends)))
            elif field.name == SEQUENCE_NUMBER:
                columns.append(column.take(pa.array(starts)))
            else:
                offsets = pa.array(np.append(starts, len(numbers)), pa.int32())
                columns.append(pa.ListArray.from_arrays(offsets, column, type=field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)
