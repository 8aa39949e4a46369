"""What Java Paimon does to look after a table, and how it waits: for benchmarks.

Verbs: plan, polls, remove_orphans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jpype

from tests.interop.java_codec import paimon_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.columns import Json
    from tests.interop.java_codec import Java


class JavaCare:
    """The verbs; `open_table` opens the table at a path with other options."""

    def __init__(self, open_table: Callable[[str, dict[str, str] | None], Java]) -> None:
        """Remember what the verbs need."""
        self._open_table = open_table

    def verbs(self) -> dict[str, Callable[..., Json]]:
        """The verbs by their names."""
        return {"plan": self.plan, "polls": self.polls, "remove_orphans": self.remove_orphans}

    def plan(self, path: str, options: dict[str, str] | None = None, times: int = 1) -> int:
        """Open the table and plan a read of all rows, again and again; how many files it has."""
        for _ in range(times):
            table = self._open_table(path, options)
            splits = table.newReadBuilder().newScan().plan().splits()
        return sum(int(split.dataFiles().size()) for split in splits)

    def polls(self, path: str, times: int) -> int:
        """Look so many times for a next snapshot that is not there."""
        scan = self._open_table(path, {"scan.mode": "latest"}).newStreamScan()
        scan.plan()  # finds where to begin
        return sum(int(scan.plan().splits().size()) for _ in range(times))

    def remove_orphans(self, path: str, older_than_ms: int) -> int:
        """Delete the orphan files that are older than a time; how many there were."""
        table = self._open_table(path, None)
        clean = paimon_class("operation.LocalOrphanFilesClean")
        done = clean(table, jpype.JLong(older_than_ms), False).clean()
        return int(done.getDeletedFileCount())
