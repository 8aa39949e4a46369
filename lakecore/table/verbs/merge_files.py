"""MERGE into a table without a key: rows to which a clause applies are marked or rewritten.

1. From each file that may hold matching rows, read the columns that decide which clause applies.
   Insert the source rows that match no row of the table.
2. From each file with a row to which a clause applies, read all columns. With deletion vectors,
   mark the old rows and write the changed rows; otherwise rewrite the file, and copy the unchanged
   rows (`column_changes.py`).

A source that does not fit in memory is merged in parts. The table's rows that a step reads are
then partitioned to local disk like the source (`row_parts.py`), so each step reads a file once.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.forks import require_threads
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitResult
from lakecore.plan.row_changes import Verb, check_deletion, check_engine
from lakecore.table.reads.row_values import named_values, values_of
from lakecore.table.reads.source import TableSource
from lakecore.table.verbs.column_changes import (
    ColumnChanges,
    FileChanges,
    changes_of,
    require_deletion,
    with_values,
)
from lakecore.table.verbs.merge_plan import (
    SOURCE,
    TARGET,
    Action,
    Clause,
    Match,
    MergePlan,
    Picked,
    RowParts,
    Step,
    on_fields,
    plan_merge,
)
from lakecore.table.verbs.merge_rows import (
    MergeSource,
    RowMerge,
    SourcePart,
    check_once,
    chosen_steps,
    holding,
    in_chunks,
    join_keys,
    matching_pairs,
)
from lakecore.table.verbs.row_writer import Changed, RowWriter, commit_changes, newest
from lakecore.table.writes.batch_write import Author, author

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import polars as pl

    from lakecore.model.files import Split
    from lakecore.table.context import TableContext
    from lakecore.table.writes.write_start import WriteStart

_FILE = "_lakecore_file"
_POSITION = "_lakecore_position"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMerge:
    """A MERGE into a table without a key, while it runs."""

    context: TableContext
    target: TableSource
    source: MergeSource
    plan: MergePlan
    changes: FileChanges | ColumnChanges

    def run(self, *, inserts: bool) -> np.ndarray:
        """Merge the source. With `inserts`, source rows without a match are inserted.

        If the source is one part, returns a flag for each source row: whether it matched.
        """
        files = self._files()
        touched: set[int] = set()
        with self._parted(self.plan.first, dict(enumerate(files))) as parted:
            for part in self._parts():
                for rows in parted(part):
                    applied = [target.column(_FILE) for _, target, _ in self._changes(rows, part)]
                    touched.update(*(pc.unique(each).to_pylist() for each in applied))
                found = part.found
                if inserts:
                    self.insert(part)
        anew = {number: files[number] for number in sorted(touched)}
        for alone in anew.values():
            self.changes.take(alone)
        with self._parted(self._needed(), anew) as parted:
            for part in self._parts() if anew else ():
                for rows in parted(part):
                    self._write(rows, part, anew)
        return found

    def _parts(self) -> Iterator[SourcePart]:
        count = self.source.part_count
        for number in range(count):
            rows = self.source.part(number)
            found = np.zeros(rows.num_rows, bool)
            yield SourcePart(rows=rows, number=number, count=count, found=found)

    def _files(self) -> list[Split]:
        """The files that may hold matching rows, as one split for each."""
        found: dict[str, Split] = {}
        choosy = bool(self.plan.on) and not self.plan.steps[Match.NOT_MATCHED_BY_SOURCE]
        for number in range(self.source.part_count if choosy else 1):
            predicate = None
            if choosy:
                rows = self.source.part(number)
                predicate = holding(rows, self.plan.on, self.context.schema)
            for split in self.target.plan(predicate).splits:
                for unit in self.changes.units(split):
                    found.setdefault(unit.files[0].name, unit)
        return list(found.values())

    def _needed(self) -> tuple[str, ...]:
        """The columns of the rows that are changed or copied, and those that clauses read."""
        steps = [step for each in self.plan.steps.values() for step in each]
        read = (n for step in steps for n in step.sides.target_columns(step.values.values()))
        return tuple(dict.fromkeys((*self.changes.names, *self.plan.first, *read)))

    @contextmanager
    def _parted(
        self, names: Sequence[str], files: Mapping[int, Split]
    ) -> Iterator[Callable[[SourcePart], Iterator[pa.Table]]]:
        """Yields a function that returns the table rows which may match a given source part.

        Each row also has its position and the number of its file.
        """

        def read() -> Iterator[pa.Table]:
            for number, alone in files.items():
                for positions, rows in self.changes.rows(alone, names):
                    numbered = rows.append_column(_FILE, pa.repeat(number, rows.num_rows))
                    yield numbered.append_column(_POSITION, pa.array(positions))

        if self.source.part_count == 1:
            yield lambda _: read()
            return
        with RowParts(self.plan.on) as parts:
            for rows in in_chunks(_batches(read()), 0):
                parts.add(rows)
            yield lambda part: (
                rows.combine_chunks()
                for rows in in_chunks(_batches(parts.part(part.number, part.count)), 0)
            )

    def insert(self, part: SourcePart) -> None:
        """Insert the source rows that matched no row of the table."""
        new = Picked(part.rows, np.flatnonzero(~part.found))
        for step, chosen in chosen_steps(self.plan.steps[Match.NOT_MATCHED], new, None):
            rows = step.sides.rows(step.values.values(), new.of(chosen), None)
            values = values_of(rows, step.values, self.context.schema.arrow)
            self.changes.insert(pa.table(values))

    def _write(self, rows: pa.Table, part: SourcePart, files: Mapping[int, Split]) -> None:
        """Apply the clauses to rows of the table, and write the result."""
        names = self.changes.names
        stays = np.ones(rows.num_rows, bool)
        for step, target, source in self._changes(rows, part):
            stays[target.at] = False
            if step.action is Action.DELETE:
                for unit, positions, _ in _by_unit(target, files):
                    self.changes.remove(unit, positions)
                continue
            named = step.sides.rows(step.values.values(), source, target)
            values = values_of(named, step.values, self.context.schema.arrow)
            new = with_values(target.table(names), values)
            for unit, positions, places in _by_unit(target, files):
                self.changes.replace(unit, positions, new.take(pa.array(places)))
        self.changes.keep(rows, stays)

    def _changes(
        self, rows: pa.Table, part: SourcePart
    ) -> Iterator[tuple[Step, Picked, Picked | None]]:
        """Each step that applies to some rows, these rows, and their matching source rows."""
        steps = self.plan.steps
        at, of = matching_pairs(
            join_keys(rows, self.plan, TARGET), join_keys(part.rows, self.plan, SOURCE), self.plan
        )
        part.found[of] = True
        if steps[Match.MATCHED]:
            check_once(rows.drop_columns([_FILE, _POSITION]), at, self.context)
        target, source = Picked(rows, at), Picked(part.rows, of)
        for step, chosen in chosen_steps(steps[Match.MATCHED], source, target):
            yield step, target.of(chosen), source.of(chosen)
        alone = np.ones(rows.num_rows, bool)
        alone[at] = False
        others = Picked(rows, np.flatnonzero(alone))
        for step, chosen in chosen_steps(steps[Match.NOT_MATCHED_BY_SOURCE], None, others):
            yield step, others.of(chosen), None


def _by_unit(
    changed: Picked, units: Mapping[int, Split]
) -> Iterator[tuple[Split, np.ndarray, np.ndarray]]:
    """For each unit: the unit, positions of its changed rows, and their indexes in `changed`."""
    numbers = changed.column(_FILE).to_numpy()
    positions = changed.column(_POSITION).to_numpy()
    by_number = np.argsort(numbers, kind="stable")
    bounds = np.flatnonzero(np.diff(numbers[by_number])) + 1
    for places in np.split(by_number, bounds):
        if len(places):
            yield units[int(numbers[places[0]])], positions[places], places


def _batches(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    for rows in tables:
        yield from rows.to_batches()


# --- merge part ----------------------------------------------------------------------------------
# A MERGE, or a part of one that another process carries out: some splits and some source rows.
#
# 1. `merging` checks the clauses against the table and chooses the state that is read.
# 2. `merged` applies the clauses to the splits of `target` and writes the files. With `inserts`
#    False, source rows without a match are only flagged, because other parts may match them.
# 3. `inserted` inserts the rows that no part has matched.
#
# Nothing is visible before `commit_changes`.


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
    target: TableSource | Callable[[], TableSource],
    data: object,
    request: MergeRequest,
    *,
    base: WriteStart | None = None,
    inserts: bool = True,
) -> Merged:
    """Apply the clauses to the rows of a source and of `target`.

    `target`: a function is called once all rows of the source are read. `base` has the facts of the
    table that a writer needs (None: they are read).
    """
    with _source(context, data, request) as source:
        target = target if isinstance(target, TableSource) else target()
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


# --- merge into ----------------------------------------------------------------------------------
# MERGE: the builder of its clauses.
#
# `MergeInto` collects the clauses, and `execute` runs them (`merge_files.py`). A table with a
# primary key gets the changed rows (`merge_rows.py`). In a table without one, rows are marked or
# files are rewritten (`merge_files.py`).

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

        merge = table.merge(rows, on=["id"]).when_matched_delete("source.n = 0")
        merge = merge.when_matched_update({"n": pl.col("source.n")}, "source.n < 9")
        merge = merge.when_matched_update_all()
        merge = merge.when_not_matched_insert({"id": pl.col("source.id")}, "n is null")
        merge = merge.when_not_matched_insert_all()
        merge = merge.when_not_matched_by_source_delete("item is null")
        one_more = lakecore.sql_expr("n + 1")
        merge = merge.when_not_matched_by_source_update({"n": one_more})
        merge.execute()
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
