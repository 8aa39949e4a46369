"""Clustering: any schedule keeps the multiset of rows, and a sort is a sort."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import LakecoreError
from lakecore.memory import Budget
from lakecore.merge.curves import Ordering
from lakecore.options import OrderStrategy
from lakecore.table.sections.external_sort import ExternalSort
from lakecore.testing import Model, assert_same_rows
from property_tests.profile import calls_of
from tests.stores import FailingStore, StoreFailure
from tests.tables import new_table, reopened

if TYPE_CHECKING:
    from lakecore.table.handle import Table

COLUMNS = {"x": "INT", "s": "STRING", "f": "DOUBLE"}
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1),
        st.none() | st.text(st.characters(codec="utf-8"), max_size=12),
        st.none() | st.sampled_from([0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan")]),
    ),
    max_size=20,
)
STRATEGIES = st.sampled_from(list(OrderStrategy))
ORDER_BY = st.sampled_from([["x", "s"], ["s", "f"], ["f", "x", "s"]])


def arrow(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    types = (pa.int32(), pa.string(), pa.float64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, names=list(COLUMNS))


def counted(table: pa.Table) -> Counter[str]:
    return Counter(repr(tuple(row.values())) for row in table.to_pylist())


@given(
    runs=st.lists(ROWS, max_size=5),
    strategy=STRATEGIES,
    columns=ORDER_BY,
    at_once=st.integers(2, 4),
    spills=st.booleans(),
)
def test_sort_keeps_all_rows_in_the_same_order_on_disk_and_in_memory(
    runs: list[list[tuple[Any, ...]]],
    strategy: OrderStrategy,
    columns: list[str],
    at_once: int,
    *,
    spills: bool,
) -> None:
    ordering = Ordering(strategy=strategy, columns=tuple(columns))
    results = []
    for on_disk in (spills, False):
        with ExternalSort(ordering, Budget(1 << 24), 1 << 22, at_once) as sort:
            for rows in runs:
                sort.add(arrow(rows))
                if on_disk:
                    sort.spill()
            pieces = list(sort.sorted())
        results.append(pa.concat_tables(pieces) if pieces else arrow([]))

    whole = pa.concat_tables([arrow([]), *map(arrow, runs)])
    assert counted(results[0]) == counted(whole)
    assert [repr(row) for row in results[0].to_pylist()] == [
        repr(row) for row in results[1].to_pylist()
    ]
    if strategy is OrderStrategy.ORDER and columns == ["x", "s"]:
        keys = [
            (x is not None, x or 0, s is not None, (s or "").encode())
            for x, s in zip(
                results[0].column("x").to_pylist(), results[0].column("s").to_pylist(), strict=True
            )
        ]
        assert keys == sorted(keys)


DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), ROWS),
        st.tuples(st.just("sort"), STRATEGIES, ORDER_BY),
        st.tuples(st.just("delete"), st.sampled_from(["x = 0", "s IS NULL", "x > 1"])),
        st.tuples(st.just("compact"), st.booleans()),
    ),
    min_size=1,
    max_size=7,
)


@given(
    deeds=DEEDS,
    vectors=st.booleans(),
    clusters=st.sampled_from(["", "clustering.columns", "clustering.incremental"]),
)
def test_any_clustering_keeps_the_rows_of_writes_and_deletions(
    deeds: list[tuple[Any, ...]], clusters: str, *, vectors: bool
) -> None:
    options = {"deletion_vectors__enabled": str(vectors).lower()}
    if clusters:
        options |= {"clustering__columns": "x,s", "num_sorted_run__compaction_trigger": "2"}
        options |= {clusters.replace(".", "__"): "true"} if "incremental" in clusters else {}
    table: Table = new_table(COLUMNS, keys=(), **options)  # type: ignore[arg-type]
    model = Model(table.schema)
    for verb, *given_ in deeds:
        table = reopened(table)
        if verb == "write":
            table.write(arrow(given_[0]))
            model.write(arrow(given_[0]))
        elif verb == "delete":
            table.delete(given_[0])
            model.delete(given_[0])
        elif verb == "sort" and "incremental" not in clusters:
            table.compact(order_strategy=given_[0], order_by=given_[1])
        else:
            table.compact(full=given_[0] is True)

        assert_same_rows(reopened(table), model)


@pytest.mark.parametrize("incremental", [False, True])
def test_death_at_any_call_leaves_all_rows(*, incremental: bool) -> None:
    for call in calls_of("clustering", str(incremental)):
        options = {"clustering__columns": "x,s", "clustering__incremental": "true"}
        table: Table = new_table(COLUMNS, keys=(), **(options if incremental else {}))  # type: ignore[arg-type]
        numbers = np.random.default_rng(4).integers(0, 9, (3, 5))
        for row in numbers.tolist():
            table.write(arrow([(number, f"v{number}", None) for number in row]))
        before = counted(table.to_arrow())
        failing = FailingStore(table.context.store, call, after=call % 2 == 0)
        dying = reopened(table, store=failing)
        how: dict[str, Any] = {"order_strategy": "zorder", "order_by": ["x", "s"]}
        with suppress(StoreFailure, LakecoreError):
            dying.compact(**({"full": True} if incremental else how))

        assert counted(reopened(table).to_arrow()) == before, call
        if not failing.is_dead:
            return
