"""The simulated storage does what it says: it tears, loses, delays and hides, and nothing else."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CommitUnknown, StorageError
from property_tests.simulation.disk import Disk
from property_tests.simulation.scenario import Fault, Scenario
from property_tests.simulation.scheduler import CrashedError, Scheduler, StuckError
from property_tests.simulation.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = [f"/t/d/{number}" for number in range(20)]


def played(
    body: Callable[[Session], None], kind: str = "", nth: int = 1, on: str = "any", lag_ms: int = 0
) -> Disk:
    """What is stored once an actor has done something, and met a fault at its nth call."""
    faults = [Fault(actor="a", kind=kind, on=on, nth=nth, wait_ms=500)] if kind else []
    scenario = Scenario(
        seed=1, shape="", options={}, actors=(), faults=(), listing_lag_ms=lag_ms, slow_sync=1.0
    )
    scheduler = Scheduler(random.Random(1), 1.0)
    disk = Disk(scenario, scheduler)
    for path in FILES:
        disk.files.put(path, b"x")
    scheduler.run({"a": lambda: body(Session(disk, scheduler.task("a"), faults))})
    return disk


def names(disk: Disk) -> list[str]:
    return [status.path for status in disk.files.list("/t/d")]


def test_directory_is_removed_in_part_by_a_process_that_ends() -> None:
    left = names(played(lambda session: session.delete_directory("/t/d"), "crash within"))

    assert 0 < len(left) < len(FILES)
    assert names(played(lambda session: session.delete_directory("/t/d"))) == []


def test_dead_process_changes_nothing_more() -> None:
    def body(session: Session) -> None:
        try:
            session.delete(FILES[0])
        finally:
            with suppress(CrashedError):
                session.delete(FILES[1])

    assert names(played(body, "crash before")) == sorted(FILES)
    assert names(played(body, "crash after")) == sorted(FILES[1:])
    assert names(played(body, "power lost")) == sorted(FILES)


@pytest.mark.parametrize(("kind", "there"), [("lost request", False), ("lost reply", True)])
def test_reply_that_is_lost_says_nothing_of_the_effect(kind: str, *, there: bool) -> None:
    def body(session: Session) -> None:
        with pytest.raises(CommitUnknown):
            session.put_if_absent("/t/new", b"1")
        with pytest.raises(StorageError):
            session.size("/t/newer")

    def broken(session: Session) -> None:
        with pytest.raises(StorageError):
            session.delete(FILES[0])

    disk = played(lambda session: _twice(session, body), kind)

    assert disk.files.exists("/t/new") is there
    assert (FILES[0] not in names(played(broken, kind))) is there


def _twice(session: Session, body: Callable[[Session], None]) -> None:
    session._faults.append(Fault(actor="a", kind="lost request", on="any", nth=2))  # noqa: SLF001
    body(session)


def test_late_request_comes_after_its_reply_was_given_up() -> None:
    seen = []

    def body(session: Session) -> None:
        with pytest.raises(CommitUnknown):
            session.put_if_absent("/t/new", b"1")
        seen.append(session.exists("/t/new"))
        session.wait(1_000)
        seen.append(session.exists("/t/new"))

    played(body, "late")

    assert seen == [False, True]


def test_half_of_an_output_is_left_by_a_process_that_ends() -> None:
    def body(session: Session) -> None:
        with session.open_output("/t/out") as sink:
            sink.write(b"12345678")

    assert played(body, "crash within", nth=2).files.read("/t/out") == b"1234"
    assert played(body).files.read("/t/out") == b"12345678"


def test_full_disk_takes_nothing_for_a_while() -> None:
    def body(session: Session) -> None:
        for _ in range(2):
            with pytest.raises(StorageError, match="disk full"):
                session.put("/t/new", b"1")
        session.delete(FILES[0])
        session.wait(1_000)
        session.put("/t/new", b"2")

    assert played(body, "disk full").files.read("/t/new") == b"2"


def test_removal_may_be_undone_and_a_call_unmade_when_power_is_lost() -> None:
    def body(session: Session) -> None:
        for path in FILES:
            session.delete(path)
        session.put("/t/kept", b"1")
        session.exists("/t")

    disk = played(body, "power lost", nth=len(FILES) + 2)

    assert disk.files.exists("/t/kept")
    assert 0 < len(names(disk)) < len(FILES)


@pytest.mark.parametrize("lag_ms", [0, 100])
def test_listing_lags_where_the_model_says_so_and_no_longer_than_that(lag_ms: int) -> None:
    listed = []

    def body(session: Session) -> None:
        session.wait(1_000)
        for number in range(100, 120):
            session.put(f"/t/d/{number}", b"y")
            session.delete(f"/t/d/{number - 100}")
        listed.append({status.path for status in session.list("/t/d")})
        session.wait(1_000)
        listed.append({status.path for status in session.list("/t/d")})

    disk = played(body, lag_ms=lag_ms)

    assert listed[1] == set(names(disk))
    assert (listed[0] == listed[1]) is (lag_ms == 0)


def test_slow_actor_stands_still_while_the_clock_goes_on() -> None:
    times = []

    def body(session: Session) -> None:
        times.append(session.disk.scheduler.now_ms)
        session.exists("/t")
        times.append(session.disk.scheduler.now_ms)

    played(body, "slow")

    assert times[1] - times[0] >= 500


def test_actors_without_an_end_are_stopped() -> None:
    def body(session: Session) -> None:
        while True:
            session.exists("/t")

    with pytest.raises(StuckError, match="no end"):
        played(body)
