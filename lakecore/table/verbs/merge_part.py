"""A MERGE, or a part of one that another process carries out: some splits and some source rows.

1. `merging` checks the clauses against the table and chooses the state that is read.
2. `merged` applies the clauses to the splits of `target` and writes the files. With `inserts`
   False, source rows without a match are only flagged, because other parts may match them.
3. `inserted` inserts the rows that no part has matched.

Nothing is visible before `commit_changes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.plan.row_changes import Verb, check_deletion, check_engine
from lakecore.table.verbs.column_changes import changes_of, require_deletion
from lakecore.table.verbs.merge_files import FileMerge
from lakecore.table.verbs.merge_plan import Action, on_fields, plan_merge
from lakecore.table.verbs.merge_rows import RowMerge, SourcePart
from lakecore.table.verbs.merge_source import MergeSource
from lakecore.table.verbs.row_writer import RowWriter, newest

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import polars as pl

    from lakecore.table.context import TableContext
    from lakecore.table.reads.source import TableSource
    from lakecore.table.verbs.merge_plan import Clause, MergePlan
    from lakecore.table.verbs.verb_write import Changed
    from lakecore.table.writes.write_start import WriteStart


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """The condition or columns of a MERGE, and its clauses, as the user stated them. Picklable."""

    on: Sequence[str] | pl.Expr | str
    clauses: Sequence[Clause]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What a merge has changed.

    `found` flags the source rows that matched a row of the table; None if the source had to be
    merged in several parts.
    """

    changed: Changed
    found: np.ndarray | None


def merging(context: TableContext, request: MergeRequest) -> tuple[TableSource, MergeRequest]:
    """Check the clauses. Returns the state that a MERGE reads, and the request.

    A single column name in `on` becomes a list.
    """
    on, clauses = request.on, request.clauses
    if not clauses:
        raise InvalidRequest("a merge needs a clause: when_matched_..., when_not_matched_...")
    if any(clause.action is Action.DELETE for clause in clauses):
        require_deletion(context)
    if isinstance(on, str) and on in context.schema.names:
        on = (on,)
    if context.schema.primary_keys:
        check_engine(context.options, Verb.MERGE)
        if any(clause.action is Action.DELETE for clause in clauses):
            check_deletion(context.options)
    return newest(context, Verb.MERGE), MergeRequest(on=on, clauses=clauses)


def source_plan(context: TableContext, empty: object, request: MergeRequest) -> MergePlan:
    """The plan of a merge with a source that has the columns of `empty`."""
    with _source(context, empty, request) as source:
        return plan_merge(context, source.schema, request.on, request.clauses)


def merged(
    context: TableContext,
    target: TableSource,
    data: object,
    request: MergeRequest,
    *,
    base: WriteStart | None = None,
    inserts: bool = True,
) -> Merged:
    """Apply the clauses to the rows of a source and of `target`.

    `base` has the facts of the table that a writer needs (None: they are read).
    """
    with _source(context, data, request) as source:
        plan = plan_merge(context, source.schema, request.on, request.clauses)
        if source.part_count > 1 and not plan.on:
            raise Unsupported(
                "a source larger than its share of memory is merged on columns, not on a condition",
                on=str(request.on),
            )
        one_part = source.part_count == 1
        if context.schema.primary_keys:
            with RowWriter(context, target, base) as writer:
                rows = RowMerge(context=context, target=target, plan=plan, writer=writer)
                found = rows.run(source, inserts=inserts)
                return Merged(changed=writer.changed(), found=found if one_part else None)
        with changes_of(context, target, plan.set_columns, base) as changes:
            files = FileMerge(
                context=context, target=target, source=source, plan=plan, changes=changes
            )
            found = files.run(inserts=inserts)
            return Merged(changed=changes.changed(), found=found if one_part else None)


def inserted(
    context: TableContext,
    target: TableSource,
    data: object,
    request: MergeRequest,
    found: np.ndarray,
) -> Changed:
    """Insert the source rows that matched no row in any part. For tables without a key."""
    with _source(context, data, request) as source:
        plan = plan_merge(context, source.schema, request.on, request.clauses)
        part = SourcePart(rows=source.part(0), number=0, count=1, found=found)
        with changes_of(context, target, plan.set_columns) as changes:
            FileMerge(
                context=context, target=target, source=source, plan=plan, changes=changes
            ).insert(part)
            return changes.changed()


def _source(context: TableContext, data: object, request: MergeRequest) -> MergeSource:
    fields = context.schema.fields
    return MergeSource(data, on_fields(context.schema, request.on), context.budget, columns=fields)
