"""Converts errors that DuckDB raises during a query to errors of lakecore.

An interrupted query raises KeyboardInterrupt, whatever error DuckDB or Arrow raises.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import duckdb
import pyarrow as pa

from lakecore import errors
from lakecore.errors import InvalidRequest, LakecoreError, NotFound, StorageError, Unsupported
from lakecore.sql.duckdb_messages import OWN, cause
from lakecore.suggestions import KEPT_LONGER

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "FAILURES",
    "drop_table",
    "error_of",
    "error_of_result",
    "raise_interrupt",
    "written",
]

FAILURES = (duckdb.Error, pa.ArrowException, OSError, RuntimeError)
"""The errors of DuckDB and Arrow. An interrupted query may raise a plain RuntimeError."""

T = TypeVar("T")
_GONE = ("No files found", "No such file")
_OF_PYTHON = re.compile(rf"^(?:[\w.]+\.)?({'|'.join(errors.__all__)}): (.*?)\s*$", re.MULTILINE)
"""The line of a Python traceback that DuckDB gives as the text of an error."""
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
        found = error_of(error)
        said = f"{found.message}; nothing was committed"
        raise type(found)(said, **found.facts) from error
    finally:
        rows.close()


def error_of(error: BaseException) -> LakecoreError:
    """A DuckDB error as a lakecore error, with a message that says what the user can change.

    Raises KeyboardInterrupt if the query was interrupted.
    """
    raise_interrupt(error)
    text = str(error)
    own = _OF_PYTHON.search(text) if text.startswith("Traceback") else None
    if own is not None:  # DuckDB called lakecore, which raised it
        return cast("LakecoreError", getattr(errors, own[1])(own[2]))
    said, facts = cause(text)
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        return Unsupported(
            "DuckDB failed at this query by a fault of its own; write the query in another way",
            reason=said,
        )
    if "requires the extension" in text or "it exists in the" in text:
        return Unsupported(
            "DuckDB would need an extension, and lakecore installs and loads none", reason=said
        )
    if isinstance(error, duckdb.CatalogException) and "does not exist" in text:
        return NotFound(said, **facts)
    if isinstance(error, duckdb.IOException | duckdb.HTTPException):
        return StorageError(said, **facts)
    if text.startswith("Resource In Use"):
        return InvalidRequest(
            "rows of an earlier statement are still being read; read them to the end, or close "
            "their reader"
        )
    return InvalidRequest(said, **facts)


def error_of_result(error: BaseException) -> LakecoreError:
    """An error of DuckDB while the rows of a result are read, perhaps long after its statement.

    Raises KeyboardInterrupt if the query was interrupted.
    """
    text = str(error)
    if isinstance(error, duckdb.CatalogException) and OWN in text:
        return NotFound(
            "the session no longer keeps the state of a table that this result reads: run the "
            "statement again, and read its rows before those of many others"
        )
    if isinstance(error, duckdb.IOException) and any(each in text for each in _GONE):
        return NotFound(
            "a file that this result reads is not there; if a table was dropped, or its snapshot "
            f"has expired, since the statement, run the statement again; {KEPT_LONGER}",
            reason=cause(text)[0],
        )
    return error_of(error)


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
