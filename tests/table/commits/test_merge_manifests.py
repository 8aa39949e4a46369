"""Merging of manifests within commits: what others see, and what is left when it fails."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CommitUnknown, CorruptTable
from tests.stores import FailingStore, MeddledStore, StoreFailure
from tests.tables import held, in_directory, new_table, put, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table

MINOR = {"manifest__merge_min_count": "3"}
FULL = {"manifest__full_compaction_threshold_size": "1 b"}
KINDS = pytest.mark.parametrize("merging", [MINOR, FULL], ids=["minor", "full"])


def about_to_merge(merging: dict[str, str]) -> Table:
    """A table of which the next commit merges three manifests, deletions among them."""
    table = new_table(manifest__full_compaction_threshold_size="1 gb")
    put(table, "1 a")
    table.overwrite(rows(table.schema, "1 b | 2 c"))
    put(table, "3 d")
    options = {key.replace("__", ".").replace("_", "-"): text for key, text in merging.items()}
    return table.copy(options)


def with_store(table: Table, store: Store) -> Table:
    dynamic = {
        key: table.context.options.texts[key]
        for key in ("manifest.merge-min-count", "manifest.full-compaction-threshold-size")
        if key in table.context.options.texts
    }
    return reopened(table, store=store).copy(dynamic)


def manifest_names(table: Table) -> list[str]:
    latest = reopened(table).context.history.latest_snapshot()
    assert latest is not None
    return [each.name for each in table.context.history.manifests(latest)]


def named(table: Table) -> set[str]:
    """What lies in the folder of manifests and is named by a snapshot."""
    history = reopened(table).context.history
    found: set[str] = set()
    for number in history.snapshot_ids():
        snapshot = history.snapshot(number)
        found |= {snapshot.base_manifest_list, snapshot.delta_manifest_list}
        found |= {manifest.name for manifest in history.manifests(snapshot)}
    return found


class OnRead(FailingStore):
    """Does something before the first manifest is read."""

    def __init__(self, inner: Store, deed: Callable[[], object]) -> None:
        super().__init__(inner)
        self.deeds = [deed]

    def read(self, path: str) -> bytes:
        name = path.rpartition("/")[2]
        if self.deeds and name.startswith("manifest-") and "list" not in name:
            self.deeds.pop()()
        return super().read(path)


@KINDS
def test_merged_manifests_hold_the_same_files(merging: dict[str, str]) -> None:
    table = about_to_merge(merging)
    put(table, "4 e")

    assert held(reopened(table)) == "1 b | 2 c | 3 d | 4 e"
    assert len(manifest_names(table)) == 2


@KINDS
@pytest.mark.parametrize("damage", ["missing", "cut short"])
def test_manifest_that_is_damaged_under_the_merge_is_one_clear_error(
    merging: dict[str, str], damage: str
) -> None:
    table = about_to_merge(merging)
    path = table.context.layout.manifest(manifest_names(table)[1])
    before, data = in_directory(table, "manifest"), table.context.store.read(path)
    table.context.store.delete(path)
    if damage == "cut short":
        table.context.store.put(path, data[:-7])
    broken = with_store(table, table.context.store)
    files = in_directory(table, "bucket-0")

    with pytest.raises(CorruptTable, match=f"path={path}"):
        put(broken, "4 e")
    table.context.store.put(path, data)
    assert in_directory(table, "manifest") == before
    assert in_directory(table, "bucket-0") == files
    assert held(reopened(table)) == "1 b | 2 c | 3 d"


@KINDS
def test_manifest_that_another_commit_made_needless_may_be_gone(merging: dict[str, str]) -> None:
    table = about_to_merge(merging)
    old = set(manifest_names(table))

    def merge_and_expire() -> None:
        twin = with_store(table, table.context.store)
        put(twin, "8 x")
        for name in old - set(manifest_names(table)):
            table.context.store.delete(table.context.layout.manifest(name))

    writer = table.new_write()
    writer.write(rows(table.schema, "4 e"))
    messages = writer.prepare_commit()
    slow = with_store(table, OnRead(table.context.store, merge_and_expire))
    result = slow.commit(messages)

    assert result.snapshot_ids == (5,)
    assert held(reopened(table)) == "1 b | 2 c | 3 d | 4 e | 8 x"


@KINDS
def test_who_loses_removes_what_it_merged_and_nothing_else(merging: dict[str, str]) -> None:
    table = about_to_merge(merging)
    other = with_store(table, table.context.store)
    slow = with_store(table, MeddledStore(table.context.store, lambda: put(other, "8 x")))
    result = slow.write(rows(slow.schema, "4 e"))

    assert (result.snapshot_ids, result.attempts) == ((5,), 2)
    assert held(reopened(table)) == "1 b | 2 c | 3 d | 4 e | 8 x"
    assert in_directory(table, "manifest") == named(table)


@KINDS
def test_who_loses_to_commits_that_merge_nothing_merges_once(merging: dict[str, str]) -> None:
    table = about_to_merge(merging)
    deeds = [lambda number=number: put(reopened(table), f"{number} x") for number in (7, 8)]
    store = MeddledStore(table.context.store, *deeds)
    slow = with_store(table, store)
    result = slow.write(rows(slow.schema, "4 e"))
    written = [path for call, path in store.calls if call == "put" and "/manifest-" in path]
    merged = [path for path in written if "/manifest-list-" not in path]

    assert (result.snapshot_ids, result.attempts) == ((6,), 3)
    assert len(merged) == 2, "one of the merge, one of the change"
    assert held(reopened(table)) == "1 b | 2 c | 3 d | 4 e | 7 x | 8 x"
    assert in_directory(table, "manifest") == named(table)


@KINDS
@pytest.mark.parametrize("after", [False, True])
def test_crash_at_any_call_of_a_merging_commit_leaves_the_table_before_or_after_it(
    merging: dict[str, str],
    after: bool,  # noqa: FBT001  a parameter
) -> None:
    seen = set()
    for fail_at in range(1, 40):
        table = about_to_merge(merging)
        store = FailingStore(table.context.store, fail_at, after=after)
        with suppress(StoreFailure, CommitUnknown):
            put(with_store(table, store), "4 e")
        now = held(reopened(table))
        seen.add(now)
        put(with_store(table, table.context.store), "5 f")
        assert held(reopened(table)) == f"{now} | 5 f"
        if not store.is_dead:
            break

    assert seen == {"1 b | 2 c | 3 d", "1 b | 2 c | 3 d | 4 e"}
    assert not store.is_dead


def test_later_of_two_equal_numbers_wins_after_any_merge() -> None:
    table = new_table(
        manifest__target_file_size="4 kb",
        manifest__full_compaction_threshold_size="1 b",
        write_only="true",
    )
    first, second = reopened(table), reopened(table)
    writers = [each.new_write() for each in (first, second)]
    messages = []
    for writer, text in zip(writers, ("1 a", "1 b"), strict=True):
        writer.write(rows(table.schema, text))
        messages.append(writer.prepare_commit())
    for each in messages:
        table.commit(each)
    for number in range(2, 9):
        assert held(reopened(table), where="id = 1") == "1 b"
        put(table, f"{number} x")
