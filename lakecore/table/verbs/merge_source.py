"""The source of a MERGE: rows of any origin, held so that they can be read more than once.

The rows are held in memory under a lease of the budget. If they do not fit, they are written to
local disk and merged in parts (`row_parts.py`). The hash of the `on` columns determines the part of
a row on both sides, so a row and its matches are in parts of the same number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.frames.arrow_frames import to_frame
from lakecore.frames.incoming import incoming_batches
from lakecore.model.types import with_nullable
from lakecore.rows.fit import Place, fit
from lakecore.table.verbs.row_parts import FAN, RowParts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from lakecore.memory import Budget
    from lakecore.model.types import Field

SHARE = 8
"""One part of a source takes the budget divided by this."""
_UNLEASED_BYTES = 1 << 20
_HELD_BYTES_MAX = 1 << 30  # Arrow counts string bytes in 32 bits when it reorders rows


class MergeSource:
    """All rows of a source; a context manager that releases their memory and disk.

    Without `on` columns, rows are assigned to arbitrary parts; callers then accept only one part.
    The `on` columns are cast to the types of the table's columns for the comparison.
    """

    def __init__(
        self, data: object, on: Sequence[Field], budget: Budget, *, columns: Sequence[Field] = ()
    ) -> None:
        """`columns` are those of the table: their types decide how Python values are read."""
        self._on = on
        self._budget = budget
        self._limit = min(budget.size_bytes // SHARE, _HELD_BYTES_MAX)
        self._lease = budget.acquire(0)
        self._spilled = RowParts([field.name for field in on], nulls_anywhere=True)
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._spilled_bytes = 0
        self._rows = 0
        self.schema = pa.schema([])
        try:
            for batch in incoming_batches(data, columns, bytes_max=self._limit):
                self._take(batch)
            if self._spilled:
                self._spill()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def part_count(self) -> int:
        """The number of parts; 1 if all rows are in memory."""
        if not self._spilled:
            return 1
        return min(FAN, -(-self._spilled_bytes // max(1, self._limit)))

    def part(self, number: int) -> pa.Table:
        """The rows of a part, with the columns of `schema`."""
        if not self._spilled:
            return self._joined(self._held)
        rows = self._joined(list(self._spilled.part(number, self.part_count)))
        self._lease.resize(rows.nbytes)
        return rows

    def close(self) -> None:
        """Release memory and disk."""
        self._held = []
        self._spilled.close()
        self._lease.release()

    def _take(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        for field in self._on:
            at = batch.schema.get_field_index(field.name)
            if at < 0:
                raise InvalidRequest(
                    "the source lacks a column to merge on", column=field.name, columns=names
                )
            place = Place(column=f"source.{field.name}", first_row=self._rows)
            fitted = fit(batch.column(at), with_nullable(field.type, nullable=True), place)
            batch = batch.set_column(at, field.name, fitted)
        self._rows += batch.num_rows
        rows = _without_views(pa.Table.from_batches([batch]))
        try:
            self.schema = pa.unify_schemas(
                [self.schema, rows.schema], promote_options="permissive"
            ).remove_metadata()
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidRequest(
                "the parts of the source have different types", cause=error
            ) from error
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        fits = self._held_bytes <= self._limit and self._lease.resize(self._held_bytes)
        if not fits and self._held_bytes > min(_UNLEASED_BYTES, self._limit):
            self._spill()

    def _spill(self) -> None:
        if self._held:
            rows = pa.concat_tables(self._held, promote_options="permissive")
            self._spilled.add(rows)
            self._spilled_bytes += self._held_bytes
        self._held, self._held_bytes = [], 0
        self._lease.resize(0)

    def _joined(self, tables: list[pa.Table]) -> pa.Table:
        empty = self.schema.empty_table()
        return pa.concat_tables([empty, *tables], promote_options="permissive").combine_chunks()


def _without_views(rows: pa.Table) -> pa.Table:
    """The same values in types without views, because Arrow's `take` refuses views."""
    if not any("view" in str(kind) for kind in rows.schema.types):
        return rows
    return to_frame(rows).to_arrow(compat_level=pl.CompatLevel.oldest())
