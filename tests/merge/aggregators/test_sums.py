from __future__ import annotations

from decimal import Decimal
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
import pytest

from lakecore.merge.aggregators import AGGREGATORS
from lakecore.merge.aggregators.fold import Aggregate
from lakecore.merge.keys import Groups
from lakecore.model.types import parse_type
from tests.merge.aggregators.histories import Back, fold


@pytest.mark.parametrize("precision", [5, 18, 30, 38])
def test_sum_with_too_many_digits_is_null_and_the_next_value_begins_anew(precision: int) -> None:
    most, less = (Decimal("9" * (precision - 2) + end) for end in (".99", ".98"))
    small = Decimal("0.01")

    sums = fold(
        "sum", f"DECIMAL({precision}, 2)", [most, small], [most, small, small], [most, Back(small)]
    )

    assert sums == [None, small, less]


def test_value_with_more_digits_than_its_type_can_be_added_to() -> None:
    # Java writes such sums of up to 18 digits.
    words = np.array([[-199998, -1], [200, 0], [199998, 0], [-100000, -1]], np.int64)
    kind = pa.decimal128(5, 2)
    values = pa.Array.from_buffers(kind, 4, [None, pa.py_buffer(words.tobytes())])
    aggregate = Aggregate(column="x", function="sum", type=parse_type("DECIMAL(5, 2)"))

    sums = AGGREGATORS["sum"](aggregate)(values, Groups(np.array([0, 2]), 4), None)

    assert sums.to_pylist() == [None, Decimal("999.98")]


@pytest.mark.parametrize(("kind", "code"), [("FLOAT", "f4"), ("DOUBLE", "f8")])
def test_floats_are_added_one_after_another_in_groups_of_any_size(kind: str, code: str) -> None:
    draw = np.random.default_rng(1)
    histories = [draw.normal(0, 1e3, size).astype(code).tolist() for size in (64, 3, 65, 500, 1)]
    backs = [[Back(x) if x > 900 else x for x in history] for history in histories]

    def added(values: list[float]) -> float:
        return float(reduce(add, np.array(values, code)))

    assert fold("sum", kind, *histories) == [added(history) for history in histories]
    signed = [[-x if x > 900 else x for x in history] for history in histories]
    assert fold("sum", kind, *backs) == [added(history) for history in signed]
