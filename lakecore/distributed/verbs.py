"""For the driver: verbs whose work runs in other processes. It plans and commits."""

from __future__ import annotations

from lakecore.table.compactions.compact_parallel import Tally
from lakecore.table.compactions.compact_work import Failures
from lakecore.table.verbs.compact_choice import idle_ms
from lakecore.table.verbs.compaction import CompactionRequest, compact_table
from lakecore.table.verbs.rescale import RescaleRequest, one_by_one, rescale_table
from lakecore.table.verbs.statistics_verbs import analyze, measured

__all__ = [
    "CompactionRequest",
    "Failures",
    "RescaleRequest",
    "Tally",
    "analyze",
    "compact_table",
    "idle_ms",
    "measured",
    "one_by_one",
    "rescale_table",
]
