"""Which snapshots count for those who follow a table."""

from __future__ import annotations

from typing import Any

import pytest

from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.model.snapshot import CommitKind, Snapshot
from lakecore.options import IncrementalScanMode, parse_options
from lakecore.plan.row_changes import (
    Taken,
    files_of_first_plan,
    mode_between,
    taken_between,
    taken_by_stream,
)
from tests.tables import files

KINDS = tuple(CommitKind)


def snapshot(kind: CommitKind, *, changelog: bool) -> Snapshot:
    return Snapshot(
        id=1,
        schema_id=0,
        base_manifest_list="base",
        delta_manifest_list="delta",
        commit_user="user",
        commit_identifier=1,
        commit_kind=kind,
        time_ms=0,
        changelog_manifest_list="changelog" if changelog else None,
    )


def entries_of(text: str, bucket: int = 0) -> list[ManifestEntry]:
    return [
        ManifestEntry(kind=FileKind.ADD, partition=b"", bucket=bucket, total_buckets=3, file=file)
        for file in files(text)
    ]


def streamed(kind: CommitKind, *, changelog: bool, keyed: bool = True, **options: str) -> str:
    stated = {key.replace("_", "-"): text for key, text in options.items()}
    taken = taken_by_stream(snapshot(kind, changelog=changelog), parse_options(stated), keyed=keyed)
    return "" if taken is None else taken.name


def test_stream_without_changelog_takes_what_writes_added() -> None:
    assert [streamed(kind, changelog=False) for kind in KINDS] == ["ADDED", "", "", ""]


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_stream_with_changelog_takes_it_and_nothing_else(producer: str) -> None:
    taken = [
        [streamed(kind, changelog=there, changelog_producer=producer) for kind in KINDS]
        for there in (True, False)
    ]

    assert taken == [["CHANGELOG"] * 4, [""] * 4]


@pytest.mark.parametrize("producer", ["none", "input"])
def test_overwrites_count_where_they_are_asked_for(producer: str) -> None:
    keyed: dict[str, Any] = {"changelog_producer": producer, "streaming_read_overwrite": "true"}
    append: dict[str, Any] = {"streaming_read_append_overwrite": "true"}
    overwrite = CommitKind.OVERWRITE

    assert streamed(overwrite, changelog=False, **keyed) == "REPLACED"
    assert streamed(overwrite, changelog=False, keyed=False, **append) == "ADDED"
    assert streamed(overwrite, changelog=False, keyed=False, **keyed) == ""
    assert streamed(overwrite, changelog=False, **append) == ""


def test_read_between_snapshots_takes_nothing_of_overwrites() -> None:
    delta, changelog = IncrementalScanMode.DELTA, IncrementalScanMode.CHANGELOG

    def between(mode: IncrementalScanMode) -> list[Taken | None]:
        return [taken_between(snapshot(kind, changelog=True), mode) for kind in KINDS]

    assert between(delta) == [Taken.ADDED, None, None, None]
    assert between(changelog) == [Taken.CHANGELOG, Taken.CHANGELOG, None, Taken.CHANGELOG]
    assert taken_between(snapshot(CommitKind.APPEND, changelog=False), changelog) is None


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, "delta"),
        ({"changelog-producer": "input"}, "changelog"),
        ({"changelog-producer": "lookup"}, "changelog"),
        ({"changelog-producer": "input", "incremental-between-scan-mode": "delta"}, "delta"),
        ({"incremental-between-scan-mode": "diff"}, "diff"),
    ],
)
def test_mode_follows_the_producer_unless_it_is_stated(options: dict[str, str], mode: str) -> None:
    assert mode_between(parse_options(options)) == mode


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        ({}, [0, 1, 4, 5]),
        ({"changelog-producer": "input"}, [0, 1, 4, 5]),
        ({"changelog-producer": "lookup"}, [1, 4, 5]),
        ({"changelog-producer": "full-compaction"}, [5]),
        # Whoever went by more levels has told what lies there.
        ({"changelog-producer": "full-compaction", "num-levels": "3"}, [5]),
        ({"changelog-producer": "full-compaction", "num-levels": "9"}, [5]),
    ],
)
def test_first_plan_leaves_out_what_the_changelog_has_yet_to_tell(
    options: dict[str, str], levels: list[int]
) -> None:
    entries = entries_of("L0 a-b | L1 a-b | L4 a-b | L5 a-b")
    shown = files_of_first_plan(entries, parse_options(options))

    assert [entry.file.level for entry in shown] == levels


def test_first_plan_with_full_compaction_looks_at_each_bucket() -> None:
    options = parse_options({"changelog-producer": "full-compaction"})
    entries = [
        *entries_of("L0 a-b | L4 a-b", bucket=0),
        *entries_of("L0 a-b | L4 c-d | L5 a-b", bucket=1),
        *entries_of("L0 a-b", bucket=2),
    ]
    shown = files_of_first_plan(entries, options)

    assert [(entry.bucket, entry.file.level) for entry in shown] == [(0, 4), (1, 5)]
