"""A table in a process that did not open it: its context, its store, clock and file names."""

from __future__ import annotations

from lakecore.io.ambient import JOB_ID_LENGTH, SYSTEM, of_job
from lakecore.io.stores.store import MemoryStore, Store
from lakecore.table.context import TableContext

__all__ = [
    "JOB_ID_LENGTH",
    "SYSTEM",
    "MemoryStore",
    "Store",
    "TableContext",
    "of_job",
]
