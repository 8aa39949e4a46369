"""What can be read, a table or its metadata: the faces of a read, once for all of them.

Whoever is readable says which rows a state of it has (`_rows`); everything else follows here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from lakecore.display import CELL_MAX, one_line, pairs_html, pairs_text, public_names
from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.frames import arrow_dataset, arrow_stream, duckdb_face, pandas_face, polars_source
from lakecore.frames.filtered import FilteredSource
from lakecore.frames.source import checked_columns, checked_limit
from lakecore.model.schema import TableSchema
from lakecore.table.context import TableContext
from lakecore.table.reads.count import count_rows
from lakecore.table.reads.row_values import (
    filtered,
    local_setting,
    parse_condition,
    row_filtered,
    setting_of,
)
from lakecore.table.reads.travel import Travel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from lakecore.frames.duckdb_face import DuckDBConnection, DuckDBRelation
    from lakecore.frames.source import BatchSource, RowSource
    from lakecore.model.times import Time
    from lakecore.scalar.values import Setting


class Readable(ABC):
    """The verbs that read. Each takes the state to read in one way at most; none is the latest."""

    @abstractmethod
    def _facts(self) -> list[tuple[str, object]]:
        """What is known of it without reading: names and their values, the identifier first."""

    @property
    @abstractmethod
    def schema(self) -> TableSchema:
        """The columns that a read gives."""

    @abstractmethod
    def _rows(self, at: Travel) -> RowSource:
        """The rows of a state."""

    def scan(
        self,
        columns: Sequence[str] | str | None = None,
        where: pl.Expr | str | None = None,
        limit: int | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
    ) -> pl.LazyFrame:
        """The rows of the latest snapshot (or the one named) as a lazy Polars frame.

        Columns, filters and limits of the query built on it reach the files. The snapshot is
        chosen now; nothing is read before the frame is collected. The order of rows is not defined.

        - `columns`: their names, or one name; None for all, in the order of the schema.
        - `where`: a Polars expression, or the text of an SQL condition in DuckDB's dialect, which
          keeps the rows for which DuckDB's WHERE is true. It sees the columns of one row: no
          queries, aggregates, window functions, chance or files.
        - `snapshot_id`, `tag` or `timestamp`: the state to read, with the schema of then. A
          timestamp (datetime, date, ISO 8601 text, milliseconds) stands for the newest snapshot of
          then (https://paimon.apache.org/docs/master/concepts/snapshot/).

        Raises InvalidRequest, naming the known ones, for an unknown column, and for a condition
        that does not parse or fit; Unsupported for what a condition cannot hold; NotFound for a
        state that is not there.

            table.scan(["id"], "price > 10").collect()
        """
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        return lazy(self._rows(at), columns, where, limit)

    def to_batches(
        self,
        columns: Sequence[str] | str | None = None,
        where: pl.Expr | str | None = None,
        limit: int | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
    ) -> pa.RecordBatchReader:
        """The rows as a stream of Arrow batches; memory follows the batch, not the table.

        The arguments are those of `scan`; `where` looks at one row at a time.
        """
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        return _stream(self._rows(at), columns, where, limit)

    def to_arrow(
        self,
        columns: Sequence[str] | str | None = None,
        where: pl.Expr | str | None = None,
        limit: int | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
    ) -> pa.Table:
        """The rows as an Arrow table, in the types of `schema.arrow`. Arguments as for `scan`."""
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        return _stream(self._rows(at), columns, where, limit).read_all()

    def to_polars(
        self,
        columns: Sequence[str] | str | None = None,
        where: pl.Expr | str | None = None,
        limit: int | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
    ) -> pl.DataFrame:
        """The rows as a Polars frame. Arguments as for `scan`."""
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        frame = lazy(self._rows(at), columns, where, limit)
        return polars_source.collect(frame, lambda: self._rows(at), where)

    def to_pandas(
        self,
        columns: Sequence[str] | str | None = None,
        where: pl.Expr | str | None = None,
        limit: int | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
    ) -> pd.DataFrame:
        """The rows as a pandas frame that changes no value. Arguments as for `scan`.

        A column has the dtype of NumPy, or pandas' own for text, that holds its values: int8 to
        int64, float32 and float64 (null is NaN), bool, datetime64, str. Integers and booleans with
        nulls are `Int8` to `Int64` and `boolean`. DECIMAL, DATE, TIME, binary and nested columns,
        and floats that hold nulls and NaN, are Arrow-backed (`pandas.ArrowDtype`).

        Raises Unsupported unless pandas is installed.
        """
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        return pandas_face.to_pandas(_stream(self._rows(at), columns, where, limit).read_all())

    def to_arrow_dataset(
        self,
        where: pl.Expr | str | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
    ) -> arrow_dataset.SourceDataset:
        """The rows as an Arrow dataset, into which DuckDB and others push columns and filters.

        Its own methods, DuckDB, Polars and `pyarrow.dataset.write_dataset` read it. Unions and
        joins of pyarrow do not, and say so: rows of several files become one. `where` as for
        `to_batches`.
        """
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        return arrow_dataset.SourceDataset(_matching(self._rows(at), where))

    def to_duckdb(
        self,
        connection: DuckDBConnection | None = None,
        where: pl.Expr | str | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
    ) -> DuckDBRelation:
        """The rows as a DuckDB relation, on the connection given or DuckDB's default one.

        `where` as for `to_batches`; the relation can be filtered as well.
        """
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        return duckdb_face.relation(_matching(self._rows(at), where), connection)

    def head(
        self,
        n: int = 10,
        columns: Sequence[str] | str | None = None,
        where: pl.Expr | str | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
    ) -> pl.DataFrame:
        """The first `n` rows that a read comes to, as a Polars frame; no order is defined.

        Reading stops there. The other arguments are those of `scan`; `where` looks at one row at a
        time.

            table.head(3)
        """
        if checked_limit(n) is None:
            raise InvalidRequest("head takes a number of rows; to_polars() gives all", n=n)
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        reader = _stream(self._rows(at), columns, where, n)
        polars_source.check_once(reader.schema.names)
        return polars_source.to_frame(reader.read_all())

    def count(
        self,
        where: pl.Expr | str | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
    ) -> int:
        """The number of rows, or of those that match. `len(table)` is the same without arguments.

        Without `where`, rows of files that overlap no others come from the metadata; of those that
        do, the keys are read and merged. The arguments are those of `scan`.

            table.count("price > 10")
        """
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        rows = self._rows(at)
        source, condition = row_filtered(rows, where, rows.table_schema, _setting(rows))
        return count_rows(source, condition)

    def __str__(self) -> str:
        """What it is, and its columns; reads no data."""
        (_, name), *facts = self._facts()
        lines = [one_line(name, 4 * CELL_MAX), pairs_text(facts, "  "), *self._columns(str)]
        return "\n".join(filter(None, lines))

    def _repr_html_(self) -> str:
        (_, name), *facts = self._facts()
        return pairs_html(str(name), facts) + "".join(self._columns(TableSchema._repr_html_))

    def __dir__(self) -> list[str]:
        return public_names(self, hidden=("context",))

    def _columns(self, shown: Callable[[TableSchema], str]) -> list[str]:
        """The columns, shown in a way; nothing if they cannot be found any more."""
        try:
            return [shown(self.schema)]
        except LakecoreError:
            return []

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        """True: a table is something, also without rows. `len(table)` counts them."""
        return True

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows of the latest snapshot, streamed to whoever takes Arrow streams."""
        rows = arrow_stream.reader(self._rows(Travel()))
        return rows.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """The schema of those rows."""
        return self.schema.arrow.__arrow_c_schema__()


def lazy(
    rows: RowSource,
    columns: Sequence[str] | str | None,
    where: pl.Expr | str | None,
    limit: int | None = None,
) -> pl.LazyFrame:
    """The rows as a lazy Polars frame."""
    most = checked_limit(limit)
    source, expression = filtered(rows, where, rows.table_schema, _setting(rows))
    frame = polars_source.scan(source)
    if expression is not None:
        frame = frame.filter(expression)
    if columns is not None:
        frame = polars_source.select(frame, checked_columns(columns, rows.table_schema))
    return frame if most is None else frame.head(most)


def _stream(
    rows: RowSource,
    columns: Sequence[str] | str | None,
    where: pl.Expr | str | None,
    limit: int | None,
) -> pa.RecordBatchReader:
    source, expression = row_filtered(rows, where, rows.table_schema, _setting(rows))
    names = None if columns is None else checked_columns(columns, rows.table_schema)
    return arrow_stream.reader(source, names, expression, limit)


def _matching(rows: RowSource, where: pl.Expr | str | None) -> BatchSource:
    """The rows that match, for a face that takes no condition."""
    if where is None:
        return rows
    return FilteredSource(rows, parse_condition(where, rows.table_schema, _setting(rows)))


def _setting(rows: RowSource) -> Setting:
    context = getattr(rows, "context", None)
    return setting_of(context) if isinstance(context, TableContext) else local_setting()
