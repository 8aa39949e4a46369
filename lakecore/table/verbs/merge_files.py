"""MERGE into a table without a key: rows to which a clause applies are marked or rewritten.

1. From each file that may hold matching rows, read the columns that decide which clause applies.
   Insert the source rows that match no row of the table.
2. From each file with a row to which a clause applies, read all columns. With deletion vectors,
   mark the old rows and write the changed rows; otherwise rewrite the file, and copy the unchanged
   rows (`file_changes.py`).

A source that does not fit in memory is merged in parts. The table's rows that a step reads are
then partitioned to local disk like the source (`row_parts.py`), so each step reads a file once.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.table.reads.row_values import values_of
from lakecore.table.verbs.file_changes import with_values
from lakecore.table.verbs.merge_plan import Action, Match
from lakecore.table.verbs.merge_rows import (
    SourcePart,
    check_once,
    chosen_steps,
    holding,
    in_chunks,
    join_keys,
    matching_pairs,
)
from lakecore.table.verbs.merge_sides import SOURCE, TARGET, Picked
from lakecore.table.verbs.row_parts import RowParts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakecore.model.files import Split
    from lakecore.table.context import TableContext
    from lakecore.table.reads.source import TableSource
    from lakecore.table.verbs.column_changes import ColumnChanges
    from lakecore.table.verbs.file_changes import FileChanges
    from lakecore.table.verbs.merge_plan import MergePlan, Step
    from lakecore.table.verbs.merge_source import MergeSource

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
