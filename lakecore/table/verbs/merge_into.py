"""MERGE: what happens to the rows of a table that a source matches, or does not, clause by clause.

`MergeInto` collects the clauses, and `execute` carries them out: `merge_rows.py` for a table with a
primary key, `merge_files.py` for one without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.forks import require_threads
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER
from lakecore.table.reads.row_values import named_values
from lakecore.table.verbs.merge_files import merge_files
from lakecore.table.verbs.merge_plan import Action, Clause, Match
from lakecore.table.verbs.merge_rows import merge_rows
from lakecore.table.writes.batch_write import author

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from lakecore.model.snapshot import CommitResult
    from lakecore.table.context import TableContext


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeInto:
    """A merge that is being stated; each `when_...` gives one with another clause.

    A row that is *matched* is one of the table with its row of the source; *not matched*, one of
    the source alone; *not matched by source*, one of the table alone. For each, the first clause
    of its sort whose condition holds applies; if none does, it stays as it is.

    A condition is a Polars expression or SQL text. Values are Polars expressions, SQL
    (`lakecore.sql_expr`) or plain values by column. `source.x` and `target.x` name the columns of
    the two sides, as in `pl.col("source.price")`; `x` alone is the column of the one side that has
    it.
    """

    context: TableContext
    source: object
    on: Sequence[str] | pl.Expr | str
    clauses: tuple[Clause, ...] = ()

    def when_matched_update(
        self, values: Mapping[str, object], condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Set columns of rows that are matched; the others stay."""
        return self._with(Match.MATCHED, Action.UPDATE, condition, named_values(values))

    def when_matched_update_all(self, condition: pl.Expr | str | None = None) -> MergeInto:
        """Set every column of rows that are matched to the source's of the same name."""
        return self._with(Match.MATCHED, Action.UPDATE, condition)

    def when_matched_delete(self, condition: pl.Expr | str | None = None) -> MergeInto:
        """Take rows away that are matched."""
        return self._with(Match.MATCHED, Action.DELETE, condition)

    def when_not_matched_insert(
        self, values: Mapping[str, object], condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Add rows of these values; other columns get their default value, or null."""
        return self._with(Match.NOT_MATCHED, Action.INSERT, condition, named_values(values))

    def when_not_matched_insert_all(self, condition: pl.Expr | str | None = None) -> MergeInto:
        """Add the source's rows, column by column of the same name."""
        return self._with(Match.NOT_MATCHED, Action.INSERT, condition)

    def when_not_matched_by_source_update(
        self, values: Mapping[str, object], condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Set columns of rows that the source does not match."""
        return self._with(
            Match.NOT_MATCHED_BY_SOURCE, Action.UPDATE, condition, named_values(values)
        )

    def when_not_matched_by_source_delete(
        self, condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Take rows away that the source does not match."""
        return self._with(Match.NOT_MATCHED_BY_SOURCE, Action.DELETE, condition)

    def execute(
        self, *, commit_user: str | None = None, identifier: int = BATCH_COMMIT_IDENTIFIER
    ) -> CommitResult:
        """Carry it out in one commit; how many rows were inserted, updated and deleted.

        Raises InvalidRequest if several rows of the source match one row of the table, or a value
        does not fit; Unsupported if the merge engine cannot do it; CommitConflict if somebody else
        changed one of the rows meanwhile.
        """
        require_threads()
        by = author(self.context, commit_user, identifier)
        merge = merge_rows if self.context.schema.primary_keys else merge_files
        return merge(self.context, self.source, self.on, self.clauses, by)

    def _with(
        self,
        match: Match,
        action: Action,
        condition: pl.Expr | str | None,
        values: Mapping[str, object] | None = None,
    ) -> MergeInto:
        clause = Clause(match=match, action=action, condition=condition, values=values)
        return replace(self, clauses=(*self.clauses, clause))
