"""For tasks: writes the rows of the buckets that a task owns, and returns commit messages."""

from __future__ import annotations

from lakecore.rows.fit import check_once
from lakecore.table.writes.batch_write import batch_writer
from lakecore.table.writes.evolving import Evolution, evolution_for, type_changes_of
from lakecore.table.writes.write import TableWrite
from lakecore.table.writes.write_start import WriteStart, read_base, read_start

__all__ = [
    "Evolution",
    "TableWrite",
    "WriteStart",
    "batch_writer",
    "check_once",
    "evolution_for",
    "read_base",
    "read_start",
    "type_changes_of",
]
