"""For tasks: a table that another process opened, with its context, store, clock and file names."""

from __future__ import annotations

from lakecore.io.ambient import JOB_ID_LENGTH, SYSTEM, of_job
from lakecore.io.parallel import IN_THREADS, delete_all, read_all
from lakecore.io.stores.guarded import unguarded
from lakecore.io.stores.store import FileStatus, MemoryStore, Store
from lakecore.table.context import TableContext, reload_context

__all__ = [
    "IN_THREADS",
    "JOB_ID_LENGTH",
    "SYSTEM",
    "FileStatus",
    "MemoryStore",
    "Store",
    "TableContext",
    "delete_all",
    "of_job",
    "read_all",
    "reload_context",
    "unguarded",
]
