"""The reading methods that tables and system tables share.

A subclass defines the rows of a state (`_rows`); `Readable` derives the read methods from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import closing
from typing import TYPE_CHECKING

from lakecore.deferred import deferred, deferred_module
from lakecore.display import CELL_MAX, one_line, pairs_html, pairs_text, public_names
from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.frames import arrow_frames, polars_source
from lakecore.frames import filtered as arrow_stream
from lakecore.frames.arrow_frames import to_frame
from lakecore.frames.filtered import FilteredSource
from lakecore.frames.source import BatchSource, RowSource, checked_columns, checked_limit
from lakecore.model.schema import TableSchema
from lakecore.model.types import is_blob
from lakecore.plan.row_ids import anchor_of
from lakecore.table.context import TableContext
from lakecore.table.reads.fallback import FallbackSource
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.time_travel import Travel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from lakecore.frames import duckdb_face
    from lakecore.frames.arrow_dataset import SourceDataset
    from lakecore.frames.duckdb_face import DuckDBConnection, DuckDBRelation
    from lakecore.model.files import Split
    from lakecore.model.times import Time
    from lakecore.scalar.values import Setting
    from lakecore.table.reads import row_values
else:  # load DuckDB
    duckdb_face = deferred_module("lakecore.frames.duckdb_face")
    row_values = deferred_module("lakecore.table.reads.row_values")
    SourceDataset = deferred("lakecore.frames.arrow_dataset", "SourceDataset")


# --- count ---------------------------------------------------------------------------------------
# Counts rows from metadata if possible; otherwise reads as few columns as possible.
#
# 0. For a table without keys, deletion vectors and data evolution, the snapshot states the count.
# 1. For a file that needs no merge, the count is the row count of its manifest entry, minus the
#    rows that its deletion vector marks. Files that hold columns of the same rows are counted once.
# 2. For a section that needs a merge, only the key columns are read and merged.
# 3. For a condition, only the columns that it names are read.


def count_rows(rows: BatchSource, condition: pl.Expr | None) -> int:
    """The number of rows for which `condition` is true (None: of all rows)."""
    if condition is None and isinstance(rows, TableSource):
        return _merged(rows)
    if condition is None and isinstance(rows, FallbackSource):
        return sum(map(_merged, rows.sources()))
    return sum(batch.num_rows for batch in arrow_stream.reader(rows, [], condition))


def known_rows(rows: BatchSource) -> int | None:
    """The number of rows if the metadata gives it; None if rows must be read for it."""
    if not isinstance(rows, TableSource):
        return None
    counted, unknown = _known(rows)
    return None if unknown else counted


def _known(rows: TableSource) -> tuple[int, list[Split]]:
    """The number of rows that the metadata gives, and the splits for which it gives none."""
    total = _total(rows)
    if total is not None:
        return total, []
    splits, keyed = rows.plan().splits, bool(rows.table_schema.primary_keys)
    counts = [_stated(split, keyed=keyed) for split in splits]
    unknown = [split for split, count in zip(splits, counts, strict=True) if count is None]
    return sum(filter(None, counts)), unknown


def _merged(rows: TableSource) -> int:
    counted, unknown = _known(rows)
    if not unknown:
        return counted
    schema = rows.table_schema
    small = [field.name for field in schema.fields if not is_blob(field.type)]
    column = next(iter(schema.trimmed_primary_keys or small))
    with closing(rows.read(unknown, rows.read_plan(unknown, [column]))) as batches:
        return counted + sum(int(batch.num_rows) for batch in batches)


def _total(rows: TableSource) -> int | None:
    """The row count that the snapshot states; None if a read returns other rows."""
    snapshot = rows.snapshot
    parts = rows.own is not None or rows.last_level_only or rows.without
    options = rows.context.options
    if (
        snapshot is None
        or parts
        or rows.table_schema.primary_keys
        or snapshot.index_manifest is not None
        or options.data_evolution_enabled
    ):
        return None
    return snapshot.total_record_count


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


# --- readable ------------------------------------------------------------------------------------


class Readable(ABC):
    """The reading methods. Each reads the latest state, or the one that an argument names."""

    @abstractmethod
    def _facts(self) -> list[tuple[str, object]]:
        """Names and values that are known without reading data; the identifier is first."""

    @property
    @abstractmethod
    def schema(self) -> TableSchema:
        """The columns that a read returns."""

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
        """The rows of the latest snapshot, or of a named one, as a lazy Polars frame.

        Columns, filters and limits of a query on the frame are pushed down to the files. The
        snapshot is chosen now; data is read when the frame is collected. The row order is
        undefined.

        - `columns`: the names of columns, or one name; None for all, in the order of the schema.
        - `where`: a Polars expression, or an SQL condition as a string in DuckDB's dialect, with
          the semantics of WHERE in DuckDB. SQL sees the columns of one row: no subqueries,
          aggregates, window functions, random functions or file access.
        - `limit`: the maximum number of rows.
        - `snapshot_id`, `tag` or `timestamp`: the state to read, with its schema. A timestamp
          (datetime, date, ISO 8601 string, milliseconds since 1970) means the newest snapshot at
          that time (https://paimon.apache.org/docs/master/concepts/snapshot/).

        Raises InvalidRequest for an unknown column (the message lists the known ones) and for a
        condition that does not parse or whose types do not fit; Unsupported for a condition that
        uses an excluded feature; NotFound for a state that does not exist.

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
        """The rows as a stream of Arrow batches; memory depends on the batch size, not the table.

        The arguments are those of `scan`; `where` must be evaluable for each row alone.

            count = sum(batch.num_rows for batch in table.to_batches(["id"]))
        """
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        return batch_reader(self._rows(at), columns, where, limit)

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
        """The rows as an Arrow table, in the types of `schema.arrow`. Arguments as for `scan`.

        table.to_arrow(["id"], "price > 10", limit=100)
        """
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        return batch_reader(self._rows(at), columns, where, limit).read_all()

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
        """The rows as a Polars frame. Arguments as for `scan`.

        table.to_polars(["id", "price"], "price > 10")
        """
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        rows = self._rows(at)
        frame = lazy(rows, columns, where, limit)
        if where is None and limit is None:
            whole = polars_source.whole_frame(rows, frame.collect_schema().names())
            if whole is not None:
                return whole
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

        The dtypes of the columns:

        - numbers, booleans and timestamps without nulls: NumPy's int8 to int64, float32, float64,
          bool, datetime64; strings: `str`;
        - integers and booleans with nulls: `Int8` to `Int64` and `boolean`;
        - floats with nulls: NumPy's floats with NaN for null; with nulls and NaN:
          `pandas.ArrowDtype`;
        - DECIMAL, DATE, TIME, binary and nested columns: `pandas.ArrowDtype`.

        Raises Unsupported unless pandas is installed.

            table.to_pandas(["id", "price"], snapshot_id=1)
        """
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        return arrow_frames.to_pandas(
            batch_reader(self._rows(at), columns, where, limit).read_all()
        )

    def to_arrow_dataset(
        self,
        where: pl.Expr | str | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
    ) -> SourceDataset:
        """The rows as an Arrow dataset; engines such as DuckDB push columns and filters into it.

        DuckDB, Polars, `pyarrow.dataset.write_dataset` and the dataset's own methods can read it.
        Dataset unions and joins of pyarrow raise an error, because rows of several files are
        merged. `where` works as in `to_batches`.

            table.to_arrow_dataset().count_rows()
        """
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        return SourceDataset(_matching(self._rows(at), where))

    def to_duckdb(
        self,
        connection: DuckDBConnection | None = None,
        where: pl.Expr | str | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
    ) -> DuckDBRelation:
        """The rows as a DuckDB relation, on the given connection or on DuckDB's default one.

        `where` works as in `to_batches`; the relation itself can be filtered too.

            table.to_duckdb().aggregate("sum(price)").fetchall()
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
        """Any `n` rows as a Polars frame, fewer if the table has fewer; the row order is undefined.

        Reading stops after `n` rows. The other arguments are those of `scan`; `where` must be
        evaluable for each row alone.

            table.head(3)
        """
        if checked_limit(n) is None:
            raise InvalidRequest("head takes a number of rows; to_polars() returns all", n=n)
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        reader = batch_reader(self._rows(at), columns, where, n)
        polars_source.check_once(reader.schema.names)
        return to_frame(reader.read_all())

    def count(
        self,
        where: pl.Expr | str | None = None,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp: Time | None = None,
    ) -> int:
        """The number of matching rows. `len(table)` is `table.count()`.

        Without `where`, files that overlap no other file are counted from metadata; only the keys
        of overlapping files are read and merged. The arguments are those of `scan`.

            table.count("price > 10")
        """
        at = Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp)
        rows = self._rows(at)
        source, condition = _row_filtered(rows, where)
        return count_rows(source, condition)

    def __str__(self) -> str:
        """The identifier, the facts and the columns as text; reads no data."""
        (_, name), *facts = self._facts()
        lines = [one_line(name, 4 * CELL_MAX), pairs_text(facts, "  "), *self._columns(str)]
        return "\n".join(filter(None, lines))

    def _repr_html_(self) -> str:
        (_, name), *facts = self._facts()
        return pairs_html(str(name), facts) + "".join(self._columns(TableSchema._repr_html_))

    def __dir__(self) -> list[str]:
        return public_names(self, hidden=("context",))

    def _columns(self, shown: Callable[[TableSchema], str]) -> list[str]:
        """The columns, formatted by `shown`; empty if the schema does not exist any more."""
        try:
            return [shown(self.schema)]
        except LakecoreError:
            return []

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        """Always True, also for a table without rows; `len(table)` counts rows."""
        return True

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows of the latest snapshot as an Arrow C stream."""
        rows = arrow_stream.reader(self._rows(Travel()))
        return rows.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """The Arrow schema of a read, as a C schema."""
        return self.schema.arrow.__arrow_c_schema__()


def rows_of(table: Readable, at: Travel) -> RowSource:
    """The rows of a state of a table, for packages that use this one."""
    return table._rows(at)  # noqa: SLF001 - a public method would be one of tables


def lazy(
    rows: RowSource,
    columns: Sequence[str] | str | None,
    where: pl.Expr | str | None,
    limit: int | None = None,
) -> pl.LazyFrame:
    """The rows as a lazy Polars frame."""
    most = checked_limit(limit)
    source, expression = _filtered(rows, where)
    frame = polars_source.scan(source)
    if expression is not None:
        frame = frame.filter(expression)
    if columns is not None:
        frame = polars_source.select(frame, checked_columns(columns, rows.table_schema))
    return frame if most is None else frame.head(most)


def batch_reader(
    rows: RowSource,
    columns: Sequence[str] | str | None,
    where: pl.Expr | str | None,
    limit: int | None = None,
) -> pa.RecordBatchReader:
    """The rows as a stream of Arrow batches."""
    source, expression = _row_filtered(rows, where)
    names = None if columns is None else checked_columns(columns, rows.table_schema)
    return arrow_stream.reader(source, names, expression, limit)


def _matching(rows: RowSource, where: pl.Expr | str | None) -> BatchSource:
    """The rows that match, for a read method that cannot filter by itself."""
    if where is None:
        return rows
    return FilteredSource(
        rows, row_values.parse_condition(where, rows.table_schema, _setting(rows))
    )


def _filtered(rows: RowSource, where: pl.Expr | str | None) -> tuple[BatchSource, pl.Expr | None]:
    """The source, and the expression by which its rows must still be filtered."""
    if where is None:
        return rows, None
    return row_values.filtered(rows, where, rows.table_schema, _setting(rows))


def _row_filtered(
    rows: RowSource, where: pl.Expr | str | None
) -> tuple[BatchSource, pl.Expr | None]:
    """The source, and the expression by which its batches must still be filtered."""
    if where is None:
        return rows, None
    return row_values.row_filtered(rows, where, rows.table_schema, _setting(rows))


def _setting(rows: RowSource) -> Setting:
    context = getattr(rows, "context", None)
    return (
        row_values.setting_of(context)
        if isinstance(context, TableContext)
        else row_values.local_setting()
    )
