"""Statistics of row groups, as laws once found them misread."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from property_tests.filter_draws import cut_row_groups
from tests.tables import new_table


def test_times_beyond_the_calendar_of_python_are_filtered_like_others() -> None:
    table = new_table({"id": "INT", "t": "TIMESTAMP(6)", "d": "DATE"}, keys=())
    far_us = 20_000 * 366 * 86_400 * 10**6
    table.write(
        pa.table(
            {
                "id": pa.array([1, 2], pa.int32()),
                "t": pa.array([0, far_us], pa.timestamp("us")),
                "d": pa.array([0, 2**31 - 1], pa.date32()),
            }
        )
    )
    cut_row_groups(table.context.store, table.path, 1)

    assert table.to_arrow(["id"], "t > TIMESTAMP '2020-01-01 00:00:00'")["id"].to_pylist() == [2]
    assert table.to_arrow(["id"], "d > DATE '2020-01-01'")["id"].to_pylist() == [2]
    assert table.to_arrow(["id"], "d < DATE '2020-01-01'")["id"].to_pylist() == [1]


def test_column_with_a_dot_is_not_pruned_by_the_field_of_another() -> None:
    table = new_table({"a.b": "INT", "a": "ROW<b INT>"}, keys=())
    inner = pa.array([{"b": 50}, {"b": 1}], pa.struct([("b", pa.int32())]))
    table.write(pa.table({"a.b": pa.array([1, 50], pa.int32()), "a": inner}))
    cut_row_groups(table.context.store, table.path, 1)

    assert table.to_arrow(["a.b"], pl.col("a.b") == 50)["a.b"].to_pylist() == [50]
    assert table.to_arrow(["a.b"], pl.col("a.b") == 1)["a.b"].to_pylist() == [1]
