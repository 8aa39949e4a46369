"""A commit and a plan ask no more of the store after many commits than after a few."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakecore.model.files import CommitMessage
from tests.stores import FailingStore
from tests.tables import commit_unstored, files, new_table, reopened

if TYPE_CHECKING:
    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table

COMMITS = 1_000
(FILE,) = files("L0 a-z")


class Counted(FailingStore):
    """Counts what is asked of a store, and the bytes that are written."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: list[str] = []
        self.written_bytes = 0

    def _require_life(self, call: str, path: str) -> None:
        super()._require_life(call, path)
        self.asked.append(f"{call} {path.rpartition('/')[2]}")

    def put(self, path: str, data: bytes) -> None:
        self.written_bytes += len(data)
        super().put(path, data)


def commit(table: Table, number: int, user: str = "job") -> None:
    message = CommitMessage(
        partition=bytes(12),
        bucket=0,
        total_buckets=1,
        new_files=(replace(FILE, name=f"data-{user}-{number}"),),
        base_snapshot_id=table.context.history.latest_snapshot_id(),
    )
    commit_unstored(table, [message], user=user, identifier=number)


@pytest.mark.slow
def test_a_thousand_commits_make_neither_a_commit_nor_a_plan_cost_more() -> None:
    stored = new_table(keys=(), bucket="1", bucket_key="id")
    store = Counted(stored.context.store)
    table = reopened(stored, store=store)
    calls, written = [], []
    for number in range(1, COMMITS + 1):
        before = len(store.asked), store.written_bytes
        commit(table, number)
        calls.append(len(store.asked) - before[0])
        written.append(store.written_bytes - before[1])
        if number in {100, COMMITS}:
            fresh = Counted(stored.context.store)
            plan = reopened(stored, store=fresh).explain()
            assert plan.files_kept == number
            assert sum("manifest-" in each for each in fresh.asked) < 40
    early, late = slice(60, 120), slice(-60, None)
    asked_before = len(store.asked)
    commit(table, 1, user="another")

    assert sum(calls[late]) == sum(calls[early])
    # Manifests are merged into one until it has the target size: 8 MB.
    assert sum(written[late]) < 2 * sum(written[early])
    assert len(store.asked) - asked_before < COMMITS + 100
    asked_before = len(store.asked)
    commit(table, 2, user="another")
    assert len(store.asked) - asked_before < 100
