"""Converts errors that DuckDB raises during a query to errors of lakecore.

An interrupted query raises KeyboardInterrupt, whatever error DuckDB or Arrow raises.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol, TypeVar

import duckdb
import pyarrow as pa

from lakecore.errors import InvalidRequest, LakecoreError, NotFound, StorageError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FAILURES", "drop_table", "error_of", "raise_interrupt", "written"]

FAILURES = (duckdb.Error, pa.ArrowException, OSError, RuntimeError)
"""The errors of DuckDB and Arrow. An interrupted query may raise a plain RuntimeError."""

T = TypeVar("T")
_AROUND = re.compile(r"CAST\(#\d+ AS ")
"""Recognises SQL of lakecore's in a message: it casts a query's rows to the columns of a table."""
_INTERRUPTED = ("INTERRUPT Error", "Query interrupted")


class _Closable(Protocol):
    def close(self) -> None: ...


def written(rows: _Closable, verb: Callable[[], T]) -> T:
    """Call `verb`, which writes `rows`, and return its result. Raises only lakecore errors.

    Closes `rows` afterwards: an open result would block the connection for other statements.
    """
    try:
        return verb()
    except LakecoreError:
        raise
    except FAILURES as error:
        raise_interrupt(error)
        raise InvalidRequest(
            "the query failed while its rows were written; nothing was committed",
            reason=_said(error),
        ) from error
    finally:
        rows.close()


def error_of(error: BaseException) -> LakecoreError:
    """A DuckDB error as a lakecore error, with a message that says what the user can change.

    Raises KeyboardInterrupt if the query was interrupted.
    """
    raise_interrupt(error)
    text = str(error)
    head, _, _ = text.partition("\n\nLINE ")
    if isinstance(error, duckdb.CatalogException) and "does not exist" in text:
        return NotFound("the query names something that does not exist", reason=head)
    if isinstance(error, duckdb.IOException | duckdb.HTTPException):
        return StorageError("DuckDB cannot read what the query names", reason=head)
    if "requires the extension" in text:
        return Unsupported(
            "DuckDB would need an extension, and lakecore installs and loads none",
            reason=text.partition("\n")[0],
        )
    if text.startswith("Resource In Use"):
        return InvalidRequest(
            "rows of an earlier statement are still being read; read them to the end, or close "
            "their reader"
        )
    return InvalidRequest("the query failed", reason=_said(error))


def _said(error: BaseException) -> str:
    """The text of an error, without a quoted line of SQL that lakecore has added to the query."""
    head, _, line = str(error).partition("\n\nLINE ")
    return head if _AROUND.search(line) else str(error)


def raise_interrupt(error: BaseException) -> None:
    """Raise KeyboardInterrupt if the error says that the query was interrupted."""
    said = any(text in str(error) for text in _INTERRUPTED)
    if said or isinstance(error, duckdb.InterruptException):
        raise KeyboardInterrupt from error


def drop_table(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Drop a temporary table of a statement that has ended or was interrupted by Ctrl-C.

    The thread that interrupts the statement may also interrupt the next one on the connection, at
    most once for each Ctrl-C. The drop is therefore repeated.
    """
    while True:
        try:
            connection.execute(f"DROP TABLE IF EXISTS {name}")
        except duckdb.InterruptException:
            continue
        return
