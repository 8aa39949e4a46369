"""What a table's metadata directories hold: read anew where it may change, cached where not."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CorruptTable, NotFound, StorageError
from lakecore.format import metadata
from lakecore.io.history import History
from lakecore.io.stores.local import LocalStore
from lakecore.io.stores.store import MemoryStore
from lakecore.model.snapshot import Tag
from tests.stores import ReadCounter
from tests.tables import new_table, put, reopened

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.io.stores.store import FileStatus
    from lakecore.table.handle import Table


@pytest.fixture
def table() -> Table:
    """Three commits of a row each."""
    table = new_table()
    for text in ("1 a", "2 b", "1 c"):
        put(table, text)
    return table


@pytest.fixture
def history(table: Table) -> History:
    """The same history as another process reads it."""
    return History(table.context.store, table.context.layout)


def test_snapshots_are_numbered_from_1(history: History) -> None:
    latest = history.latest_snapshot()

    assert history.snapshot_ids() == (1, 2, 3)
    assert latest is not None
    assert (latest.id, latest.total_record_count) == (3, 3)


def test_table_without_commits_has_no_snapshot() -> None:
    context = new_table().context
    history = History(context.store, context.layout)

    assert history.snapshot_ids() == ()
    assert history.latest_snapshot_id() is None
    assert history.latest_snapshot() is None
    assert history.index_entries(None) == ()


def test_nothing_is_a_table_without_a_schema() -> None:
    layout = new_table().context.layout

    assert History(MemoryStore(), layout).latest_schema() is None


@pytest.mark.parametrize("hint", [None, b"2", b"9", b"", b"x", b"\xff", b"9" * 5_000, b"\xb2"])
def test_latest_snapshot_is_found_whatever_the_hint_says(
    table: Table, history: History, hint: bytes | None
) -> None:
    path = table.context.layout.latest_hint
    if hint is None:
        table.context.store.delete(path)
    else:
        table.context.store.put(path, hint)

    assert history.latest_snapshot_id() == 3


def test_hint_saves_the_listing(table: Table) -> None:
    store = ReadCounter(table.context.store)
    store.list = None  # type: ignore[assignment, method-assign]

    assert History(store, table.context.layout).latest_snapshot_id() == 3


def test_expired_snapshot_is_not_found_and_the_live_ones_are_named(
    table: Table, history: History
) -> None:
    table.context.store.delete(table.context.layout.snapshot(1))

    with pytest.raises(NotFound, match=r"expired; .*\. snapshot_id=1 live=2\.\.3"):
        history.snapshot(1)
    with pytest.raises(NotFound, match=r"snapshot_id=4 live=2\.\.3"):
        history.snapshot(4)


def test_snapshots_below_the_earliest_hint_are_leftovers(table: Table, history: History) -> None:
    table.context.store.put(table.context.layout.earliest_hint, b"2")
    assert history.snapshot_ids() == (2, 3)
    table.context.store.put(table.context.layout.earliest_hint, b"8")

    assert history.snapshot_ids() == (1, 2, 3)


class LaggingStore(MemoryStore):
    """Shows the first files of a directory in no listing yet, but opens them."""

    lacks = 0

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        return super().list(directory)[self.lacks :]


@pytest.mark.parametrize("lacks", [1, 2])
def test_earliest_hint_is_right_though_listings_lag(lacks: int) -> None:
    store = LaggingStore()
    table = new_table(store=store)
    put(table, "1 a")
    put(table, "2 b")
    store.delete(table.context.layout.earliest_hint)
    store.delete(table.context.layout.latest_hint)
    store.lacks = lacks

    History(store, table.context.layout).keep_earliest_hint(2)

    store.lacks = 0
    assert History(store, table.context.layout).snapshot_ids() == (1, 2)
    assert store.read(table.context.layout.earliest_hint) == b"1"


def test_other_files_beside_snapshots_are_passed_over(table: Table, history: History) -> None:
    for name in ("snapshot-", "snapshot-x", "snapshot-4.tmp", ".snapshot-5"):
        table.context.store.put(f"{table.context.layout.snapshot_dir}/{name}", b"")

    assert history.snapshot_ids() == (1, 2, 3)


def test_live_files_are_those_of_base_and_delta(history: History) -> None:
    counts = [len(history.live_entries(history.snapshot(number))) for number in (1, 2, 3)]
    latest = history.snapshot(3)

    assert counts == [1, 2, 3]
    assert [len(history.manifests(latest)), len(history.delta_manifests(latest))] == [3, 1]


def test_live_files_are_kept_once_they_are_known(history: History) -> None:
    snapshot = history.snapshot(2)

    assert history.live_if_known(snapshot) is None
    live = history.live_entries(snapshot)
    assert history.live_if_known(snapshot) is live
    assert history.live_entries(snapshot) is live


def test_what_never_changes_is_read_once(table: Table) -> None:
    store = ReadCounter(table.context.store)
    history = History(store, table.context.layout)
    for _ in range(2):
        history.live_entries(history.snapshot(3))
        history.schema(0)

    assert sorted(name for name in store.reads if store.reads.count(name) > 1) == ["snapshot-3"] * 2
    assert len(store.reads) == 2 + 2 + 3 + 1


def test_snapshot_is_read_anew_for_its_number_may_be_given_again(
    table: Table, history: History
) -> None:
    store, path = table.context.store, table.context.layout.snapshot(3)
    before = history.snapshot(3)
    store.put(path, metadata.encode_snapshot(replace(before, commit_user="another")))

    assert history.snapshot(3).commit_user == "another"


def test_missing_manifest_is_a_corrupt_table(table: Table, history: History) -> None:
    snapshot = history.snapshot(2)
    (manifest,) = history.delta_manifests(snapshot)
    table.context.store.delete(table.context.layout.manifest(manifest.name))

    with pytest.raises(CorruptTable, match="metadata file is missing"):
        history.live_entries(snapshot)


def test_manifest_that_was_cut_short_is_a_corrupt_table(table: Table, history: History) -> None:
    store, layout = table.context.store, table.context.layout
    snapshot = history.snapshot(2)
    path = layout.manifest(snapshot.delta_manifest_list)
    store.put(path, store.read(path)[:-1])

    with pytest.raises(CorruptTable, match="does not have the size"):
        history.delta_manifests(snapshot)


def test_snapshot_of_another_number_is_a_corrupt_table(table: Table) -> None:
    store, layout = table.context.store, table.context.layout
    store.put(layout.snapshot(3), store.read(layout.snapshot(2)))
    history = History(store, layout)

    for read in (history.snapshot, history.snapshot_if_there):
        with pytest.raises(CorruptTable, match=r"another number. path=.*snapshot-3 id=2"):
            read(3)


def test_schema_of_another_number_is_a_corrupt_table(table: Table) -> None:
    store, layout = table.context.store, table.context.layout
    store.put(layout.schema(1), store.read(layout.schema(0)))

    with pytest.raises(CorruptTable, match=r"another number. path=.*schema-1 id=0"):
        History(store, layout).schema(1)


def test_missing_schema_is_a_corrupt_table(history: History) -> None:
    with pytest.raises(CorruptTable, match=r"schema file is missing\. path=.*schema-7"):
        history.schema(7)


def test_tags_are_found_by_name(table: Table, history: History) -> None:
    store, layout = table.context.store, table.context.layout
    for name in ("b", "a"):
        tag = Tag(name=name, snapshot=history.snapshot(2))
        store.put(layout.tag(name), metadata.encode_tag(tag))

    assert history.tag_names() == ("a", "b")
    assert history.tag("a").snapshot == history.snapshot(2)
    with pytest.raises(NotFound, match=r"no such tag\. tag=c tags=\[a, b\]"):
        history.tag("c")


def test_many_manifests_are_read_in_their_order(table: Table, history: History) -> None:
    manifests = history.manifests(history.snapshot(3))
    one_by_one = [entry for manifest in manifests for entry in history.manifest(manifest)]

    assert History(table.context.store, table.context.layout).entries(manifests) == one_by_one


def test_handle_that_goes_on_committing_keeps_the_files_of_few_snapshots() -> None:
    table = new_table(
        {"p": "INT NOT NULL", "v": "STRING"},
        keys=(),
        partitions=("p",),
        manifest__merge_min_count="1000",
    )
    table.write([{"p": number, "v": "x"} for number in range(400)])
    held: list[int] = []
    tracemalloc.start()
    try:
        for _ in range(36):
            table.write([{"p": 0, "v": "x"}])
            table.inspect.files()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()

    # Without a bound it is 36 KB a commit.
    assert held[-1] - held[15] < 20 * 24_000


@pytest.mark.parametrize("hint", ["directory", "unreadable", "huge"])
@pytest.mark.parametrize("name", ["LATEST", "EARLIEST"])
def test_hint_that_cannot_be_read_only_costs_a_listing(
    hint: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore()
    table = new_table(store=store, path=str(tmp_path / "t"))
    put(table, "1 a")
    path = tmp_path / "t" / "snapshot" / name
    path.unlink()
    if hint == "directory":
        path.mkdir()
    else:
        path.write_bytes(b"1" if hint == "unreadable" else b" " * 100_000 + b"1")
    if hint == "unreadable":
        read = store.read

        def refuse(asked: str) -> bytes:
            if asked.endswith(name):
                raise StorageError("the storage refused", path=asked)
            return read(asked)

        monkeypatch.setattr(store, "read", refuse)

    table = reopened(table)
    assert table.to_arrow().num_rows == 1
    put(table, "2 b")
    assert reopened(table).to_arrow().num_rows == 2
