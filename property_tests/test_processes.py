"""Processes that write side by side, or are killed while they do, lose and double nothing.

Each process keeps the books of its own commits (`writer_process.py`): what it said is in must be
there under the snapshot it named. A reader looks on while they write.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import pytest

from lakecore.format.layout import Layout
from lakecore.io.stores.open import open_store
from lakecore.model.validation import create_schema
from lakecore.table.handle import Table, load_table
from lakecore.table.publication import write_schema
from property_tests.deeds import snapshot_ids
from property_tests.profile import sized
from property_tests.writer_process import commit_one, user_of
from tests.stores import s3_service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOOK_SECONDS = 0.5
COMMITS_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a table lies, and how a process gets there."""

    path: str
    options: dict[str, str] = field(default_factory=dict)

    def create(self) -> None:
        """An empty table of small rows."""
        schema = create_schema(
            {"writer": "INT NOT NULL", "number": "INT NOT NULL"},
            primary_keys=["writer", "number"],
            options={"bucket": "1", "write-only": "true"},
            now_ms=0,
        )
        assert write_schema(open_store(self.path, self.options), Layout(root=self.path), schema)

    def open(self) -> Table:
        """The table as a process that just started sees it."""
        return load_table(open_store(self.path, self.options), self.path)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A new table on local disk, or on the S3 service."""
    with ExitStack() as stack:
        if request.param == "local":
            place = Place(path=str(tmp_path / "shop.db" / "orders"))
        else:
            service = stack.enter_context(s3_service())
            stack.enter_context(service.client()).create_bucket(Bucket="bucket")
            place = Place(path="s3://bucket/warehouse/shop.db/orders", options=service.options)
        place.create()
        yield place


class Writer:
    """A process that is about to write; `go` lets it."""

    def __init__(self, place: Place, number: int, count: int) -> None:
        self.number = number
        self._heard = b""
        module = [sys.executable, "-W", "error", "-m", "property_tests.writer_process"]
        given = [place.path, json.dumps(place.options), str(number), str(count)]
        self.process = subprocess.Popen(
            [*module, *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def go(self) -> None:
        """Wait until the process is ready, and let it write."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"
        self.process.stdin.write(b"go\n")

    def hear(self, commits: int) -> None:
        """Wait until it has said so many more commits."""
        assert self.process.stdout is not None
        for _ in range(commits):
            self._heard += self.process.stdout.readline()

    def acknowledged(self) -> dict[tuple[str, int], int]:
        """The snapshot of each commit that the process said is in, once it has ended."""
        lines = (self._heard + self.process.communicate()[0]).splitlines(keepends=True)
        # A process that was killed may have died while it spoke.
        told = [line.decode().split() for line in lines if line.endswith(b"\n")]
        return {(user_of(self.number), int(number)): int(at) for number, at in told}


