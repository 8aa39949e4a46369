"""Any history of a table agrees, at every snapshot, with a plain dict and with a window query."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from lakecore.errors import InvalidRequest, NotFound
from lakecore.format.layout import Layout
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.lsm.levels import level_runs
from lakecore.memory import Budget
from lakecore.model.snapshot import CommitKind
from lakecore.table.compactions.compact_plan import files_by_bucket
from lakecore.table.handle import Table, load_table
from lakecore.table.publication import write_schema
from lakecore.table.reads.scan import key_ranks
from lakecore.testing.model import Model
from lakecore.testing.stores import files_below
from lakecore.testing.table_draws import (
    WRITES,
    Shape,
    append_shapes,
    batch_of,
    keyed_shapes,
    rows_by_id,
    schema_changes,
    values,
    with_options,
)
from lakecore.testing.values import assert_same_rows, counted_arrow, plain

if TYPE_CHECKING:
    from lakecore.model.schema import TableSchema

PATH = "memory://warehouse/shop.db/orders"
Drawn = list[tuple[str, dict[int, Any]]]
"""Rows by field id, with their kinds."""
BUDGETS = st.sampled_from([1 << 30, 1 << 30, 1 << 16, 1000])


class HandlesMachine(RuleBasedStateMachine):
    """What one table goes through; the subclasses say which tables are drawn."""

    handles = Bundle("handles")

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.ambient = seeded(7)
        self.times: dict[int, int] = {}
        self.checked = 0
        self.columns = 0
        self.compactions = 0

    def create(self, shape: Shape, budget_bytes: int) -> Table:
        """A new table, and the model of it."""
        self.budget = Budget(budget_bytes)
        self.model = Model(shape.schema)
        assert write_schema(self.store, Layout(root=PATH), self.newest)
        return self.load()

    def load(self) -> Table:
        """The table as a process that just started sees it."""
        return load_table(self.store, PATH, ambient=self.ambient, budget=self.budget)

    @property
    def newest(self) -> TableSchema:
        """The newest schema."""
        return self.model.schema

    def draw_batches(self, data: st.DataObject, schema: TableSchema) -> list[Drawn]:
        """The rows of some batches, with their kinds."""
        return data.draw(st.lists(rows_by_id(schema, kinds=bool(self.model.key)), max_size=3))

    def arrow(self, schema: TableSchema, drawn: list[Drawn]) -> list[Any]:
        return [batch_of(schema, batch) for batch in drawn]

    def committed(self, drawn: list[Drawn], clears: Any = None, *, always: bool = False) -> None:
        """Note in the model what a commit did; one without rows makes no snapshot.

        A write may have compacted what it wrote, which is a snapshot of the same rows.
        """
        kept = self.model.taken_in(row for batch in drawn for row in batch)
        if kept or always:
            self.model.commit(self.newest, kept, clears)
            self.times[self.model.latest] = self.ambient.now_ms()
            self.look_for_compaction()

    def look_for_compaction(self) -> None:
        """Note the COMPACT snapshot of a write, if it has one."""
        history = self.load().context.history
        with suppress(NotFound):
            if history.snapshot(self.model.latest + 1).commit_kind is CommitKind.COMPACT:
                self.compactions += 1
                self.model.commit(self.newest, [], None)
                self.times[self.model.latest] = self.ambient.now_ms()

    # --- writing ---------------------------------------------------------------------------------

    @rule(table=handles, options=WRITES, data=st.data(), seconds=st.sampled_from([0, 0, 1]))
    def write(
        self, table: Table, options: dict[str, str], data: st.DataObject, seconds: int
    ) -> None:
        self.ambient.sleep(seconds)
        drawn = self.draw_batches(data, table.schema)
        before = self.model.latest
        result = with_options(table, options).write(self.arrow(table.schema, drawn))
        self.committed(drawn)

        assert result.snapshot_ids == tuple(range(before + 1, self.model.latest + 1))

    @rule(table=handles, data=st.data(), options=WRITES, identifier=st.integers(1, 5))
    def write_in_two_phases(
        self, table: Table, data: st.DataObject, options: dict[str, str], identifier: int
    ) -> None:
        """One writer, prepared twice, committed as one user, and then once more."""
        user = f"user-{self.model.latest}"
        with with_options(table, options).new_write() as writer:
            for step in (identifier, identifier + 1):
                drawn = self.draw_batches(data, table.schema)
                for batch in self.arrow(table.schema, drawn):
                    writer.write(batch)
                messages = writer.prepare_commit()
                table.commit(messages, identifier=step, commit_user=user)
                # A commit with a number of its own is on record even if it has no rows.
                before = self.model.latest
                self.committed(drawn, always=True)
                again = table.commit(messages, identifier=step, commit_user=user)

                assert again.snapshot_ids == tuple(range(before + 1, self.model.latest + 1))

    @rule(table=handles, data=st.data(), options=WRITES)
    def abandon(self, table: Table, data: st.DataObject, options: dict[str, str]) -> None:
        """A writer whose messages are not committed leaves no files."""
        before = set(self.files())
        with with_options(table, options).new_write() as writer:
            for batch in self.arrow(table.schema, self.draw_batches(data, table.schema)):
                writer.write(batch)
            if data.draw(st.booleans()):
                writer.abort(writer.prepare_commit())

        assert set(self.files()) == before

    @rule(table=handles, data=st.data(), dynamic=st.booleans())
    def overwrite(self, table: Table, data: st.DataObject, *, dynamic: bool) -> None:
        drawn = self.draw_batches(data, table.schema)
        table.overwrite(self.arrow(table.schema, drawn), dynamic=dynamic)
        by_partition = dynamic and bool(self.model.partition)
        kept = self.model.taken_in(row for batch in drawn for row in batch)
        written = {plain([*self.model.partition_of(row)]) for _, row in kept}
        self.committed(
            drawn,
            (lambda place: plain([*place]) in written) if by_partition else lambda _: True,
            always=not by_partition,
        )

    @precondition(lambda self: self.model.partition)
    @rule(table=handles, data=st.data())
    def overwrite_partition(self, table: Table, data: st.DataObject) -> None:
        """Replace the partitions of one partition value; the rows lie in them."""
        spec, clears = self.draw_spec(data, table)
        fixed = {table.schema.field(name).id: value for name, value in spec.items()}
        drawn = [
            [(kind, row | fixed) for kind, row in batch]
            for batch in self.draw_batches(data, table.schema)
        ]
        table.overwrite(self.arrow(table.schema, drawn), partition=spec)
        self.committed(drawn, clears, always=True)

    @precondition(lambda self: self.model.partition)
    @rule(table=handles, data=st.data())
    def drop_partition(self, table: Table, data: st.DataObject) -> None:
        spec, clears = self.draw_spec(data, table)
        table.drop_partition(spec)
        self.committed([], clears, always=True)

    def draw_spec(self, data: st.DataObject, table: Table) -> tuple[dict[str, Any], Any]:
        """A partition spec of some of the partition keys, and what it matches."""
        partition = self.model.partition
        chosen = data.draw(st.lists(st.sampled_from(partition), min_size=1, unique=True), "spec")
        fixed = {i: data.draw(values(table.schema.by_id[i].type)) for i in chosen}
        spec = {table.schema.by_id[i].name: value for i, value in fixed.items()}

        def clears(place: tuple[Any, ...]) -> bool:
            held = dict(zip(partition, place, strict=True))
            return all(held[i] == value for i, value in fixed.items())

        return spec, clears

    @precondition(lambda self: self.model.latest)
    @rule(table=handles)
    def truncate(self, table: Table) -> None:
        table.truncate()
        self.committed([], lambda _: True, always=True)

    # --- handles and schemas ---------------------------------------------------------------------

    @rule(target=handles)
    def reopen(self) -> Table:
        return self.load()

    @rule(target=handles, table=handles)
    def refresh(self, table: Table) -> Table:
        return table.refresh()

    @rule(target=handles, data=st.data())
    def alter(self, data: st.DataObject) -> Table:
        """Change the schema; handles from before go on with the one they know."""
        self.columns += 1
        self.model.alter(data.draw(schema_changes(self.newest, f"n{self.columns}")))
        assert write_schema(self.store, Layout(root=PATH), self.newest)
        return self.load()

    def compacted(self, table: Table, *, full: bool, max_bytes: int | None) -> None:
        """Compact, in steps if need be; a commit each, after which levels are disjoint."""
        before = self.model.latest
        result = table.compact(full=full, max_bytes=max_bytes)
        for _ in result.snapshot_ids:
            self.compactions += 1
            self.model.commit(self.newest, [], None)
            self.times[self.model.latest] = self.ambient.now_ms()

        assert result.snapshot_ids == tuple(range(before + 1, self.model.latest + 1))
        assert result.steps == len(result.snapshot_ids) <= (1 if max_bytes is None else 100)
        history = table.context.history
        newest = history.latest_snapshot()
        for bucket in files_by_bucket(history.live_entries(newest) if newest else (), None):
            # Or `level_runs` raises.
            level_runs(bucket.files, *key_ranks(bucket.files, table.schema))

    # --- reading ---------------------------------------------------------------------------------

    @invariant()
    def newest_snapshot_holds_what_it_must(self) -> None:
        if hasattr(self, "model") and self.checked < self.model.latest:
            self.checked = self.model.latest
            table = self.load()
            read = table.to_arrow()

            assert read.schema.equals(self.newest.arrow)
            assert_same_rows(read, self.model)
            assert len(table) == read.num_rows
            assert_same_rows(pa.table(table), read)
            assert self.budget.used_bytes == 0

    @precondition(lambda self: self.model.latest)
    @rule(table=handles, data=st.data())
    def travel(self, table: Table, data: st.DataObject) -> None:
        """A snapshot named by its id, or by a time, is the one of then."""
        snapshot_id = data.draw(st.integers(1, self.model.latest), "snapshot")
        wanted = self.model.rows(snapshot_id)
        by_option = table.copy({"scan.snapshot-id": str(snapshot_id)})

        assert_same_rows(table.to_arrow(snapshot_id=snapshot_id), wanted)
        assert_same_rows(by_option, wanted)
        assert by_option.schema.arrow.equals(by_option.to_arrow().schema)
        assert table.count(snapshot_id=snapshot_id) == len(by_option) == wanted.num_rows

    @precondition(lambda self: self.model.latest)
    @rule(table=handles, data=st.data())
    def travel_in_time(self, table: Table, data: st.DataObject) -> None:
        first, last = min(self.times.values()), max(self.times.values())
        time_ms = data.draw(st.integers(first - 1, last + 1), "time")
        then = max((i for i, at in self.times.items() if at <= time_ms), default=None)
        if then is None:
            with pytest.raises(NotFound):
                table.to_arrow(timestamp=time_ms)
        else:
            assert_same_rows(table.to_arrow(timestamp=time_ms), self.model.rows(then))

    @rule(table=handles)
    def read_by_an_old_schema(self, table: Table) -> None:
        """The newest rows, as columns of the schema that a handle knows."""
        narrowed = _narrowed(self.newest, table.schema)
        try:
            read = table.to_arrow()
        except InvalidRequest:
            # Of a value that is none of the type the column had.
            assert narrowed
            return
        # A compaction writes the columns of its day: what was in others is gone with the old files.
        gone = any(field.id not in self.newest.by_id for field in table.schema.fields)
        if not narrowed and not (gone and self.compactions):
            assert_same_rows(read, self.model.rows(schema=table.schema))

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        table = self.load()
        for snapshot_id, schema in self.model.schemas.items():
            read = table.to_arrow(snapshot_id=snapshot_id)

            assert_same_rows(read, self.model.rows(snapshot_id))
            assert counted_arrow(read) == self.model.query(snapshot_id, schema)

    def files(self) -> list[str]:
        """Every file of the table."""
        return files_below(self.store, PATH)


def _narrowed(newest: TableSchema, known: TableSchema) -> bool:
    """Whether a column has another type since: an old handle may then not read all values."""
    return any(
        str(newest.by_id[f.id].type) != str(f.type) for f in known.fields if f.id in newest.by_id
    )


class KeyedMachine(HandlesMachine):
    @invariant()
    def levels_are_disjoint(self) -> None:
        """Of what writes and their compactions leave."""
        if not hasattr(self, "model"):
            return
        history = self.load().context.history
        newest = history.latest_snapshot()
        for bucket in files_by_bucket(history.live_entries(newest) if newest else (), None):
            # Or `level_runs` raises.
            level_runs(bucket.files, *key_ranks(bucket.files, self.newest))

    @initialize(target=HandlesMachine.handles, shape=keyed_shapes(), budget_bytes=BUDGETS)
    def start(self, shape: Shape, budget_bytes: int) -> Table:
        return self.create(shape, budget_bytes)

    # With sequence fields, a deletion that was dropped no longer hides what comes late.
    @precondition(lambda self: not self.newest.parsed_options().sequence_field)
    @rule(
        table=HandlesMachine.handles, full=st.booleans(), max_bytes=st.sampled_from([None, 1, 4000])
    )
    def compact(self, table: Table, full: bool, max_bytes: int | None) -> None:  # noqa: FBT001
        self.compacted(table, full=full, max_bytes=max_bytes)

        if full or max_bytes:
            assert table.compact(full=full).snapshot_id is None


class AppendMachine(HandlesMachine):
    @initialize(target=HandlesMachine.handles, shape=append_shapes(), budget_bytes=BUDGETS)
    def start(self, shape: Shape, budget_bytes: int) -> Table:
        return self.create(shape, budget_bytes)

    @rule(
        table=HandlesMachine.handles, full=st.booleans(), max_bytes=st.sampled_from([None, 1, 4000])
    )
    def compact(self, table: Table, full: bool, max_bytes: int | None) -> None:  # noqa: FBT001
        self.compacted(table, full=full, max_bytes=max_bytes)


TestKeyedTable = KeyedMachine.TestCase
TestKeyedTable.settings = settings(stateful_step_count=15)
TestAppendTable = AppendMachine.TestCase
TestAppendTable.settings = settings(stateful_step_count=15)
