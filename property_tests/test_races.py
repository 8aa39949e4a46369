"""Whatever another writer does between two store calls of this one, nothing is lost or doubled.

The other's deed is carried out whole at each call of a writer in turn. Then either both deeds
count, in one order or the other, or the writer that came second is told, and may do it again.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from itertools import count, product
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CommitConflict
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.table.publication import write_schema
from lakecore.testing.stores import WatchedStore
from property_tests.deeds import (
    PAST,
    Deed,
    Scene,
    copy_of,
    orders,
    overwrite,
    plain_write,
    rows_of,
    write,
)
from property_tests.profile import calls_of, sized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table
    from lakecore.testing.values import Rows


class RacedStore(WatchedStore):
    """A store in which somebody else acts right before a call, counted from 1."""

    def __init__(self, inner: Store, at: int, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self.calls = 0
        self._at = at
        self._act = act

    @contextmanager
    def call(self, name: str, path: str) -> Iterator[None]:  # noqa: ARG002 - each is a step
        self.calls += name != "close_output"
        if self.calls == self._at and name != "close_output":
            self._act()
        yield


def add_column(table: Table) -> None:
    """The next schema, with one column more."""
    context = table.context
    changes = [SchemaChange.add_column("note", "STRING")]
    schema = evolve(context.schema, changes, now_ms=0, has_snapshots=True)
    assert write_schema(context.store, context.layout, schema)


SHAPES = {
    "one bucket": Scene(options={"bucket": "1"}, past=PAST, deed=write(orders("a", "x"))),
    "buckets and partitions": Scene(
        options={"bucket": "2"}, partitioned=True, past=PAST, deed=write(orders("a", "x"))
    ),
    "dynamic buckets": Scene(
        options={"dynamic-bucket.target-row-num": "2"},
        partitioned=True,
        past=PAST,
        deed=write(orders("a", "x")),
    ),
    "empty dynamic buckets": Scene(
        options={"dynamic-bucket.target-row-num": "2"}, deed=write(orders("a", "x"))
    ),
    "append": Scene(keyed=False, partitioned=True, deed=write(orders("a", "x"))),
    "one bucket, compacted by each write": Scene(
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "1"},
        past=PAST,
        deed=write(orders("a", "x")),
    ),
    "looked up by each write": Scene(
        options={"bucket": "2", "changelog-producer": "lookup"},
        partitioned=True,
        past=PAST,
        deed=write(orders("a", "x")),
    ),
    "marked by each write": Scene(
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
        past=PAST,
        deed=write(orders("a", "x")),
    ),
}
MINE: dict[str, Deed] = {
    "write known keys": write(orders("bc", "mine")),
    "write new keys": write(orders("bmno", "mine")),
    "overwrite all": overwrite(orders("bmn", "mine"), dynamic=False),
    "overwrite a partition": overwrite(orders("bmn", "mine"), dynamic=True),
    "truncate": lambda table: table.truncate(),
}
THEIRS: dict[str, Deed] = {
    "write other keys": plain_write(orders("dpq", "theirs")),
    "overwrite all": lambda table: table.overwrite(orders("dpq", "theirs"), dynamic=False),
    "truncate": lambda table: table.truncate(),
    "add a column": add_column,
}
PLAIN = {[*product(SHAPES, MINE, THEIRS)][order] for order in (0, 26, 42, 69, 90)}
LATER = plain_write(orders("abcdefmnopq", "later"))


RACES = [
    # Each shape meets each deed, and each deed each other: half of these under `quick`.
    pytest.param(
        shape,
        mine,
        theirs,
        marks=() if (shape, mine, theirs) in PLAIN else (pytest.mark.slow, pytest.mark.sampled(4)),
    )
    for order, (shape, mine, theirs) in enumerate(product(SHAPES, MINE, THEIRS))
    if (order // 20 + order // 4 % 5 - order % 4) % sized(2, quick=4) == 0
]
assert (len(MINE), len(THEIRS)) == (5, 4)


@pytest.mark.parametrize(("shape", "mine", "theirs"), RACES)
def test_deed_of_another_at_any_store_call_is_before_or_after_mine(
    shape: str, mine: str, theirs: str
) -> None:
    scene, start = SHAPES[shape], SHAPES[shape].build()

    def act(store: Store, deed: Deed, seed: int) -> Rows:
        deed(scene.open(store, seed))
        return rows_of(scene.open(store))

    def after(*deeds: Deed) -> list[Rows]:
        store = copy_of(start)
        return [act(store, deed, seed) for seed, deed in enumerate(deeds, 101)]

    first, second = MINE[mine], THEIRS[theirs]
    orderly = [after(first, second, LATER)[1:], after(second, first, LATER)[1:]]
    plain = (shape, mine, theirs) in PLAIN
    for call in count(1) if plain else calls_of(shape, mine, theirs):
        store = copy_of(start)
        raced = RacedStore(store, call, partial(act, store, second, 201))
        try:
            first(scene.open(raced, 202))
        except CommitConflict:
            act(store, first, 203)
        if raced.calls < call:
            break
        now = rows_of(scene.open(store))

        assert [now, act(store, LATER, 204)] in orderly, f"call {call}"
