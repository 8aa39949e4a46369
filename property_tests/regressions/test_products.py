"""Products: what the laws of the aggregate functions found."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakecore.merge.aggregators import AGGREGATORS, Aggregate
from lakecore.merge.keys import Groups
from lakecore.model.types import arrow_type, parse_type


def product(type_name: str, *values: tuple[str, Any]) -> Any:
    """The product of one key's values, each with `*` or with `/`."""
    kind = parse_type(type_name)
    fold = AGGREGATORS["product"](Aggregate(column="v", function="product", type=kind))
    array = pa.array([value for _, value in values], arrow_type(kind))
    groups = Groups(np.zeros(1, np.int64), len(values))
    (found,) = fold(array, groups, np.array([sign == "/" for sign, _ in values])).to_pylist()
    return found


@pytest.mark.parametrize("name", ["TINYINT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(4, 2)"])
def test_factor_taken_back_from_nothing_leaves_nothing(name: str) -> None:
    assert product(name, ("/", 2)) is None
    assert product(name, ("/", 0), ("*", 3), ("/", 3), ("*", 2)) == 2


def test_lone_factor_of_more_digits_than_python_keeps_by_itself_is_kept() -> None:
    factor = Decimal("-9999999999999999999999999999.5")

    assert product("DECIMAL(38, 10)", ("*", factor)) == factor
