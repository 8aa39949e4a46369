"""Histories of a table, and `TableMachine`, which plays them on any implementation.

An implementation is an object with the verbs of `lakecore.Table` that a test wants to try:
`write(rows)`, `overwrite(rows)`, `delete(where)`, `compact()`, `rollback_to(snapshot_id=)`,
`create_tag(name)`, `expire_snapshots(retain_max=, retain_min=)`, and `to_arrow()`. Rows are passed
as an Arrow table. A verb that makes a snapshot returns its id, or a result that has it as
`snapshot_id` or the last of `snapshot_ids`; then old snapshots are also read, by
`to_arrow(snapshot_id=)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lakecore.errors import InvalidRequest
from lakecore.testing.aggregates import Refused
from lakecore.testing.condition_draws import Condition, conditions
from lakecore.testing.merging import Rules
from lakecore.testing.model import Model
from lakecore.testing.strategies import rows, schemas
from lakecore.testing.table_draws import Shape, schema_changes
from lakecore.testing.values import assert_same_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import pyarrow as pa

    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change

VERBS = (
    "write",
    "overwrite",
    "delete",
    "compact",
    "rollback_to",
    "tag",
    "expire",
    "alter",
    "reopen",
)
"""The steps of a history. `write` is an upsert in a table with a primary key."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a history: a verb of `VERBS`, and its arguments.

    `rows` is for `write` and `overwrite`, `where` for `delete`, `change` for `alter`. `number`
    chooses a snapshot (`rollback_to`, `tag`); for `expire`, `number + 1` snapshots stay.

        replay.step(Step(verb="write", rows=({"id": 1},)))
    """

    verb: str
    rows: tuple[dict[str, Any], ...] = ()
    where: Condition | None = None
    change: Change | None = None
    number: int = 0


def histories(
    schema: TableSchema | Shape, steps: int = 20, *, verbs: Collection[str] = VERBS
) -> st.SearchStrategy[list[Step]]:
    """Histories of a table: up to `steps` steps, each a `Step` with a verb of `verbs`.

    Impossible steps are not drawn: a deletion if the merge engine deletes nothing, a compaction if
    late rows would appear (`sequence.field`). `Replay` plays a history.

    Raises InvalidRequest for an unknown verb.

        @given(history=histories(shape, steps=10, verbs=["write", "compact"]))
        def test_history(history):
            replay = Replay(open_table(shape), Model(shape.schema))
            for step in history:
                replay.step(step)
    """
    if unknown := {*verbs} - {*VERBS}:
        raise InvalidRequest("no such verb of a history", given=sorted(unknown), verbs=VERBS)
    return _histories(schema, steps, [verb for verb in VERBS if verb in verbs])


@st.composite
def _histories(
    draw: st.DrawFn, schema: TableSchema | Shape, steps: int, verbs: list[str]
) -> list[Step]:
    kinds = schema.kinds if isinstance(schema, Shape) else None
    model = Model(schema.schema if isinstance(schema, Shape) else schema)
    found = []
    for _ in range(draw(st.integers(1, steps))):
        possible = [verb for verb in verbs if is_possible(verb, model)]
        step = draw(_step(draw(st.sampled_from(possible)), model, kinds))
        if step.change is not None:
            model.alter(step.change)
        found.append(step)
    return found


def is_possible(verb: str, model: Model) -> bool:
    """Whether the table can carry out the verb, and the model knows the result."""
    rules = Rules.of(model.schema)
    if verb == "compact":
        return not rules.sequence
    if verb == "delete" and rules.key:
        deletes = rules.engine == "deduplicate" and not rules.ignored
        return deletes and model.row_kind is None
    return True


@st.composite
def _step(draw: st.DrawFn, verb: str, model: Model, kinds: tuple[str, ...] | None) -> Step:
    match verb:
        case "write" | "overwrite":
            drawn = draw(rows(model.schema))
            if kinds is not None:
                drawn = [row for row in drawn if row.get("_row_kind", "+I") in kinds]
            return Step(verb=verb, rows=tuple(drawn))
        case "delete":
            return Step(verb=verb, where=draw(conditions(model.schema)))
        case "alter":
            return Step(verb=verb, change=draw(schema_changes(model.schema)))
        case _:
            return Step(verb=verb, number=draw(st.integers(0, 9)))


class Replay:
    """A history of a table, played on an implementation and on a model at the same time.

    `reopen` returns the table as a new process sees it, `alter` changes its schema; a history with
    these steps needs them. A step whose rows the model refuses to merge is left out on both sides.

        replay = Replay(table, Model(shape.schema), reopen=lambda _: open_again())
        for step in history:
            replay.step(step)
            replay.check()
        replay.check_history()
    """

    def __init__(
        self,
        table: Any,
        model: Model,
        *,
        reopen: Callable[[Any], Any] | None = None,
        alter: Callable[[Any, Change], Any] | None = None,
    ) -> None:
        self.table = table
        self.model = model
        self.snapshots: dict[int, int] = {}
        """The snapshot ids of the table, by the snapshot ids of the model."""
        self.tags: dict[str, tuple[int, pa.Table]] = {}
        self._reopen = reopen or (lambda table: table)
        self._alter = alter

    def step(self, step: Step) -> None:
        """Run one step on both sides."""
        model, table = self.model, self.table
        match step.verb:
            case "write":
                arrow = model.arrow(step.rows)
                self.commit(lambda: model.write(arrow), lambda: table.write(arrow))
            case "overwrite":
                arrow = model.arrow(step.rows)
                self.commit(lambda: model.overwrite(arrow), lambda: table.overwrite(arrow))
            case "delete" if step.where is not None:
                where = step.where.as_polars()
                self.commit(lambda: model.delete(where), lambda: table.delete(where))
            case "compact":
                if (made := snapshot_of(table.compact())) is not None:
                    self.snapshots[model.compact()] = made
            case "alter" if step.change is not None:
                self.alter(step.change)
            case "reopen":
                self.table = self._reopen(table)
            case _ if self.snapshots:
                self._to_a_snapshot(step)

    def commit(self, on_model: Callable[[], int | None], on_table: Callable[[], object]) -> None:
        """Run a step that may make a snapshot on both sides, first on the model."""
        before = self.model.latest
        try:
            made = on_model()
            self.model.rows()
        except Refused:
            self.model.rollback_to(before)
            return
        snapshot_id = snapshot_of(on_table())
        if made is not None and snapshot_id is not None:
            self.snapshots[made] = snapshot_id

    def alter(self, change: Change) -> None:
        """Change the schema on both sides."""
        if self._alter is None:
            raise InvalidRequest("the history changes the schema: give Replay(alter=...)")
        self.model.alter(change)
        self.table = self._alter(self.table, change)

    def check(self) -> None:
        """Raise AssertionError unless the table has the rows of the model."""
        assert_same_rows(self.table.to_arrow(), self.model)

    def check_history(self) -> None:
        """Raise AssertionError unless each remaining snapshot and tag has its rows."""
        for snapshot_id, own in self.snapshots.items():
            assert_same_rows(self.table.to_arrow(snapshot_id=own), self.model.rows(snapshot_id))
        for name, (_, held) in self.tags.items():
            assert_same_rows(self.table.to_arrow(tag=name), held)

    def _to_a_snapshot(self, step: Step) -> None:
        chosen = [*self.snapshots][step.number % len(self.snapshots)]
        own = self.snapshots[chosen]
        match step.verb:
            case "rollback_to":
                self.table.rollback_to(snapshot_id=own)
                self.model.rollback_to(chosen)
                self.snapshots = {key: id_ for key, id_ in self.snapshots.items() if key <= chosen}
                self.tags = {key: each for key, each in self.tags.items() if each[0] <= chosen}
            case "tag":
                name = f"tag{len(self.tags)}"
                self.table.create_tag(name, snapshot_id=own)
                self.tags[name] = chosen, self.model.rows(chosen)
            case "expire":
                kept = step.number + 1
                self.table.expire_snapshots(retain_max=kept, retain_min=kept)
                newest = max(self.snapshots.values())
                self.snapshots = {
                    key: id_ for key, id_ in self.snapshots.items() if id_ > newest - kept
                }


def snapshot_of(made: Any) -> int | None:
    """The id of the newest snapshot that a verb has made, from the result of the verb."""
    if made is None or isinstance(made, int):
        return made
    ids: tuple[int, ...] | None = getattr(made, "snapshot_ids", None)
    found: int | None = (ids or (None,))[-1] if ids is not None else made.snapshot_id
    return found


class TableMachine(RuleBasedStateMachine):
    """A state machine that tries any implementation of a table against the model.

    Subclass it, and give `open_table(shape)`, which creates a new, empty table; the module's
    docstring lists the methods of a table. After each step, the rows must be those of the model; at
    the end, also the rows of each snapshot and tag. Hypothesis shows the shortest history that
    fails.

    - `verbs`: the verbs that are tried, of `VERBS`; by default all but `alter`, which needs
      `alter_table`.
    - `shapes`: a strategy of the tables to try, such as `schemas(keyed=True)`.
    - `reopen(table)`: the table as a new process sees it.
    - `alter_table(table, change)`: changes the schema, and returns the table.

        class LakecoreMachine(TableMachine):
            def open_table(self, shape):
                return lakecore.open_table(
                    f"memory://{uuid4()}/t",
                    create=True,
                    schema=shape.columns,
                    primary_keys=shape.primary_keys,
                    partition_keys=shape.partition_keys,
                    options=shape.options,
                )


        TestLakecore = LakecoreMachine.TestCase
    """

    verbs: ClassVar[Collection[str]] = tuple(verb for verb in VERBS if verb != "alter")
    shapes: ClassVar[st.SearchStrategy[Shape]] = schemas()

    def __init__(self) -> None:
        super().__init__()
        self.replay: Replay | None = None
        self.shape: Shape | None = None

    def open_table(self, shape: Shape) -> Any:
        """A new, empty table, as `shape` describes it."""
        raise InvalidRequest("a subclass of TableMachine gives open_table(shape)", shape=shape)

    def reopen(self, table: Any) -> Any:
        """The table as a new process sees it."""
        return table

    def alter_table(self, table: Any, change: Change) -> Any:
        """Change the schema of the table, and return it."""
        raise InvalidRequest(
            "a subclass of TableMachine with the verb alter gives alter_table(table, change)",
            table=table,
            change=change,
        )

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        """Create a table and its model."""
        self.shape = data.draw(self.shapes, "table")
        self.replay = Replay(
            self.open_table(self.shape),
            Model(self.shape.schema),
            reopen=self.reopen,
            alter=self.alter_table,
        )

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Run the next step of the history."""
        assert self.replay is not None
        assert self.shape is not None
        possible = [verb for verb in self.verbs if is_possible(verb, self.replay.model)]
        verb = data.draw(st.sampled_from(possible), "verb")
        self.replay.step(data.draw(_step(verb, self.replay.model, self.shape.kinds), "step"))

    @invariant()
    def table_holds_what_the_model_holds(self) -> None:
        """Compare the rows after each step."""
        if self.replay is not None:
            self.replay.check()

    def teardown(self) -> None:
        """Compare each snapshot and each tag at the end."""
        if self.replay is not None:
            self.replay.check_history()
