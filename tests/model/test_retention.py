"""What people see of the results of expiries, rollbacks and the like."""

from __future__ import annotations

import pytest

from lakecore.display import ShownFacts, pairs_html, pairs_text
from lakecore.model.compaction import CompactionResult
from lakecore.model.retention import (
    ExpiredChangelogs,
    ExpiredPartitions,
    ExpiredSnapshots,
    FilesDeleted,
    Purged,
    RolledBack,
)
from lakecore.model.snapshot import CommitResult, IcebergExport

FILES = FilesDeleted(data_files=1_200, data_bytes=2_048, manifests=3)
SHOWN_FILES = [("data files", "1,200 (2.0 KiB)"), ("manifests", 3)]
DELETED = ("dry run", "nothing was deleted")
RESULTS: list[tuple[ShownFacts, list[tuple[str, object]]]] = [
    (FILES, SHOWN_FILES),
    (ExpiredSnapshots(), [("snapshots expired", 0)]),
    (
        ExpiredSnapshots(
            snapshots_expired=1_000,
            earliest_snapshot_id=1_001,
            changelogs_kept=2_000,
            files=FILES,
            held_by_consumer="reader",
            unreadable_snapshots=(3, 4),
            is_complete=False,
            dry_run=True,
        ),
        [
            ("snapshots expired", "1,000"),
            ("earliest snapshot", 1_001),
            ("changelogs kept", "2,000"),
            *SHOWN_FILES,
            ("held by consumer", "reader"),
            ("unreadable", "3, 4"),
            ("files", "some are left to the next expiry: the storage failed"),
            DELETED,
        ],
    ),
    (ExpiredChangelogs(), [("changelogs expired", 0)]),
    (
        ExpiredChangelogs(
            changelogs_expired=1_000,
            earliest_changelog_id=1_001,
            files=FILES,
            held_by_consumer="reader",
            unreadable_changelogs=(3, 4),
            dry_run=True,
        ),
        [
            ("changelogs expired", "1,000"),
            ("earliest changelog", 1_001),
            *SHOWN_FILES,
            ("held by consumer", "reader"),
            ("unreadable", "3, 4"),
            DELETED,
        ],
    ),
    (ExpiredPartitions(), [("partitions expired", 0)]),
    (
        ExpiredPartitions(
            partitions=({"day": "1", "hour": "2"}, {"day": "2", "hour": "0"}),
            snapshot_ids=(7, 8),
            partitions_without_time=({"day": "x"},) * 1_000,
            dry_run=True,
        ),
        [
            ("partitions expired", 2),
            ("partition", "day=1/hour=2"),
            ("partition", "day=2/hour=0"),
            ("snapshots", "7, 8"),
            ("without a time", "1,000"),
            ("dry run", "nothing was dropped"),
        ],
    ),
    (
        RolledBack(snapshot_id=1, previous_snapshot_id=2),
        [("snapshot", "1, before 2"), ("snapshots removed", 0)],
    ),
    (
        RolledBack(
            snapshot_id=1,
            previous_snapshot_id=2_000,
            snapshots_removed=1_999,
            tags_removed=("a", "b"),
            changelogs_removed=1_000,
            files=FILES,
            consumers_ahead=("c", "d"),
            is_complete=False,
            dry_run=True,
        ),
        [
            ("snapshot", "1, before 2000"),
            ("snapshots removed", "1,999"),
            ("tags removed", "a, b"),
            ("changelogs removed", "1,000"),
            *SHOWN_FILES,
            ("consumers ahead", "c, d"),
            ("files", "some are left to remove_orphan_files; the log says why"),
            ("dry run", "nothing was changed"),
        ],
    ),
    (
        Purged(snapshot_id=4, tags=("a", "b"), is_complete=False),
        [
            ("snapshot left", 4),
            ("snapshots expired", 0),
            ("orphan files", 0),
            ("files", "some are left: the storage failed; purge again"),
            ("tags", "a, b"),
        ],
    ),
    (CommitResult(snapshot_ids=(3,), attempts=1), [("snapshots", 3)]),
    (CommitResult(snapshot_ids=(3,), attempts=2), [("snapshots", 3), ("attempts", 2)]),
    (IcebergExport(), [("metadata", "none: the table has no snapshot")]),
    (
        IcebergExport(metadata_path="m.json", snapshot_id=2),
        [("metadata", "m.json"), ("snapshot", 2), ("snapshots added", 0)],
    ),
    (
        CompactionResult(snapshot_ids=(3,), buckets=1, files_upgraded=1_000, steps=2),
        [
            ("snapshots", 3),
            ("buckets", 1),
            ("before", "0 files, 0 rows, 0 B"),
            ("after", "0 files, 0 rows, 0 B"),
            ("files that changed their level alone", "1,000"),
            ("steps", 2),
        ],
    ),
    (
        CompactionResult(snapshot_ids=(3,), buckets=1, files_after=None, steps=1),
        [("snapshots", 3), ("buckets", 1), ("before", "0 files, 0 rows, 0 B")],
    ),
]


@pytest.mark.parametrize(("result", "shown"), RESULTS)
def test_result_shows_what_is_not_empty(
    result: ShownFacts, shown: list[tuple[str, object]]
) -> None:
    assert str(result) == pairs_text(shown)
    assert result._repr_html_().endswith(pairs_html("", shown).partition("</caption>")[2])
