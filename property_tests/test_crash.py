"""Whichever store call is the last of a process, readers see snapshot N or N+1, nothing between.

A deed that compacts as it writes makes two: the rows are in with the first, the second adds none.

A crash kills the process at a call that changes something. An outage fails some calls in a row,
replies included, and then is over: the process lives, and tidies up after itself.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import CommitConflict, CommitUnknown, LakecoreError, StorageError
from property_tests.deeds import (
    SCENES,
    Scene,
    changes_of,
    commits_of_writer,
    copy_of,
    rows_of,
    snapshot_ids,
    stored_in,
)
from tests.stores import FailingStore, StoreFailure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from lakecore.io.stores.store import FileStatus, MemoryStore, Store
    from property_tests.table_model import Rows


class Before:
    """A scene before its deed: the store, the newest snapshot, and the rows before and after."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.store = scene.build()
        table = scene.open(self.store)
        self.latest = max(snapshot_ids(table), default=0)
        self.rows = rows_of(table)
        healthy = scene.open(copy_of(self.store))
        scene.deed(healthy)
        self.last = snapshot_ids(healthy)[-1]
        made = range(self.latest + 1, self.last + 1)
        assert len(made) == 1 + scene.compacts, "a deed is one snapshot, with its compaction two"
        self.rows_after = rows_of(healthy)
        self.changes = {}
        if self.tells_changes:
            self.changes = {made_id: changes_of(healthy, made_id) for made_id in made}
            assert any(self.changes.values())

    @property
    def tells_changes(self) -> bool:
        """Whether the deed writes a changelog."""
        return "changelog-producer" in self.scene.options

    def check(self, store: MemoryStore, *, acknowledged: bool) -> int:
        """What a new process sees: snapshot N or those of the deed, each whole. The newest one."""
        table = self.scene.open(store)
        ids = snapshot_ids(table)

        latest = max(ids, default=0)
        assert ids == tuple(range(1, latest + 1))
        assert self.latest <= latest <= self.last
        assert latest > self.latest or not acknowledged
        assert rows_of(table) == self.rows_at(latest)
        for snapshot_id in range(max(1, self.latest), latest + 1):
            assert rows_of(table, snapshot_id) == self.rows_at(snapshot_id)
            if snapshot_id in self.changes:
                assert changes_of(table, snapshot_id) == self.changes[snapshot_id]
        return latest

    def check_redone(self, store: MemoryStore) -> None:
        """That a new process can do the deed again, and that it counts once."""
        self.scene.deed(self.scene.open(store, seed=100))
        table = self.scene.open(store)

        assert rows_of(table) == self.rows_after
        made = commits_of_writer(table) - commits_of_writer(self.scene.open(self.store))
        assert made <= 1 + self.scene.compacts

    def rows_at(self, snapshot_id: int) -> Rows:
        """The rows that the snapshot must have."""
        return self.rows_after if snapshot_id > self.latest else self.rows


@pytest.fixture(params=[*SCENES])
def before(request: pytest.FixtureRequest) -> Before:
    return Before(SCENES[request.param])


