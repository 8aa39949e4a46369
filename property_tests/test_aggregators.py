"""Aggregate functions over whole columns give what they give one value at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.errors import InvalidRequest
from lakecore.merge.aggregators import AGGREGATORS, Aggregate
from lakecore.merge.keys import Groups
from lakecore.model.merge_rules import AGGREGATE_FUNCTIONS
from lakecore.model.types import arrow_type
from lakecore.testing.aggregates import RETRACTING, Refused, aggregator
from lakecore.testing.strategies import CASES, Case, array_of, values_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

SKETCHES = {"hll_sketch", "theta_sketch"}
"""Functions whose results only a library can read; `tests/merge/aggregators` tests them."""


def test_every_function_is_drawn_with_types_that_it_takes() -> None:
    assert {case.function for case in CASES} == AGGREGATORS.keys() - SKETCHES
    for case in CASES:
        assert AGGREGATE_FUNCTIONS[case.function](case.data_type), str(case)


def aggregate_of(case: Case) -> Aggregate:
    options = case.options
    limit = options.get("count-limit")
    return Aggregate(
        column="v",
        function=case.function,
        type=case.data_type,
        distinct=options.get("distinct") == "true",
        delimiter=options.get("list-agg-delimiter", ","),
        nested_key=tuple(options.get("nested-key", "").split(","))
        if "nested-key" in options
        else (),
        nested_key_null_strategy=options.get("nested-key-null-strategy"),
        nested_sequence_field=tuple(
            filter(None, options.get("nested-sequence-field", "").split(","))
        ),
        count_limit=None if limit is None else int(limit),
        ts_field=options.get("ts-field"),
    )


def by_the_model(case: Case, groups: Sequence[Sequence[tuple[Any, bool]]]) -> list[Any]:
    """The state of each group after its values. Raises Refused."""
    function = aggregator(case.function, case.data_type, case.options)
    found = []
    for group in groups:
        function.reset()
        state = None
        for value, back in group:
            state = function.retract(state, value) if back else function.agg(state, value)
        found.append(function.finish(state))
    return found


def folded(case: Case, groups: Sequence[Sequence[tuple[Any, bool]]]) -> pa.Array:
    """The same by lakecore, with whether it says that it can take values back."""
    rows = [row for group in groups for row in group]
    sizes = np.array([len(group) for group in groups], np.int64)
    fold = AGGREGATORS[case.function](aggregate_of(case))
    backs = np.array([back for _, back in rows], bool)

    assert fold.retracts == (case.function in RETRACTING)

    values = array_of([value for value, _ in rows], case.data_type)
    parts = Groups(np.cumsum(sizes) - sizes, len(rows))
    found = fold(values, parts, backs if backs.any() else None)

    assert found.type == arrow_type(case.data_type)
    found.validate(full=True)
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
@given(data=st.data())
@settings(max_examples=settings().max_examples // 4)  # of each of some 260 cases
def test_column_of_groups_is_folded_as_value_by_value(case: Case, data: st.DataObject) -> None:
    value = values_for(case, wide=data.draw(st.booleans(), "wide"))
    back = st.booleans() if case.function in RETRACTING else st.just(False)
    size = st.integers(1, 7)
    drawn = data.draw(
        st.lists(
            size.flatmap(lambda n: st.lists(st.tuples(value, back), min_size=n, max_size=n)),
            min_size=1,
            max_size=6,
        ),
        "groups",
    )
    kept = array_of([value for group in drawn for value, _ in group], case.data_type).to_pylist()
    read = iter(kept)
    groups = [[(next(read), back) for _, back in group] for group in drawn]
    try:
        wanted = by_the_model(case, groups)
    except Refused:
        with pytest.raises(InvalidRequest):
            folded(case, groups)
        return

    found = folded(case, groups).to_pylist()

    assert [case.comparable(each) for each in found] == [case.comparable(each) for each in wanted]
