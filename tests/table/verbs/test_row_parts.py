"""Rows on disk in parts: each row in one, equal values in the same, and nothing left behind."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.table.verbs.merge_plan import FAN, RowParts, in_part

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pa.table({"a": [n % 300 for n in range(3000)], "b": ["x", None, "y"] * 1000})


def rows_of(parts: RowParts, number: int, count: int) -> pa.Table:
    empty = ROWS.schema.empty_table()
    return pa.concat_tables([empty, *parts.part(number, count)])


@pytest.mark.parametrize("count", [1, 2, 7, FAN])
def test_each_row_is_in_the_part_of_its_values(count: int) -> None:
    with RowParts(["a", "b"]) as parts:
        parts.add(ROWS.slice(0, 1000))
        parts.add(ROWS.slice(1000))
        found = [rows_of(parts, number, count) for number in range(count)]
        assert len(parts) == 2

    for number, rows in enumerate(found):
        wanted = in_part(ROWS, ["a", "b"], number, count)
        assert sorted(map(str, rows.to_pylist())) == sorted(map(str, wanted.to_pylist()))
    assert sum(rows.num_rows for rows in found) == ROWS.num_rows


def test_rows_that_match_nothing_may_be_anywhere() -> None:
    nulls = pa.table({"a": pa.nulls(1000, pa.int64())})
    with RowParts(["a"], nulls_anywhere=True) as parts:
        parts.add(nulls)
        sizes = [sum(t.num_rows for t in parts.part(number, 4)) for number in range(4)]

    assert sum(sizes) == 1000
    assert max(sizes) < 300


def test_rows_that_match_nothing_keep_their_order() -> None:
    numbers = pa.array(range(1000), pa.int64())
    rows = pa.table({"a": pa.nulls(1000, pa.int64()), "n": numbers})
    with RowParts(["a"], nulls_anywhere=True) as parts:
        parts.add(rows.slice(0, 10))
        parts.add(pa.concat_tables([rows.slice(10, 600), pa.table({"a": [7], "n": [-1]})]))
        parts.add(rows.slice(610))
        found = pa.concat_tables(t for number in range(5) for t in parts.part(number, 5))

    assert [n for n in found["n"].to_pylist() if n >= 0] == numbers.to_pylist()


def test_without_columns_rows_may_be_anywhere() -> None:
    with RowParts([]) as parts:
        parts.add(ROWS)
        halves = [sum(t.num_rows for t in parts.part(number, 2)) for number in range(2)]

    assert sum(halves) == ROWS.num_rows


def test_disk_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with RowParts(["a"]) as parts:
        parts.add(ROWS)
        assert list(tmp_path.rglob("*.arrow"))

    assert list(tmp_path.iterdir()) == []
