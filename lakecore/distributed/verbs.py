"""Verbs whose work runs in other processes: the driver's part, which plans and commits."""

from __future__ import annotations

from lakecore.table.compactions.compact_parallel import Tally
from lakecore.table.compactions.compact_runner import Failures
from lakecore.table.verbs.compaction import CompactionRequest, compact_table

__all__ = ["CompactionRequest", "Failures", "Tally", "compact_table"]
