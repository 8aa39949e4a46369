from __future__ import annotations

import asyncio
import time
import uuid
from datetime import UTC, datetime

import pytest

from lakecore.io.ambient import JOB_ID_LENGTH, SYSTEM, Clock, forked, of_job, seeded, user_name


def test_one_seed_gives_one_course_of_events() -> None:
    first, second, other = seeded(7), seeded(7), seeded(8)

    names = [first.new_uuid() for _ in range(3)]
    assert names == [second.new_uuid() for _ in range(3)]
    assert first.random() == second.random()
    assert other.new_uuid() not in names


def test_seeded_sleep_moves_the_clock_without_waiting() -> None:
    ambient = seeded(7, Clock(1_000))
    began = time.monotonic()
    ambient.sleep(3600)

    assert time.monotonic() - began < 1
    assert ambient.now_ms() == 3_601_000
    assert ambient.local_wall_clock_ms() == 3_601_000


def test_names_are_uuids_and_differ() -> None:
    names = {ambient.new_uuid() for ambient in (SYSTEM, seeded(7)) for _ in range(100)}

    assert len(names) == 200
    assert {uuid.UUID(name).version for name in names} == {4}


def test_system_clock_is_the_time() -> None:
    now = datetime.now(UTC).timestamp() * 1000

    assert abs(SYSTEM.now_ms() - now) < 10_000
    assert 0 <= SYSTEM.random() < 1


def test_wall_clock_shows_local_time_as_if_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-03:30")  # POSIX counts westwards: this is UTC+03:30
    time.tzset()
    try:
        shift_ms = SYSTEM.local_wall_clock_ms() - SYSTEM.now_ms()
    finally:
        monkeypatch.undo()
        time.tzset()

    assert shift_ms == pytest.approx(3.5 * 3_600_000, abs=5_000)


def test_forks_draw_ids_of_their_own_in_the_order_of_forking() -> None:
    ambient, again = seeded(1), seeded(1)
    left, right = forked(ambient), forked(ambient)
    drawn = [right.new_uuid(), left.new_uuid(), right.new_uuid()]

    assert [forked(again).new_uuid(), forked(again).new_uuid()] == [drawn[1], drawn[0]]
    assert len({*drawn}) == 3
    assert {uuid.UUID(each).version for each in drawn} == {4}
    assert left.now_ms() == ambient.now_ms()


def test_ids_of_a_job_begin_alike_and_are_each_new() -> None:
    job = of_job(SYSTEM.new_uuid())
    first, second = job.new_uuid(), job.new_uuid()

    assert first != second
    assert first[:JOB_ID_LENGTH] == second[:JOB_ID_LENGTH]
    assert str(uuid.UUID(first)) == first
    assert uuid.UUID(first).version == 4


def test_asynchronous_sleep_of_a_seed_advances_its_clock_without_waiting() -> None:
    ambient = seeded(1)
    before, began = ambient.now_ms(), time.monotonic()
    asyncio.run(ambient.sleep_async(3600))

    assert ambient.now_ms() - before == 3_600_000
    assert time.monotonic() - began < 60


def test_asynchronous_sleep_lets_other_tasks_run() -> None:
    async def both() -> list[str]:
        done: list[str] = []

        async def sleeper() -> None:
            await SYSTEM.sleep_async(0.05)
            done.append("slept")

        task = asyncio.create_task(sleeper())
        await asyncio.sleep(0)
        done.append("ran")
        await task
        return done

    assert asyncio.run(both()) == ["ran", "slept"]


def test_name_for_hadoop_comes_before_that_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "system")
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    assert user_name() == "system"
    monkeypatch.setenv("HADOOP_USER_NAME", "hadoop")
    assert user_name() == "hadoop"
