"""Purge: nothing of the past is left."""

from __future__ import annotations

from lakecore.model.retention import Purged
from tests.retention import consumer, history
from tests.stores import files_below
from tests.tables import put


def test_a_purged_table_has_one_snapshot_and_no_data_file() -> None:
    table = history(commits=4)
    table.create_tag("old", 1)
    table.create_branch("b1", "old")
    consumer(table, "c1", 2)
    table.context.store.put(f"{table.path}/bucket-0/data-x-0.parquet", b"left over")

    result = table.purge_files()
    names = {path.rpartition("/")[2] for path in files_below(table.context.store, table.path)}

    assert result == Purged(
        snapshot_id=5,
        branches=("b1",),
        tags=("old",),
        consumers=("c1",),
        snapshots_expired=4,
        orphan_files=1,
    )
    assert table.count() == 0
    assert not [name for name in names if name.endswith(".parquet")]
    assert {name for name in names if name.startswith(("snapshot-", "tag-", "consumer-"))} == {
        "snapshot-5"
    }
    put(table, "1 again")
    assert table.count() == 1


def test_purging_again_changes_nothing_more() -> None:
    table = history(commits=2)
    table.purge_files()

    again = table.purge_files()

    assert (again.tags, again.branches, again.orphan_files) == ((), (), 0)
    assert table.count() == 0
