"""MERGE: the builder of its clauses.

`MergeInto` collects the clauses, and `execute` runs them (`merge_files.py`). A table with a primary
key gets the changed rows (`merge_rows.py`). In a table without one, rows are marked or files are
rewritten (`merge_files.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from lakecore.forks import require_threads
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER
from lakecore.plan.row_changes import Verb
from lakecore.table.reads.row_values import named_values
from lakecore.table.verbs.merge_files import MergeRequest, merged, merging
from lakecore.table.verbs.merge_plan import Action, Clause, Match
from lakecore.table.verbs.row_writer import commit_changes
from lakecore.table.writes.batch_write import author

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from lakecore.model.snapshot import CommitResult
    from lakecore.table.context import TableContext
    from lakecore.table.writes.batch_write import Author

Runner: TypeAlias = "Callable[[TableContext, object, MergeRequest, Author], CommitResult]"
"""Carries out a merge. The arguments are the table, the source, the request and the author."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MergeInto:
    """The builder of a MERGE; each `when_...` method returns a new builder with one more clause.

    - A *matched* row is a row of the table together with its row of the source.
    - A *not matched* row is a row of the source without a row of the table.
    - A row *not matched by source* is a row of the table without a row of the source.

    For each row, the first clause for rows of its kind whose condition is true applies. If none
    applies, a row of the table stays unchanged, and a row of the source is not inserted.

    A condition is a Polars expression or an SQL string. Values are Polars expressions, SQL
    (`lakecore.sql_expr`) or plain values, by column. `source.x` and `target.x` name the columns of
    the two sides, as in `pl.col("source.price")`; `x` alone works if only one side has it.

        merge = table.merge(rows, on=["id"]).when_matched_delete("source.deleted")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    """

    context: TableContext
    source: object
    on: Sequence[str] | pl.Expr | str
    clauses: tuple[Clause, ...] = ()
    run: Runner | None = None
    """Carries out the merge on another engine; None: this process does it."""

    def __repr__(self) -> str:
        count = len(self.clauses)
        clauses = "1 clause" if count == 1 else f"{count} clauses"
        return (
            f"MergeInto({self.context.identifier!r}, {clauses}: nothing has happened yet; "
            "execute() runs the merge)"
        )

    def when_matched_update(
        self, values: Mapping[str, object], condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Set columns of matched rows; other columns keep their values."""
        return self._with(Match.MATCHED, Action.UPDATE, condition, named_values(values))

    def when_matched_update_all(self, condition: pl.Expr | str | None = None) -> MergeInto:
        """Set every column of matched rows to the source column of the same name."""
        return self._with(Match.MATCHED, Action.UPDATE, condition)

    def when_matched_delete(self, condition: pl.Expr | str | None = None) -> MergeInto:
        """Delete matched rows."""
        return self._with(Match.MATCHED, Action.DELETE, condition)

    def when_not_matched_insert(
        self, values: Mapping[str, object], condition: pl.Expr | str | None = None
    ) -> MergeInto:
        """Insert rows with these values; other columns get their default value, or null."""
        return self._with(Match.NOT_MATCHED, Action.INSERT, condition, named_values(values))

    def when_not_matched_insert_all(self, condition: pl.Expr | str | None = None) -> MergeInto:
        """Insert source rows; every column gets the source column of the same name."""
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
        """Delete rows that the source does not match."""
        return self._with(Match.NOT_MATCHED_BY_SOURCE, Action.DELETE, condition)

    def execute(
        self, *, commit_user: str | None = None, identifier: int = BATCH_COMMIT_IDENTIFIER
    ) -> CommitResult:
        """Run the merge in one commit. The result counts inserted, updated and deleted rows.

        Raises InvalidRequest if several source rows match one row of the table, or a value does not
        fit; Unsupported if the merge engine cannot apply a clause; CommitConflict if a concurrent
        commit changed one of the rows.
        """
        require_threads()
        by = author(self.context, commit_user, identifier)
        request = MergeRequest(on=self.on, clauses=self.clauses)
        if self.run is not None:
            return self.run(self.context, self.source, request, by)
        target, request = merging(self.context, request)
        done = merged(self.context, target, self.source, request)
        return commit_changes(self.context, Verb.MERGE, [done.changed], by)

    def _with(
        self,
        match: Match,
        action: Action,
        condition: pl.Expr | str | None,
        values: Mapping[str, object] | None = None,
    ) -> MergeInto:
        clause = Clause(match=match, action=action, condition=condition, values=values)
        return replace(self, clauses=(*self.clauses, clause))
