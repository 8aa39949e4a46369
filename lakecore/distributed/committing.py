"""The driver of a write: commits the messages of its tasks once, or cleans up."""

from __future__ import annotations

from lakecore.table.commits.commit import CommitRequest
from lakecore.table.commits.committed import committed
from lakecore.table.commits.message_files import delete_files
from lakecore.table.writes.batch_write import (
    Author,
    author,
    commit_or_clean,
    commit_overwrite,
    records_nothing,
)
from lakecore.table.writes.overwrite import spec_values

__all__ = [
    "Author",
    "CommitRequest",
    "author",
    "commit_or_clean",
    "commit_overwrite",
    "committed",
    "delete_files",
    "records_nothing",
    "spec_values",
]
