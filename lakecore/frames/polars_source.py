"""A batch source as a lazy Polars frame: columns, filters and limits reach the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from lakecore.plan.predicate import from_polars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.frames.source import BatchSource


def scan(source: BatchSource) -> pl.LazyFrame:
    """The rows of a source as a lazy frame; nothing is read before it is collected."""
    schema = polars_schema(source.schema)

    def read(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        _batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        columns = list(source.schema.names) if with_columns is None else with_columns
        left = n_rows
        for frame in _frames(source, columns, predicate, n_rows):
            if left is None:
                yield frame
                continue
            yield frame.head(left)
            left -= frame.height
            if left <= 0:
                return

    return register_io_source(io_source=read, schema=schema)


def polars_schema(schema: pa.Schema) -> pl.Schema:
    """The Polars twins of Arrow columns."""
    return to_frame(pa.Table.from_batches([], schema=schema)).schema


def to_frame(rows: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    """Arrow rows as a Polars frame; what both hold alike is not copied."""
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _frames(
    source: BatchSource, columns: list[str], predicate: pl.Expr | None, limit: int | None
) -> Iterator[pl.DataFrame]:
    pruning = None if predicate is None else from_polars(predicate, source.table_schema)
    files = source.native_files(columns, pruning)
    if files is not None:
        wanted = polars_schema(pa.schema([source.schema.field(name) for name in columns]))
        if not files:
            return
        frame = pl.scan_parquet(files, glob=False).select(columns).cast(dict(wanted))
        if predicate is not None:
            frame = frame.filter(predicate)
        if limit is not None:
            frame = frame.head(limit)
        yield from frame.collect_batches(maintain_order=False)
        return
    for batch in source.batches(columns, pruning, limit if predicate is None else None):
        rows = to_frame(batch)
        yield rows if predicate is None else rows.filter(predicate)