def test_crash_at_any_store_call_leaves_one_snapshot_or_the_next(
    before: Before, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    checked: dict[frozenset[tuple[str, bytes]], int] = {}
    for after in (False, True):
        seen = set()
        for call in count(1):
            store = copy_of(before.store)
            failing = FailingStore(store, fail_at=call, after=after)
            acknowledged = False
            table = before.scene.open(failing)
            try:
                before.scene.deed(table)
                acknowledged = True
            except (StoreFailure, LakecoreError):
                assert failing.is_dead
            # A crash after one call leaves what a crash before the next one leaves, mostly.
            stored = stored_in(store)
            if stored not in checked:
                checked[stored] = before.check(store, acknowledged=acknowledged)
                before.check_redone(store)
            seen.add(checked[stored])

            assert checked[stored] > before.latest or not acknowledged
            assert table.context.budget.used_bytes == 0
            assert not [*tmp_path.iterdir()], "nothing that was spilled stays behind"
            if not failing.is_dead:
                break

        assert seen == {*range(before.latest, before.last + 1)}


class OutageStore:
    """A store that cannot be reached from one call to another, both counted from 1.

    Calls that change something take effect in spite of it with `reply_lost`.
    """

    def __init__(self, inner: Store, first: int, count: int, *, reply_lost: bool) -> None:
        self.inner = inner
        self.calls = 0
        self._down = range(first, first + count)
        self._reply_lost = reply_lost

    def read(self, path: str) -> bytes:
        self._look()
        return self.inner.read(path)

    def exists(self, path: str) -> bool:
        self._look()
        return self.inner.exists(path)

    def size(self, path: str) -> int:
        self._look()
        return self.inner.size(path)

    def list(self, directory: str) -> tuple[FileStatus, ...]:
        self._look()
        return self.inner.list(directory)

    def put(self, path: str, data: bytes) -> None:
        with self._change():
            self.inner.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.calls += 1
        if self.calls not in self._down:
            return self.inner.put_if_absent(path, data)
        if self._reply_lost:
            self.inner.put_if_absent(path, data)
            raise CommitUnknown("no reply", path=path)
        raise StorageError("nobody there", path=path)

    def delete(self, path: str) -> None:
        with self._change():
            self.inner.delete(path)

    def delete_directory(self, path: str) -> None:
        with self._change():
            self.inner.delete_directory(path)

    def remove_empty_directory(self, path: str) -> None:
        with self._change():
            self.inner.remove_empty_directory(path)

    def rename_directory(self, source: str, target: str) -> None:
        with self._change():
            self.inner.rename_directory(source, target)

    @property
    def renames_at_once(self) -> bool:
        return self.inner.renames_at_once

    def copy_directory(self, source: str, target: str) -> None:
        with self._change():
            self.inner.copy_directory(source, target)

    def make_directory(self, path: str) -> None:
        with self._change():
            self.inner.make_directory(path)

    def open_input(self, path: str) -> pa.NativeFile:
        self._look()
        return self.inner.open_input(path)

    @contextmanager
    def open_output(self, path: str) -> Iterator[pa.NativeFile]:
        self._look()
        with self.inner.open_output(path) as sink:
            yield sink
            self.calls += 1
            if self.calls in self._down and not self._reply_lost:
                raise StorageError("nobody there", path=path)
        if self.calls in self._down:
            raise StorageError("no reply", path=path)

    def local_path(self, path: str) -> str | None:
        return self.inner.local_path(path)

    def _look(self) -> None:
        self.calls += 1
        if self.calls in self._down:
            raise StorageError("nobody there", call=self.calls)

    @contextmanager
    def _change(self) -> Iterator[None]:
        self.calls += 1
        down = self.calls in self._down
        if down and not self._reply_lost:
            raise StorageError("nobody there", call=self.calls)
        yield
        if down:
            raise StorageError("no reply", call=self.calls)


@cache
def _before(name: str) -> Before:
    return Before(SCENES[name])


@given(
    name=st.sampled_from([*SCENES]),
    first=st.integers(1, 40),
    count=st.one_of(st.integers(1, 3), st.integers(4, 40)),
    reply_lost=st.booleans(),
)
def test_outage_leaves_one_snapshot_or_the_next_and_only_an_unknown_outcome_leaves_doubt(
    name: str, first: int, count: int, *, reply_lost: bool
) -> None:
    before = _before(name)
    store = copy_of(before.store)
    table = before.scene.open(store)
    outage = OutageStore(store, first, count, reply_lost=reply_lost)
    outcome: LakecoreError | None = None
    try:
        table = before.scene.open(outage)
        before.scene.deed(table)
    except (StorageError, CommitUnknown, CommitConflict) as error:
        outcome = error
    latest = before.check(store, acknowledged=outcome is None)

    assert outcome is None or latest == before.latest or isinstance(outcome, CommitUnknown)
    assert table.context.budget.used_bytes == 0
    before.check_redone(store)
