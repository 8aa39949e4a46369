"""DELETE, UPDATE and MERGE in parts: the driver checks and commits, tasks change splits.

Tasks load DuckDB from here, because conditions and values may be SQL.
"""

from __future__ import annotations

from lakecore.plan.row_changes import Verb
from lakecore.scalar.values import Sql
from lakecore.table.reads.row_values import Condition
from lakecore.table.reads.source import TableSource
from lakecore.table.verbs.change_rows import Assignment, assigned, assigning, deleted, deletion
from lakecore.table.verbs.merge_files import MergeRequest, inserted, merged, merging, source_plan
from lakecore.table.verbs.merge_into import MergeInto
from lakecore.table.verbs.merge_plan import SOURCE, TARGET, Match, MergePlan
from lakecore.table.verbs.row_writer import Changed, as_verbs_read, commit_changes

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
