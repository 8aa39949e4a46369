"""Two merged states of a range of keys, and the rows that make the one the other."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakecore.merge.changelog import AFTER, BEFORE, DIFFERENCE
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import MergeSpec, Slice
from lakecore.model.rows import KIND_TEXTS, VALUE_KIND

SPEC = MergeSpec(key=("k",))


def state(rows: dict[int, Any], side: int, kind: pa.DataType | None = None) -> Slice:
    values = pa.array(list(rows.values()), kind or pa.string())
    table = pa.table({"k": pa.array(list(rows), pa.int32()), "v": values})
    return Slice(
        rows=table,
        keys=order_columns([table.column("k")]),
        sequence_min=side,
        sequence_max=side,
        commit_order=side,
    )


def told(*sides: Slice) -> str:
    (found,) = DIFFERENCE(sides, SPEC)
    rows = zip(*(found.column(name).to_pylist() for name in (VALUE_KIND, "k", "v")), strict=True)
    return " | ".join(f"{KIND_TEXTS[kind]} {key} {value}" for kind, key, value in rows)


def test_rows_that_are_gone_new_or_changed_come_in_key_order() -> None:
    before = state({1: "a", 2: "b", 3: "c", 5: "e"}, BEFORE)
    after = state({0: "z", 2: "b", 3: "x", 4: "d"}, AFTER)

    assert told(before, after) == "+I 0 z | -D 1 a | +U 3 x | +I 4 d | -D 5 e"
    assert told(after, before) == told(before, after)


def test_one_side_alone_is_all_gone_or_all_new() -> None:
    assert told(state({1: "a"}, BEFORE)) == "-D 1 a"
    assert told(state({1: "a"}, AFTER)) == "+I 1 a"


@pytest.mark.parametrize(
    ("kind", "value", "other"),
    [
        (pa.string(), None, "a"),
        (pa.float64(), float("nan"), 0.0),
        (pa.list_(pa.int32()), [None], []),
        (pa.struct([("x", pa.int32())]), {"x": None}, None),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], [("a", None)]),
        (pa.binary(), b"", None),
    ],
)
def test_values_are_compared_nulls_and_all(kind: pa.DataType, value: Any, other: Any) -> None:
    both = [state({1: value, 2: value}, side, kind) for side in (BEFORE, AFTER)]
    changed = state({1: value, 2: other}, AFTER, kind)

    assert told(*both) == ""
    assert told(both[0], changed).startswith("+U 2 ")
