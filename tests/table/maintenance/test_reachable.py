"""What the states of a table reach."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CorruptTable
from lakecore.table.maintenance.reachable import (
    KEY,
    Reach,
    State,
    StateKind,
    changelog_manifests,
    entry_frame,
    in_lines,
    states,
)
from tests.retention import history
from tests.tables import new_table, put, reopened

if TYPE_CHECKING:
    from lakecore.model.snapshot import Snapshot


def followed(*snapshots: Snapshot, branches: str = "aaa") -> list[bool]:
    """Of each snapshot, whether it was committed on top of the one before it."""
    found = (
        State(kind=StateKind.SNAPSHOT, branch=branch, name=str(each.id), snapshot=each)
        for each, branch in zip(snapshots, branches, strict=False)
    )
    return [follows for _, follows in in_lines(found)]


def test_snapshot_follows_the_one_on_whose_rows_it_builds() -> None:
    first, second, third = (history(commits=3).context.history.snapshot(n) for n in (1, 2, 3))
    unknown = replace(first, total_record_count=None)  # old releases do not count rows

    assert followed(first, second, third) == [False, True, True]
    assert followed(first, third) == [False, False]
    assert followed(replace(first, total_record_count=7), second) == [False, False]
    assert followed(unknown, second) == [False, True]
    assert followed(first, replace(second, delta_record_count=None)) == [False, True]
    assert followed(first, second, branches="ab") == [False, False]


def test_changes_of_which_expiry_removed_the_delta_have_no_manifests() -> None:
    table = history(commits=2)
    context = table.context
    first = context.history.snapshot(1)
    assert len(changelog_manifests(context.history, first)) == 1

    path = context.layout.manifest(first.delta_manifest_list)
    context.store.put(path, b"no list")
    with pytest.raises(CorruptTable):
        changelog_manifests(reopened(table).context.history, first)
    context.store.delete(path)
    assert changelog_manifests(reopened(table).context.history, first) == ()


def test_files_of_a_kept_changelog_are_reached() -> None:
    table = new_table(
        changelog_producer="input",
        changelog__num_retained__min="1",
        changelog__num_retained__max="100",
        snapshot__num_retained__min="1",
        snapshot__num_retained__max="1",
    )
    for number in range(3):
        put(table, f"1 v{number}")
    past = table.context.history
    manifests = changelog_manifests(past, past.changelog(1))
    candidates = entry_frame(past, manifests).select(KEY)
    assert candidates.height == 1

    for kept, left in ((("snapshot",), 1), (("snapshot", "changelog"), 0)):
        reach = Reach(past, candidates, table.context.partitions)
        reach.add_states(state for state in states(past) if state.kind in kept)
        assert reach.without_reached(candidates).height == left