class Crew:
    """Starts writers of one place; none of them is left when the block ends."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._started: list[Writer] = []

    def start(self, count: int, commits: int) -> list[Writer]:
        """Writers on their way to be ready."""
        started = [Writer(self._place, number, commits) for number in range(count)]
        self._started += started
        return started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._started:
            writer.process.kill()
            writer.process.communicate()


def commits_of(table: Table) -> dict[int, tuple[str, int]]:
    """The user and identifier of each snapshot."""
    history = table.context.history
    snapshots = [history.snapshot(snapshot_id) for snapshot_id in snapshot_ids(table)]
    return {each.id: (each.commit_user, each.commit_identifier) for each in snapshots}


def check_rows(table: Table, made: dict[int, tuple[str, int]]) -> None:
    """That the newest of these snapshots holds the rows of these commits, whole, and no others."""
    last: Counter[str] = Counter()
    for user, number in made.values():
        assert number == last[user] + 1, "the commits of a user stand in order, each once"
        last[user] = number
    wanted = [
        (int(user.removeprefix("writer-")), number)
        for user, commits in last.items()
        for number in [*range(2, 2 * commits + 1, 2), 2 * commits + 1]
    ]
    found = table.to_arrow(snapshot_id=max(made))
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    assert sorted(rows) == sorted(wanted)


def check_writers(place: Place, count: int, commits: int) -> None:
    """Let them write side by side; every commit is there once, under the snapshot it was told."""
    with Crew(place) as crew:
        all_writers = crew.start(count, commits)
        for writer in all_writers:
            writer.go()
        table = place.open()
        while any(writer.process.poll() is None for writer in all_writers):
            began = time.monotonic()
            newest = table.context.history.latest_snapshot()
            if newest is not None:
                assert table.to_arrow(snapshot_id=newest.id).num_rows >= newest.id
            # The service works in this process: who looks all the time keeps the writers waiting.
            time.sleep(LOOK_SECONDS + 4 * (time.monotonic() - began))
        told = {key: at for each in all_writers for key, at in each.acknowledged().items()}
        assert [each.process.returncode for each in all_writers] == [0] * count
    table = place.open()
    made = commits_of(table)

    assert [*made] == [*range(1, count * commits + 1)], "snapshots without gaps"
    # As sets of few: pytest's picture of thousands that are equal would hide the one that is not.
    at = {commit: snapshot_id for snapshot_id, commit in made.items()}
    assert sorted(at.items() - told.items()) == sorted(told.items() - at.items()) == []
    assert len(told) == count * commits
    check_rows(table, made)


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_two_processes_commit_side_by_side(place: Place) -> None:
    check_writers(place, 2, 10)


def test_threads_commit_side_by_side_through_one_handle(tmp_path: Path) -> None:
    place = Place(path=str(tmp_path / "orders"))
    place.create()
    table = place.open()
    with ThreadPoolExecutor(4) as pool:
        told = pool.map(lambda at: commit_one(table, at, 1), range(20))

    assert sorted(told) == [*range(1, 21)]
    check_rows(place.open(), commits_of(table))


@pytest.mark.slow
@pytest.mark.parametrize("count", sized([2, 8], quick=[8]))
@pytest.mark.parametrize("place", ["local", "s3"], indirect=True)
def test_processes_commit_many_times_side_by_side(place: Place, count: int) -> None:
    # Each commit of eight writers loses some races, on S3 all of them against one service.
    on_s3 = place.path.startswith("s3:")
    check_writers(place, count, sized(200, quick=4 if on_s3 else 25))


def check_killed(place: Place, rounds: int) -> None:
    """Kill writers again and again: each commit that they reported is stored; none is partial."""
    seed = int.from_bytes(os.urandom(4))
    print(f"seed={seed}")
    chance = random.Random(seed)
    told: dict[tuple[str, int], int] = {}
    with Crew(place) as crew:
        following = crew.start(2, COMMITS_MAX)
        for kills in range(1, rounds + 1):
            pair, following = following, crew.start(2, COMMITS_MAX)
            for writer in pair:
                writer.go()
            # Without any commit, the last rounds would prove nothing.
            chance.choice(pair).hear(max(chance.randrange(4), kills == rounds and not told))
            time.sleep(chance.uniform(0, 0.3))
            for writer in chance.sample(pair, 2):
                writer.process.kill()
                told |= writer.acknowledged()
            table = place.open()
            made = commits_of(table)
            at = {commit: snapshot_id for snapshot_id, commit in made.items()}

            assert [*made] == [*range(1, len(made) + 1)]
            assert told.items() <= at.items()
            untold = Counter(user for user, _ in at.keys() - told.keys())
            # Each death may have come between a commit and the word of it. (A request that was on
            # its way may even arrive after the death of who sent it.)
            assert all(count <= kills for count in untold.values())
            if made:
                check_rows(table, made)
    assert told, "no process came to write anything"


@pytest.mark.slow
@pytest.mark.parametrize(("place", "rounds"), [("local", 20), ("s3", 8)], indirect=["place"])
def test_writers_killed_at_any_moment_lose_no_commit_and_leave_none_half_done(
    place: Place, rounds: int
) -> None:
    check_killed(place, sized(rounds, quick=rounds // 4))
