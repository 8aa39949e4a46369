"""Tables that Java wrote, with tags, branches, consumers and long-lived changelogs: expired, rolled
back, and still read as before.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakecore as lc

if TYPE_CHECKING:
    from lakecore.table.handle import Table

FIXTURES = Path(__file__).parent / "fixtures"
TABLES = [
    "tag_branch_consumer_statistics/table",
    "tag_branch_consumer_statistics/table-head",
    "append_deletion_vectors/table-head",
    "head_row_tracking/table-head",
    "pk_changelog_lookup/table",
    "pk_changelog_full_compaction/table-head",
    "pk_changelog_input_sequence/table",
    "pk_deletion_vectors/table-head",
    "pk_dynamic_bucket/table",
    "pk_first_row/table-head",
    "schema_evolution/table-head",
]


def states(path: Path) -> dict[str, list[str]]:
    """The rows of every snapshot and tag of every branch."""
    found: dict[str, list[str]] = {}
    for name in ["main", *(branch.name for branch in lc.open_table(path).branches())]:
        table = lc.open_table(path, branch=name)
        if table.context.history.latest_snapshot_id() is None:
            continue
        for number in table.context.history.snapshot_ids():
            found[f"{name} {number}"] = rows(table, snapshot_id=number)
        for tag in table.tags():
            found[f"{name} {tag.name}"] = rows(table, tag=tag.name)
    return found


def rows(table: Table, **at: object) -> list[str]:
    return sorted(map(repr, table.to_arrow(**at).to_pylist()))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TABLES)
def test_what_is_left_after_expiry_reads_as_before(name: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(FIXTURES / name, path)
    before = states(path)

    table = lc.open_table(path)
    done = table.expire_snapshots(retain_max=1, retain_min=1, max_deletes=1000)

    left = states(path)
    assert left == {state: before[state] for state in left}
    assert {state for state in before if not state.startswith("main ")} <= left.keys()
    assert done.snapshots_expired == len(before) - len(left)
    held = min((consumer.next_snapshot for consumer in table.consumers()), default=None)
    assert held is None or f"main {held}" in left or f"main {held}" not in before


@pytest.mark.parametrize("name", TABLES)
def test_rolled_back_table_reads_as_before(name: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(FIXTURES / name, path)
    before = states(path)
    table = lc.open_table(path)
    ids = table.context.history.snapshot_ids()

    done = table.rollback_to(ids[len(ids) // 2])

    left = states(path)
    assert done.is_complete
    assert left == {state: before[state] for state in left}
    assert {state for state in before if not state.startswith("main ")} <= left.keys()
