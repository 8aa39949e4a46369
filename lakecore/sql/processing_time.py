"""`FOR SYSTEM_TIME AS OF PROCTIME()`: the processing time of a query, for look-up joins.

A look-up join reads the rows of a table as they are when a row of the other side is processed. In
lakecore, a query processes all rows when it runs, so the table is read at its latest snapshot. A
time that is a column (`o.proc_time`) is refused by other code, because it may differ between rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakecore.sql.cursor import Cursor

__all__ = ["skip_processing_time"]

_FUNCTIONS = frozenset({"PROCTIME", "PROC_TIME"})


def skip_processing_time(cursor: Cursor) -> bool:
    """Whether a call of the processing time is next; if so, consumes it."""
    is_call = cursor.token.word in _FUNCTIONS and cursor.ahead(1).value == "("
    if not is_call or cursor.ahead(2).value != ")":
        return False
    cursor.take()
    cursor.group()
    return True
