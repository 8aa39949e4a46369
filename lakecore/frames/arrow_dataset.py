"""A batch source as an Arrow dataset: DuckDB, Polars, Ray, Dask push columns and filters into it.

Filters come as Arrow expressions and are not applied again by who pushed them, so they are applied
exactly here. A scan that is given up (LIMIT) stops the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as pads

from lakecore.plan.predicate import from_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.compute as pc

    from lakecore.frames.source import BatchSource

_BATCH_ROWS = 131_072
_BATCHES_AHEAD = 2


class SourceScanner:
    """One scan: some columns of the rows that match a filter."""

    def __init__(
        self, source: BatchSource, columns: Sequence[str] | None, where: pc.Expression | None
    ) -> None:
        self._source = source
        self._columns = list(source.schema.names) if columns is None else list(columns)
        self._where = where
        self.projected_schema = pa.schema([source.schema.field(n) for n in self._columns])

    @property
    def dataset_schema(self) -> pa.Schema:
        """The schema of all columns."""
        return self._source.schema

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch."""
        source, where = self._source, self._where
        predicate = None if where is None else from_arrow(where, source.table_schema)
        asked = [] if where is None else _columns_of(where, source.schema)
        needed = list(dict.fromkeys([*self._columns, *asked]))
        files = source.native_files(needed, predicate)
        if files:
            schema = pa.schema([source.schema.field(name) for name in needed])
            scanner = pads.dataset(files, schema=schema, format="parquet").scanner(
                columns=self._columns,
                filter=where,
                batch_size=_BATCH_ROWS,
                batch_readahead=_BATCHES_AHEAD,
                fragment_readahead=1,
            )
            yield from scanner.to_batches()
            return
        if files is not None:
            return
        for batch in source.batches(needed, predicate):
            rows = batch if where is None else _filter(batch, where)
            if rows.num_rows:
                yield rows.select(self._columns)

    def to_table(self) -> pa.Table:
        """All rows in memory."""
        return self.to_reader().read_all()

    def count_rows(self) -> int:
        """How many rows match."""
        return sum(batch.num_rows for batch in self.to_batches())

    def head(self, num_rows: int) -> pa.Table:
        """The first rows that come."""
        rows: list[pa.RecordBatch] = []
        left = num_rows
        for batch in self.to_batches():
            if left <= 0:
                break
            rows.append(batch.slice(0, left))
            left -= batch.num_rows
        return pa.Table.from_batches(rows, schema=self.projected_schema)


class SourceDataset(pads.Dataset):
    """The rows of a source, to be scanned by any engine that takes Arrow datasets."""

    # NOTE: the parent's constructor is for its own subclasses in C++; it must not be called.
    def __init__(self, source: BatchSource) -> None:
        self._source = source

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of all columns."""
        return self._source.schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  Arrow's name
        **_tuning: object,
    ) -> SourceScanner:
        """A scan of some columns of the rows that match. Arrow's tuning arguments change nothing."""
        return SourceScanner(self._source, columns, filter)

    def to_batches(self, **arguments: object) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch; arguments as for `scanner`."""
        return self.scanner(**arguments).to_batches()  # type: ignore[arg-type]

    def to_table(self, **arguments: object) -> pa.Table:
        """The rows in memory; arguments as for `scanner`."""
        return self.scanner(**arguments).to_table()  # type: ignore[arg-type]

    def count_rows(self, **arguments: object) -> int:
        """How many rows match; arguments as for `scanner`."""
        return self.scanner(**arguments).count_rows()  # type: ignore[arg-type]

    def head(self, num_rows: int, **arguments: object) -> pa.Table:
        """The first rows that come; arguments as for `scanner`."""
        return self.scanner(**arguments).head(num_rows)  # type: ignore[arg-type]


def _filter(batch: pa.RecordBatch, where: pc.Expression) -> pa.RecordBatch:
    table = pa.Table.from_batches([batch]).filter(where)
    return table.combine_chunks().to_batches()[0] if table.num_rows else batch.slice(0, 0)


def _columns_of(where: pc.Expression, schema: pa.Schema) -> list[str]:
    """The columns that a filter may ask for: by its text, so rather one too many."""
    text = str(where)
    return [name for name in schema.names if name in text]
