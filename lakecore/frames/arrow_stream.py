"""A batch source as a stream of Arrow batches, filtered exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from lakecore.frames.polars_source import to_frame
from lakecore.plan.predicate import from_polars

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.frames.source import BatchSource


def reader(
    source: BatchSource,
    columns: Sequence[str] | None = None,
    where: pl.Expr | None = None,
    limit: int | None = None,
) -> pa.RecordBatchReader:
    """The rows that match, in the source's Arrow types. Memory follows the batch."""
    names = list(source.schema.names) if columns is None else list(columns)
    schema = pa.schema([source.schema.field(name) for name in names])
    batches = _limited(_matching(source, names, where, limit), limit)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _matching(
    source: BatchSource, names: list[str], where: pl.Expr | None, limit: int | None
) -> Iterator[pa.RecordBatch]:
    if where is None:
        yield from source.batches(names, None, limit)
        return
    asked = where.meta.root_names()
    needed = list(dict.fromkeys([*names, *asked]))
    for batch in source.batches(needed, from_polars(where, source.table_schema)):
        mask = to_frame(batch.select(asked)).select(where.alias("mask")).to_series()
        if len(mask) != batch.num_rows:  # a condition without columns is one value
            mask = pl.Series([bool(mask[0])]).new_from_index(0, batch.num_rows)
        yield batch.select(names).filter(mask.fill_null(value=False).to_arrow())


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    if limit is None:
        yield from batches
        return
    left = limit
    for batch in batches:
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows
