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
from lakecore.testing.stores import CHANGES, FailingStore, StoreFailure, WatchedStore
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

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.io.stores.store import MemoryStore, Store
    from lakecore.testing.values import Rows


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


class OutageStore(WatchedStore):
    """A store that cannot be reached from one call to another, both counted from 1.

    Calls that change something take effect in spite of it with `reply_lost`.
    """

    def __init__(self, inner: Store, first: int, count: int, *, reply_lost: bool) -> None:
        super().__init__(inner)
        self.calls = 0
        self._down = range(first, first + count)
        self._reply_lost = reply_lost

    @contextmanager
    def call(self, name: str, path: str) -> Iterator[None]:
        self.calls += 1
        down = self.calls in self._down
        reply_lost = self._reply_lost and name in CHANGES - {"open_output"}
        if down and not reply_lost:
            raise StorageError("nobody there", path=path, call=self.calls)
        yield
        if down:
            unknown = name == "put_if_absent"
            raise (CommitUnknown if unknown else StorageError)("no reply", path=path)


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
