"""The source of batches from which every form of a read (frame, dataset, stream) is made.

A source may use the predicate to skip rows that do not match, but does not have to. Rows that do
not match may therefore appear, and each form filters by the caller's original expression. If all
files that may match can be read without merging, `engine_files` names them, and an engine's own
Parquet reader may read them.

INVARIANT: the source's iterator is closed as soon as no more rows are needed, so that reading
stops.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from lakecore.model.row_mask import RowMask
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate

_ROWS_MAX = (1 << 32) - 1
"""No engine has a larger limit."""


def checked_limit(limit: object) -> int | None:
    """The row limit of a read. Raises InvalidRequest unless `limit` is a whole number or None."""
    if limit is None:
        return None
    if isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0:
        return limit if limit < _ROWS_MAX else None
    raise InvalidRequest("a limit must be a whole number, at least 0, or None", limit=limit)


def checked_columns(columns: object, schema: TableSchema) -> list[str]:
    """The requested column names. Raises InvalidRequest for a name that is not in the schema.

    A single string is the name of one column.
    """
    if not isinstance(columns, Iterable) or isinstance(columns, bytes):
        raise InvalidRequest("columns must be a list of names, or one name", columns=columns)
    names = [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if not isinstance(name, str):
            raise InvalidRequest("the name of a column must be a string", column=name)
    return [schema.field(name).name for name in names]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFile:
    """A local Parquet file that an engine may scan, and which of its rows are returned.

    Without a `mask`, all rows are returned.
    """

    path: str
    row_count: int
    mask: RowMask | None = None

    @property
    def returned_count(self) -> int:
        """The number of rows that are returned."""
        return self.row_count if self.mask is None else self.mask.count


class BatchSource(Protocol):
    """Rows in Arrow batches, which can be read any number of times."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of all columns."""

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The columns (None: all) of the rows, in the requested order and in the schema's types.

        The predicate may skip rows that do not match. With a limit and no predicate, more rows than
        the limit may be returned.
        """


@runtime_checkable
class EngineSource(Protocol):
    """A source whose files an engine may scan itself, if they hold its rows as they are."""

    def engine_files(
        self, columns: Sequence[str], predicate: Predicate | None = None
    ) -> list[EngineFile] | None:
        """Local Parquet files that hold all matching rows, and perhaps others, with these columns.

        None if anything must be merged or cast. An empty list means no rows. Raises CorruptTable
        for a file whose checksums do not match.
        """


def engine_files(
    source: BatchSource, columns: Sequence[str], predicate: Predicate | None = None
) -> list[EngineFile] | None:
    """The files that `EngineSource` names; None if an engine must read the batches."""
    if isinstance(source, EngineSource):
        return source.engine_files(columns, predicate)
    return None


class RowSource(BatchSource, Protocol):
    """A source with the columns of a table schema."""

    @property
    def table_schema(self) -> TableSchema:
        """The columns as a table schema."""


@runtime_checkable
class FrameSource(BatchSource, Protocol):
    """A source that produces Polars frames before it makes batches of them."""

    def frames(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pl.DataFrame]:
        """The rows of `batches` as Polars frames, in the equivalents of their Arrow types."""


@runtime_checkable
class SurvivingSource(BatchSource, Protocol):
    """A source that knows which rows survive a merge before it reads their values."""

    def surviving_files(
        self, columns: Sequence[str], *, known_only: bool = False
    ) -> list[EngineFile] | None:
        """Local Parquet files like those of `engine_files`, also if they must be merged.

        The bits of a file then leave out the rows that do not survive. With `known_only`, None if
        the keys would have to be read first.
        """


@runtime_checkable
class CheckedSource(BatchSource, Protocol):
    """A source whose files can be checked before an engine hides their errors."""

    def check_files(self) -> None:
        """Raise CorruptTable if a file is missing, or is visibly damaged without reading it all."""


def whole_files(files: Sequence[EngineFile] | None) -> list[str] | None:
    """The paths of the files if all of their rows are returned; None if a row is left out."""
    if files is None or any(file.mask is not None for file in files):
        return None
    return [file.path for file in files]


@contextmanager
def reading(batches: Iterator[pa.RecordBatch]) -> Iterator[Iterator[pa.RecordBatch]]:
    """The batches as a context manager.

    At the end, the iterator of batches is closed, if possible.
    """
    try:
        yield batches
    finally:
        if isinstance(batches, Generator):
            batches.close()


def limited(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The batches, up to `limit` rows in all (None: all)."""
    left = limit
    for batch in batches:
        if left is not None and batch.num_rows >= left:
            yield batch.slice(0, left)
            return
        left = None if left is None else left - batch.num_rows
        yield batch
        del batch


def tell_damage(source: BatchSource, columns: Sequence[str] | None = None) -> None:
    """Read the source with lakecore's own reader, to raise an error that names the damaged file.

    The error of an engine that reads files itself names neither the file nor the table.
    """
    with reading(source.batches(columns)) as batches:
        for _ in batches:
            pass


def needed(schema: pa.Schema, columns: Sequence[str] | None, others: Sequence[str]) -> list[str]:
    """`columns` (None: all) and `others`, without duplicates.

    The result has at least one column, so that rows are counted.
    """
    wanted = schema.names if columns is None else columns
    names = list(dict.fromkeys((*wanted, *others)))
    return names or schema.names[:1]
