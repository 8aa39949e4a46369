"""Merges the rows that a query finds into the table that the query reads, at one snapshot.

The query runs while the merge runs, at the snapshot that the merge changes. If another commit is
made in between, the query and the merge start again. If the query reads a Python object that gives
its rows only once, the statement fails instead: a second query would find no rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import CommitConflict, LakecoreError
from lakecore.sql.query_errors import written
from lakecore.sql.tokens import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from lakecore.model.snapshot import CommitResult
    from lakecore.sql.python_objects import NotingScope
    from lakecore.sql.queries import Queries
    from lakecore.sql.statements import Chain
    from lakecore.table.handle import Table
    from lakecore.table.verbs.merge_into import MergeInto

__all__ = ["equal_columns", "merge_found", "newest_rows"]

_ATTEMPTS_MAX = 5
_NEWEST = "deletion-vectors.merge-on-read"
"""The option of a read that shows the newest rows, also with deletion vectors."""


def newest_rows(queries: Queries, table: Table, chain: Chain) -> str:
    """The rows that a verb changes, as the source of a query.

    With deletion vectors, a read skips level 0, but a verb changes the newest rows.
    """
    named = ".".join(map(quoted, queries.name_of_table(chain)))
    vectors = table.options.deletion_vectors_enabled
    return f"{named} /*+ OPTIONS('{_NEWEST}' = 'true') */" if vectors else named


def equal_columns(names: Iterable[str], left: str, right: str) -> str:
    """The condition that two rows have equal values in these columns; nulls are equal."""
    return " AND ".join(
        f"{left}.{quoted(name)} IS NOT DISTINCT FROM {right}.{quoted(name)}" for name in names
    )


def merge_found(
    table: Table,
    scope: NotingScope,
    read: Callable[[], pa.RecordBatchReader],
    merge: Callable[[object], MergeInto],
) -> CommitResult:
    """Merge the rows that `read` returns. `read` and `merge` are called in each attempt.

    Raises CommitConflict if other commits win every attempt.
    """
    for _ in range(_ATTEMPTS_MAX):
        rows = _Rows(read, table)
        try:
            return written(rows, merge(rows).execute)
        except LakecoreError:
            if rows.failure is None:
                raise
            if not isinstance(rows.failure, CommitConflict):
                raise rows.failure from rows.failure.__cause__
            if scope.gave_once:
                raise rows.failure from None
    raise CommitConflict(
        "the table changed in each attempt while the rows of the statement were found",
        table=table.identifier,
        attempts=_ATTEMPTS_MAX,
    )


class _Rows:
    """Rows of a query that runs when they are read. Raises CommitConflict if the table changed."""

    def __init__(self, read: Callable[[], pa.RecordBatchReader], table: Table) -> None:
        self._read = read
        self._table = table
        self._before = table.context.history.latest_snapshot_id()
        self._reader: pa.RecordBatchReader | None = None
        self.failure: LakecoreError | None = None
        """The error of the query. Readers of the stream raise another error in its place."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        try:
            self._reader = self._read()
            if self._table.context.history.latest_snapshot_id() != self._before:
                raise CommitConflict("the table changed while the rows of the statement were found")
        except LakecoreError as error:
            self.failure = error
            raise
        return self._reader.__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Free the connection for other statements."""
        if self._reader is not None:
            self._reader.close()
