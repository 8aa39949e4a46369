"""Which partitions are due for a report of their statistics to the metastore.

The option `partition.idle-time-to-report-statistic` asks for reports; the rules are those of Java:

- a batch commit reports the partitions that it changed at once;
- a commit of a stream notes the partitions that it changed. The first commit of the table after
  they were idle for that time reports them.

NOTE: the notes belong to the process. If it ends, a later commit to the partition, or `repair`,
reports it.
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
    """The changed partitions of tables, and when they changed last. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed: dict[Identifier, dict[Spec, int]] = {}

    def __reduce__(self) -> tuple[type[PartitionReports], tuple[()]]:
        """Pickled empty: another process reports its own commits."""
        return PartitionReports, ()

    def due(
        self, name: Identifier, changed: Iterable[Spec], now_ms: int, idle_ms: int, *, batch: bool
    ) -> Mapping[Spec, int]:
        """Note the partitions that a commit changed, and take those that are due, with their times.

        After a batch commit, all noted partitions of the table are due.
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
        """Note again the partitions that could not be reported, unless they changed since."""
        with self._lock:
            noted = self._changed.setdefault(name, {})
            for spec, changed_ms in failed.items():
                noted.setdefault(spec, changed_ms)
