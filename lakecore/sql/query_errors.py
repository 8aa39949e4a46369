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

__all__ = [
    "FAILURES",
    "drop_table",
    "error_of",
    "error_of_result",
    "raise_interrupt",
    "without_line",
    "written",
]

FAILURES = (duckdb.Error, pa.ArrowException, OSError, RuntimeError)
"""The errors of DuckDB and Arrow. An interrupted query may raise a plain RuntimeError."""

T = TypeVar("T")
_LINE = "\n\nLINE "
_OWN = "_lakecore_"
_GONE = ("No files found", "No such file")
_ADVICE = '\n\nUse "SET scalar_subquery_error_on_multiple_rows='
"""DuckDB's advice after the error of a query with several rows: to take any of them."""
_AROUND = re.compile(r"CAST\(#\d+ AS ")
"""What a line of SQL holds that casts the rows of a query to the columns of a table."""
_OURS = re.compile(r'_lakecore_|^\d+: \.\.\.\w*\d" ')
"""What a line of SQL holds in which lakecore has named a view; the name may be cut off in front."""
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
    head, _, _ = text.partition(_LINE)
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        return Unsupported(
            "DuckDB failed at this query by a fault of its own; write the query in another way",
            reason=text.partition("\n")[0],
        )
    if isinstance(error, duckdb.CatalogException) and "does not exist" in text:
        return NotFound("the query names something that does not exist", reason=head)
    if isinstance(error, duckdb.IOException | duckdb.HTTPException):
        return StorageError("DuckDB cannot read what the query names", reason=head)
    if "requires the extension" in text or "it exists in the" in text:
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


def error_of_result(error: BaseException) -> LakecoreError:
    """An error of DuckDB while the rows of a result are read, perhaps long after its statement.

    Raises KeyboardInterrupt if the query was interrupted.
    """
    text = str(error)
    if isinstance(error, duckdb.CatalogException) and _OWN in text:
        return NotFound(
            "the session no longer keeps the state of a table that this result reads: run the "
            "statement again, and read its rows before those of many others"
        )
    if isinstance(error, duckdb.IOException) and any(each in text for each in _GONE):
        return NotFound(
            "a file that this result reads is not there; if a table was dropped, or its snapshot "
            "has expired, since the statement, run the statement again",
            reason=text.partition(_LINE)[0],
        )
    return error_of(error)


def without_line(error: LakecoreError) -> LakecoreError:
    """The error without what names the text of a query that lakecore has written around a user's.

    That is DuckDB's marked line of SQL, and lines of advice with names of lakecore's own.
    """
    reason = error.facts.get("reason")
    if not isinstance(reason, str):
        return error
    first, *others = reason.partition(_LINE)[0].splitlines()
    plain = "\n".join([first, *(line for line in others if _OWN not in line)])
    if plain == reason:
        return error
    return type(error)(error.message, **{**error.facts, "reason": plain})


def _said(error: BaseException) -> str:
    """The text of an error, without a line of SQL that lakecore has written or changed."""
    text = str(error).partition(_ADVICE)[0]
    head, _, line = text.partition(_LINE)
    return head if _AROUND.search(line) or _OURS.search(line) else text


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
