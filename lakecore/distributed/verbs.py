"""For the driver: verbs whose work runs in other processes. It plans and commits."""

from __future__ import annotations

from lakecore.table.compactions.compact_parallel import Tally
from lakecore.table.compactions.compact_runner import Failures
from lakecore.table.verbs.analyze import analyze, measured
from lakecore.table.verbs.compact_choice import idle_ms
from lakecore.table.verbs.compaction import CompactionRequest, compact_table
from lakecore.table.verbs.rescale import RescaleRequest, rescale_table
from lakecore.table.verbs.rescale_part import one_by_one

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
