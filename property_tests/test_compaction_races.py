"""Compaction and another deed at once, at any store call: neither fails, and no row is lost.

Nor is any told wrongly, where compaction writes a changelog.
"""

from __future__ import annotations

from functools import partial
from itertools import count, product
from typing import TYPE_CHECKING

import pytest

from lakecore.testing import apply_changes, assert_same_rows
from property_tests.deeds import Scene, copy_of, orders, overwrite, plain_write, rows_of
from property_tests.profile import calls_of
from property_tests.test_races import LATER, SHAPES, RacedStore, add_column

if TYPE_CHECKING:
    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table
    from lakecore.testing.values import Rows
    from property_tests.deeds import Deed


def compact(table: Table) -> None:
    table.compact(full=True)


DEEDS: dict[str, Deed] = {
    "write": plain_write(orders("abpq", "other", "+-++")),
    "overwrite a partition": overwrite(orders("bm", "other"), dynamic=True),
    "truncate": lambda table: table.truncate(),
    "add a column": add_column,
    "compact": compact,
}
PLAIN = {
    ("one bucket", "write"),
    ("one bucket", "compact"),
    ("buckets and partitions", "overwrite a partition"),
}
RACES = [
    pytest.param(
        shape,
        deed,
        marks=() if (shape, deed) in PLAIN else (pytest.mark.slow, pytest.mark.sampled(6)),
    )
    for shape, deed in product(
        [
            "one bucket",
            "buckets and partitions",
            "dynamic buckets",
            "one bucket, compacted by each write",
            "looked up by each write",
            "marked by each write",
        ],
        DEEDS,
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
    case = (shape, deed, compacts)
    for call in count(1) if case[:2] in PLAIN else calls_of(*case):
        store = copy_of(start)
        raced = RacedStore(store, call, partial(act, store, pair[1], 201))
        pair[0](scene.open(raced, 202))
        if raced.calls < call:
            break

        assert rows_of(scene.open(store)) == wanted[0], f"call {call}"
        assert act(store, compact, 203) == wanted[0], f"call {call}"
        assert scene.open(store).explain().merged_files == 0
        assert act(store, LATER, 204) == wanted[1], f"call {call}"


LOOKING_UP: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "first-row": {"merge-engine": "first-row"},
}
MANY = "".join(map(chr, range(0x4E00, 0x5400)))
"""So many keys that the level they come to stays where it is."""


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(engine, marks=() if engine == "partial-update" else pytest.mark.slow)
        for engine in LOOKING_UP
    ],
)
def test_changelog_adds_up_whichever_writer_comes_between(engine: str) -> None:
    deletes = engine == "deduplicate"
    scene = Scene(
        options={"bucket": "1", "changelog-producer": "lookup", **LOOKING_UP[engine]},
        past=(plain_write(orders("abcd" + MANY, "old")), plain_write(orders("abxyz", "new"))),
        deed=plain_write(orders("bcxp", "mine", "+-++" if deletes else None)),
    )
    other = plain_write(orders("abcpq", "other", "+-++-" if deletes else None))
    start = scene.build()
    for call in count(1) if engine == "partial-update" else calls_of(engine):
        store = copy_of(start)
        raced = RacedStore(store, call, partial(_write, other, scene, store))
        scene.deed(scene.open(raced, 302))
        if raced.calls < call:
            break
        table = scene.open(store, 303)
        plain_write(orders("aqz", "later"))(table)
        table.compact(full=True)

        rows = None
        for _, changes in table.stream(1, "latest"):
            rows = apply_changes(changes, table.schema.primary_keys, rows)
        assert_same_rows(rows, table)


def _write(deed: Deed, scene: Scene, store: Store) -> None:
    deed(scene.open(store, 301))
