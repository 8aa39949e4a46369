"""For tasks: verbs whose work runs in other processes, without the code of the driver."""

from __future__ import annotations

from lakecore.table.compactions.compact_work import Work, do_work
from lakecore.table.verbs.rescale import RescalePart, rescale_part
from lakecore.table.verbs.statistics_verbs import ColumnSketch

__all__ = ["ColumnSketch", "RescalePart", "Work", "do_work", "rescale_part"]
