"""Hints are made right again from what is there."""

from __future__ import annotations

from tests.retention import expire, history
from tests.tables import new_table, reopened


def test_wrong_hints_are_made_right() -> None:
    table = history(commits=5)
    expire(table, 3)
    store, layout = table.context.store, table.context.layout
    store.put(layout.earliest_hint, b"5")
    store.put(layout.latest_hint, b"999")

    assert table.repair_hints() == (3, 5)
    assert (store.read(layout.earliest_hint), store.read(layout.latest_hint)) == (b"3", b"5")


def test_missing_hints_are_written() -> None:
    table = history(commits=2)
    store, layout = table.context.store, table.context.layout
    store.delete(layout.earliest_hint)
    store.delete(layout.latest_hint)

    assert table.repair_hints() == (1, 2)
    assert store.read(layout.latest_hint) == b"2"


def test_a_table_without_snapshots_gets_no_hints() -> None:
    table = new_table()

    assert table.repair_hints() is None
    assert not table.context.store.exists(table.context.layout.latest_hint)


def test_snapshot_of_which_an_expiry_deleted_files_is_not_brought_back() -> None:
    table = history(commits=4)
    store, layout = table.context.store, table.context.layout
    past = table.context.history
    store.put(layout.earliest_hint, b"4")
    store.delete(layout.manifest(past.snapshot(2).delta_manifest_list))

    assert reopened(table).repair_hints() == (3, 4)
    assert store.read(layout.earliest_hint) == b"3"
