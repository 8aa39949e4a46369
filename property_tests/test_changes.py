"""Whoever applies the changes of a table one after the other comes out at the table.

Histories of writes, deletions, updates, compactions and overwrites, on each producer: the changelog
from the first snapshot, replayed from nothing, is the table at every snapshot; so is what a fresh
reader sees first, with what follows; and the difference of two states makes the one the other.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.model.rows import KIND_TEXTS
from lakecore.model.snapshot import CommitKind
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.table.handle import Table

State = dict[Any, tuple[Any, ...]]

COLUMNS = {"id": "INT NOT NULL", "p": "STRING NOT NULL", "n": "INT"}
NAMES = tuple(COLUMNS)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "bucket": st.sampled_from(["2", "-1"]),
        "file.format": st.sampled_from(["orc", "avro"]),
        "target-file-size": st.just("1 b"),
        "write-buffer-size": st.just("1 b"),
        "num-sorted-run.compaction-trigger": st.just("2"),
        "sequence.field": st.just("n"),
    },
)


@st.composite
def a_row(draw: st.DrawFn) -> dict[str, Any]:
    key = draw(st.integers(0, 7))
    return {"id": key, "p": "ab"[key % 2], "n": draw(st.none() | st.integers(0, 3))}


ROWS = st.lists(a_row(), min_size=1, max_size=5)
KINDED = st.lists(
    st.builds(lambda row, kind: {**row, "_row_kind": kind}, a_row(), st.sampled_from(KIND_TEXTS)),
    min_size=1,
    max_size=5,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), KINDED),
        st.tuples(st.just("delete"), st.integers(0, 7)),
        st.tuples(st.just("update"), st.integers(0, 7)),
        st.tuples(st.just("compact"), st.booleans()),
        st.tuples(st.just("overwrite"), ROWS),
    ),
    min_size=1,
    max_size=7,
)


def keyed(producer: str, options: dict[str, str]) -> Table:
    stated: dict[str, Any] = {"bucket": "1", **options, "changelog-producer": producer}
    if producer in ("none", "input"):
        stated["streaming-read-overwrite"] = "true"
    return new_table(COLUMNS, keys=("id", "p"), partitions=("p",), **stated)


def play(table: Table, steps: Sequence[tuple[str, Any]]) -> None:
    for verb, given_ in steps:
        match verb:
            case "write":
                table.write(given_)
            case "delete":
                table.delete(pl.col("id") >= given_)
            case "update":
                table.update({"n": pl.col("n") + 1}, pl.col("id") <= given_)
            case "compact":
                table.compact(full=given_)
            case "overwrite":
                table.overwrite(given_)


def apply(state: State, changes: pl.DataFrame) -> None:
    """Bring the changes into the state, as upserts and deletions."""
    for kind, *row in changes.select("_row_kind", *NAMES).rows():
        key = tuple(row[:2])
        if kind in ("+I", "+U"):
            state[key] = tuple(row)
        else:
            state.pop(key, None)


def replay(state: State, changes: pl.DataFrame) -> None:
    """Bring exact changes into the state: each fits what is there."""
    for kind, *values in changes.select("_row_kind", *NAMES).rows():
        row = tuple(values)
        if kind in ("+I", "+U"):
            assert row[:2] not in state
            state[row[:2]] = row
        else:
            assert state.pop(row[:2]) == row


def held(table: Table, snapshot_id: int) -> State:
    rows = table.to_polars(snapshot_id=snapshot_id).select(NAMES).rows()
    state = {row[:2]: row for row in rows}
    assert len(state) == len(rows)
    return state


def snapshots_of(table: Table) -> range:
    return range(1, (table.context.history.latest_snapshot_id() or 0) + 1)


PRODUCERS = pytest.mark.parametrize("producer", ["none", "input"])


@PRODUCERS
@given(options=OPTIONS, steps=STEPS)
def test_changelog_replayed_from_nothing_is_the_table_at_every_snapshot(
    producer: str, options: dict[str, str], steps: list[tuple[str, Any]]
) -> None:
    options.pop("sequence.field", None)
    table = keyed(producer, options)
    play(table, steps)
    changes = dict(table.stream(1, "latest")) if snapshots_of(table) else {}

    state: State = {}
    for number in snapshots_of(table):
        if number in changes:
            apply(state, changes[number].collect())
        assert state == held(table, number), number


@PRODUCERS
@given(options=OPTIONS, steps=STEPS, later=STEPS)
def test_fresh_reader_who_goes_on_is_at_the_table(
    producer: str,
    options: dict[str, str],
    steps: list[tuple[str, Any]],
    later: list[tuple[str, Any]],
) -> None:
    options.pop("sequence.field", None)
    table = keyed(producer, options)
    play(table, steps)
    if not snapshots_of(table):
        return
    ((reached, first),) = table.stream(until="latest")
    state: State = {}
    apply(state, first.collect())
    assert state == held(table, reached)

    play(table, later)
    for _, frame in table.stream(reached + 1, "latest"):
        apply(state, frame.collect())
    assert state == held(table, snapshots_of(table)[-1])


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
@given(options=OPTIONS, steps=STEPS, later=STEPS)
def test_fresh_reader_of_a_changelog_by_compaction_misses_nothing_and_sees_nothing_twice(
    producer: str,
    options: dict[str, str],
    steps: list[tuple[str, Any]],
    later: list[tuple[str, Any]],
) -> None:
    table = keyed(producer, options)
    # What an overwrite changes is in no changelog.
    play(table, [step for step in steps if step[0] != "overwrite"])
    if not snapshots_of(table):
        return
    ((reached, first),) = table.stream(until="latest")
    state: State = {}
    replay(state, first.collect())

    play(table, [step for step in later if step[0] != "overwrite"])
    table.compact(full=True)
    for _, frame in table.stream(reached + 1, "latest"):
        replay(state, frame.collect())
    assert state == held(table, snapshots_of(table)[-1])


@PRODUCERS
@given(options=OPTIONS, steps=STEPS, data=st.data())
def test_difference_makes_one_state_the_other(
    producer: str, options: dict[str, str], steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    table = keyed(producer, options)
    play(table, steps)
    if not snapshots_of(table):
        return
    last = data.draw(st.sampled_from(snapshots_of(table)))
    first = data.draw(st.integers(0, last))
    state = held(table, first) if first else {}
    before = dict(state)

    changes = table.copy({"incremental-between-scan-mode": "diff"}).changes(first, last).collect()
    apply(state, changes)

    after = held(table, last)
    assert state == after
    kinds = dict(zip(changes.select("id", "p").rows(), changes["_row_kind"], strict=True))
    assert len(kinds) == changes.height
    for key, kind in kinds.items():
        there = {"+I": (False, True), "+U": (True, True), "-D": (True, False)}[kind]
        assert there == (key in before, key in after)
        assert before.get(key) != after.get(key)


@given(options=OPTIONS, steps=STEPS, data=st.data())
def test_changes_between_two_snapshots_are_those_of_each_one_after_the_other(
    options: dict[str, str], steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    table = keyed("input", options).copy({"streaming-read-overwrite": "false"})
    play(table, steps)
    last = data.draw(st.integers(0, len(snapshots_of(table))))
    first = data.draw(st.integers(0, last))
    least = data.draw(st.none() | st.integers(0, 7))
    where = None if least is None else f"id >= {least} AND _row_kind <> '-U'"
    if not last:
        return

    frames = [frame.collect() for _, frame in table.stream(first + 1, last, where=where)]
    whole = table.changes(first, last).collect()

    expected = (
        whole
        if least is None
        else whole.filter((pl.col("id") >= least) & (pl.col("_row_kind") != "-U"))
    )
    assert pl.concat([expected.clear(), *frames]).rows() == expected.rows()


@given(
    options=OPTIONS,
    steps=st.lists(st.none() | st.lists(a_row(), min_size=1, max_size=5), min_size=1, max_size=6),
)
def test_rows_added_to_a_table_without_key_add_up_to_it(
    options: dict[str, str], steps: list[list[dict[str, Any]] | None]
) -> None:
    options = {key: text for key, text in options.items() if key in ("file.format", "bucket")}
    if options.get("bucket") == "2":
        options["bucket-key"] = "id"
    stated: dict[str, Any] = options
    table = new_table(COLUMNS, keys=(), **stated)
    for rows in steps:
        table.write(rows if rows is not None else [])
    changes = dict(table.stream(1, "latest")) if snapshots_of(table) else {}

    there: Counter[tuple[Any, ...]] = Counter()
    for number in snapshots_of(table):
        if number in changes:
            found = changes[number].collect()
            assert set(found["_row_kind"]) == {"+I"}
            there.update(found.select(NAMES).rows())
        assert there == Counter(table.to_polars(snapshot_id=number).select(NAMES).rows())


def test_compactions_are_among_the_histories() -> None:
    table = keyed("none", {})
    play(table, [("write", [{"id": 1, "p": "b", "n": 1}]), ("compact", True)])
    newest = table.context.history.latest_snapshot()

    assert newest is not None
    assert newest.commit_kind is CommitKind.COMPACT
