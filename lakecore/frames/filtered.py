"""A batch source that filters the batches of another source by a condition.

The source evaluates conditions that Polars cannot express (SQL strings). Every read method accepts
a batch source, so every one can use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import polars as pl
import pyarrow as pa

from lakecore.forks import with_threads
from lakecore.frames.arrow_frames import to_frame
from lakecore.frames.polars_source import no_value
from lakecore.frames.source import BatchSource, checked_limit, needed, reading
from lakecore.plan.predicate import Predicate, all_of, from_polars

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class RowCondition(Protocol):
    """A condition on one row at a time."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the condition reads."""

    @property
    def predicate(self) -> Predicate:
        """The part of the condition that pruning can use."""

    def mask(self, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        """For each row, whether the condition is true; never null."""


@dataclass(frozen=True, slots=True)
class FilteredSource:
    """The rows of a source for which a condition is true."""

    source: BatchSource
    condition: RowCondition

    @property
    def schema(self) -> pa.Schema:
        """The schema of all columns."""
        return self.source.schema

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The columns (None: all) of the rows that match the condition.

        Rows that the predicate rules out may be missing. With a predicate, the limit is ignored.
        """
        own = self.condition.predicate
        names = needed(self.schema, columns, self.condition.columns)
        wanted = self.schema.names if columns is None else list(columns)
        both = own if predicate is None else all_of((own, predicate))
        left = limit if predicate is None else None
        if left == 0:
            return
        with reading(self.source.batches(names, both)) as batches:
            for batch in batches:
                kept = batch.filter(one_array(self.condition.mask(pa.Table.from_batches([batch]))))
                if left is not None:
                    kept = kept.slice(0, left)
                    left -= kept.num_rows
                if kept.num_rows:
                    yield kept.select(wanted)
                if left == 0:
                    return
                # A row may be large: the next batch is read without this one in memory.
                del batch, kept


def one_array(mask: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The mask as one array, because the filter of a record batch does not take chunks."""
    if not isinstance(mask, pa.ChunkedArray):
        return mask
    if mask.num_chunks == 1:
        return mask.chunk(0)
    return pa.concat_arrays(mask.chunks) if mask.num_chunks else pa.array([], mask.type)


# --- arrow stream --------------------------------------------------------------------------------
# A batch source as a stream of record batches, for any reader of Arrow.

_MATCHES = "matches"


def reader(
    source: BatchSource,
    columns: Sequence[str] | None = None,
    where: pl.Expr | None = None,
    limit: int | None = None,
) -> pa.RecordBatchReader:
    """The matching rows as a stream. Reading stops at the limit, and when the stream is dropped."""
    limit = checked_limit(limit)
    names = source.schema.names if columns is None else list(columns)
    schema = pa.schema([source.schema.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(
        schema, with_threads(_batches(source, names, where, limit))
    )


def _batches(
    source: BatchSource, columns: list[str], where: pl.Expr | None, limit: int | None
) -> Iterator[pa.RecordBatch]:
    if limit == 0:
        return
    names = needed(source.schema, columns, [] if where is None else _named(where, source.schema))
    pruner = None if where is None else from_polars(where, source.schema)
    left = limit
    with reading(source.batches(names, pruner, limit if where is None else None)) as batches:
        for batch in batches:
            kept = batch if where is None else batch.filter(_mask(batch, where))
            if left is not None:
                kept = kept.slice(0, left)
                left -= kept.num_rows
            if kept.num_rows:
                yield kept.select(columns)
            if left == 0:
                return
            # A row may be large: free this one before the next one is read.
            del batch, kept


def _named(where: pl.Expr, schema: pa.Schema) -> list[str]:
    """The columns that a condition reads. All columns if it has a selector."""
    return schema.names if where.meta.has_multiple_outputs() else where.meta.root_names()


def _mask(batch: pa.RecordBatch, where: pl.Expr) -> pa.Array:
    """A mask of the matching rows.

    If the condition has several columns, all must be true, as in Polars.
    """
    frame = to_frame(batch)
    # A condition without columns has one value; the added column repeats it for each row.
    try:
        mask = frame.with_columns(pl.all_horizontal(where).alias(_MATCHES)).get_column(_MATCHES)
    except pl.exceptions.PolarsError as error:
        raise no_value(where, error) from error
    return mask.to_arrow()
