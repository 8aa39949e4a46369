"""A batch source that filters the batches of another source by a condition.

It evaluates conditions that Polars cannot express (SQL strings). Every read method accepts a batch
source, so every one can use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from lakecore.frames.source import needed, reading
from lakecore.plan.predicate import all_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.frames.source import BatchSource, EngineFile
    from lakecore.plan.predicate import Predicate


class RowCondition(Protocol):
    """A condition on one row at a time."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the condition reads."""
        ...

    @property
    def predicate(self) -> Predicate:
        """The part of the condition that pruning can use."""
        ...

    def mask(self, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        """For each row, whether the condition is true; never null."""
        ...


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

    def engine_files(
        self,
        columns: Sequence[str],
        predicate: Predicate | None = None,
    ) -> list[EngineFile] | None:
        """Always None: an engine's own reader would not apply the condition."""
        del columns, predicate
        return None


def one_array(mask: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The mask as one array, because the filter of a record batch does not take chunks."""
    if not isinstance(mask, pa.ChunkedArray):
        return mask
    if mask.num_chunks == 1:
        return mask.chunk(0)
    return pa.concat_arrays(mask.chunks) if mask.num_chunks else pa.array([], mask.type)
