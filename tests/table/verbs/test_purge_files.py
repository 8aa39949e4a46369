"""Purge: nothing of the past is left."""

from __future__ import annotations

from itertools import chain

import pytest

from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.model.retention import Purged
from property_tests.profile import calls_of
from tests.retention import consumer, history
from tests.stores import FailingStore, StoreFailure, files_below
from tests.tables import put, reopened


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


@pytest.mark.parametrize("after", [False, True])
def test_a_failure_of_the_storage_leaves_all_or_the_empty_table(*, after: bool) -> None:
    seen = set()
    for call in chain((1,), calls_of("purge", str(after))):  # the first leaves all
        table = history(commits=2)
        table.create_tag("old", 1)
        table.create_branch("b1", "old")
        consumer(table, "c1", 2)
        store = table.context.store
        failing = FailingStore(store, call, after=after)
        complete = None
        try:
            complete = reopened(table, store=failing).purge_files().is_complete
        except (StoreFailure, LakecoreError):
            assert failing.is_dead
        left = reopened(table)
        rows, names = (
            left.count(),
            [each.name for each in left.tags()] + [each.name for each in left.branches()],
        )
        if rows:
            assert complete is None
            assert (names, len(left.consumers())) == (["old", "b1"], 1)
        if not failing.is_dead:
            break
        left.purge_files()
        assert (left.count(), left.tags(), left.branches(), left.consumers()) == (0, (), (), ())
        seen.add((bool(rows), complete))

    assert seen >= {(True, None), (False, False)}


def test_a_branch_in_use_is_refused_before_anything_is_removed() -> None:
    table = history(commits=2)
    table.create_tag("old", 1)
    table.create_branch("b1", "old")

    with pytest.raises(InvalidRequest, match="fall back"):
        table.copy({"scan.fallback-branch": "b1"}).purge_files()
    assert table.count() == 1
    assert [tag.name for tag in table.tags()] == ["old"]
