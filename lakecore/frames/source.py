"""The one source of batches that every face of a read is made from.

A source may use the predicate to leave out what cannot match, and need not: rows that do not match
may still come, so each face filters by the caller's own expression. Where all files that may match
can be read as they are, `native_files` names them, and a face may hand them to its engine's own
Parquet reader.

INVARIANT: a face closes the source's iterator as soon as it wants no more, so that reading stops.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl
    import pyarrow as pa

    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate

_ROWS_MAX = (1 << 32) - 1
"""No engine counts more."""


def checked_limit(limit: object) -> int | None:
    """The most rows that a read gives; InvalidRequest unless it is a whole number or None."""
    if limit is None:
        return None
    if isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0:
        return limit if limit < _ROWS_MAX else None
    raise InvalidRequest("a limit is a whole number, at least 0, or None", limit=limit)


def checked_columns(columns: object, schema: TableSchema) -> list[str]:
    """The names of columns, which the schema has; InvalidRequest for anything else.

    A text is the name of one.
    """
    if not isinstance(columns, Iterable) or isinstance(columns, bytes):
        raise InvalidRequest("columns is a list of names, or one name", columns=columns)
    names = [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if not isinstance(name, str):
            raise InvalidRequest("the name of a column is a text", column=name)
    return [schema.field(name).name for name in names]


class BatchSource(Protocol):
    """Rows in Arrow batches, as often as they are asked for."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of all columns."""
        ...

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The columns (None: all) of the rows, in the order asked for and the schema's types.

        The predicate may leave out rows that do not match. With a limit and no predicate, more rows
        than that need not come.
        """
        ...

    def native_files(
        self,
        columns: Sequence[str],
        predicate: Predicate | None = None,
    ) -> list[str] | None:
        """Local Parquet files that hold these columns of all rows that match, and perhaps others.

        None if anything must be merged, cast, or taken out. An empty list means no rows. Raises
        CorruptTable for a file that differs from its checksums.
        """
        ...


class RowSource(BatchSource, Protocol):
    """A source whose columns are those of a table's schema."""

    @property
    def table_schema(self) -> TableSchema:
        """The columns, as a schema."""
        ...


@runtime_checkable
class FrameSource(BatchSource, Protocol):
    """A source that has its rows as Polars frames before it makes batches of them."""

    def frames(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pl.DataFrame]:
        """The rows of `batches` as Polars frames, values in the twins of their Arrow types."""
        ...


@runtime_checkable
class CheckedSource(BatchSource, Protocol):
    """A source whose files can be checked before an engine wraps their errors."""

    def check_files(self) -> None:
        """Raise CorruptTable if a file is missing, or damaged as far as can be known unread."""
        ...


@contextmanager
def reading(batches: Iterator[pa.RecordBatch]) -> Iterator[Iterator[pa.RecordBatch]]:
    """The batches, whose iterator is closed on the way out if it can be."""
    try:
        yield batches
    finally:
        if isinstance(batches, Generator):
            batches.close()


def tell_damage(source: BatchSource, columns: Sequence[str] | None = None) -> None:
    """Raise what is wrong with the files of the source, if anything is, as lakecore's own reader.

    An engine that reads files for itself names neither file nor table where it fails.
    """
    with reading(source.batches(columns)) as batches:
        for _ in batches:
            pass


def needed(schema: pa.Schema, columns: Sequence[str] | None, others: Sequence[str]) -> list[str]:
    """The columns (None: all) and the others, each once; at least one, so that rows can count."""
    wanted = schema.names if columns is None else columns
    names = list(dict.fromkeys((*wanted, *others)))
    return names or schema.names[:1]
