"""The overview of a table: files and bytes counted back from the latest snapshot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakecore.errors import Unsupported
from lakecore.io.stores.store import MemoryStore
from lakecore.table.system import overview
from lakecore.table.system.overview import SnapshotFacts, _files, overview_of
from tests.tables import files, new_table, put, reopened


def test_growth_is_counted_back_from_the_latest_snapshot() -> None:
    columns = {"id": "INT NOT NULL", "p": "STRING NOT NULL"}
    table = new_table(columns, keys=("id", "p"), partitions=("p",), write_only="true")
    for line in ("1 a | 1 b", "2 a", "-D 1 a"):
        put(table, line)
    table.copy({"write-only": "false"}).compact(full=True)
    for name, number in (("x", 1), ("y", 1), ("z", 3)):
        table.create_tag(name, number)
    table.reset_consumer("reader", 2)

    found = overview_of(table.context)
    for facts in found.snapshots:
        files = table.copy({"scan.snapshot-id": str(facts.id)}).inspect.files()
        assert (facts.files, facts.bytes) == (files.height, files["file_size_in_bytes"].sum())
    assert [(each.id, each.kind, each.rows, each.files) for each in found.snapshots] == [
        (1, "APPEND", 2, 2),
        (2, "APPEND", 3, 3),
        (3, "APPEND", 4, 4),
        (4, "COMPACT", 2, 2),
    ]
    assert [(each.tags, each.consumers) for each in found.snapshots] == [
        (("x", "y"), ()),
        ((), ("reader",)),
        (("z",), ()),
        ((), ()),
    ]
    assert [(each.partition, each.bucket, len(each.files)) for each in found.buckets] == [
        ("p=a", 0, 1),
        ("p=b", 0, 1),
    ]
    assert (found.files, found.bytes) == (2, found.snapshots[-1].bytes)
    assert found.expiry is not None


def test_newest_snapshots_are_shown_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "SNAPSHOTS_SHOWN", 2)
    table = new_table()
    for line in ("1 a", "2 b", "3 c"):
        put(table, line)

    found = overview_of(table.context)
    assert ([each.id for each in found.snapshots], found.snapshot_count) == ([2, 3], 3)


def test_snapshots_that_would_expire_are_counted_and_stay() -> None:
    table = new_table(write_only="true", snapshot__num_retained__min="1")
    for line in ("1 a", "2 b", "3 c"):
        put(table, line)
    table = table.copy({"snapshot.num-retained.max": "1"})

    expiry = overview_of(table.context).expiry
    assert expiry is not None
    assert (expiry.snapshots_expired, table.context.history.snapshot_ids()) == (2, (1, 2, 3))


def test_files_before_an_unreadable_manifest_are_unknown() -> None:
    store = MemoryStore()
    table = new_table(store=store)
    for line in ("1 a", "2 b", "3 c"):
        put(table, line)
    second = table.context.history.snapshot(2)
    store.delete(table.context.layout.manifest(second.delta_manifest_list))
    table = reopened(table)

    def shown(facts: SnapshotFacts) -> tuple[int | None, bool]:
        return facts.files, facts.bytes is None

    found = overview_of(table.context)
    assert [shown(each) for each in found.snapshots] == [(None, True), (2, False), (3, False)]


def test_rows_that_a_catalog_hides_are_not_counted() -> None:
    table = new_table(query_auth__enabled="true")

    with pytest.raises(Unsupported, match="query-auth"):
        overview_of(table.context)


@pytest.mark.parametrize(
    ("text", "overlap"),
    [
        ("L0 a-m", False),
        ("L0 a-m | L0 n-z", True),
        ("L5 a-m | L5 n-z", False),
        ("L0 a-m | L5 a-z", True),
        ("L4 a-m | L5 a-z", True),
    ],
)
def test_files_of_several_levels_or_of_level_0_may_overlap(text: str, *, overlap: bool) -> None:
    found = files(text)

    assert {file.overlaps for file in _files(found)} == {overlap}
    if {file.level for file in found} == {0}:
        without_keys = [replace(file, key_min=b"", key_max=b"") for file in found]
        assert not any(file.overlaps for file in _files(without_keys))
