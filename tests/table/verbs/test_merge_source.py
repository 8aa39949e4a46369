"""The source of a merge: held in memory or on disk, given out in parts."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest
from lakecore.memory import Budget
from lakecore.model.types import Field, parse_type
from lakecore.table.verbs.merge_plan import in_part
from lakecore.table.verbs.merge_rows import MergeSource

ON = [Field(id=0, name="id", type=parse_type("INT NOT NULL"))]


def batches(count: int) -> Any:
    for start in range(0, count, 500):
        ids = list(range(start, start + 500))
        yield pa.table({"id": ids, "v": [f"{number:050}" for number in ids]})


def test_rows_that_fit_are_one_part_and_hold_a_lease() -> None:
    budget = Budget(1 << 30)
    with MergeSource(batches(1000), ON, budget) as source:
        assert (source.part_count, source.part(0).num_rows) == (1, 1000)
        assert source.part(0).schema.types == [pa.int32(), pa.string()]
        assert budget.used_bytes > 0

    assert budget.used_bytes == 0


def test_rows_that_do_not_fit_are_parts_that_hold_each_row_once() -> None:
    with MergeSource(batches(20_000), ON, Budget(1 << 20)) as source:
        count = source.part_count
        parts = [source.part(number)["id"].to_pylist() for number in range(count)]

    assert count > 1
    assert sorted(number for part in parts for number in part) == list(range(20_000))
    assert max(map(len, parts)) < 2 * 20_000 // count


def test_rows_of_both_sides_with_equal_values_are_in_the_same_part() -> None:
    target = pa.table({"id": pa.array(range(20_000), pa.int32()), "n": [0] * 20_000})
    with MergeSource(batches(20_000), ON, Budget(1 << 20)) as source:
        for number in range(source.part_count):
            mine = in_part(target, ["id"], number, source.part_count)
            assert sorted(source.part(number)["id"].to_pylist()) == mine["id"].to_pylist()


def test_texts_and_parts_of_polars_can_be_taken() -> None:
    frame = pl.DataFrame(
        {
            "id": [1, 2],
            "text": ["a", None],
            "list": [["x"], []],
            "row": [{"a": "q", "b": [b"z"]}, None],
            "kind": pl.Series(["p", "q"], dtype=pl.Categorical),
        }
    )
    with MergeSource(frame, ON, Budget()) as source:
        taken = source.part(0).take(pa.array([1, 0]))

    assert taken.to_pylist() == frame[::-1].to_dicts()


def test_dicts_of_different_types_have_a_common_one() -> None:
    first = pa.table({"id": [1], "n": pa.nulls(1)})
    second = pa.table({"id": [2], "n": [5], "more": ["x"]})
    with MergeSource([first, second], ON, Budget()) as source:
        rows = source.part(0).to_pylist()

    assert rows == [{"id": 1, "n": None, "more": None}, {"id": 2, "n": 5, "more": "x"}]


def test_bad_source_gives_back_what_it_held() -> None:
    budget = Budget(1 << 30)
    data = [*batches(1000), pa.table({"v": ["x"]})]
    with pytest.raises(InvalidRequest, match=r"lacks a column to merge on\. column=id"):
        MergeSource(data, ON, budget)
    with pytest.raises(InvalidRequest, match="different types"):
        MergeSource(
            [pa.table({"id": [1], "n": [1]}), pa.table({"id": [1], "n": ["a"]})], ON, budget
        )

    assert budget.used_bytes == 0
