"""Folding run by run: each key has the value that its function gives, a lone one stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest
from lakecore.merge.aggregators import AGGREGATORS, Aggregate
from lakecore.merge.aggregators.fold import LAST, Fold
from lakecore.merge.fold import fold_runs, slots_of
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import Slice
from lakecore.model.types import arrow_type, parse_type

if TYPE_CHECKING:
    from collections.abc import Sequence

STRING = parse_type("STRING")


def window(kind: str, *runs: dict[int, Any]) -> list[Slice]:
    """Runs of one value a key, oldest first."""
    parts = []
    for number, run in enumerate(runs):
        keys = pa.array(sorted(run), pa.int64())
        values = pa.array([run[key] for key in sorted(run)], arrow_type(parse_type(kind)))
        rows = pa.table({"k": keys, "v": values})
        parts.append(
            Slice(rows=rows, keys=order_columns([keys]), sequence_min=number, sequence_max=number)
        )
    return parts


def folded(function: str, kind: str, *runs: dict[int, Any]) -> dict[int, Any]:
    aggregate = Aggregate(column="v", function=function, type=parse_type(kind))
    functions = {"k": Fold(choice=LAST), "v": AGGREGATORS[function](aggregate)}
    merged = fold_runs(window(kind, *runs), functions)
    assert merged.column("v").type == arrow_type(parse_type(kind))
    return dict(zip(merged.column("k").to_pylist(), merged.column("v").to_pylist(), strict=True))


RUNS: Sequence[dict[int, Any]] = ({1: 5, 2: None, 9: -3}, {1: None, 2: None, 4: 7}, {1: 2, 9: 8})


EXPECTED = {
    "sum": {1: 7, 2: None, 4: 7, 9: 5},
    "max": {1: 5, 2: None, 4: 7, 9: 8},
    "min": {1: 2, 2: None, 4: 7, 9: -3},
    "last_value": {1: 2, 2: None, 4: 7, 9: 8},
    "last_non_null_value": {1: 2, 2: None, 4: 7, 9: 8},
    "first_value": {1: 5, 2: None, 4: 7, 9: -3},
    "first_non_null_value": {1: 5, 2: None, 4: 7, 9: -3},
}
NUMBERS = ["TINYINT", "INT", "BIGINT"]
TIMES = ["DATE", "TIMESTAMP(6)"]
TYPES = {
    "sum": [*NUMBERS, "DOUBLE"],
    "max": [*NUMBERS, *TIMES],
    "min": [*NUMBERS, *TIMES],
}


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (function, kind)
        for function in EXPECTED
        for kind in TYPES.get(function, [*NUMBERS, *TIMES, "DOUBLE"])
    ],
)
def test_each_key_has_its_value(function: str, kind: str) -> None:
    stored = arrow_type(parse_type(kind))
    expected = {key: pa.scalar(value, stored).as_py() for key, value in EXPECTED[function].items()}

    assert folded(function, kind, *RUNS) == expected


@pytest.mark.parametrize(("function", "zero"), [("max", "0.0"), ("min", "-0.0")])
def test_floating_point_is_compared_in_javas_order(function: str, zero: str) -> None:
    found = folded(function, "DOUBLE", {1: -0.0, 3: 1.5}, {1: 0.0})

    assert {key: str(value) for key, value in found.items()} == {1: zero, 3: "1.5"}


def test_keys_far_apart_have_slots_side_by_side() -> None:
    dense = slots_of([np.array([3, 4]), np.array([4, 6])])
    sparse = slots_of([np.array([-(1 << 62), 0]), np.array([0, 1 << 62])])

    assert ([slots.tolist() for slots in dense.slots], dense.span) == ([[0, 1], [1, 3]], 4)
    assert ([slots.tolist() for slots in sparse.slots], sparse.span) == ([[0, 1], [1, 2]], 3)


def test_lone_negative_zero_stays() -> None:
    found = folded("sum", "DOUBLE", {1: -0.0, 2: -0.0}, {2: 0.0})

    assert [str(found[key]) for key in (1, 2)] == ["-0.0", "0.0"]


def test_sum_that_leaves_its_type_is_an_error() -> None:
    assert folded("sum", "TINYINT", {1: 100, 2: 100}, {1: 27, 3: 100}) == {1: 127, 2: 100, 3: 100}
    with pytest.raises(InvalidRequest, match="column=v function=sum"):
        folded("sum", "TINYINT", {1: 100}, {1: 28})


def test_lone_value_is_left_as_it_is_by_a_function_that_would_change_it() -> None:
    aggregate = Aggregate(column="v", function="listagg", type=STRING, distinct=True)
    functions = {"k": Fold(choice=LAST), "v": AGGREGATORS["listagg"](aggregate)}
    merged = fold_runs(window("STRING", {1: "a", 2: "x,x"}, {1: "a,b"}), functions)

    assert merged.column("v").to_pylist() == ["a,b", "x,x"]
