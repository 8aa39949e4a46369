"""MERGE into a table without a key: files in which a clause applies to a row are written anew.

Each file that may match is read twice: once for the columns that choosing clauses takes, and, if
one applies, whole. The rows that no clause applies to go to the new files as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.plan.row_changes import Verb
from lakecore.table.copy_on_write import FileRewriter, with_values
from lakecore.table.merge_plan import Action, Match, on_fields, plan_merge
from lakecore.table.merge_rows import (
    SourcePart,
    check_once,
    chosen_steps,
    holding,
    join_keys,
    matching_pairs,
)
from lakecore.table.merge_sides import SOURCE, TARGET, Picked
from lakecore.table.merge_source import MergeSource
from lakecore.table.row_values import values_of
from lakecore.table.row_writer import newest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from lakecore.model.files import Split
    from lakecore.model.snapshot import CommitResult
    from lakecore.table.batch_write import Author
    from lakecore.table.context import TableContext
    from lakecore.table.merge_plan import Clause, MergePlan, Step
    from lakecore.table.source import TableSource


def merge_files(
    context: TableContext,
    data: object,
    on: Sequence[str] | pl.Expr | str,
    clauses: Sequence[Clause],
    by: Author,
) -> CommitResult:
    """Carry the clauses out, in one commit; see `MergeInto`."""
    schema = context.schema
    if not clauses:
        raise InvalidRequest("a merge needs a clause: when_matched_..., when_not_matched_...")
    if isinstance(on, str) and on in schema.names:
        on = (on,)
    target = newest(context, Verb.MERGE)
    with MergeSource(data, on_fields(schema, on), context.budget) as source:
        plan = plan_merge(schema, context.options, source.schema, on, clauses)
        if source.part_count > 1:
            raise Unsupported(
                "a source larger than its share of memory is merged into tables with a primary key",
                table=context.identifier,
            )
        rows = source.part(0)
        found = np.zeros(rows.num_rows, bool)
        part = SourcePart(rows=rows, number=0, count=1, found=found)
        with FileRewriter(context, target, Verb.MERGE) as rewriter:
            _FileMerge(context=context, target=target, plan=plan, rewriter=rewriter).run(part)
            return rewriter.commit(by)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileMerge:
    """A merge under way."""

    context: TableContext
    target: TableSource
    plan: MergePlan
    rewriter: FileRewriter

    def run(self, part: SourcePart) -> None:
        """Merge the source."""
        plan = self.plan
        predicate = None
        if plan.on and not plan.steps[Match.NOT_MATCHED_BY_SOURCE]:
            predicate = holding(part.rows, plan.on, self.context.schema)
        for split in self.target.plan(predicate).splits:
            for file in split.files:
                self._file(self.rewriter.alone(split, file), part)
        new = Picked(part.rows, np.flatnonzero(~part.found))
        for step, chosen in chosen_steps(plan.steps[Match.NOT_MATCHED], new, None):
            rows = step.sides.rows(step.values.values(), new.of(chosen), None)
            values = values_of(rows, step.values, self.context.schema.arrow)
            self.rewriter.insert(pa.table(values))

    def _file(self, alone: Split, part: SourcePart) -> None:
        """Merge one file, if a clause applies to one of its rows."""
        applies = False
        for rows in self.rewriter.rows(alone, self.plan.first):
            at, of = matching_pairs(
                join_keys(rows, self.plan, TARGET),
                join_keys(part.rows, self.plan, SOURCE),
                self.plan,
            )
            part.found[of] = True
            if self.plan.steps[Match.MATCHED]:
                check_once(rows, at, self.context)
            applies = applies or any(True for _ in self._changes(rows, part, at, of))
        if applies:
            self.rewriter.replace(alone)
            for rows in self.rewriter.rows(alone, self.context.schema.names):
                self._write(rows, part)

    def _write(self, rows: pa.Table, part: SourcePart) -> None:
        """Write what the clauses leave of the rows."""
        at, of = matching_pairs(
            join_keys(rows, self.plan, TARGET), join_keys(part.rows, self.plan, SOURCE), self.plan
        )
        stays = np.ones(rows.num_rows, bool)
        for step, target, source in self._changes(rows, part, at, of):
            stays[target.at] = False
            if step.action is Action.DELETE:
                self.rewriter.rows_deleted += len(target.at)
                continue
            named = step.sides.rows(step.values.values(), source, target)
            values = values_of(named, step.values, self.context.schema.arrow)
            self.rewriter.write(with_values(target.table(rows.schema.names), values))
            self.rewriter.rows_updated += len(target.at)
        self.rewriter.write(rows.filter(pa.array(stays)))

    def _changes(
        self, rows: pa.Table, part: SourcePart, at: np.ndarray, of: np.ndarray
    ) -> Iterator[tuple[Step, Picked, Picked | None]]:
        """Each step that applies to rows of a file, those rows, and their partners."""
        steps = self.plan.steps
        target, source = Picked(rows, at), Picked(part.rows, of)
        for step, chosen in chosen_steps(steps[Match.MATCHED], source, target):
            yield step, target.of(chosen), source.of(chosen)
        alone = np.ones(rows.num_rows, bool)
        alone[at] = False
        others = Picked(rows, np.flatnonzero(alone))
        for step, chosen in chosen_steps(steps[Match.NOT_MATCHED_BY_SOURCE], None, others):
            yield step, others.of(chosen), None
