"""For tasks: reads splits to merged batches, by a plan that the driver made."""

from __future__ import annotations

from lakecore.frames.filtered import FilteredSource, reader
from lakecore.frames.source import BatchSource
from lakecore.memory import Budget
from lakecore.plan.predicate import Predicate, all_of, to_polars
from lakecore.table.sections.windows_plan import batch_size
from lakecore.table.splits.read import read_split
from lakecore.table.stored_rows.followed import followed
from lakecore.table.stored_rows.read_plan import ReadPlan
from lakecore.table.stored_rows.split_files import SplitFiles, missing_is_corrupt

__all__ = [
    "BatchSource",
    "Budget",
    "FilteredSource",
    "Predicate",
    "ReadPlan",
    "SplitFiles",
    "all_of",
    "batch_size",
    "followed",
    "missing_is_corrupt",
    "read_split",
    "reader",
    "to_polars",
]
