"""Rows keep their ids, whatever is written, changed, copied and rolled back.

The models here hold rows by their ids, which the model of the kit does not have.
"""

from __future__ import annotations

from typing import cast
from uuid import uuid4

import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import lakecore as lc
from tests.partial_files import rewrite_columns

Row = dict[str, int | None]
COLUMNS = {"k": "INT", "v": "INT", "w": "INT"}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 5)),
        st.tuples(st.just("delete"), st.integers(0, 4)),
        st.tuples(st.just("update"), st.integers(0, 4)),
        st.tuples(st.just("compact"), st.just(0)),
        st.tuples(st.just("roll back"), st.integers(0, 9)),
    ),
    min_size=1,
    max_size=8,
)


def read(table: lc.Table) -> dict[int, Row]:
    view = table.inspect.system_table("row_tracking").to_polars().drop("_SEQUENCE_NUMBER")
    rows = view.rows(named=True)
    assert len({row["_ROW_ID"] for row in rows}) == len(rows)
    return {row.pop("_ROW_ID"): row for row in rows}


@given(steps=STEPS, vectors=st.booleans())
def test_ids_stay_with_their_rows(steps: list[tuple[str, int]], vectors: bool) -> None:  # noqa: FBT001
    options = {
        "row-tracking.enabled": "true",
        "deletion-vectors.enabled": str(vectors).lower(),
        "compaction.min.file-num": "2",
    }
    table = lc.open_table(f"memory://{uuid4()}/t", create=True, schema=COLUMNS, options=options)
    model: dict[int, Row] = {}
    states: dict[int, tuple[dict[int, Row], int]] = {}
    free = 0
    for verb, number in steps:
        if verb == "write":
            rows = [{"k": at % 5, "v": at, "w": None} for at in range(free, free + number)]
            table.write(pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.Int32)))
            model = model | {row["v"]: dict(row) for row in rows if row["v"] is not None}
            free += number
        elif verb == "delete":
            table.delete(f"k = {number}")
            model = {at: row for at, row in model.items() if row["k"] != number}
        elif verb == "update":
            table.update({"w": number}, f"k = {number}")
            changed: Row = {"w": number}
            model = {a: row | changed if row["k"] == number else row for a, row in model.items()}
        elif verb == "compact":
            table.compact(full=True)
        elif states:
            snapshot = [*states][number % len(states)]
            table.rollback_to(snapshot)
            model, free = states[snapshot]
            states = {at: state for at, state in states.items() if at <= snapshot}
        ids = table.inspect.snapshots()["snapshot_id"].to_list()
        if ids:
            states[max(ids)] = model, free
        assert read(table) == model
    assert table.to_polars().height == len(model)


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    changes=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["k", "v", "w", "kv", "vw"]), st.integers()),
        max_size=6,
    ),
)
def test_newest_values_of_each_column_are_read(
    sizes: list[int], changes: list[tuple[int, str, int]]
) -> None:
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    table = lc.open_table(f"memory://{uuid4()}/t", create=True, schema=COLUMNS, options=options)
    model: list[Row] = []
    groups: list[range] = []
    for size in sizes:
        groups.append(range(len(model), len(model) + size))
        rows: list[Row] = [{"k": at, "v": at, "w": None} for at in groups[-1]]
        table.write(pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.Int32)))
        model += rows
    for group, names, seed in changes:
        rows_changed = groups[group % len(groups)]
        values = {
            name: [None if (seed + at) % 4 == 0 else (seed * 7 + at) % 1000 for at in rows_changed]
            for name in names
        }
        schema = pa.schema([(name, pa.int32()) for name in names])
        rewrite_columns(table, pa.table(values, schema=schema), rows_changed.start)
        for place, at in enumerate(rows_changed):
            model[at] = model[at] | {name: values[name][place] for name in names}

    assert read(table) == dict(enumerate(model))
    few = sum(row["w"] is None for row in model)
    assert table.count("w IS NULL") == few
    assert table.to_arrow(["v"]).num_rows == table.count() == len(model)


