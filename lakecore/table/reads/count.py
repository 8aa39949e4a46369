"""Counts rows from metadata if possible; otherwise reads as few columns as possible.

1. For a file that needs no merge, the count is the row count of its manifest entry, minus the rows
   that its deletion vector marks. Files that hold columns of the same rows are counted once.
2. For a section that needs a merge, only the key columns are read and merged.
3. For a condition, only the columns that it names are read.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from lakecore.frames import arrow_stream
from lakecore.model.types import is_blob
from lakecore.plan.row_ids import anchor_of
from lakecore.table.reads.fallback import FallbackSource
from lakecore.table.reads.source import TableSource

if TYPE_CHECKING:
    import polars as pl

    from lakecore.frames.source import BatchSource
    from lakecore.model.files import Split


def count_rows(rows: BatchSource, condition: pl.Expr | None) -> int:
    """The number of rows for which `condition` is true (None: of all rows)."""
    if condition is None and isinstance(rows, TableSource):
        return _merged(rows)
    if condition is None and isinstance(rows, FallbackSource):
        return sum(map(_merged, rows.sources()))
    return sum(batch.num_rows for batch in arrow_stream.reader(rows, [], condition))


def _merged(rows: TableSource) -> int:
    counted = 0
    unknown: list[Split] = []
    for split in rows.plan().splits:
        known = _stated(split, keyed=bool(rows.table_schema.primary_keys))
        if known is None:
            unknown.append(split)
        else:
            counted += known
    if not unknown:
        return counted
    schema = rows.table_schema
    small = [field.name for field in schema.fields if not is_blob(field.type)]
    column = next(iter(schema.trimmed_primary_keys or small))
    with closing(rows.read(unknown, rows.read_plan(unknown, [column]))) as batches:
        return counted + sum(int(batch.num_rows) for batch in batches)


def _stated(split: Split, *, keyed: bool) -> int | None:
    """The row count of a split that needs no merge; None if the metadata cannot give it."""
    vectors, row_count = split.vectors, split.row_count
    if not split.raw:
        if keyed:
            return None
        # All files of the split hold columns of the same rows.
        anchor = anchor_of(split.files).name
        vectors = {anchor: vectors[anchor]} if anchor in vectors else {}
        row_count = split.files[0].row_count
    marked = [vector.cardinality for _, vector in vectors.values()]
    deleted = [each for each in marked if each is not None]
    return row_count - sum(deleted) if len(deleted) == len(marked) else None
