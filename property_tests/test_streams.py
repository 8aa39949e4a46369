"""A stream that stops, dies and goes on at random gives each change once, in order.

Others write, compact and expire snapshots meanwhile. A witness reads each snapshot as soon as it is
committed. What the reader has stored at the end must be what the witness saw, and replayed from
nothing it must be the table: for every changelog producer, for both modes of consumers, and where
snapshots expire and leave their changelogs.

A reader that dies loses what it has not committed. With `at-least-once`, it may read snapshots
twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import LakecoreError
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.testing import apply_changes, assert_same_rows
from tests.stores import FailingStore, StoreFailure
from tests.tables import new_table, reopened

if TYPE_CHECKING:
    import polars as pl

    from lakecore.table.changes.change_stream import ChangeStream
    from lakecore.table.handle import Table

PRODUCERS = ("append", "none", "input", "lookup", "full-compaction")
MODES = ("exactly-once", "at-least-once")
LONG_LIVED = {
    "changelog__num_retained__min": "1000",
    "changelog__num_retained__max": "1000",
    "consumer__changelog_only": "true",
}
"""Snapshots expire although a consumer needs them, and leave their changelogs."""

ROWS = st.lists(
    st.tuples(st.sampled_from(["+I", "+I", "-D"]), st.integers(0, 4), st.integers(0, 9)),
    min_size=1,
    max_size=4,
)
DEEDS = st.one_of(
    st.tuples(st.just("write"), ROWS),
    st.tuples(st.just("write"), ROWS),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("expire"), st.integers(1, 3)),
    st.tuples(st.just("take"), st.integers(1, 3)),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("die"), st.none()),
    st.tuples(st.just("wait"), st.none()),
)

Change = tuple[Any, ...]
Read = list[tuple[int, list[Change]]]


class Idle(Exception):
    """The stream would wait."""


@dataclass
class Reader:
    """A program that follows the table: what it has stored, and what dies with it."""

    table: Table
    once: bool
    batches: bool
    clock: Any = field(default_factory=lambda: seeded(5))
    stored: Read = field(default_factory=list)
    unstored: Read = field(default_factory=list)
    stream: ChangeStream[pl.LazyFrame] = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.unstored = []
        ambient = replace(self.clock, sleep=idle)
        opened = reopened(self.table, ambient=ambient).copy(reader_options(self))
        self.stream = opened.stream(1, consumer_id="reader")

    def take(self) -> bool:
        """Read one snapshot, if there is one."""
        try:
            if self.batches:
                number, reader = next(self.stream.to_batches())
                rows = [tuple(row.values()) for batch in reader for row in batch.to_pylist()]
            else:
                number, frame = next(self.stream)
                rows = frame.collect().rows()
        except Idle:
            return False
        (self.unstored if self.once else self.stored).append((number, rows))
        return True

    def commit(self) -> None:
        self.stored += self.unstored
        self.unstored = []
        self.stream.commit()


def idle(seconds: float) -> None:
    raise Idle(seconds)


def reader_options(reader: Reader) -> dict[str, str]:
    return {"consumer.mode": MODES[0] if reader.once else MODES[1]}


def make(producer: str, **more: Any) -> Table:
    stated: dict[str, Any] = (
        {} if producer in {"append", "none"} else {"changelog_producer": producer}
    )
    return new_table(
        {"id": "INT NOT NULL", "v": "INT"},
        keys=() if producer == "append" else ("id",),
        num_sorted_run__compaction_trigger="2",
        **stated,
        **more,
    )


def write(table: Table, rows: list[tuple[str, int, int]]) -> None:
    keyed = bool(table.schema.primary_keys)
    kinds, ids, values = zip(*rows, strict=True)
    data = {"id": pa.array(ids, pa.int32()), "v": pa.array(values, pa.int32())}
    if keyed:
        data["_row_kind"] = pa.array(kinds, pa.string())
    table.write(pa.table(data))


@dataclass
class Witness:
    """Who reads each snapshot as soon as it is there."""

    stream: ChangeStream[pl.LazyFrame]
    seen: Read = field(default_factory=list)

    def look(self) -> None:
        try:
            while True:
                number, frame = next(self.stream)
                self.seen.append((number, frame.collect().rows()))
        except Idle:
            pass


def play(table: Table, deed: str, what: Any) -> None:
    """What others do to the table."""
    match deed:
        case "write":
            write(table, what)
        case "compact":
            table.compact(full=what)
        case "expire":
            table.expire_snapshots(retain_max=what, retain_min=1)


def read(reader: Reader, deed: str, what: Any) -> None:
    """What the reader does, and what is done to it."""
    match deed:
        case "take":
            for _ in range(what):
                reader.take()
        case "commit":
            reader.commit()
        case "die":
            reader.start()
        case "wait":
            reader.clock.sleep(11)


@given(data=st.data(), producer=st.sampled_from(PRODUCERS), mode=st.sampled_from(MODES))
def test_each_change_comes_once_and_in_order(data: st.DataObject, producer: str, mode: str) -> None:
    deeds = data.draw(st.lists(DEEDS, max_size=14))
    table = make(producer, **data.draw(st.sampled_from([{}, LONG_LIVED])))
    write(table, [("+I", 1, 1)])
    following = reopened(table, ambient=replace(seeded(6), sleep=idle))
    witness = Witness(following.stream(1))
    witness.look()
    once, batches = mode == "exactly-once", data.draw(st.booleans())
    reader = Reader(table, once=once, batches=batches)
    reader.take()

    for deed, what in [*deeds, ("compact", True)]:
        play(table, deed, what)
        read(reader, deed, what)
        witness.look()
    while reader.take():
        pass
    reader.commit()

    if not once:
        numbers = [number for number, _ in reader.stored]
        assert numbers[-1:] == [number for number, _ in witness.seen[-1:]]
        reader.stored = sorted(dict(reader.stored).items())
    assert reader.stored == witness.seen
    check_replay(table, [change for _, rows in reader.stored for change in rows])


def check_replay(table: Table, changes: list[Change]) -> None:
    told = [dict(zip(("_row_kind", "id", "v"), each, strict=True)) for each in changes]
    exact = table.schema.options.get("changelog-producer") in ("lookup", "full-compaction")
    assert_same_rows(apply_changes(told, table.schema.primary_keys, exact=exact), table)


@given(producer=st.sampled_from(PRODUCERS), deeds=st.lists(DEEDS, max_size=12))
def test_state_and_what_follows_are_the_table(producer: str, deeds: list[tuple[str, Any]]) -> None:
    table = make(producer)
    found: list[Change] = []
    stream = reopened(table, ambient=replace(seeded(5), sleep=idle)).stream()

    def take() -> bool:
        try:
            found.extend(next(stream)[1].collect().rows())
        except Idle:
            return False
        return True

    for deed, what in [("write", [("+I", 2, 2)]), *deeds, ("compact", True)]:
        if deed == "take":
            take()
        elif deed != "expire":  # nothing protects a stream without a consumer
            play(table, deed, what)
    while take():
        pass

    check_replay(table, found)


# --- a job that dies at any call of the storage ---------------------------------------------------

COPIES = "memory://warehouse/shop.db/copies"


def copy(source: Table, target: Table) -> None:
    """The recipe of the documents: write once by the number of the snapshot, then commit."""
    with source.stream(1, "latest", consumer_id="copy") as stream:
        for number, changes in stream:
            target.write(changes.collect(), commit_user="copy", identifier=number)
            stream.commit()


def filled(store: MemoryStore) -> Table:
    source = make("input", store=store, write_only="true")
    write(source, [("+I", 1, 1), ("+I", 2, 2)])
    write(source, [("-D", 1, 1), ("+I", 3, 3)])
    return source


@pytest.mark.parametrize("after", [False, True])
def test_job_that_dies_at_any_call_copies_each_snapshot_once(*, after: bool) -> None:
    deaths = 0
    for fail_at in range(1, 100):
        store = MemoryStore()
        source = filled(store)
        target = new_table(
            {"id": "INT NOT NULL", "v": "INT"}, store=store, path=COPIES, write_only="true"
        )
        dying = FailingStore(store, fail_at, after=after)
        try:
            copy(reopened(source, store=dying), reopened(target, store=dying))
        except (StoreFailure, LakecoreError):
            deaths += 1
        copy(reopened(source), reopened(target))

        assert sorted(target.to_polars().rows()) == [(2, 2), (3, 3)]
        history = target.context.history
        commits = [history.snapshot(number).commit_identifier for number in history.snapshot_ids()]
        assert commits == [1, 2], fail_at
        assert source.consumers()[0].next_snapshot == 3
        if not dying.is_dead:
            break

    assert 10 < deaths < 99
