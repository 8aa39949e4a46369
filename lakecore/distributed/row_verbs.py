"""DELETE, UPDATE and MERGE in parts: the driver checks and commits, tasks change splits.

Tasks load DuckDB from here, because conditions and values may be SQL.
"""

from __future__ import annotations

from lakecore.plan.row_changes import Verb
from lakecore.scalar.values import Sql
from lakecore.table.reads.row_values import Condition
from lakecore.table.reads.source import TableSource
from lakecore.table.verbs.delete import deleted, deletion
from lakecore.table.verbs.merge_into import MergeInto
from lakecore.table.verbs.merge_part import MergeRequest, inserted, merged, merging, source_plan
from lakecore.table.verbs.merge_plan import Match, MergePlan
from lakecore.table.verbs.merge_sides import SOURCE, TARGET
from lakecore.table.verbs.row_writer import as_verbs_read
from lakecore.table.verbs.update import Assignment, assigned, assigning
from lakecore.table.verbs.verb_write import Changed, commit_changes

__all__ = [
    "SOURCE",
    "TARGET",
    "Assignment",
    "Changed",
    "Condition",
    "Match",
    "MergeInto",
    "MergePlan",
    "MergeRequest",
    "Sql",
    "TableSource",
    "Verb",
    "as_verbs_read",
    "assigned",
    "assigning",
    "commit_changes",
    "deleted",
    "deletion",
    "inserted",
    "merged",
    "merging",
    "source_plan",
]
