"""Compaction in steps: whichever store call is the last, every step is whole, and none is twice.

Beside eight writing processes, on local disk and on S3, it ends, and every row is there.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import CommitConflict, CommitUnknown, LakecoreError, StorageError
from lakecore.model.snapshot import CommitKind
from property_tests.deeds import (
    Scene,
    copy_of,
    orders,
    plain_write,
    rows_of,
    snapshot_ids,
    stored_in,
)
from property_tests.profile import sized
from property_tests.test_crash import OutageStore
from property_tests.test_processes import Crew, Place, check_rows, commits_of, place
from tests.stores import FailingStore, StoreFailure

if TYPE_CHECKING:
    from lakecore.io.stores.store import MemoryStore
    from lakecore.model.compaction import CompactionResult

__all__ = ["place"]

WRITE_ONLY = {"bucket": "2", "write-only": "true"}
PAST = (
    plain_write(orders("abcdgh", "new")),
    plain_write(orders("bcefgh", "sent", "+-++-+")),
    plain_write(orders("aeh", "paid")),
)
APPENDED = tuple(plain_write(orders(keys, "new")) for keys in ("abcd", "aceg", "bdfh"))
SCENES = {
    "whole buckets": Scene(
        options=WRITE_ONLY,
        partitioned=True,
        past=PAST,
        deed=lambda table: table.compact(full=True, max_bytes=1),
    ),
    "picked again and again": Scene(
        options={**WRITE_ONLY, "num-sorted-run.compaction-trigger": "1", "num-levels": "4"},
        past=PAST,
        deed=lambda table: table.compact(max_bytes=1),
    ),
    "small files": Scene(
        keyed=False,
        options={"compaction.min.file-num": "2"},
        partitioned=True,
        past=APPENDED,
        deed=lambda table: table.compact(full=True, max_bytes=1),
    ),
}


class Before:
    """A scene before its deed, and what the deed does to it in good health."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.store = scene.build()
        table = scene.open(self.store)
        self.latest = snapshot_ids(table)[-1]
        self.rows = rows_of(table)
        healthy = copy_of(self.store)
        scene.deed(scene.open(healthy))
        self.wanted = snapshot_ids(scene.open(healthy))
        assert len(self.wanted) > self.latest + 1, "a deed is some steps"

    def check(self, store: MemoryStore) -> int:
        """That each step is whole or is not; how many there are."""
        table = self.scene.open(store)
        ids = snapshot_ids(table)
        history = table.context.history
        assert ids == self.wanted[: len(ids)]
        for snapshot_id in ids[self.latest :]:
            assert history.snapshot(snapshot_id).commit_kind is CommitKind.COMPACT
            assert rows_of(table, snapshot_id) == self.rows
        return len(ids) - self.latest

    def check_ended(self, store: MemoryStore) -> None:
        """That the next call does what is left, and no more."""
        self.scene.deed(self.scene.open(store, seed=100))

        assert self.check(store) == len(self.wanted) - self.latest


@cache
def before(name: str) -> Before:
    return Before(SCENES[name])


@pytest.mark.parametrize("name", SCENES)
def test_crash_at_any_store_call_leaves_whole_steps_and_the_next_call_does_the_others(
    name: str,
) -> None:
    made = before(name)
    checked: dict[frozenset[tuple[str, bytes]], int] = {}
    for after in (False, True):
        seen = set()
        for call in count(1):
            store = copy_of(made.store)
            failing = FailingStore(store, fail_at=call, after=after)
            table = made.scene.open(failing)
            try:
                made.scene.deed(table)
            except (StoreFailure, LakecoreError):
                assert failing.is_dead
            # A crash after one call leaves what a crash before the next one leaves, mostly.
            stored = stored_in(store)
            if stored not in checked:
                checked[stored] = made.check(store)
                made.check_ended(store)
            seen.add(checked[stored])

            assert table.context.budget.used_bytes == 0
            if not failing.is_dead:
                break

        assert seen == {*range(len(made.wanted) - made.latest + 1)}


@given(
    name=st.sampled_from([*SCENES]),
    first=st.integers(1, 80),
    calls=st.one_of(st.integers(1, 3), st.integers(4, 40)),
    reply_lost=st.booleans(),
)
def test_outage_leaves_whole_steps_and_the_next_call_does_the_others(
    name: str, first: int, calls: int, *, reply_lost: bool
) -> None:
    made = before(name)
    store = copy_of(made.store)
    outage = OutageStore(store, first, calls, reply_lost=reply_lost)
    outcome: LakecoreError | None = None
    table = made.scene.open(store)
    try:
        table = made.scene.open(outage)
        made.scene.deed(table)
    except (StorageError, CommitUnknown, CommitConflict) as error:
        outcome = error
    steps = made.check(store)

    assert outcome is not None or steps == len(made.wanted) - made.latest
    assert table.context.budget.used_bytes == 0
    made.check_ended(store)


# --- beside writers -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "commits"), [("local", 40), ("s3", 6)], indirect=["place"], ids=["local", "s3"]
)
def test_compactions_beside_eight_writing_processes_end_and_every_row_is_there(
    place: Place, commits: int
) -> None:
    writers, commits = 8, sized(commits, quick=commits // 3)
    told: dict[tuple[str, int], int] = {}
    done: list[CompactionResult] = []
    with Crew(place) as crew:
        started = crew.start(writers, commits)
        for writer in started:
            writer.go()
        for turn in count():
            if all(writer.process.poll() is not None for writer in started):
                break
            with suppress(CommitConflict):  # lost every race of a step: the next call goes on
                done.append(place.open().compact(full=turn % 3 == 0, max_bytes=[None, 1][turn % 2]))
        for writer in started:
            told |= writer.acknowledged()
        assert [writer.process.returncode for writer in started] == [0] * writers
    done.append(place.open().compact(full=True, max_bytes=1))
    table = place.open()
    made = commits_of(table)
    written = {at: commit for at, commit in made.items() if commit[0].startswith("writer-")}

    assert {commit: at for at, commit in written.items()} == told
    assert len(told) == writers * commits
    check_rows(table, written)
    rows = sorted(table.to_polars(snapshot_id=max(written)).rows())
    assert sorted(table.to_polars().rows()) == rows
    assert table.explain().merged_files == 0
    assert sum(result.steps for result in done) == len(made) - len(written) > 1
