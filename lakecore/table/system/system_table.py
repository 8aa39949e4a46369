"""A `$` table: metadata rows of a table, read like any other table and never written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from lakecore.errors import InvalidRequest
from lakecore.frames import arrow_dataset, arrow_stream, duckdb_face, polars_source
from lakecore.frames.source import checked_columns, checked_limit
from lakecore.table.reads.row_values import as_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from lakecore.frames.duckdb_face import DuckDBConnection, DuckDBRelation
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate

__all__ = ["SystemSource", "SystemTable"]

_VERBS = (
    "scan",
    "to_batches",
    "to_arrow",
    "to_polars",
    "to_pandas",
    "to_arrow_dataset",
    "to_duckdb",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSource:
    """The rows of a system table as a source of batches, made anew for each reader."""

    table_schema: TableSchema
    load: Callable[[], pa.Table]

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
        """The rows in batches of the columns asked for. The predicate leaves nothing out."""
        rows = self.load()
        if limit is not None and predicate is None:
            rows = rows.slice(0, limit)
        yield from rows.select(self.schema.names if columns is None else list(columns)).to_batches()

    def native_files(
        self, columns: Sequence[str], predicate: Predicate | None = None
    ) -> list[str] | None:
        """None: the rows are in no file."""
        del columns, predicate
        return None


class SystemTable:
    """The reading verbs of a table, over rows of metadata, as they are at each read."""

    def __init__(self, identifier: str, source: SystemSource) -> None:
        self.identifier = identifier
        self._source = source

    @property
    def schema(self) -> TableSchema:
        """The columns, as a schema."""
        return self._source.table_schema

    def __repr__(self) -> str:
        return f"SystemTable({self.identifier!r})"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # protocols ask this way whether an object takes part
            raise AttributeError(name)
        raise InvalidRequest(
            "a system table can only be read", table=self.identifier, verb=name, verbs=_VERBS
        )

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: pl.Expr | str | None = None,
        limit: int | None = None,
        **when: object,
    ) -> pl.LazyFrame:
        """The rows as a lazy Polars frame. `where` is a Polars expression or an SQL condition."""
        self._check(when)
        frame = polars_source.scan(self._source)
        if where is not None:
            frame = frame.filter(as_filter(where, self.schema))
        if columns is not None:
            frame = polars_source.select(frame, self._known(columns))
        most = checked_limit(limit)
        return frame if most is None else frame.head(most)

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        where: pl.Expr | str | None = None,
        limit: int | None = None,
        **when: object,
    ) -> pa.RecordBatchReader:
        """The rows as a stream of Arrow batches. Arguments as for `scan`."""
        self._check(when)
        expression = None if where is None else as_filter(where, self.schema)
        names = None if columns is None else self._known(columns)
        return arrow_stream.reader(self._source, names, expression, limit)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: pl.Expr | str | None = None,
        limit: int | None = None,
        **when: object,
    ) -> pa.Table:
        """The rows as an Arrow table. Arguments as for `scan`."""
        return self.to_batches(columns, where, limit, **when).read_all()

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        where: pl.Expr | str | None = None,
        limit: int | None = None,
        **when: object,
    ) -> pl.DataFrame:
        """The rows as a Polars frame. Arguments as for `scan`."""
        return self.scan(columns, where, limit, **when).collect()

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        where: pl.Expr | str | None = None,
        limit: int | None = None,
        **when: object,
    ) -> pd.DataFrame:
        """The rows as a pandas frame (pandas must be installed). Arguments as for `scan`."""
        return self.to_arrow(columns, where, limit, **when).to_pandas()

    def to_arrow_dataset(self, **when: object) -> arrow_dataset.SourceDataset:
        """The rows as an Arrow dataset."""
        self._check(when)
        return arrow_dataset.SourceDataset(self._source)

    def to_duckdb(
        self, connection: DuckDBConnection | None = None, **when: object
    ) -> DuckDBRelation:
        """The rows as a DuckDB relation, on the connection given or DuckDB's default one."""
        self._check(when)
        return duckdb_face.relation(self._source, connection)

    def _known(self, columns: Sequence[str]) -> list[str]:
        return checked_columns(columns, self.schema)

    def _check(self, when: Mapping[str, object]) -> None:
        named = [name for name, value in when.items() if value is not None]
        if named:
            raise InvalidRequest(
                "a system table tells of now; that of a table's copy with scan options "
                "(table.copy(...).inspect) tells of then",
                table=self.identifier,
                arguments=named,
            )
