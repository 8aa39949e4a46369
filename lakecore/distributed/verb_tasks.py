"""For tasks: verbs whose work runs in other processes, without the code of the driver."""

from __future__ import annotations

from lakecore.table.compactions.compact_work import Work, do_work
from lakecore.table.verbs.column_sketch import ColumnSketch
from lakecore.table.verbs.rescale_part import RescalePart, rescale_part

__all__ = ["ColumnSketch", "RescalePart", "Work", "do_work", "rescale_part"]
