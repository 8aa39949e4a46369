"""One step of each verb decides, and no verb leads to a state that is not whole."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CommitConflict, CommitUnknown, CorruptTable, LakecoreError, NotFound
from property_tests.profile import calls_of
from tests.retention import branch_at, copied, data_files, expire, files_read, history, names, tag
from tests.stores import FailingStore, StoreFailure
from tests.tables import held, put, reopened

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.table.handle import Table

LEADS_BACK: dict[str, Callable[[Table], object]] = {
    "rollback": lambda table: table.rollback_to(2),
    "rollback to a tag": lambda table: table.rollback_to(tag="second"),
    "create_tag": lambda table: table.create_tag("x", snapshot_id=2),
    "replace_tag": lambda table: table.replace_tag("newest", snapshot_id=2),
    "create_branch": lambda table: table.create_branch("x", tag="second"),
    "fast_forward": lambda table: table.fast_forward("second"),
}


@pytest.mark.parametrize("verb", LEADS_BACK)
def test_a_state_with_a_missing_file_is_refused_and_nothing_changes(verb: str) -> None:
    table = history(commits=4)
    table.create_tag("newest")
    tag(table, "second", 2)
    branch_at(table, "second", 2)
    history_ = table.context.history
    (entry,) = history_.live_entries(history_.snapshot(2))
    table.context.store.delete(table.context.layout.data_file("", entry.bucket, entry.file))
    before = names(table)

    with pytest.raises(CorruptTable, match="files of the snapshot are missing"):
        LEADS_BACK[verb](reopened(table))
    assert names(table) == before


@pytest.mark.parametrize("verb", ["rollback", "create_tag"])
def test_a_snapshot_that_an_expiry_has_begun_to_delete_is_refused(verb: str) -> None:
    table = history(commits=4)
    for call in count(2):  # the first writes EARLIEST, which decides
        inner = copied(table.context.store)
        failing = FailingStore(inner, fail_at=call)
        with suppress(StoreFailure, LakecoreError):
            expire(reopened(table, store=failing))
        there = reopened(table, store=inner)
        assert there.context.history.snapshot_ids() == (4,)
        with pytest.raises(NotFound, match="expired"):
            LEADS_BACK[verb](there)
        assert held(reopened(there)) == "1 v4"
        if not failing.is_dead:
            break


class Meddled(FailingStore):
    """Lets another process act after a path was written or deleted."""

    def __init__(self, table: Table, path: str, deed: Callable[[], object]) -> None:
        super().__init__(table.context.store)
        self._path, self._deed = path, deed
        self.error: Exception | None = None  # of what the other process did

    def put(self, path: str, data: bytes) -> None:
        super().put(path, data)
        self._act(path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        made = super().put_if_absent(path, data)
        self._act(path)
        return made

    def _act(self, path: str) -> None:
        if path.endswith(self._path):
            self._path = "acted"
            try:
                self._deed()
            except LakecoreError as error:
                self.error = error


def test_an_expiry_and_a_rollback_at_the_same_time_end_in_one_of_the_two() -> None:
    table = history(commits=4)
    store = Meddled(table, "EARLIEST", lambda: reopened(table).rollback_to(2))
    expire(reopened(table, store=store))
    assert isinstance(store.error, NotFound)
    assert held(reopened(table)) == "1 v4"

    table = history(commits=4)
    store = Meddled(table, "ROLLBACK", lambda: expire(reopened(table)))
    reopened(table, store=store).rollback_to(2)
    assert held(reopened(table)) == "1 v2"
    assert data_files(table) == files_read(table)


def test_an_expiry_and_a_fast_forward_at_the_same_time_do_not_lose_the_table() -> None:
    table = history(commits=4)
    branch_at(table, "second", 2)
    store = Meddled(table, "EARLIEST", lambda: reopened(table).fast_forward("second"))
    expire(reopened(table, store=store))
    assert isinstance(store.error, CommitConflict)
    assert held(reopened(table)) == "1 v4"
    reopened(table).fast_forward("second")
    assert held(reopened(table)) == "1 v2"

    table = history(commits=4)
    branch_at(table, "second", 2)
    store = Meddled(table, "FAST_FORWARD", lambda: expire(reopened(table)))
    reopened(table, store=store).fast_forward("second")
    assert store.error is None
    assert held(reopened(table)) == "1 v2"
    assert reopened(table).context.history.snapshot_ids() == (2,)


def test_a_fast_forward_that_sees_an_expiry_gives_way() -> None:
    table = history(commits=4)
    branch_at(table, "second", 2)
    earliest = table.context.layout.earliest_hint
    store = Meddled(table, "FAST_FORWARD", lambda: store.inner.put(earliest, b"4"))

    with pytest.raises(CommitConflict, match="finish it by expire_snapshots"):
        reopened(table, store=store).fast_forward("second")
    assert held(reopened(table)) == "1 v4"
    expire(reopened(table))
    reopened(table).fast_forward("second")
    assert held(reopened(table)) == "1 v2"


@pytest.mark.parametrize("record", ["ROLLBACK", "FAST_FORWARD"])
def test_an_expiry_that_sees_a_rollback_or_a_fast_forward_gives_way(record: str) -> None:
    table = history(commits=4)
    path = f"{table.context.layout.snapshot_dir}/{record}"
    store = Meddled(table, "EARLIEST", lambda: store.inner.put(path, b"second"))

    with pytest.raises(CommitConflict, match="rolled back or fast-forwarded"):
        expire(reopened(table, store=store))
    assert reopened(table).context.history.snapshot_ids() == (1, 2, 3, 4)


def test_a_tag_that_is_made_while_its_snapshot_expires_is_refused_or_kept() -> None:
    table = history(commits=4)
    store = Meddled(table, "EARLIEST", lambda: reopened(table).create_tag("x", snapshot_id=2))
    expire(reopened(table, store=store))
    assert isinstance(store.error, NotFound)

    table = history(commits=4)
    store = Meddled(table, "tag-x", lambda: expire(reopened(table)))
    reopened(table, store=store).create_tag("x", snapshot_id=2)
    assert held(reopened(table)) == "1 v4"
    assert [row[1] for row in reopened(table).scan(tag="x").collect().rows()] == ["v2"]
    assert data_files(table) == files_read(table)


def test_an_expiry_beside_another_says_nothing_wrong() -> None:
    table = history(commits=6)
    for call in calls_of("expire"):
        inner = copied(table.context.store)
        failing = FailingStore(inner, fail_at=call)
        with suppress(StoreFailure, LakecoreError):
            expire(reopened(table, store=failing), 3)
        slow = reopened(table, store=inner)
        expire(slow, 2)
        assert slow.context.history.snapshot_ids() == (5, 6)
        assert held(slow) == "1 v6"
        if not failing.is_dead:
            break


def test_an_interrupted_rename_of_a_tag_is_finished_by_the_same_call() -> None:
    table = history(commits=2)
    table.create_tag("a", snapshot_id=1)
    bytes_before = table.context.store.read(table.context.layout.tag("a"))
    for after in (False, True):
        for call in calls_of("rename", str(after)):
            inner = copied(table.context.store)
            failing = FailingStore(inner, fail_at=call, after=after)
            with suppress(StoreFailure, LakecoreError):
                reopened(table, store=failing).rename_tag("a", "b")
            there = reopened(table, store=inner)
            assert {each.name for each in there.tags()} in ({"a"}, {"a", "b"}, {"b"})
            if [each.name for each in there.tags()] != ["b"]:
                there.rename_tag("a", "b")
            assert [each.name for each in there.tags()] == ["b"]
            if not failing.is_dead:
                assert inner.read(there.context.layout.tag("b")) == bytes_before
                break


def test_a_rollback_that_somebody_has_written_past_is_undone() -> None:
    table = history(commits=5)
    for call in count(1):
        inner = copied(table.context.store)
        failing = FailingStore(inner, fail_at=call)
        with suppress(StoreFailure, LakecoreError):
            reopened(table, store=failing).rollback_to(2)
        there = reopened(table, store=inner)
        old = held(there)
        number = put(there, "2 new")
        expire(there, 5)
        expected = (1, 2, 3) if old == "1 v2" else (2, 3, 4, 5, 6)
        number = 3 if old == "1 v2" else 6
        assert held(reopened(there)) == f"{old} | 2 new"
        if call > 1:
            there.rollback_to(number)  # finishes or undoes the one that died
            assert there.context.history.snapshot_ids() == expected
        if not failing.is_dead:
            break


class Full(FailingStore):
    """Refuses one call that changes something, or loses its reply; then all is well again."""

    def _dies(self, call: str, path: str) -> bool:
        failed = super()._dies(call, path)
        self.is_dead = False
        return failed


DEEDS: dict[str, Callable[[Table], object]] = {
    "expire": expire,
    "rollback": lambda table: table.rollback_to(2),
    "rollback to a tag": lambda table: table.rollback_to(tag="kept"),
    "create_tag": lambda table: table.create_tag("x", snapshot_id=3),
    "replace_tag": lambda table: table.replace_tag("kept", snapshot_id=3),
    "rename_tag": lambda table: table.rename_tag("kept", "x"),
    "delete_tag": lambda table: table.delete_tag("kept"),
    "create_branch": lambda table: table.create_branch("x", tag="kept"),
    "delete_branch": lambda table: table.delete_branch("second"),
    "rename_branch": lambda table: table.rename_branch("second", "x"),
    "fast_forward": lambda table: table.fast_forward("second"),
}


def _seen(table: Table) -> tuple[object, ...]:
    """What readers see: the rows, the first snapshot, the tags and the branches."""
    there = reopened(table)
    tags = {each.name: each.snapshot_id for each in there.tags()}
    branches = [each.name for each in there.branches()]
    return held(there), there.context.history.earliest_snapshot_id(), tags, branches


@pytest.mark.parametrize("after", [False, True], ids=["refused", "reply lost"])
@pytest.mark.parametrize("verb", DEEDS)
def test_an_error_means_the_old_state(verb: str, *, after: bool) -> None:
    base = history(commits=5)
    tag(base, "kept", 1)
    tag(base, "late", 4)
    branch_at(base, "second", 2)
    expire(base, 4)
    atomic = verb == "rename_branch"
    whole = reopened(base, store=copied(base.context.store, renames_at_once=atomic))
    old, _ = _seen(base), DEEDS[verb](whole)
    new = _seen(whole)
    for call in calls_of(verb, str(after)):
        inner = copied(base.context.store, renames_at_once=atomic)
        full = Full(inner, fail_at=call, after=after)
        error: Exception | None = None
        try:
            DEEDS[verb](reopened(base, store=full))
        except (LakecoreError, OSError) as found:
            error = found
        seen = _seen(reopened(base, store=inner))
        if isinstance(error, CommitUnknown):
            pass
        elif error is None:
            assert seen[0] == new[0], call
        else:
            assert seen[0] == old[0], call
            assert seen[3] == old[3], call
        if len(full.calls) < call:
            assert error is None
            assert seen == new
            break
