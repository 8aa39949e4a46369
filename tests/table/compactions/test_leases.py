"""Buckets in parallel hold leases that add up to no more than the one budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.memory import Budget
from lakecore.table.compactions.compact_work import (
    ROOM_BYTES,
    Tally,
    WorkKind,
    compact_buckets,
    do_work,
    plan_work,
)
from lakecore.table.handle import load_table
from tests.tables import held, new_table, put

if TYPE_CHECKING:
    import pytest

    from lakecore.memory import Lease
    from lakecore.model.files import CommitMessage

BUCKETS = 8
READER_BYTES = 8 << 20
"""What a reader has in any case."""


class Watched(Budget):
    """A budget that remembers the most that was leased, and by how many at their least."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.most_bytes = 0
        self.granted: list[Lease] = []

    def acquire_up_to(self, wanted_bytes: int, least_bytes: int) -> Lease:
        assert least_bytes <= READER_BYTES
        lease = super().acquire_up_to(wanted_bytes, least_bytes)
        self.granted.append(lease)
        at_least = sum(each.size_bytes <= READER_BYTES for each in self.granted if each.size_bytes)
        over_bytes = self.used_bytes - self.size_bytes
        # The second case of `memory.py`: a reader has its least however little is left.
        assert over_bytes <= at_least * READER_BYTES
        self.most_bytes = max(self.most_bytes, self.used_bytes)
        return lease


def test_eight_buckets_at_once_exceed_a_tiny_budget_by_the_least_of_each_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pa, "cpu_count", lambda: BUCKETS)
    monkeypatch.setattr("lakecore.table.compactions.compact_work.ROOM_BYTES", 1)
    written = new_table(bucket=str(BUCKETS), write_only="true", changelog_producer="lookup")
    for turn in range(3):
        put(written, " | ".join(f"{number} {turn}" for number in range(400)))
    budget = Watched(4 << 20)
    table = load_table(
        written.context.store, written.path, ambient=written.context.ambient, budget=budget
    )
    context = table.context
    snapshot = context.history.latest_snapshot()
    assert snapshot is not None
    plan = plan_work(context, snapshot, context.history.live_entries(snapshot), WorkKind(full=True))
    messages: list[CommitMessage] = []
    compact_buckets(
        list(plan), lambda work, done: do_work(context, work, done), budget, Tally(None), messages
    )
    table.commit(messages)

    assert len(messages) == BUCKETS
    assert budget.used_bytes == 0
    assert budget.most_bytes <= budget.size_bytes + BUCKETS * READER_BYTES
    assert held(table) == held(written)


def test_leases_of_a_bucket_with_room_stay_within_it() -> None:
    written = new_table(write_only="true", changelog_producer="lookup")
    for turn in range(3):
        put(written, " | ".join(f"{number} {turn}" for number in range(400)))
    budget = Watched(ROOM_BYTES)
    table = load_table(
        written.context.store, written.path, ambient=written.context.ambient, budget=budget
    )
    table.compact(full=True)

    assert budget.used_bytes == 0
    assert 0 < budget.most_bytes <= ROOM_BYTES
