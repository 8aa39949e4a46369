"""Whatever happens to a table over time, every state that is left reads as it must.

A state machine writes, compacts, analyzes, tags, branches, consumes, expires, rolls back,
fast-forwards and cleans up, on main and on branches, while the clock steps forwards and backwards.
Any deed may die at any of its store calls. Then:

1. what was there before the deed and is there after it, is there, with its rows;
2. what else is there is of one of the two;
3. the deed can be done again, or others go on.

At the end of a history, and whenever it is settled, the files on the disk are exactly those that
something reaches. While nothing died and no branch was deleted, this holds after each deed, without
a clean-up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from lakecore.errors import LakecoreError, NotFound
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.memory import Budget
from lakecore.table.handle import load_table
from lakecore.testing import apply_changes
from property_tests.retention_model import Held, Line, Rows, held_of, needed_files, rows_of
from tests.stores import FailingStore, StoreFailure, files_below
from tests.tables import PATH, new_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table

MAIN = "main"
FUTURE = "2200-01-01"
FUTURE_MS = 7_258_118_400_000
KEPT_MS = 3_600_000
BRANCHES = ("b1", "b2")
TAGS = ("t1", "t2", "t3")
KINDS: dict[str, dict[str, Any]] = {
    "append": {"keys": ()},
    "none": {},
    "dynamic": {"bucket": "-1"},
    "input": {"changelog_producer": "input"},
    "lookup": {"changelog_producer": "lookup"},
    "full-compaction": {"changelog_producer": "full-compaction"},
}
STEADY = {"snapshot__num_retained__min": "1000", "snapshot__num_retained__max": "1000"}
INLINE = {"snapshot__num_retained__min": "2", "snapshot__num_retained__max": "1000"}
LONG = {"changelog__num_retained__min": "2000", "changelog__num_retained__max": "2000"}

NAMES = st.sampled_from(TAGS)
ROWS = st.lists(
    st.tuples(st.sampled_from(["+I", "+I", "-D"]), st.integers(0, 4), st.integers(0, 9)),
    min_size=1,
    max_size=3,
)


class Killed(FailingStore):
    """The process dies at a call; the storage goes on, and forgets nothing."""

    def _lose_what_was_not_synced(self) -> None:
        self._unsynced.clear()


@dataclass(frozen=True)
class Death:
    """At which store call a deed dies, and whether the call took effect."""

    call: int
    after: bool
    again: bool  # whether the deed is then done again


DEATHS = st.one_of(
    st.none(),
    st.none(),
    st.builds(
        Death,
        call=st.one_of(st.integers(1, 6), st.integers(1, 30)),
        after=st.booleans(),
        again=st.booleans(),
    ),
)


class RetentionMachine(RuleBasedStateMachine):
    """One table with its branches."""

    def __init__(self) -> None:
        super().__init__()
        self.shift_ms = 0
        self.loads = 0
        self.lines: dict[str, Line] = {MAIN: Line()}
        self.rollbacks: dict[str, tuple[Held, Held, Line]] = {}
        """Rollbacks that died: the target, the latest snapshot that was left, the line before."""
        self.litter = False

    @initialize(
        kind=st.sampled_from([*KINDS]),
        long=st.booleans(),
        inline=st.booleans(),
        atomic=st.booleans(),
    )
    def create(self, kind: str, *, long: bool, inline: bool, atomic: bool) -> None:
        # As in Java, what a changelog of added files does not need goes with it, or as an orphan.
        self.litters = long and "changelog_producer" not in KINDS[kind]
        self.clock = seeded(3)
        self.ambient = self.ambient_of(3)
        self.store = MemoryStore(self.ambient, renames_at_once=atomic)
        self.keyed, self.inline, self.long = kind != "append", inline, long
        options = {**KINDS[kind], **(INLINE if inline else STEADY), **(LONG if long else {})}
        new_table(
            {"id": "INT NOT NULL", "v": "INT"}, store=self.store, ambient=self.ambient, **options
        )

    def ambient_of(self, seed: int) -> Any:
        """A process: its own chance, the clock of all."""
        now = self.clock.now_ms
        shifted = lambda: now() + self.shift_ms  # noqa: E731
        return replace(seeded(seed), now_ms=shifted, local_wall_clock_ms=shifted)

    def open(self, line: str, store: Store | None = None) -> Table:
        """The table on a branch, as a process that just started sees it."""
        self.loads += 1
        return load_table(
            self.store if store is None else store,
            PATH,
            branch=line,
            ambient=self.ambient_of(100 + self.loads),
            budget=Budget(1 << 30),
        )

    # --- deeds ------------------------------------------------------------------------------------

    @rule(data=st.data(), rows=ROWS, death=DEATHS, over=st.sampled_from([False, False, True]))
    def write(self, data: st.DataObject, rows: Any, death: Death | None, *, over: bool) -> None:
        name = self.draw_line(data)
        line = self.lines[name]
        if over or not self.keyed:
            rows = [("+I", key, value) for _, key, value in rows]
        batch = batch_of(rows, kinds=self.keyed and not over)
        wanted = self.merged(() if over else line.rows, batch)

        def deed(table: Table) -> None:
            if over:
                table.overwrite(batch)
            else:
                table.write(batch)

        self.commits(name, deed, wanted, death)

    @rule(data=st.data(), rows=ROWS)
    def write_and_live(self, data: st.DataObject, rows: Any) -> None:
        """A write that does not die, so that histories grow."""
        self.write(data, rows, None, over=False)

    @rule(data=st.data(), full=st.booleans(), death=DEATHS)
    def compact(self, data: st.DataObject, death: Death | None, *, full: bool) -> None:
        name = self.draw_line(data)
        self.commits(name, lambda table: table.compact(full=full), self.lines[name].rows, death)

    @precondition(lambda self: self.lines[MAIN].snapshots)
    @rule(data=st.data(), death=DEATHS)
    def analyze(self, data: st.DataObject, death: Death | None) -> None:
        name = self.draw_line(data, some=True)
        if name is not None:
            self.commits(name, lambda table: table.analyze(), self.lines[name].rows, death)

    @precondition(lambda self: self.lines[MAIN].snapshots)
    @rule(data=st.data(), tag=NAMES, death=DEATHS)
    def create_or_replace_tag(self, data: st.DataObject, tag: str, death: Death | None) -> None:
        name = self.draw_line(data, some=True)
        if name is None:
            return
        line = self.lines[name]
        held = data.draw(st.sampled_from([*line.snapshots.values(), *line.tags.values()]))
        held = line.snapshots.get(held.id, held)
        if tag in line.tags:
            deed: Callable[[Table], Any] = lambda table: table.replace_tag(  # noqa: E731
                tag, snapshot_id=held.id
            )
        else:
            deed = lambda table: table.create_tag(tag, snapshot_id=held.id)  # noqa: E731
        self.do(name, deed, {**self.lines, name: line.tagged(tag, held)}, death)

    @precondition(lambda self: self.lines[MAIN].tags)
    @rule(data=st.data(), death=DEATHS)
    def delete_tag(self, data: st.DataObject, death: Death | None) -> None:
        name = self.draw_line(data)
        line = self.lines[name]
        if line.tags:
            tag = data.draw(st.sampled_from(sorted(line.tags)))
            after = {**self.lines, name: line.untagged(tag)}
            self.do(name, lambda table: table.delete_tag(tag), after, death)

    @precondition(lambda self: len(self.lines) <= len(BRANCHES))
    @rule(data=st.data(), death=DEATHS)
    def create_branch(self, data: st.DataObject, death: Death | None) -> None:
        free = [name for name in BRANCHES if name not in self.lines]
        if free:
            line = self.lines[MAIN]
            tag = data.draw(st.sampled_from([*sorted(line.tags) * 3, None]))
            after = {**self.lines, free[0]: line.branched(tag)}
            self.do(MAIN, lambda table: table.create_branch(free[0], tag), after, death)

    @precondition(lambda self: len(self.lines) > 1)
    @rule(data=st.data(), death=DEATHS)
    def delete_branch(self, data: st.DataObject, death: Death | None) -> None:
        names = sorted({*self.lines} - {MAIN})
        if names:
            name = data.draw(st.sampled_from(names))
            self.litter = True
            self.rollbacks.pop(name, None)
            after = {each: line for each, line in self.lines.items() if each != name}
            self.do(MAIN, lambda table: table.delete_branch(name), after, death)

    @precondition(lambda self: any(self.lines[name].snapshots for name in {*self.lines} - {MAIN}))
    @rule(data=st.data(), death=DEATHS)
    def fast_forward(self, data: st.DataObject, death: Death | None) -> None:
        names = [name for name in sorted(self.lines) if name != MAIN and self.lines[name].snapshots]
        if names:
            name = data.draw(st.sampled_from(names))
            self.finish_rollback(MAIN)
            self.litter = True
            line = self.lines[MAIN].fast_forwarded(self.lines[name])
            after = {**self.lines, MAIN: line}
            self.do(MAIN, lambda table: table.fast_forward(name), after, death, again=True)

    @precondition(lambda self: self.lines[MAIN].snapshots)
    @rule(data=st.data(), who=st.sampled_from(["c1", "c2"]), death=DEATHS)
    def consume(self, data: st.DataObject, who: str, death: Death | None) -> None:
        name = self.draw_line(data, some=True)
        if name is None:
            return
        line = self.lines[name]
        gone = [None, None] if who in line.consumers else []
        at = data.draw(st.sampled_from([*line.snapshots, line.latest + 1, *gone]))
        after = {**self.lines, name: line.consumed(who, at)}
        self.do(name, lambda table: table.reset_consumer(who, at), after, death)

    @precondition(lambda self: len(self.lines[MAIN].snapshots) > 1)
    @rule(data=st.data(), least=st.integers(1, 4), by_time=st.booleans(), death=DEATHS)
    def expire(
        self, data: st.DataObject, least: int, death: Death | None, *, by_time: bool
    ) -> None:
        name = self.draw_line(data)
        self.finish_rollback(name)
        until = self.ambient.now_ms() - KEPT_MS if by_time else FUTURE_MS
        line = self.lines[name].expired(least, until)

        def deed(table: Table) -> None:
            table.expire_snapshots(
                retain_max=1000, retain_min=least, older_than=until, max_deletes=1000
            )

        self.do(name, deed, {**self.lines, name: line}, death, again=True)

    @precondition(lambda self: self.long and self.lines[MAIN].snapshots)
    @rule(data=st.data(), least=st.integers(1, 4), death=DEATHS)
    def expire_changelogs(self, data: st.DataObject, least: int, death: Death | None) -> None:
        name = self.draw_line(data)

        def deed(table: Table) -> None:
            table.expire_changelogs(
                retain_max=1000, retain_min=least, older_than=FUTURE_MS, max_deletes=1000
            )

        if self.do(name, deed, self.lines, death):
            deed(self.open(name))  # as with snapshots, an expiry that died is resumed
            self.check()

    @precondition(lambda self: self.lines[MAIN].snapshots)
    @rule(data=st.data(), death=DEATHS)
    def roll_back(self, data: st.DataObject, death: Death | None) -> None:
        name = self.draw_line(data, some=True)
        if name is None:
            return
        self.finish_rollback(name)
        line = self.lines[name]
        target = data.draw(st.sampled_from([*line.snapshots.values(), *line.tags.values()]))
        target = line.snapshots.get(target.id, target)
        after = {**self.lines, name: line.rolled_back(target)}

        def deed(table: Table) -> None:
            try:
                table.rollback_to(snapshot_id=target.id)
            except NotFound:
                # Only a tag keeps the target, and an expiry of its snapshot has died.
                left = table.context.history.snapshot_ids()
                kept = left[-1] - left[0] + 1
                table.expire_snapshots(retain_max=kept, retain_min=kept)
                table.rollback_to(snapshot_id=target.id)

        died = self.do(name, deed, after, death)
        if died:
            left = self.lines[name]
            self.rollbacks[name] = target, left.snapshots[left.latest], line

    @rule(data=st.data(), young=st.booleans(), death=DEATHS)
    def remove_orphans(self, data: st.DataObject, death: Death | None, *, young: bool) -> None:
        name = self.draw_line(data)

        def deed(table: Table) -> None:
            if young:
                table.remove_orphan_files(older_than=FUTURE, force=True)
            else:
                table.remove_orphan_files()

        self.do(name, deed, self.lines, death)

    @rule(seconds=st.sampled_from([1, 60, 3_600, 90_000, -60, -7_200]))
    def step_the_clock(self, seconds: int) -> None:
        self.shift_ms += seconds * 1000

    @rule()
    def settle(self) -> None:
        """After a recovery, the files are those that something reaches."""
        for name in self.lines:
            self.finish_rollback(name)
            self.end_expiries(name)
        for _ in range(2):  # the mark of a call that died keeps files, until the first run
            self.open(MAIN).remove_orphan_files(older_than=FUTURE, force=True)
        self.check_files()
        self.litter = False

    # --- carrying out -----------------------------------------------------------------------------

    def draw_line(self, data: st.DataObject, *, some: bool = False) -> Any:
        """Main, mostly, or a branch; with `some`, one that has snapshots, or None."""
        names = [name for name in sorted(self.lines) if self.lines[name].snapshots or not some]
        if not names:
            return None
        weighted = [name for name in names for _ in range(3 if name == MAIN else 1)]
        return data.draw(st.sampled_from(weighted), "line")

    def merged(self, before: Rows, batch: pa.Table) -> Rows:
        """The rows after a write."""
        held = [dict(zip(("id", "v"), row, strict=True)) for row in before]
        rows = apply_changes(batch, ["id"] if self.keyed else [], held, exact=False)
        return tuple(sorted(tuple(row.values()) for row in rows.to_pylist()))

    def commits(
        self, name: str, deed: Callable[[Table], Any], wanted: Rows, death: Death | None
    ) -> None:
        """Do what commits one snapshot or two, or none, and expires what is due."""
        if self.inline:
            self.finish_rollback(name)  # else the expiry does it
        before = self.lines[name]
        store = self.dying(death)
        try:
            deed(self.open(name, store))
        except (StoreFailure, LakecoreError):
            if not store.is_dead:
                raise
        table = self.open(name)
        history = table.context.history
        # INVARIANT: a deed that is done is there; of one that died there may be any part.
        made = [history.snapshot(n) for n in history.snapshot_ids() if n > before.latest]
        assert len(made) <= 2
        line = before.committed(*(held_of(each, wanted) for each in made))
        if self.inline and (made or store.is_dead):
            self.lines = {**self.lines, name: line}
            expired = line.expired(2, self.ambient.now_ms() - KEPT_MS)
            if store.is_dead:
                self.litter = True
                self.look(self.lines, {**self.lines, name: expired})
                table.expire_snapshots()
            line = expired
        self.lines = {**self.lines, name: line}
        self.litter |= store.is_dead
        assert store.is_dead or line.rows == wanted
        self.check()

    def do(
        self,
        name: str,
        deed: Callable[[Table], Any],
        after: dict[str, Line],
        death: Death | None,
        *,
        again: bool = False,
    ) -> bool:
        """Do something that has these lines as its outcome. Returns whether it died on the way."""
        store = self.dying(death)
        try:
            deed(self.open(name, store))
        except (StoreFailure, LakecoreError):
            if not store.is_dead:
                raise
        if not store.is_dead:
            self.lines = after
        else:
            self.litter = True
            seen = self.look(self.lines, after)
            if (again or (death is not None and death.again)) and seen != after:
                deed(self.open(name))
                seen = after
            self.lines = seen
        self.check()
        return store.is_dead

    def dying(self, death: Death | None) -> FailingStore:
        """The storage as a process sees it that dies at a call."""
        if death is None:
            return Killed(self.store)
        return Killed(self.store, death.call, after=death.after)

    def finish_rollback(self, name: str) -> None:
        """Let a rollback that died come to its end."""
        pending = self.rollbacks.pop(name, None)
        line = self.lines[name]
        if pending is not None:
            target, latest, before = pending
            goes_on = line.snapshots[line.latest] == latest
            if goes_on and target in (*line.snapshots.values(), *line.tags.values()):
                line = line.rolled_back(target)
            elif latest != target and line.snapshots.get(target.id) == target:
                line = line.brought_back(before, target)  # a commit came first
            self.open(name).rollback_to(snapshot_id=line.latest)
            self.lines = {**self.lines, name: line}
            self.check()

    def end_expiries(self, name: str) -> None:
        """Let expiries that died come to their end, and no more expire."""
        table = self.open(name)
        history = table.context.history
        if not (listed := history.snapshot_ids()):
            return
        kept = listed[-1] - listed[0] + 1
        table.expire_snapshots(retain_max=kept, retain_min=kept)
        if self.long and (changelogs := history.changelog_ids()):
            kept = listed[-1] - changelogs[0] + 1
            table.expire_changelogs(retain_max=kept, retain_min=kept)
        self.check()

    # --- looking ----------------------------------------------------------------------------------

    def look(self, before: dict[str, Line], after: dict[str, Line]) -> dict[str, Line]:
        """What a deed that died has left: each state that was there or would be, or nothing."""
        seen = {}
        for name in sorted({*before, *after}):
            if name in before and name in after:
                seen[name] = self.look_at(name, before[name], after[name])
                continue
            try:
                self.open(name)
            except LakecoreError:
                main = self.open(MAIN)
                if main.context.store.list(main.context.layout.on_branch(name).metadata_dir):
                    main.delete_branch(name)  # half made, or half deleted
            else:
                seen[name] = before.get(name) or after[name]
        return seen

    def look_at(self, name: str, before: Line, after: Line) -> Line:
        table = self.open(name)
        history = table.context.history
        snapshots, tags, consumers = {}, {}, {}
        for number in history.snapshot_ids():
            found = history.snapshot(number)
            known = [line.snapshots[number] for line in (before, after) if number in line.snapshots]
            (held,) = {each for each in known if each.uuid == found.uuid}
            snapshots[number] = held
            if number in after.snapshots:
                assert rows_of(table, snapshot_id=number) == held.rows
        for tag in history.tag_names():
            found = history.tag(tag).snapshot
            known = [line.tags[tag] for line in (before, after) if tag in line.tags]
            (tags[tag],) = {each for each in known if each.uuid == found.uuid}
            assert rows_of(table, tag=tag) == tags[tag].rows
        for consumer in table.consumers():
            who = consumer.consumer_id
            assert consumer.next_snapshot in [line.consumers.get(who) for line in (before, after)]
            consumers[who] = consumer.next_snapshot
        for kind, left in (("snapshots", snapshots), ("tags", tags), ("consumers", consumers)):
            old, new = getattr(before, kind), getattr(after, kind)
            assert {k for k in old if k in new and old[k] == new[k]} <= {*left}
        return Line(snapshots=snapshots, tags=tags, consumers=consumers)

    def check(self) -> None:
        """Every state is there as it must be, and nothing else."""
        for name, line in self.lines.items():
            table = self.open(name)
            history = table.context.history
            assert history.snapshot_ids() == tuple(sorted(line.snapshots))
            for held in line.snapshots.values():
                assert rows_of(table, snapshot_id=held.id) == held.rows
            assert {*history.tag_names()} == {*line.tags}
            for tag, held in line.tags.items():
                assert history.tag(tag).snapshot.uuid == held.uuid
                assert rows_of(table, tag=tag) == held.rows
            consumers = {each.consumer_id: each.next_snapshot for each in table.consumers()}
            assert consumers == line.consumers
            assert rows_of(table) == line.rows
        assert {each.name for each in self.open(MAIN).branches()} == {*self.lines} - {MAIN}
        if not (self.litter or self.litters):
            self.check_files()

    def check_files(self) -> None:
        """The files on the disk are exactly those that something reaches."""
        contexts = [self.open(name).context for name in self.lines]
        needed, reached = needed_files(contexts), needed_files(contexts, compacted=True)
        hints = {"EARLIEST", "LATEST"}
        there = {p for p in files_below(self.store, PATH) if p.rpartition("/")[2] not in hints}
        assert not (there - reached), f"nothing reaches {sorted(there - reached)}"
        assert not (needed - there), f"missing are {sorted(needed - there)}"

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.settle()


def batch_of(rows: list[tuple[str, int, int]], *, kinds: bool) -> pa.Table:
    """The rows as Arrow, with their kinds."""
    columns: dict[str, Any] = {
        "id": pa.array([key for _, key, _ in rows], pa.int32()),
        "v": pa.array([value for _, _, value in rows], pa.int32()),
    }
    if kinds:
        columns["_row_kind"] = [kind for kind, _, _ in rows]
    return pa.table(columns)


TestRetention = RetentionMachine.TestCase
_EXAMPLES = {"explore": settings().max_examples, "quick": 15}
TestRetention.settings = settings(
    max_examples=_EXAMPLES.get(settings.get_current_profile_name(), 5),
    stateful_step_count=40 if settings.get_current_profile_name() == "explore" else 20,
)
