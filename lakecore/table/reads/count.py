"""How many rows there are, without reading what the metadata knows.

1. A file that is read as it is has the rows that its manifest entry states, less those that its
   deletion vector marks.
2. Whatever must be merged is merged, by its keys alone.
3. A condition is evaluated on the columns that it names.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from lakecore.frames import arrow_stream
from lakecore.table.reads.source import TableSource

if TYPE_CHECKING:
    import polars as pl

    from lakecore.frames.source import BatchSource
    from lakecore.model.files import Split


def count_rows(rows: BatchSource, condition: pl.Expr | None) -> int:
    """The number of rows that match, of all without a condition, which looks at a row at a time."""
    if condition is None and isinstance(rows, TableSource):
        return _merged(rows)
    return sum(batch.num_rows for batch in arrow_stream.reader(rows, [], condition))


def _merged(rows: TableSource) -> int:
    counted = 0
    unknown: list[Split] = []
    for split in rows.plan().splits:
        known = _stated(split)
        if known is None:
            unknown.append(split)
        else:
            counted += known
    if not unknown:
        return counted
    schema = rows.table_schema
    column = next(iter(schema.trimmed_primary_keys or schema.names))
    with closing(rows.read(unknown, rows.read_plan(unknown, [column]))) as batches:
        return counted + sum(int(batch.num_rows) for batch in batches)


def _stated(split: Split) -> int | None:
    """The rows of a split that is read as it is; None if its metadata does not say."""
    if not split.raw:
        return None
    marked = [vector.cardinality for _, vector in split.vectors.values()]
    deleted = [each for each in marked if each is not None]
    return split.row_count - sum(deleted) if len(deleted) == len(marked) else None
