"""A table that is left running does not grow: thousands of commits leave few files.

One writer upserts the same keys, with retention, compaction and a consumer that follows. The files
on the disk stay within 1.5 times those that the snapshots and the consumer need, all along.
"""

from __future__ import annotations

import pytest

from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from property_tests.profile import sized
from property_tests.retention_model import needed_files, rows_of
from tests.stores import files_below
from tests.tables import new_table

ROUND = 50
KEYS = 40


@pytest.mark.slow
def test_files_on_disk_stay_within_one_and_a_half_times_the_live_ones() -> None:
    ambient = seeded(9)
    store = MemoryStore(ambient)
    table = new_table(
        {"id": "INT NOT NULL", "v": "INT"},
        store=store,
        ambient=ambient,
        changelog_producer="lookup",
        snapshot__num_retained__min="5",
        snapshot__num_retained__max="20",
        snapshot__time_retained="10 min",
        consumer__expiration_time="1 h",
    )
    held: dict[int, int] = {}
    commits = sized(2_000, quick=150)
    for number in range(1, commits + 1):
        ambient.sleep(30)
        rows = {(number * step) % KEYS: number for step in (1, 3, 7)}
        held |= rows
        table.write([{"id": key, "v": value} for key, value in rows.items()])
        if number % 10 == 0:
            # A consumer that is ten commits behind at most.
            latest = table.context.history.latest_snapshot_id()
            assert latest is not None
            table.reset_consumer("reports", latest)
        if number % ROUND == 0:
            there = files_below(store, table.path)
            needed = needed_files([table.context])

            assert len(there) <= 1.5 * len(needed)
            assert len(table.context.history.snapshot_ids()) <= 40
    assert rows_of(table) == tuple(sorted(held.items()))
