"""A pipeline whose process dies at any store call applies each change exactly once."""

from __future__ import annotations

import pytest

from lakecore.errors import LakecoreError
from lakecore.io.stores.store import MemoryStore
from property_tests.profile import calls_of
from tests.cdc.sources import ListSource, PlainRules, batch, schema
from tests.cdc.test_sink import A, B, parts, rows
from tests.stores import FailingStore, StoreFailure


@pytest.mark.parametrize("after", [False, True])
def test_crash_at_any_store_call_applies_each_change_once(*, after: bool) -> None:
    # In an append table, a change that was applied twice would be visible.
    plain = schema({"id": "INT", "v": "STRING"}, key=())
    wide = schema({"id": "INT", "v": "STRING", "w": "BIGINT"}, key=())
    steps = [
        [batch(A, plain, ("+I", 1, "x")), batch(B, plain, ("+I", 1, "b"))],
        [batch(A, plain, ("+I", 2, "y"))],
        [batch(A, wide, ("+I", 3, "c", 7)), batch(B, plain, ("+I", 9, "k"))],
    ]
    rules = PlainRules(options={"bucket": "-1"})
    for call in calls_of("cdc", str(after)):
        store = MemoryStore()
        failing = FailingStore(store, fail_at=call, after=after)
        try:
            _, sink = parts(failing, rules)
            sink.run(ListSource(steps), until_caught_up=True)
        except (StoreFailure, LakecoreError):
            assert failing.is_dead
        catalog, sink = parts(store, rules, seed=2)
        sink.run(ListSource(steps), until_caught_up=True)

        assert rows(catalog, "d.a") == [(1, "x", None), (2, "y", None), (3, "c", 7)]
        assert rows(catalog, "d.b") == [(1, "b"), (9, "k")]
        if not failing.is_dead:
            break
    assert call > 40
