"""Whoever applies the changes of a table one after the other comes out at the table.

Histories of writes, deletions, updates, compactions and overwrites, on each producer: the changelog
from the first snapshot, replayed from nothing, is the table at every snapshot; so is what a fresh
reader sees first, with what follows; and the difference of two states makes the one the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.model.rows import KIND_TEXTS
from lakecore.model.snapshot import CommitKind
from lakecore.testing import apply_changes, assert_same_rows
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "p": "STRING NOT NULL", "n": "INT"}
NAMES = tuple(COLUMNS)
KEYS = ("id", "p")
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
    return new_table(COLUMNS, keys=KEYS, partitions=("p",), **stated)


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

    rows = None
    for number in snapshots_of(table):
        if number in changes:
            rows = apply_changes(changes[number], KEYS, rows, exact=False)
        assert_same_rows(rows or [], table.to_arrow(snapshot_id=number))


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
    rows = apply_changes(first, KEYS, exact=False)
    assert_same_rows(rows, table.to_arrow(snapshot_id=reached))

    play(table, later)
    for _, frame in table.stream(reached + 1, "latest"):
        rows = apply_changes(frame, KEYS, rows, exact=False)
    assert_same_rows(rows, table)


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
    rows = apply_changes(first, KEYS)

    play(table, [step for step in later if step[0] != "overwrite"])
    table.compact(full=True)
    for _, frame in table.stream(reached + 1, "latest"):
        rows = apply_changes(frame, KEYS, rows)
    assert_same_rows(rows, table)


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
    before = table.to_arrow(snapshot_id=first) if first else None

    changes = table.copy({"incremental-between-scan-mode": "diff"}).changes(first, last).collect()

    assert_same_rows(
        apply_changes(changes, KEYS, before, exact=False), table.to_arrow(snapshot_id=last)
    )
    known = {row["id"]: row for row in ([] if before is None else before.to_pylist())}
    assert changes["id"].is_unique().all()
    for kind, *row in changes.select("_row_kind", *NAMES).rows():
        assert (kind == "+I") == (row[0] not in known)
        assert kind == "-D" or known.get(row[0]) != dict(zip(NAMES, row, strict=True))


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

    there = None
    for number in snapshots_of(table):
        if number in changes:
            found = changes[number].collect()
            assert set(found["_row_kind"]) == {"+I"}
            there = apply_changes(found, (), there)
        assert_same_rows(there or [], table.to_arrow(snapshot_id=number))


def test_compactions_are_among_the_histories() -> None:
    table = keyed("none", {})
    play(table, [("write", [{"id": 1, "p": "b", "n": 1}]), ("compact", True)])
    newest = table.context.history.latest_snapshot()

    assert newest is not None
    assert newest.commit_kind is CommitKind.COMPACT
