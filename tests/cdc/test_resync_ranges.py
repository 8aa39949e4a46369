"""A large table is read again in ranges, and equals its source at the end."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.cdc.events import Altered, Cleared, SourceTable, Step
from lakecore.cdc.quarantine import OnTableError
from lakecore.cdc.resync import range_column, range_condition, range_stop
from lakecore.cdc.state import StateFiles
from lakecore.errors import InvalidRequest, LakecoreError, NotFound, StorageError
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from tests.cdc.sources import batch, schema
from tests.cdc.test_sink import A, B, parts, rows
from tests.stores import FailingStore, StoreFailure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lakecore.cdc.events import ChangeBatch, Position, SourceSchema
    from lakecore.cdc.sink_parts import Progress
    from lakecore.io.stores.store import Store

Key = tuple[int, int]
COLUMNS = {"a": "INT NOT NULL", "b": "INT NOT NULL", "v": "STRING"}
PLAIN = schema(COLUMNS, key=("a", "b"))
WIDE = schema({**COLUMNS, "w": "STRING"}, key=("a", "b"))


@dataclass(frozen=True)
class Event:
    """A row gets a value, or none; without a key, a statement changes the table.

    `verb` of a statement: `clear` removes all rows, `renew` gives all rows the value "r", `widen`
    adds a column with the value "d".
    """

    table: SourceTable
    key: Key | None = None
    value: str | None = None
    verb: str = ""


@dataclass
class Database:
    """A source with a log. `meanwhile`: how many events of `later` follow after each step."""

    log: list[Event]
    later: list[Event] = field(default_factory=list)
    meanwhile: list[int] = field(default_factory=list)
    size: int = 2
    fails: list[bool] = field(default_factory=list)
    starts: list[tuple[SourceTable, int | None]] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    left_out: frozenset[SourceTable] = frozenset()
    gone: bool = False

    def tick(self) -> None:
        count = self.meanwhile.pop(0) if self.meanwhile else 0
        self.log += self.later[:count]
        del self.later[:count]

    def schema(self, table: SourceTable, count: int) -> SourceSchema:
        is_wide = any(each.table == table and each.verb == "widen" for each in self.log[:count])
        return WIDE if is_wide else PLAIN

    def state(self, table: SourceTable, count: int | None = None) -> dict[Key, list[str]]:
        """The rows of a table after some events."""
        found: dict[Key, list[str]] = {}
        is_wide = False
        for each in self.log[:count]:
            if each.table != table:
                continue
            if each.verb == "clear":
                found.clear()
            elif each.verb == "renew":
                found = {key: ["r", *values[1:]] for key, values in found.items()}
            elif each.verb == "widen":
                found = {key: [values[0], "d"] for key, values in found.items()}
                is_wide = True
            elif each.key is not None and each.value is None:
                found.pop(each.key, None)
            elif each.key is not None and each.value is not None:
                found[each.key] = [each.value, "x"] if is_wide else [each.value]
        return found

    def batch(self, table: SourceTable, at: int, kind: str, *chosen: Key) -> ChangeBatch:
        state, of = self.state(table, at), self.schema(table, at)
        found: list[tuple[object, ...]] = [(kind, *key, *state.get(key, ())) for key in chosen]
        width = len(of.fields) + 1
        return batch(table, of, *(each + (None,) * (width - len(each)) for each in found))

    # --- the calls of the sink

    def describe(self) -> Mapping[str, str]:
        return {"kind": "mysql"}

    def tables(self) -> Mapping[SourceTable, SourceSchema]:
        names = sorted({each.table for each in self.log} - self.left_out)
        return {each: self.schema(each, len(self.log)) for each in names}

    def leave_out(self, tables: Collection[SourceTable]) -> None:
        self.left_out = frozenset(tables)

    def steps(self, after: Position | None) -> Iterator[Step]:
        place = dict(after or {"step": 0})
        at, goal = int(str(place["step"])), len(self.log)
        while True:
            if at == len(self.log):
                yield Step(position={**place, "step": at}, caught_up=at >= goal)
                self.tick()
                continue
            event = self.log[at]
            at += 1
            here: Position = {**place, "step": at}
            if at <= int(str(place.get(f"mark {event.table}", 0))) or event.table in self.left_out:
                yield Step(position=here, caught_up=at >= goal)
            elif event.verb == "clear":
                keys = self.keys(event.table, [*self.state(event.table)])
                cleared = Cleared(table=event.table, keys=keys)
                yield Step(cleared=cleared, position={**place, "step": at - 1})
                yield Step(position=here, caught_up=at >= goal)
            elif event.verb == "renew":
                before: Position = {**place, "step": at - 1}
                yield Step(position=before, altered=(Altered(table=event.table, is_renewed=True),))
                yield Step(position=here, caught_up=at >= goal)
            elif event.key is None:
                yield Step(position=here, caught_up=at >= goal)
            else:
                kind = "-D" if event.value is None else "+I"
                row = self.batch(event.table, at, kind, event.key)
                yield Step(batches=(row,), position=here, caught_up=at >= goal)
            self.tick()

    def can_read_again(self, after: Position | None) -> bool:
        return after is not None

    def keys(self, table: SourceTable, chosen: Sequence[Key]) -> pa.Table:
        del table
        columns = zip(*chosen, strict=True) if chosen else ([], [])
        return pa.table([pa.array(each, pa.int32()) for each in columns], ["a", "b"])

    def read_again(
        self, table: SourceTable, after: Position, start: int | None = None
    ) -> Iterator[Step]:
        self.starts.append((table, start))
        self.positions.append(int(str(after["step"])))
        if self.gone:
            raise NotFound("the source has no such table", table=str(table))
        found = sorted(key[0] for key in self.state(table) if start is None or key[0] >= start)
        stop = found[self.size] if len(found) > self.size else None
        if stop is not None and stop == start:
            stop = next((each for each in found if each > stop), None)
        yield Step(batches=(self.batch(table, len(self.log), "+I"),), position=after)
        self.tick()
        now = len(self.log)
        chosen = [
            key
            for key in self.state(table)
            if (start is None or key[0] >= start) and (stop is None or key[0] < stop)
        ]
        for number in range(0, len(chosen), 2):
            if self.fails and self.fails.pop(0):
                raise StorageError("the source went away")
            part = self.batch(table, now, "+I", *chosen[number : number + 2])
            yield Step(batches=(part,), position=after)
            self.tick()
        cleared = Cleared(table=table, keys=self.keys(table, chosen), start=start, stop=stop)
        mark = {f"mark {table}": now} if start is None else {}
        yield Step(cleared=cleared, position={**after, **mark})

    def close(self) -> None:
        """Nothing to close."""


def files(store: Store, seed: int = 3) -> StateFiles:
    return StateFiles(store, "w/.cdc/p", seeded(seed))


def run(store: Store, source: Database, seed: int, **settings: object) -> Progress:
    given = {"on_table_error": OnTableError.QUARANTINE, **settings}
    _, sink = parts(store, None, seed, **given)
    return sink.run(source, until_caught_up=True)


def mirrored(store: Store, table: SourceTable) -> dict[object, list[object]]:
    return {row[:2]: [*row[2:]] for row in rows(parts(store)[0], f"d.{table.name}")}


def insertions(table: SourceTable, *keys: Key) -> list[Event]:
    return [Event(table, key, f"{table.name}{key}") for key in keys]


def damaged(source: Database) -> MemoryStore:
    """A warehouse that follows the source; rows of the target of B were changed by somebody."""
    store = MemoryStore()
    run(store, source, 1)
    table = parts(store)[0].get_table("d.b")
    keys = {
        "a": pa.array([-9, 0, 1, 5, 99], pa.int32()),
        "b": pa.array([0, 0, 1, 0, 0], pa.int32()),
    }
    table.write(pa.table({**keys, "v": ["wrong"] * 5}))
    return store


A_ROWS = insertions(A, (1, 1), (2, 2))
B_ROWS = insertions(B, *((each, each % 2) for each in range(-4, 5)))


def test_ranges_cover_the_table_and_other_tables_are_committed_in_between(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Database([*A_ROWS, *B_ROWS], size=3)
    store = damaged(source)
    source.later = insertions(A, *((each, 0) for each in range(10, 20)))
    source.meanwhile = [1] * 10
    files(store).request([B])
    seen: list[int] = []
    read = source.read_again

    def read_again(*of: Any) -> Iterator[Step]:
        seen.append(len(mirrored(store, A)))
        yield from read(*of)

    monkeypatch.setattr(source, "read_again", read_again)
    with caplog.at_level(logging.INFO, "lakecore.cdc"):
        run(store, source, 2, interval_seconds=1e9)

    assert source.starts == [(B, None), (B, -1), (B, 2)]
    assert seen == sorted({*seen}), "each range has its own commit of the other table"
    assert mirrored(store, B) == source.state(B)
    assert mirrored(store, A) == source.state(A)
    told = [each.getMessage() for each in caplog.records if "again" in each.getMessage()]
    assert told == [
        "table is read again. table=s.b",
        "table is read again. table=s.b up_to=-1",
        "table is read again. table=s.b up_to=2",
        "table is followed again. table=s.b target=d.b",
    ]


def test_each_range_is_headway_of_a_short_life(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Database([*A_ROWS, *B_ROWS], size=3)
    store = damaged(source)
    files(store).request([B])
    read = source.read_again
    calls: list[object] = []

    def read_again(*of: Any) -> Iterator[Step]:
        calls.append(of)
        if len(calls) % 2 == 0:
            raise RuntimeError("killed")
        yield from read(*of)

    monkeypatch.setattr(source, "read_again", read_again)
    for seed in (2, 3):
        with pytest.raises(RuntimeError, match="killed"):
            run(store, source, seed)
        assert [each["start"] for each in stored(store)["partly_read"]] == [[-1], [2]][seed - 2]
    run(store, source, 4)

    assert source.starts == [(B, None), (B, -1), (B, 2)]
    assert mirrored(store, B) == source.state(B)
    assert "partly_read" not in stored(store)


def stored(store: Store) -> dict[str, Any]:
    """The last state as it is stored."""
    last = files(store).checkpoints()[-1]
    found: dict[str, Any] = json.loads(store.read(f"w/.cdc/p/checkpoint-{last}.json"))
    return found


@pytest.mark.parametrize("is_before", [True, False])
def test_a_table_with_new_columns_is_read_from_its_first_range(
    monkeypatch: pytest.MonkeyPatch, *, is_before: bool
) -> None:
    """A change with the earlier columns would otherwise replace a row with the new one."""
    source = Database([*A_ROWS, *B_ROWS], size=3)
    store = damaged(source)
    files(store).request([B])
    later = [Event(B, (4, 0), "changed"), Event(B, verb="widen"), Event(A, (3, 3), "a")]
    read = source.read_again

    def read_again(table: SourceTable, after: Position, start: int | None = None) -> Iterator[Step]:
        if start == 2 and later:
            source.later, source.meanwhile = [*later], [3]
            later.clear()
            if is_before:
                source.tick()
        yield from read(table, after, start)

    monkeypatch.setattr(source, "read_again", read_again)
    run(store, source, 2, interval_seconds=1e9)

    assert [start for _, start in source.starts] == [None, -1, 2, None, -1, 2]
    assert mirrored(store, B) == source.state(B)
    assert mirrored(store, B)[4, 0] == ["changed", "d"]


def test_a_statement_that_changes_values_without_a_log_begins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Database([*A_ROWS, *B_ROWS], size=3)
    store = damaged(source)
    files(store).request([B])
    later = [Event(B, (-4, 0), "before"), Event(B, verb="renew")]
    read = source.read_again

    def read_again(table: SourceTable, after: Position, start: int | None = None) -> Iterator[Step]:
        if start == -1:
            source.log += later
            later.clear()
        yield from read(table, after, start)

    monkeypatch.setattr(source, "read_again", read_again)
    run(store, source, 2, interval_seconds=1e9)

    assert [start for _, start in source.starts] == [None, -1, None, -1, 2]
    assert mirrored(store, B) == source.state(B)


def test_another_request_reads_the_table_from_its_first_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Database([*A_ROWS, *B_ROWS], size=3)
    store = damaged(source)
    files(store).request([A, B])
    read = source.read_again

    def read_again(table: SourceTable, after: Position, start: int | None = None) -> Iterator[Step]:
        if start == -1 and len(source.starts) < 4:
            files(store, seed=8).request([B])
        yield from read(table, after, start)

    monkeypatch.setattr(source, "read_again", read_again)
    run(store, source, 2)

    assert source.starts == [(A, None), (B, None), (B, -1), (B, None), (B, -1), (B, 2)]
    assert files(store).requests() == {}
    assert mirrored(store, B) == source.state(B)


@pytest.mark.parametrize("gone", [False, True])
def test_a_table_of_which_a_later_range_cannot_be_read_is_set_aside(
    monkeypatch: pytest.MonkeyPatch, *, gone: bool
) -> None:
    source = Database([*A_ROWS, *B_ROWS], size=3)
    store = damaged(source)
    files(store).request([B])
    read = source.read_again

    def read_again(table: SourceTable, after: Position, start: int | None = None) -> Iterator[Step]:
        yield from read(table, after, start)
        source.gone = gone
        if start is not None:
            raise InvalidRequest("a value does not fit")

    monkeypatch.setattr(source, "read_again", read_again)
    progress = run(store, source, 2)

    (entry,) = progress.quarantine
    assert entry.table == B
    assert entry.reason.startswith("it could be read again only in part: ")
    assert files(store).requests() == {}
    latest = files(store).latest()
    assert latest is not None
    assert latest.partly_read == ()
    monkeypatch.undo()
    source.gone = False
    files(store).request([B])
    assert run(store, source, 3).quarantine == ()
    assert mirrored(store, B) == source.state(B)


def test_a_table_that_is_set_aside_meanwhile_is_read_from_its_first_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Database([*A_ROWS, *B_ROWS], size=3)
    store = damaged(source)
    files(store).request([B])
    follow = source.steps

    def steps(after: Position | None) -> Iterator[Step]:
        if len(source.starts) == 2 and B not in source.left_out:
            error = InvalidRequest("a statement in the log")
            vars(error)["tables_of_the_error"] = frozenset({B})
            raise error
        yield from follow(after)

    monkeypatch.setattr(source, "steps", steps)
    progress = run(store, source, 2)

    assert [start for _, start in source.starts] == [None, -1, None, -1, 2]
    assert progress.quarantine == ()
    assert mirrored(store, B) == source.state(B)


KEYS = st.tuples(st.integers(-3, 3), st.integers(0, 2))
VALUES = st.none() | st.sampled_from("xyz")
ROW_EVENTS = st.builds(Event, st.sampled_from([B, B, A]), KEYS, VALUES)
STATEMENTS = st.builds(Event, st.just(B), verb=st.sampled_from(["clear", "renew"]))
EVENTS = st.one_of(*[ROW_EVENTS] * 9, STATEMENTS)


@given(
    first=st.lists(ROW_EVENTS, max_size=20),
    later=st.lists(EVENTS, max_size=30),
    meanwhile=st.lists(st.integers(0, 3), max_size=60),
    size=st.integers(1, 5),
    fails=st.lists(st.booleans(), max_size=4),
    lives=st.lists(st.tuples(st.integers(1, 150), st.booleans()), max_size=5),
)
def test_the_target_equals_its_source_at_the_end(
    first: list[Event],
    later: list[Event],
    meanwhile: list[int],
    size: int,
    fails: list[bool],
    lives: list[tuple[int, bool]],
) -> None:
    plain = [*A_ROWS, *insertions(B, (0, 0)), *first]
    source = Database(plain, size=size)
    store = damaged(source)
    files(store).request([B])
    source.later, source.meanwhile, source.fails = later, meanwhile, fails
    for seed, (fail_at, after) in enumerate(lives, 2):
        try:
            run(FailingStore(store, fail_at, after=after), source, seed)
        except (StoreFailure, LakecoreError):
            source.left_out = frozenset()
    source.log += source.later
    source.later.clear()
    source.fails.clear()
    progress = run(store, source, 99)

    for table in (A, B):
        assert mirrored(store, table) == source.state(table)
    assert progress.quarantine == ()
    assert files(store).requests() == {}


@given(
    keys=st.lists(KEYS, unique=True, max_size=20),
    size=st.integers(1, 4),
)
def test_ranges_have_about_the_same_number_of_rows_and_none_is_missing(
    keys: list[Key], size: int
) -> None:
    cursor = sqlite3.connect(":memory:").cursor()
    cursor.execute("CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b))")
    cursor.executemany("INSERT INTO t VALUES (?, ?)", keys)
    start, found = None, list[Key]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lakecore.cdc.resync.RANGE_ROWS", size)
        while True:
            stop = range_stop(cursor, "t", "a", start)
            condition = range_condition("a", start, stop)
            part = cursor.execute(f"SELECT a, b FROM t{condition}").fetchall()
            assert len(part) <= size or len({each[0] for each in part}) == 1
            found += part
            if stop is None:
                break
            assert start is None or stop > start
            start = stop
    cursor.connection.close()
    assert Counter(found) == Counter(keys)


@pytest.mark.parametrize(
    ("kind", "key", "column"),
    [("INT", ("a", "b"), "a"), ("BIGINT", ("b", "a"), "b"), ("DECIMAL(20, 0)", ("a",), None),
     ("STRING", ("a", "b"), None), ("TINYINT", (), None)],
)  # fmt: skip
def test_a_table_is_cut_by_an_integer_in_front_of_its_key(
    kind: str, key: tuple[str, ...], column: str | None
) -> None:
    of = schema({"a": f"{kind} NOT NULL", "b": f"{kind} NOT NULL"}, key=key)
    assert range_column(of) == column
