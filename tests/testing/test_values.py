"""Rows are compared exactly, and a difference is shown as small as it is."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.testing import Model, apply_changes, assert_same_rows
from tests.tables import new_table, put

NAN = float("nan")


def f(value: Any) -> list[dict[str, Any]]:
    return [{"id": 1, "v": value}]


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (NAN, NAN, True),
        (-0.0, 0.0, False),
        (0.0, None, False),
        ([1.0, NAN], [1.0, NAN], True),
        ([0.0], [-0.0], False),
        ({"x": NAN}, {"x": NAN}, True),
        ({"x": -0.0}, {"x": 0.0}, False),
        ([], None, False),
        (1, 1.0, False),
        (True, 1, False),
        (True, "True", False),
        (NAN, "nan", False),
    ],
    ids=repr,
)
def test_values_are_compared_exactly(left: object, right: object, *, same: bool) -> None:
    if same:
        assert_same_rows(f(left), f(right))
    else:
        with pytest.raises(AssertionError):
            assert_same_rows(f(left), f(right))


def test_maps_are_equal_whatever_the_order_of_their_entries() -> None:
    kind = pa.map_(pa.string(), pa.float64())

    def one(*entries: tuple[str, float]) -> pa.Table:
        return pa.table({"m": pa.array([list(entries)], kind)})

    assert_same_rows(one(("a", NAN), ("b", 1.0)), one(("b", 1.0), ("a", NAN)))
    with pytest.raises(AssertionError):
        assert_same_rows(one(("a", 0.0)), one(("a", -0.0)))


def test_each_kind_of_rows_is_compared_with_the_others() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    model = Model(table.schema)
    model.write([{"id": 2, "v": "b"}, {"id": 1, "v": "a"}])
    rows = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    for side in (table, model, table.scan(), table.to_polars(), table.to_arrow(), rows):
        assert_same_rows(side, model)
        assert_same_rows(rows, side)
    assert_same_rows(pa.RecordBatch.from_pylist(rows), pl.DataFrame(rows))


def test_rows_count_as_often_as_they_are_there() -> None:
    with pytest.raises(AssertionError, match="1 of 2 rows are only on the left, 0 of 1 only"):
        assert_same_rows([{"v": 1}, {"v": 1}], [{"v": 1}])


def test_order_matters_only_if_it_is_asked_for() -> None:
    left, right = [{"v": 1}, {"v": 2}], [{"v": 2}, {"v": 1}]
    assert_same_rows(left, right)
    with pytest.raises(AssertionError, match="row 0 differs"):
        assert_same_rows(left, right, check_order=True)
    with pytest.raises(AssertionError, match="1 of 2 rows"):
        assert_same_rows(left, left[:1], check_order=True)


def test_message_shows_the_two_rows_that_differ_least() -> None:
    left = [{"id": n, "a": "x", "v": 0.0} for n in range(50)]
    right = [*left[:-1], {"id": 49, "a": "x", "v": -0.0}, {"id": 99, "a": "y", "v": 7.0}]
    with pytest.raises(AssertionError) as failure:
        assert_same_rows(left, right)

    assert str(failure.value) == (
        "the rows differ: 1 of 50 rows are only on the left, 2 of 51 only on the right\n"
        "the smallest difference:\n"
        "  left:  id=49, a='x', v=0.0\n"
        "  right: id=49, a='x', v=-0.0\n"
        "  v: 0.0 != -0.0"
    )


def test_other_columns_and_other_things_are_named() -> None:
    with pytest.raises(AssertionError, match=r"left has \['a'\], right has \['b'\]"):
        assert_same_rows([{"a": 1}], [{"b": 1}])
    with pytest.raises(InvalidRequest, match="rows are a table"):
        assert_same_rows(5, [])


def test_no_rows_are_no_rows_whatever_the_columns() -> None:
    assert_same_rows([], pa.table({"v": pa.array([], pa.int32())}))
    with pytest.raises(AssertionError):
        assert_same_rows([], [{"v": None}])


def test_times_of_nanoseconds_are_compared_exactly_and_need_no_pandas() -> None:
    def times(unit: str, *values: int) -> pa.Table:
        stamps = pa.array(values, pa.timestamp(unit))
        lists = pa.array([[value] for value in values], pa.list_(pa.timestamp(unit)))
        maps = pa.array([[("k", value)] for value in values], pa.map_("string", stamps.type))
        return pa.table({"id": [1], "t": stamps, "list": lists, "map": maps})

    assert_same_rows(times("ns", 5_000), times("us", 5))
    assert_same_rows(times("ns", 5_001), times("ns", 5_001))
    with pytest.raises(AssertionError, match="t: 5001 != 5002"):
        assert_same_rows(times("ns", 5_001), times("ns", 5_002))
    with pytest.raises(Unsupported, match="nanoseconds"):
        Model({"t": "TIMESTAMP(9)"})


def kinded(*rows: tuple[str, int, Any]) -> list[dict[str, Any]]:
    return [{"_row_kind": kind, "id": key, "v": value} for kind, key, value in rows]


def test_changes_of_a_table_make_one_snapshot_the_other() -> None:
    table = new_table(changelog_producer="input")
    for line in ("1 a | 2 b", "-U 1 a | +U 1 c | -D 2 b", "2 d"):
        put(table, line)
    rows = None
    for snapshot_id in (1, 2, 3):
        rows = apply_changes(table.changes(snapshot_id - 1, snapshot_id), ["id"], rows)
        assert_same_rows(rows, table.to_arrow(snapshot_id=snapshot_id))
    with pytest.raises(AssertionError, match=r"-U id=1, v='a'\n.*: id=1, v='c'"):
        apply_changes(table.changes(1, 2), ["id"], rows)


def test_changes_of_keyless_rows_are_counted() -> None:
    rows = apply_changes(kinded(("+I", 1, NAN), ("+I", 1, NAN), ("+I", 2, None), ("-D", 1, NAN)))

    assert_same_rows(rows, [{"id": 2, "v": None}, {"id": 1, "v": NAN}])
    assert apply_changes(kinded(("-D", 1, NAN), ("-D", 2, None)), (), rows).num_rows == 0
    with pytest.raises(AssertionError, match="the row there: None"):
        apply_changes(kinded(("-D", 2, NAN)), (), rows)


def test_changes_that_need_not_fit_are_upserts_and_deletions() -> None:
    changes = kinded(("+I", 1, 1), ("+I", 1, 2), ("-D", 2, 0), ("-D", 3, 0), ("+U", 4, 4))

    rows = apply_changes(changes, ["id"], [{"v": 9, "id": 2}], exact=False)
    assert_same_rows(rows, [{"id": 1, "v": 2}, {"id": 4, "v": 4}])
    assert_same_rows(apply_changes([], ["id"], rows), rows)
    assert_same_rows(apply_changes([], ["id"]), rows.slice(0, 0))
    with pytest.raises(AssertionError, match="id=1, v=2"):
        apply_changes(changes, ["id"])
