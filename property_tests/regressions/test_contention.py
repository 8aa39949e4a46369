"""Commits that lose races, as laws once found them slow."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from property_tests.deeds import PAST, WRITER, Scene, orders, write
from property_tests.test_races import RacedStore

if TYPE_CHECKING:
    from lakecore.io.stores.store import Store


UPSERT = Scene(
    options={"bucket": "1", "write-only": "true"}, past=PAST, deed=write(orders("a", "mine"))
)


class BusyStore(RacedStore):
    """A store in which another commit comes first, so many times; it counts the calls between."""

    def __init__(self, inner: Store, losses: int) -> None:
        super().__init__(inner, 0, lambda: None)
        self.losses = losses
        self.calls_at_puts: list[int] = []

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.calls_at_puts.append(self.calls)
        if len(self.calls_at_puts) <= self.losses:
            table = UPSERT.open(self.inner, seed=1000 + self.calls)
            table.write(orders("z", "theirs"))
        return super().put_if_absent(path, data)


def test_attempt_looks_only_at_what_came_since_the_last() -> None:
    store = BusyStore(UPSERT.build(), losses=8)
    result = UPSERT.open(store).write(orders("a", "mine"), commit_user=WRITER, identifier=1)

    assert result.attempts == 9
    calls = [after - before for before, after in pairwise(store.calls_at_puts)]
    assert max(calls[1:]) <= calls[0]
