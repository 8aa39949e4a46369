"""The steps of a history, drawn: writes, and between them what else happens to a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tests.differential.alter_draws import AlterDraws
from tests.differential.layout_draws import sortable_columns
from tests.differential.row_draws import RowDraws
from tests.differential.steps import (
    Alter,
    Clear,
    Cluster,
    Compact,
    Delete,
    Index,
    Overwrite,
    Rescale,
    RollBack,
    Tag,
    Untag,
    Update,
    Upsert,
    Where,
    Write,
)
from tests.interop import values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.differential.layout_draws import Layout
    from tests.differential.plans import ColumnPlan, EnginePlan
    from tests.differential.steps import Step, Verb
    from tests.differential.value_draws import Dice
    from tests.interop.columns import Json
    from tests.interop.model import Case

WRITES_MAX = 5
# The share of tables to which a kind of step happens; and of gaps between writes, of these.
ALTERED, OVERWRITTEN, CLEARED, TRAVELLED, CHANGED = 0.45, 0.3, 0.12, 0.3, 0.55
OFTEN = 0.5
# Types whose values are texts of themselves, as a literal and as the value of a partition.
_PLAIN = frozenset({*values.INTEGERS, "STRING", "VARCHAR"})
_SPELLED = frozenset({*_PLAIN, "DATE", "DECIMAL", "BOOLEAN"})


class StepDraws:
    """The steps of one table."""

    def __init__(
        self,
        dice: Dice,
        plan: EnginePlan,
        table: Case,
        keys: Sequence[ColumnPlan],
        columns: Sequence[ColumnPlan],
        *,
        inline: bool,
        layout: Layout = "plain",
    ) -> None:
        """`keys`: the primary key, or by what rows without one are placed."""
        self._chance = dice.chance
        self._plan = plan
        self._table = table
        self._inline = inline
        self._layout = layout
        self._bucket = table.options["bucket"]
        named = {
            name
            for key, text in table.options.items()
            for name in (*text.split(","), *key.removeprefix("fields.").split(".")[0].split(","))
        }
        fixed = {column.name for column in columns if column.name in named}
        self._rows = RowDraws(self._chance, plan, keys if plan.keyed else (), columns)
        self._alters = AlterDraws(dice, table, fixed)
        self._tags = 0

    def steps(self) -> Iterator[Step]:
        """All of them, in order."""
        chance, plan = self._chance, self._plan
        happening = [each for each, share in self._happenings() if chance.random() < share]
        compacting = plan.compacts_always or chance.random() < 0.25
        for number in range(chance.randint(1, WRITES_MAX)):
            for happen in happening if number else ():
                if chance.random() < OFTEN:
                    yield from happen()
            postponed = self._layout == "postponed"
            for _ in range(chance.choice((1, 1, 2, 3)) if postponed and self._foldable else 1):
                yield Write(tuple(self._rows.commit()))
                if self._inline:
                    self._rows.forget()
            # What is postponed must be moved before anything else happens to the table.
            always = plan.compacts_always or postponed
            if always or (compacting and chance.random() < 0.4):
                yield Compact(full=chance.random() < 0.5 or self._needs_full)
                self._rows.forget()
        for happen in happening:
            if chance.random() < OFTEN:
                yield from happen()

    @property
    def _foldable(self) -> bool:
        """Whether rows of several commits may be folded at once, or commit by commit, alike."""
        options = self._plan.options
        folds = options.get("merge-engine") in ("partial-update", "aggregation")
        ordered = self._plan.retracts > 0 or any("sequence" in key for key in options)
        return not (folds and ordered)

    @property
    def _needs_full(self) -> bool:
        """Whether every compaction is full: see `differences.NOT_DRAWN`."""
        told = self._table.options.get("changelog-producer") == "full-compaction"
        return self._layout == "expiring" or (self._layout == "postponed" and told)

    def _happenings(self) -> list[tuple[Callable[[], Iterator[Step]], float]]:
        return [
            (self._alter, ALTERED),
            # lakecore refuses it where keys move between partitions, as the peer cannot.
            (self._overwrite, 0.0 if self._layout == "across" else OVERWRITTEN),
            (self._clear, CLEARED),
            (self._travel, TRAVELLED),
            (self._verb, CHANGED if self._plan.verbs else 0.0),
            *self._of_the_layout(),
        ]

    def _of_the_layout(self) -> list[tuple[Callable[[], Iterator[Step]], float]]:
        match self._layout:
            case "rescaled":
                return [(self._rescale, 1.0)]
            case "clustered":
                return [(self._cluster, 1.0)]
            case "indexed":
                return [(self._index, 0.5)]
            case "expiring":
                return [(self._expire, 1.0)]
            case "marked":
                return [(self._verb, 1.0)]
            case _:
                return []

    def _rescale(self) -> Iterator[Step]:
        if self._plan.keyed:
            # Java reads no rows that a compaction has yet to show.
            yield Compact(full=True)
            self._rows.forget()
        self._bucket = self._chance.choice([each for each in "12345" if each != self._bucket])
        yield Alter(("set", "bucket", self._bucket))
        yield Rescale()
        self._rows.forget(deleted=True)

    def _cluster(self) -> Iterator[Step]:
        able = sortable_columns(self._rows.columns)
        if able and "clustering.incremental" not in self._table.options:
            chosen = self._chance.sample(able, self._chance.randint(1, min(3, len(able))))
            strategy = self._chance.choice(("order", "zorder", "hilbert"))
            yield Cluster(strategy, tuple(chosen))
        else:
            yield Compact(full=self._chance.random() < 0.5)

    def _index(self) -> Iterator[Step]:
        yield Index()

    def _expire(self) -> Iterator[Step]:
        yield Compact(full=True)
        self._rows.forget(deleted=True)

    def _alter(self) -> Iterator[Step]:
        for _ in range(self._chance.choice((1, 1, 2))):
            drawn = self._alters.draw(self._rows.columns)
            if drawn is not None:
                change, self._rows.columns = drawn
                if change[0] == "rename" and isinstance(change[1], str):
                    self._rows.rename(str(change[1]), str(change[2]))
                yield Alter(change)

    def _overwrite(self) -> Iterator[Step]:
        chance = self._chance
        # An overwrite puts deletions at the last level, too, and Java tells them again.
        told = self._table.options.get("changelog-producer") in ("lookup", "full-compaction")
        adds = self._plan.adds_first or told
        inside = self._partition_value()
        self._rows.forget()
        bucket = self._bucket
        if not bucket.startswith("-") and not self._table.partition_keys and chance.random() < 0.3:
            # What is written in the place of all rows goes to as many buckets as are asked for now.
            self._bucket = chance.choice(("1", "2", "3", "4"))
            yield Alter(("set", "bucket", self._bucket))
            inside = None
        if inside is not None and chance.random() < 0.4:
            changes = self._rows.commit(inside=inside, adds=adds)
            yield Overwrite(tuple(changes), ((inside[0], _text(inside[1])),))
        else:
            yield Overwrite(tuple(self._rows.commit(adds=adds)), dynamic=chance.random() < 0.5)
        self._rows.forget(deleted=True)
        if self._plan.compacts_always:
            yield Compact(full=True)
            self._rows.forget()

    def _clear(self) -> Iterator[Step]:
        chosen = [self._partition_value() for _ in range(self._chance.choice((1, 1, 2)))]
        named = tuple({((name, _text(value)),): None for name, value in filter(None, chosen)})
        yield Clear(named if self._chance.random() < 0.7 else ())
        self._rows.forget(deleted=True)

    def _partition_value(self) -> tuple[str, Json] | None:
        """A partition key and one of its values, if it has one that is written as it is."""
        for column in self._rows.columns:
            if column.name in self._table.partition_keys and column.column.type.root in _SPELLED:
                able = [value for value in column.pool if _text(value).strip()]
                return (column.name, self._chance.choice(able)) if able else None
        return None

    def _travel(self) -> Iterator[Step]:
        chance = self._chance
        self._tags += 1
        if chance.random() < 0.6:
            yield Tag(f"t{self._tags}")
            if self._tags > 1 and chance.random() < 0.3:
                yield Untag(f"t{chance.randint(1, self._tags)}")
        if chance.random() < 0.6:
            yield RollBack(chance.choice((1, 1, 2, 3)))
            self._rows.forget(deleted=True)

    def _verb(self) -> Iterator[Step]:
        found = self._drawn_verb(self._chance.choice(self._plan.verbs))
        if found is not None:
            yield found
            self._rows.forget(deleted=True)

    def _drawn_verb(self, verb: str) -> Verb | None:
        chance, columns = self._chance, self._rows.columns
        if verb == "delete":
            return Delete(self._where())
        if verb == "upsert":
            if self._plan.keyed:
                on = tuple(key.name for key in self._rows.keys)
                return Upsert(tuple(self._rows.upserted(self._rows.keys)), on)
            able = [each for each in columns if each.column.type.root in _PLAIN]
            # A row that moves to another partition or bucket is not what a verb does.
            if not able or self._table.partition_keys or "bucket-key" in self._table.options:
                return None
            judge = chance.choice(able)
            return Upsert(tuple(self._rows.upserted([judge])), (judge.name,))
        able = [
            each
            for each in columns
            if each.column.type.root in {*_PLAIN, "BOOLEAN"} and each.name not in self._alters.fixed
        ]
        if not able:
            return None
        column = chance.choice(able)
        value = chance.choice(column.pool)
        # A null sets nothing where rows are parts.
        whole = "merge-engine" not in self._plan.options
        if whole and column.column.type.nullable and chance.random() < 0.3:
            value = None
        return Update(column.name, value, self._where())

    def _where(self) -> Where:
        chance = self._chance
        judge = chance.choice(self._rows.columns)
        if judge.column.type.root in _PLAIN and chance.random() < 0.7:
            return Where(judge.name, "=", chance.choice(judge.pool))
        operator: Literal["is null", "is not null"] = chance.choice(("is null", "is not null"))
        return Where(judge.name, operator)


def _text(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
