"""The rows of a commit, drawn: keys that meet again, each with a kind that the engine takes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.differential.plans import ADDS, RETRACTS
from tests.interop.columns import Column

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.differential.plans import ColumnPlan, EnginePlan
    from tests.differential.steps import Change
    from tests.interop.columns import Json
    from tests.interop.values import Row

ROWS_MAX = 30
SIZES = (1, 3, 8, 15, ROWS_MAX)


class RowDraws:
    """Rows of one table. `keys` and `columns` are as now: a change of the schema sets them anew."""

    def __init__(
        self,
        chance: random.Random,
        plan: EnginePlan,
        keys: Sequence[ColumnPlan],
        columns: Sequence[ColumnPlan],
    ) -> None:
        """Draw the keys that rows will have."""
        self.keys = list(keys)
        self.columns = list(columns)
        self._chance = chance
        self._plan = plan
        self._kind_column = plan.options.get("rowkind.field")
        self._held = [[key.draw(chance) for key in keys] for _ in range(chance.randint(1, 8))]
        # Keys that a merge of all files begins with a row that adds.
        self._begun: set[str] = set()
        self._deleted: set[str] = set()
        self._ever: set[str] = set()

    def forget(self, *, deleted: bool = False) -> None:
        """Let any row be the first of its key; with `deleted`, any key may have been deleted."""
        # A full compaction drops deletions, so the next row of a key may be its first.
        self._begun.clear()
        if deleted:
            self._deleted |= self._ever

    def rename(self, old: str, new: str) -> None:
        """Give a column of the key another name."""
        self.keys = [
            replace(key, column=Column(new, key.column.type)) if key.name == old else key
            for key in self.keys
        ]

    def commit(self, *, inside: tuple[str, Json] | None = None, adds: bool = False) -> list[Change]:
        """Some changes; `inside` fixes a column, `adds` leaves out what retracts."""
        chance, plan = self._chance, self._plan
        count = chance.choice(SIZES)
        if not plan.keyed:
            return [("+I", self.row(None, inside)) for _ in range(count)]
        drawn = [self._moved(chance.choice(self._held), inside) for _ in range(count)]
        if "descending" in plan.tags:
            drawn = [list(key) for key in {repr(key): key for key in drawn}.values()]
        kinds = [(key, chance.choice(ADDS)) for key in drawn]
        kinds = kinds if adds and not self._kind_column else self._kinds(drawn)
        self._begun |= {repr(key) for key in drawn}
        self._ever |= self._begun
        changes = []
        for key, drawn_kind in kinds:
            kind, name = drawn_kind, repr(key)
            if plan.deletes_stay and kind == "-U" and name in self._deleted:
                kind = "-D"
            self._deleted = self._deleted | {name} if kind == "-D" else self._deleted - {name}
            row = self.row(key, (self._kind_column, "+I") if adds and self._kind_column else None)
            changes.append((kind, self._held_on_delete(row) if kind == "-D" else row))
        return changes

    def upserted(self, on: Sequence[ColumnPlan]) -> list[Row]:
        """Rows to merge in, no two alike in these columns."""
        found: dict[str, Row] = {}
        names = [column.name for column in self.columns]
        at = [names.index(column.name) for column in on]
        for _ in range(self._chance.choice((1, 3, 8))):
            row = self.row(self._chance.choice(self._held) if self._plan.keyed else None)
            found[repr([row[index] for index in at])] = row
        return list(found.values())

    def row(self, key: list[Json] | None, inside: tuple[str, Json] | None = None) -> Row:
        """A row of a key."""
        fixed: dict[str, Json] = dict([inside] if inside else [])
        if key is not None:
            fixed |= {column.name: value for column, value in zip(self.keys, key, strict=True)}
        return [
            fixed[column.name] if column.name in fixed else column.draw(self._chance)
            for column in self.columns
        ]

    def _moved(self, key: list[Json], inside: tuple[str, Json] | None) -> list[Json]:
        """The key within a partition."""
        if inside is None:
            return key
        name, value = inside
        return [
            value if column.name == name else part
            for column, part in zip(self.keys, key, strict=True)
        ]

    def _kinds(self, drawn: list[list[Json]]) -> list[tuple[list[Json], str]]:
        """The keys of a commit, each with the kind of its row."""
        chance, plan = self._chance, self._plan
        if "rowkind.field" in plan.options:
            return [(key, "+I") for key in drawn]
        found = []
        for key in drawn:
            retracts = chance.random() < plan.retracts
            found.append((key, chance.choice(RETRACTS if retracts else ADDS)))
        if plan.pairs:
            # Changes as a database tells them: the row before, the row after.
            known = [key for key in drawn if repr(key) in self._begun]
            found = [pair for key in known for pair in ((key, "-U"), (key, "+U"))] + found
        return self._adds_first(found) if plan.adds_first else found

    def _adds_first(self, found: list[tuple[list[Json], str]]) -> list[tuple[list[Json], str]]:
        """The same, but a key's first row adds, unless it is the only one and older ones stand."""
        often: dict[str, int] = {}
        for key, _ in found:
            often[repr(key)] = often.get(repr(key), 0) + 1
        seen: set[str] = set()
        out = []
        for key, kind in found:
            first = repr(key) not in seen
            seen.add(repr(key))
            fine = repr(key) in self._begun and (self._plan.pairs or often[repr(key)] == 1)
            out.append((key, "+I" if first and kind in RETRACTS and not fine else kind))
        return out

    def _held_on_delete(self, row: Row) -> Row:
        """The row with the columns filled that a -D must hold to remove a record."""
        return [
            column.pool[0] if value is None and column.name in self._plan.on_delete else value
            for column, value in zip(self.columns, row, strict=True)
        ]
