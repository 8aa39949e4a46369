"""Compaction and another deed at once, at any store call: neither fails, and no row is lost."""

from __future__ import annotations

from functools import partial
from itertools import count, product
from typing import TYPE_CHECKING

import pytest

from property_tests.deeds import copy_of, orders, overwrite, plain_write, rows_of
from property_tests.test_races import LATER, SHAPES, RacedStore, add_column

if TYPE_CHECKING:
    from lakecore.io.store import Store
    from lakecore.table.handle import Table
    from property_tests.deeds import Deed
    from property_tests.table_model import Rows


def compact(table: Table) -> None:
    table.compact(full=True)


DEEDS: dict[str, Deed] = {
    "write": plain_write(orders("abpq", "other", "+-++")),
    "overwrite a partition": overwrite(orders("bm", "other"), dynamic=True),
    "truncate": lambda table: table.truncate(),
    "add a column": add_column,
    "compact": compact,
}
RACES = [
    pytest.param(shape, deed, marks=() if number in {0, 4, 6} else pytest.mark.slow)
    for number, (shape, deed) in enumerate(
        product(["one bucket", "buckets and partitions", "dynamic buckets"], DEEDS)
    )
]


@pytest.mark.parametrize("compacts", ["first", "second"])
@pytest.mark.parametrize(("shape", "deed"), RACES)
def test_rows_are_those_of_the_other_deed_alone(shape: str, deed: str, compacts: str) -> None:
    scene, start = SHAPES[shape], SHAPES[shape].build()

    def act(store: Store, what: Deed, seed: int) -> Rows:
        what(scene.open(store, seed))
        return rows_of(scene.open(store))

    orderly = copy_of(start)
    wanted = [act(orderly, what, seed) for seed, what in enumerate((DEEDS[deed], LATER), 101)]
    pair = (compact, DEEDS[deed]) if compacts == "first" else (DEEDS[deed], compact)
    for call in count(1):
        store = copy_of(start)
        raced = RacedStore(store, call, partial(act, store, pair[1], 201))
        pair[0](scene.open(raced, 202))
        if raced.calls < call:
            break

        assert rows_of(scene.open(store)) == wanted[0], f"call {call}"
        assert act(store, compact, 203) == wanted[0], f"call {call}"
        assert scene.open(store).explain().merged_files == 0
        assert act(store, LATER, 204) == wanted[1], f"call {call}"
