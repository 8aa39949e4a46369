"""Packing of tables without a key: any schedule leaves rows, and their order, as they were."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count, pairwise, product
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import CommitConflict, LakecoreError
from lakecore.lsm.packing import (
    PackingPolicy,
    in_order,
    pick_adjacent_full,
    pick_small,
    pick_small_full,
    picks_adjacent,
)
from lakecore.model.files import DataFile
from property_tests.deeds import Scene, copy_of, orders, overwrite, plain_write, rows_of
from property_tests.profile import calls_of
from property_tests.test_races import RacedStore, add_column
from tests.stores import FailingStore, StoreFailure
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.stores.store import Store
    from lakecore.lsm.packing import Group
    from lakecore.table.handle import Table
    from lakecore.testing.values import Rows
    from property_tests.deeds import Deed

# --- decisions -----------------------------------------------------------------------------------

POLICIES = st.builds(
    PackingPolicy,
    target_bytes=st.just(100),
    small_file_bytes=st.sampled_from([1, 70, 100]),
    open_cost_bytes=st.sampled_from([0, 1, 90]),
    files_min=st.integers(1, 6),
    files_max=st.none() | st.integers(1, 6),
    rewrite_all=st.just(False),
)


@st.composite
def buckets(draw: st.DrawFn) -> list[DataFile]:
    """Files in order of commit; the numbers of some overlap."""
    found = []
    for number, size_bytes in enumerate(draw(st.lists(st.integers(0, 250), max_size=30))):
        first = max(0, 10 * number - draw(st.sampled_from([0, 0, 0, 5, 20])))
        found.append(
            DataFile(
                name=str(number),
                size_bytes=size_bytes,
                row_count=10,
                sequence_min=first,
                sequence_max=first + 9,
                schema_id=0,
            )
        )
    return found


@given(files=buckets(), policy=POLICIES)
def test_groups_share_no_file_and_are_of_two_at_least(
    files: list[DataFile], policy: PackingPolicy
) -> None:
    full: list[Group | None] = [pick_adjacent_full(files, policy), pick_small_full(files, policy)]
    for groups in (
        picks_adjacent(files, policy),
        pick_small(files, policy),
        *([group] for group in full if group is not None),
    ):
        names = [file.name for group in groups for file in group]

        assert len(names) == len({*names})
        assert all(len(group) > 1 for group in groups)


@given(files=buckets(), policy=POLICIES)
def test_groups_of_a_bucket_in_order_are_neighbours(
    files: list[DataFile], policy: PackingPolicy
) -> None:
    places = {file.name: place for place, file in enumerate(in_order(files))}
    full = pick_adjacent_full(files, policy)
    for group in (*picks_adjacent(files, policy), *([] if full is None else [full])):
        assert all(
            places[after.name] == places[before.name] + 1 for before, after in pairwise(group)
        )


@given(files=buckets(), policy=POLICIES)
def test_full_packing_leaves_one_small_file_at_most(
    files: list[DataFile], policy: PackingPolicy
) -> None:
    group = pick_small_full(files, policy) or ()
    left = [file for file in files if file not in group]

    assert sum(file.size_bytes < policy.small_file_bytes for file in left) <= 1


# --- tables --------------------------------------------------------------------------------------

IN_ORDER: dict[str, Any] = {"bucket": "1", "bucket_key": "id"}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 4)),
        st.tuples(st.just("pack"), st.booleans()),
        st.tuples(st.just("delete"), st.integers(0, 12)),
    ),
    max_size=16,
)


def play(table: Table, steps: Sequence[tuple[str, int]]) -> list[int]:
    """Do the steps; the ids that must be there, in order of writing."""
    ids: list[int] = []
    following = count()
    for step, much in steps:
        if step == "write" and much:
            fresh = [next(following) for _ in range(much)]
            table.write(pa.table({"id": pa.array(fresh, pa.int32()), "v": ["x" * much] * much}))
            ids += fresh
        elif step == "pack":
            table.compact(full=bool(much))
        elif step == "delete":
            table.delete(pl.col("id") % 13 == much)
            ids = [each for each in ids if each % 13 != much]
        assert sorted(table.to_arrow().column("id").to_pylist()) == ids
    return ids


@given(steps=STEPS, files_min=st.integers(2, 5), target=st.sampled_from(["1 b", "1 kb", "1 mb"]))
def test_any_schedule_leaves_the_rows_of_a_table_without_buckets(
    steps: list[tuple[str, int]], files_min: int, target: str
) -> None:
    table = new_table(
        {"id": "INT", "v": "STRING"},
        keys=(),
        compaction__min__file_num=str(files_min),
        target_file_size=target,
        budget_bytes=1000,
    )
    ids = play(table, steps)
    table.compact(full=True)

    assert sorted(table.to_arrow().column("id").to_pylist()) == ids
    assert table.context.budget.used_bytes == 0


@given(
    steps=STEPS.map(lambda steps: [step for step in steps if step[0] != "delete"]),
    files_min=st.integers(2, 5),
    target=st.sampled_from(["1 b", "1 kb", "1 mb"]),
    write_only=st.sampled_from(["true", "false"]),
)
def test_any_schedule_leaves_the_rows_of_a_bucket_in_order(
    steps: list[tuple[str, int]], files_min: int, target: str, write_only: str
) -> None:
    table = new_table(
        {"id": "INT", "v": "STRING"},
        keys=(),
        compaction__min__file_num=str(files_min),
        target_file_size=target,
        write_only=write_only,
        budget_bytes=1000,
        **IN_ORDER,
    )
    ids = play(table, steps)

    assert table.to_arrow().column("id").to_pylist() == ids
    table.compact(full=True)
    assert table.to_arrow().column("id").to_pylist() == ids


# --- others, and death ---------------------------------------------------------------------------


def pack(table: Table) -> None:
    table.compact(full=True)


PAST = (
    plain_write(orders("abc", "new")),
    plain_write(orders("cd", "sent")),
    plain_write(orders("abe", "paid")),
)
SHAPES = {
    "no buckets": Scene(keyed=False, partitioned=True, past=PAST, deed=pack),
    "in order": Scene(
        keyed=False,
        options={"bucket": "2", "bucket-key": "id", "compaction.min.file-num": "3"},
        past=PAST[:2],
        deed=PAST[2],
    ),
}
DEEDS: dict[str, Deed] = {
    "write": plain_write(orders("abpq", "other")),
    "delete": lambda table: table.delete("id = 'c'"),
    "update": lambda table: table.update({"status": "other"}, "id = 'c'"),
    "overwrite": overwrite(orders("bm", "other"), dynamic=True),
    "add a column": add_column,
    "pack": pack,
}


def repeated(what: Deed) -> Deed:
    """The deed, done again if another has taken its files."""

    def act(table: Table) -> None:
        try:
            what(table)
        except CommitConflict:
            what(table.refresh())

    return act


@pytest.mark.parametrize("packs", ["first", "second"])
@pytest.mark.parametrize(
    ("shape", "deed"),
    [
        pytest.param(
            shape,
            deed,
            marks=() if deed == "delete" else (pytest.mark.slow, pytest.mark.sampled(2)),
        )
        for shape, deed in product(SHAPES, DEEDS)
    ],
)
def test_packing_and_another_deed_at_any_store_call_leave_the_rows_of_that_deed(
    shape: str, deed: str, packs: str
) -> None:
    scene = replace(SHAPES[shape], past=PAST)
    start = scene.build()

    def act(store: Store, what: Deed, seed: int) -> Rows:
        what(scene.open(store, seed))
        return rows_of(scene.open(store))

    wanted = act(copy_of(start), DEEDS[deed], 101)
    changed = repeated(DEEDS[deed])
    # Packing plans again by itself: it never gives way to one other deed.
    pair = (pack, changed) if packs == "first" else (changed, pack)
    for call in count(1) if deed == "delete" else calls_of(shape, deed, packs):
        store = copy_of(start)
        raced = RacedStore(store, call, partial(act, store, pair[1], 201))
        pair[0](scene.open(raced, 202))
        if raced.calls < call:
            break

        assert rows_of(scene.open(store)) == wanted, f"call {call}"
        assert act(store, pack, 203) == wanted, f"call {call}"


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
def test_death_at_any_store_call_of_a_write_that_packs_loses_nothing(*, after: bool) -> None:
    scene = SHAPES["in order"]
    start = scene.build()
    before = rows_of(scene.open(start))
    healthy = copy_of(start)
    scene.deed(scene.open(healthy))
    wanted = rows_of(scene.open(healthy))
    kinds = scene.open(healthy).inspect.snapshots()["commit_kind"].to_list()
    assert [str(kind) for kind in kinds] == ["APPEND", "APPEND", "APPEND", "COMPACT"]
    seen = set()
    for call in count(1):
        store = copy_of(start)
        failing = FailingStore(store, fail_at=call, after=after)
        try:
            scene.deed(scene.open(failing))
        except (StoreFailure, LakecoreError):
            assert failing.is_dead
        found = rows_of(scene.open(store))
        seen.add(len(scene.open(store).inspect.snapshots()))

        assert found in (before, wanted), f"call {call}"
        pack(scene.open(store, seed=100))
        assert rows_of(scene.open(store)) == found, f"call {call}"
        if not failing.is_dead:
            break

    assert seen == {2, 3, 4}
