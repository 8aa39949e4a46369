"""Changes of tables with data evolution: joined from the beginning, they are the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.testing import assert_same_rows
from tests.tables import new_table

if TYPE_CHECKING:
    from lakecore.table.handle import Table

COLUMNS = {"k": "INT", "v": "STRING", "n": "INT", "b": "BLOB"}
OPTIONS: dict[str, Any] = {"row_tracking__enabled": "true", "data_evolution__enabled": "true"}
KEYS = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)
VALUES = {
    "v": st.one_of(st.none(), st.sampled_from("xyz")),
    "n": st.one_of(st.none(), st.integers(0, 5)),
    "b": st.one_of(st.none(), st.binary(max_size=3)),
}
UPDATES = st.fixed_dictionaries({}, optional=VALUES).filter(bool)
STEPS = st.lists(st.one_of(st.tuples(st.just("write"), KEYS), st.tuples(UPDATES, KEYS)), max_size=5)


def played(steps: list[tuple[Any, list[int]]]) -> Table:
    table = new_table(COLUMNS, keys=(), **OPTIONS)
    table.write([{"k": k, "v": f"v{k}", "n": k, "b": bytes([k])} for k in range(3)])
    for step, keys in steps:
        if step == "write":
            table.write([{"k": k, "v": f"w{k}", "n": None, "b": b"w"} for k in keys])
        else:
            table.update(step, f"k IN ({', '.join(map(str, keys))})")
    return table


@settings(max_examples=10)
@given(steps=STEPS, where=st.integers(0, 5))
def test_changes_from_the_beginning_are_the_table(
    steps: list[tuple[Any, list[int]]], where: int
) -> None:
    table = played(steps)
    changes, rows = table.changes(), table.to_polars()
    condition = pl.col("n") == where

    assert_same_rows(changes.drop("_row_kind"), rows)
    assert changes.filter(condition).collect().height == rows.filter(condition).height
    assert changes.select("b").collect()["b"].is_null().sum() == rows["b"].is_null().sum()


@settings(max_examples=10)
@given(steps=STEPS)
def test_a_stream_returns_what_each_snapshot_wrote(steps: list[tuple[Any, list[int]]]) -> None:
    table = played(steps)
    read = {number: frame.collect() for number, frame in table.stream(1, "latest")}
    for number, frame in read.items():
        assert frame.equals(table.changes(number - 1, number).collect())
    new = sum(frame.filter(pl.col("k").is_not_null()).height for frame in read.values())

    assert new == table.count()