EVOLVING_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 4), st.just("")),
        st.tuples(st.just("delete"), st.integers(0, 4), st.just("")),
        st.tuples(st.just("update"), st.integers(0, 4), st.sampled_from(["v", "w", "b", "vw"])),
        st.tuples(st.just("merge"), st.integers(0, 4), st.sampled_from(["w", "b", "wb"])),
        st.tuples(st.just("compact"), st.just(0), st.just("")),
        st.tuples(st.just("roll back"), st.integers(0, 9), st.just("")),
    ),
    min_size=1,
    max_size=9,
)
BLOBS = {"k": "INT", "v": "INT", "w": "INT", "b": "BLOB"}
Evolving = dict[str, object]


class Model:
    """The rows by their ids, and the next free id."""

    def __init__(self) -> None:
        self.rows: dict[int, Evolving] = {}
        self.free = 0

    def add(self, rows: list[Evolving]) -> None:
        self.rows = self.rows | dict(enumerate(rows, self.free))
        self.free += len(rows)

    def delete(self, key: int) -> None:
        self.rows = {at: row for at, row in self.rows.items() if row["k"] != key}

    def update(self, key: int, changed: Evolving) -> None:
        rows = self.rows.items()
        self.rows = {at: row | changed if row["k"] == key else row for at, row in rows}

    def merge(self, key: int, changed: Evolving) -> None:
        """As the clauses in `merge_into`."""
        found = {at: row for at, row in self.rows.items() if row["k"] == key}
        gone = {at for at, row in found.items() if row["v"] == 0}
        new = {at: row | changed for at, row in found.items() if cast("int", row["v"]) > 2}
        self.rows = {at: row for at, row in (self.rows | new).items() if at not in gone}
        if not found:
            self.add([{"k": key, "v": 9, "w": None, "b": None}])


def merge_into(table: lc.Table, key: int, changed: Evolving) -> None:
    merge = table.merge([{"k": key, "w": 5}], on="k").when_matched_update(changed, "v > 2")
    merge = merge.when_matched_delete("target.v = 0")
    merge.when_not_matched_insert({"k": pl.col("source.k"), "v": 9}).execute()


def play(table: lc.Table, model: Model, number: int, step: tuple[str, int, str]) -> None:
    verb, key, names = step
    new: Evolving = {"v": number, "w": None, "b": b"%d" % number}
    changed = {name: new[name] for name in names}
    if verb == "write":
        rows: list[Evolving] = [
            {"k": at % 5, "v": at, "w": at, "b": None if at % 3 == 0 else b"b%d" % at}
            for at in range(model.free, model.free + key)
        ]
        table.write(rows)
        model.add(rows)
    elif verb == "delete":
        table.delete(f"k = {key}")
        model.delete(key)
    elif verb == "update":
        table.update(changed, f"k = {key}")
        model.update(key, changed)
    elif verb == "merge":
        merge_into(table, key, changed)
        model.merge(key, changed)
    else:
        table.compact(full=True)


@given(steps=EVOLVING_STEPS)
def test_columns_and_ids_are_those_of_a_model(steps: list[tuple[str, int, str]]) -> None:
    options = {
        "row-tracking.enabled": "true",
        "data-evolution.enabled": "true",
        "deletion-vectors.enabled": "true",
        "blob.target-file-size": "20 b",
    }
    table = lc.open_table(f"memory://{uuid4()}/t", create=True, schema=BLOBS, options=options)
    model = Model()
    states: dict[int, tuple[dict[int, Evolving], int]] = {}
    for number, step in enumerate(steps):
        if step[0] != "roll back":
            play(table, model, number, step)
        elif states:
            snapshot = [*states][step[1] % len(states)]
            table.rollback_to(snapshot)
            model.rows, model.free = states[snapshot]
            states = {at: state for at, state in states.items() if at <= snapshot}
        ids = table.inspect.snapshots()["snapshot_id"].to_list()
        if ids:
            states[max(ids)] = model.rows, model.free
        view = table.inspect.system_table("row_tracking")
        rows = view.to_polars().drop("_SEQUENCE_NUMBER").rows(named=True)
        assert {row.pop("_ROW_ID"): row for row in rows} == model.rows
        assert table.count() == len(model.rows)
        held = view.to_polars(where=f"_ROW_ID = {model.free - 1}")
        assert held.height == (model.free - 1 in model.rows)
