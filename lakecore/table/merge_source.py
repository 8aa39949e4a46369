"""The source of a MERGE: rows from anywhere, which are looked at more than once.

They are held in memory under a lease of the budget. What does not fit goes to local disk as it
comes, and is merged part after part: a part is what the hash of the `on` columns says, on both
sides alike, so that a row finds all its partners within its part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.frames.incoming import incoming_batches
from lakecore.frames.polars_source import to_frame
from lakecore.io.spill import SpillDirectory
from lakecore.model.types import with_nullable
from lakecore.plan.fit import Place, fit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from lakecore.io.spill import SpilledRun
    from lakecore.memory import Budget
    from lakecore.model.types import Field

SHARE = 8
"""The part of the budget, as a divisor, that one part of a source takes."""
_UNLEASED_BYTES = 1 << 20


class MergeSource:
    """The rows of a source, taken in whole; a context manager that gives back what holds them.

    Columns of `on` have the types of the table's columns, which is what they are compared in.
    """

    def __init__(self, data: object, on: Sequence[Field], budget: Budget) -> None:
        self._on = on
        self._budget = budget
        self._limit = budget.size_bytes // SHARE
        self._lease = budget.acquire(0)
        self._spills = SpillDirectory()
        self._runs: list[SpilledRun] = []
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._spilled_bytes = 0
        self._rows = 0
        self.schema = pa.schema([])
        try:
            for batch in incoming_batches(data):
                self._take(batch)
            if self._runs:
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
        """How many parts there are; 1 if memory holds all rows."""
        return -(-self._spilled_bytes // max(1, self._limit)) if self._runs else 1

    def part(self, number: int) -> pa.Table:
        """The rows of a part, as columns of `schema`."""
        if not self._runs:
            return self._joined(self._held)
        found = []
        for run in self._runs:
            for batch in self._spills.read(run):
                rows = pa.Table.from_batches([batch])
                found.append(in_part(rows, self._names, number, self.part_count))
        return self._joined(found)

    def close(self) -> None:
        """Give back memory and disk."""
        self._held = []
        self._spills.close()
        self._lease.release()

    @property
    def _names(self) -> list[str]:
        return [field.name for field in self._on]

    def _take(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidRequest("the source has columns of the same name", columns=twice)
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
            self._runs.append(self._spills.write(rows.schema, [rows], 0, 0))
            self._spilled_bytes += self._held_bytes
        self._held, self._held_bytes = [], 0
        self._lease.resize(0)

    def _joined(self, tables: list[pa.Table]) -> pa.Table:
        empty = self.schema.empty_table()
        return pa.concat_tables([empty, *tables], promote_options="permissive").combine_chunks()


def in_part(rows: pa.Table, on: Sequence[str], number: int, count: int) -> pa.Table:
    """The rows of one of so many parts."""
    if count == 1:
        return rows
    hashes = to_frame(rows.select(on)).select(pl.struct(pl.all()).hash(seed=0) % count == number)
    return rows.filter(hashes.to_series().to_arrow())


def _without_views(rows: pa.Table) -> pa.Table:
    """The same values, laid out so that Arrow can take some of them, which it cannot of views."""
    if not any("view" in str(kind) for kind in rows.schema.types):
        return rows
    return to_frame(rows).to_arrow(compat_level=pl.CompatLevel.oldest())
