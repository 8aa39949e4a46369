"""Which partitions are due for a report of their statistics to the metastore.

The option `partition.idle-time-to-report-statistic` switches reports on. The rules are Java's:

- a batch commit at once reports the partitions that it changed, and all pending ones of the table;
- a commit of a stream makes the partitions that it changed pending. When a pending partition has
  not changed for the idle time, the next commit of the table reports it.

NOTE: pending partitions are kept in memory. If the process ends, a later commit to the partition,
or `repair`, reports it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakecore.catalog.identifier import Identifier
    from lakecore.catalog.partition_statistics import Spec

__all__ = ["PartitionReports"]


class PartitionReports:
    """The pending partitions of tables, with the time of their last change. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed: dict[Identifier, dict[Spec, int]] = {}

    def __reduce__(self) -> tuple[type[PartitionReports], tuple[()]]:
        """Pickled empty: another process reports its own commits."""
        return PartitionReports, ()

    def due(
        self, name: Identifier, changed: Iterable[Spec], now_ms: int, idle_ms: int, *, batch: bool
    ) -> Mapping[Spec, int]:
        """Add the partitions that a commit changed, then remove and return those that are due.

        Each is returned with the time of its last change. After a batch commit, all pending
        partitions of the table are due.
        """
        with self._lock:
            noted = self._changed.setdefault(name, {})
            noted.update((spec, now_ms) for spec in changed)
            due = {s: ms for s, ms in noted.items() if batch or now_ms - ms > idle_ms}
            for spec in due:
                del noted[spec]
            if not noted:
                del self._changed[name]
        return due

    def put_back(self, name: Identifier, failed: Mapping[Spec, int]) -> None:
        """Add partitions again that could not be reported. A newer time of a partition is kept."""
        with self._lock:
            noted = self._changed.setdefault(name, {})
            for spec, changed_ms in failed.items():
                noted.setdefault(spec, changed_ms)
