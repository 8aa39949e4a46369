"""Changes of a table for a job that stores the position of its stream itself.

The driver finds the start and the next snapshots, and plans their rows; tasks read planned rows.
"""

from __future__ import annotations

from lakecore.model.rows import KIND_TEXTS, RETRACTS, ROW_KIND, VALUE_KIND, RowKind
from lakecore.plan.predicate import condition_on
from lakecore.table.changes.between import changes_between
from lakecore.table.changes.changes import (
    KIND_COLUMN,
    Replaced,
    State,
    StoredRows,
)
from lakecore.table.changes.follow import START_OPTIONS, Follower, Found, Nothing
from lakecore.table.changes.starts import retained_changes
from lakecore.table.changes.stream import (
    StreamRequest,
    begin,
    commit_mark,
    follow_from,
    streamed,
    without_delay,
)
from lakecore.table.changes.wanted import PlannedRows, Wanted
from lakecore.table.maintenance.consumers import write_consumer

__all__ = [
    "KIND_COLUMN",
    "KIND_TEXTS",
    "RETRACTS",
    "ROW_KIND",
    "START_OPTIONS",
    "VALUE_KIND",
    "Follower",
    "Found",
    "Nothing",
    "PlannedRows",
    "Replaced",
    "RowKind",
    "State",
    "StoredRows",
    "StreamRequest",
    "Wanted",
    "begin",
    "changes_between",
    "commit_mark",
    "condition_on",
    "follow_from",
    "retained_changes",
    "streamed",
    "without_delay",
    "write_consumer",
]
