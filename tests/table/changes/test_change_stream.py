"""Streams as programs read them: loops that wait, end, are cancelled, and record progress."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest, NotFound, StorageError
from lakecore.io.ambient import SYSTEM, seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.table.maintenance.consumers import read_consumer, write_consumer
from tests.tables import changed, new_table, put, reopened

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.table.handle import Table


def history(*lines: str, **options: Any) -> Table:
    table = new_table(**options)
    for line in lines:
        put(table, line)
    return table


def with_waits(table: Table, *deeds: Callable[[], object]) -> tuple[Table, list[float]]:
    """The table with a clock by which each wait does the next of these deeds."""
    waits: list[float] = []
    left = list(deeds)
    ambient = seeded(7)

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        ambient.sleep(seconds)
        if not left:
            message = "the stream waits for what nobody does"
            raise AssertionError(message)
        left.pop(0)()

    return reopened(table, ambient=replace(ambient, sleep=sleep)), waits


# --- loops ----------------------------------------------------------------------------------------


def test_loop_waits_for_snapshots_to_come() -> None:
    table = history("1 a")
    waiting, waits = with_waits(table, lambda: None, lambda: put(table, "2 b"))
    stream = waiting.stream(1, poll="50 ms")

    assert [(number, changed(frame)) for number, frame in (next(stream), next(stream))] == [
        (1, "+I 1 a"),
        (2, "+I 2 b"),
    ]
    assert waits == [0.05, 0.05]


@pytest.mark.parametrize(
    ("poll", "options", "seconds"),
    [
        (None, {}, 1.0),
        (None, {"continuous.discovery-interval": "3 s"}, 3.0),
        ("2 s", {"continuous.discovery-interval": "3 s"}, 2.0),
        (0.5, {}, 0.5),
    ],
)
def test_wait_is_as_long_as_the_poll(poll: Any, options: dict[str, str], seconds: float) -> None:
    table = history("1 a")

    def in_time() -> None:
        if waiting.context.ambient.now_ms() - began >= 1000 * seconds - 1:
            put(table, "2 b")

    waiting, waits = with_waits(table, *[in_time] * 31)
    began = waiting.context.ambient.now_ms()
    next(waiting.copy(options).stream(scan_mode="latest", poll=poll))

    assert sum(waits) == pytest.approx(seconds)


def test_closed_stream_ends_also_while_it_waits() -> None:
    table = reopened(history("1 a"), ambient=SYSTEM)
    stream = table.stream(scan_mode="latest", poll="1 h")
    ended = threading.Event()

    def loop() -> None:
        assert list(stream) == []
        ended.set()

    thread = threading.Thread(target=loop)
    thread.start()
    stream.close()
    thread.join(5)

    assert ended.is_set()
    assert list(stream) == []


def test_interrupted_wait_goes_on_where_it_was() -> None:
    table = history("1 a")

    def interrupt() -> None:
        raise KeyboardInterrupt

    waiting, _ = with_waits(table, interrupt, lambda: put(table, "2 b"))
    stream = waiting.stream(scan_mode="latest", poll=0.1)
    with pytest.raises(KeyboardInterrupt):
        next(stream)

    assert next(stream)[0] == 2


def test_with_block_closes_the_stream() -> None:
    table = history("1 a", "2 b")

    with table.stream(1, "latest") as stream:
        assert next(stream)[0] == 1

    assert list(stream) == []


def test_batches_of_a_snapshot_are_read_one_by_one() -> None:
    table = history("1 a | 2 b", "3 c", changelog_producer="input")
    stream = table.stream(1, "latest", columns=["_row_kind", "id"], where="id <> 2")

    found = [(number, reader.read_all()) for number, reader in stream.to_batches()]

    assert [number for number, _ in found] == [1, 2]
    assert found[0][1] == pa.table({"_row_kind": ["+I"], "id": pa.array([1], pa.int32())}).cast(
        found[0][1].schema
    )
    assert isinstance(next(table.stream(until="latest").to_batches())[1], pa.RecordBatchReader)


def test_frames_and_batches_share_one_position() -> None:
    stream = history("1 a", "2 b", "3 c").stream(1, "latest")
    batches = stream.to_batches()

    assert [next(stream)[0], next(batches)[0], next(stream)[0]] == [1, 2, 3]
    assert stream.next_snapshot == batches.next_snapshot == 4


def test_threads_that_share_a_stream_get_each_snapshot_once() -> None:
    table = history(*[f"{number} a" for number in range(1, 25)], write_only="true")
    stream = table.stream(1, "latest")
    found: list[int] = []

    def loop() -> None:
        found.extend(number for number, _ in stream)

    threads = [threading.Thread(target=loop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(found) == list(range(1, 25))


def test_next_snapshot_is_where_a_new_stream_goes_on() -> None:
    table = history("1 a", "2 b", write_only="true")
    stream = table.stream(until="latest")
    reached = [stream.next_snapshot, next(stream)[0], stream.next_snapshot]
    assert reached == [None, 2, 3]

    table.copy({"write-only": "false"}).compact(full=True)
    later = table.stream(3, until="latest")
    assert list(later) == []
    assert later.next_snapshot == 4  # the compaction has no changes


# --- async loops ----------------------------------------------------------------------------------


def test_asynchronous_loop_waits_for_snapshots_to_come() -> None:
    table = history("1 a")
    waiting, _ = with_waits(table, lambda: put(table, "2 b"))

    async def read() -> list[tuple[int, str]]:
        found = []
        async with waiting.stream(1, until=2, poll=0.1) as stream:
            async for number, frame in stream:
                found.append((number, changed(frame)))
        return found

    assert asyncio.run(read()) == [(1, "+I 1 a"), (2, "+I 2 b")]


def test_other_tasks_run_while_a_stream_waits() -> None:
    table = reopened(history("1 a"), ambient=SYSTEM)

    async def read() -> int:
        stream = table.stream(scan_mode="latest", poll=0.01)
        waiting = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(put, table, "2 b")
        return (await waiting)[0]

    assert asyncio.run(read()) == 2


def test_cancelled_task_loses_no_snapshot() -> None:
    entered, let_go = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        slow = False

        def read(self, path: str) -> bytes:
            if self.slow and path.endswith("snapshot-2"):
                entered.set()
                let_go.wait(5)
            return super().read(path)

    store = Slow()
    table = reopened(history("1 a", "2 b", "3 c", store=store), ambient=SYSTEM)
    stream = table.stream(2, "latest")

    async def read() -> list[int]:
        store.slow = True
        task = asyncio.create_task(anext(stream))
        await asyncio.to_thread(entered.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        store.slow = False
        let_go.set()
        return [number async for number, _ in stream]

    assert asyncio.run(read()) == [2, 3]


# --- progress: exactly once -----------------------------------------------------------------------


def test_consumer_goes_on_after_what_was_committed() -> None:
    table = history("1 a", "2 b", "3 c")
    stream = table.stream(1, "latest", consumer_id="c")
    next(stream)
    stream.commit()
    next(stream)

    assert read_consumer(table.context, "c") == 2
    again = table.stream(until="latest", consumer_id="c")
    assert [number for number, _ in again] == [2, 3]
    again.commit(2)
    assert read_consumer(table.context, "c") == 3
    again.commit(3)
    assert list(table.stream(until="latest", consumer_id="c")) == []


def test_new_consumer_protects_its_snapshots_from_its_start_on() -> None:
    table = history("1 a", "2 b", "3 c")
    stream = table.stream(2, "latest", consumer_id="c")
    assert read_consumer(table.context, "c") is None  # nothing is read yet
    next(stream)

    assert read_consumer(table.context, "c") == 2


def test_state_that_is_not_committed_is_read_again() -> None:
    table = history("1 a", "2 b")
    next(table.stream(until="latest", consumer_id="c"))
    put(table, "3 c")
    assert read_consumer(table.context, "c") is None

    stream = table.stream(until="latest", consumer_id="c")
    assert [number for number, _ in stream] == [3]
    stream.commit()
    put(table, "4 d")
    assert [number for number, _ in table.stream(until="latest", consumer_id="c")] == [4]


def test_latest_of_a_new_consumer_stays_its_start() -> None:
    table = history("1 a")
    assert list(table.stream(scan_mode="latest", until="latest", consumer_id="c")) == []
    put(table, "2 b")

    stream = table.stream(scan_mode="latest", until="latest", consumer_id="c")
    assert [number for number, _ in stream] == [2]


def test_snapshots_without_changes_are_done_with_the_one_before() -> None:
    table = history("1 a", "2 b", write_only="true")
    stream = table.stream(1, until=9, consumer_id="c")
    next(stream)
    next(stream)
    stream.commit()
    table.copy({"write-only": "false"}).compact(full=True)
    stream._reader.look()  # noqa: SLF001 - one look of the loop
    assert read_consumer(table.context, "c") == 3

    table.context.ambient.sleep(10)
    stream._reader.look()  # noqa: SLF001
    assert read_consumer(table.context, "c") == 4


def test_snapshots_after_one_that_is_not_done_are_not_done() -> None:
    table = history("1 a", write_only="true")
    stream = table.stream(1, "latest", consumer_id="c")
    next(stream)
    assert list(stream) == []

    assert read_consumer(table.context, "c") == 1


@pytest.mark.parametrize(
    ("snapshot_id", "message"),
    [(3, "not returned this snapshot yet"), (0, "already recorded as done"), ("1", "whole number")],
)
def test_wrong_commits_are_refused(snapshot_id: Any, message: str) -> None:
    table = history("1 a", "2 b", "3 c")
    stream = table.stream(1, "latest", consumer_id="c")
    next(stream)
    stream.commit()
    next(stream)

    with pytest.raises(InvalidRequest, match=message):
        stream.commit(snapshot_id)
    assert read_consumer(table.context, "c") == 2


def test_stream_without_consumer_has_nothing_to_commit() -> None:
    stream = history("1 a").stream(until="latest")

    with pytest.raises(InvalidRequest, match="give it a consumer_id"):
        stream.commit()


def test_wrong_columns_create_no_consumer() -> None:
    table = history("1 a")

    with pytest.raises(InvalidRequest, match="unknown column"):
        table.stream(1, consumer_id="c", columns=["nosuch"])
    assert read_consumer(table.context, "c") is None


def test_ignored_progress_is_replaced_by_that_of_the_new_stream() -> None:
    table = history("1 a", "2 b", "3 c").copy({"consumer.ignore-progress": "true"})
    write_consumer(table.context, "c", 4)
    stream = table.stream(2, "latest", consumer_id="c")
    next(stream)
    stream.commit()

    assert read_consumer(table.context, "c") == 3


def test_progress_that_cannot_be_stored_is_an_error_and_stays_as_it_was() -> None:
    class Full(MemoryStore):
        full = False

        def put(self, path: str, data: bytes) -> None:
            if self.full:
                message = "the storage refused"
                raise StorageError(message, path=path)
            super().put(path, data)

    store = Full()
    table = history("1 a", "2 b", store=store)
    stream = table.stream(1, "latest", consumer_id="c")
    next(stream)
    store.full = True
    with pytest.raises(StorageError):
        stream.commit()
    store.full = False

    assert read_consumer(table.context, "c") == 1
    stream.commit()
    assert read_consumer(table.context, "c") == 2


# --- progress: at least once ----------------------------------------------------------------------


def at_least_once(table: Table) -> Table:
    return table.copy({"consumer.mode": "at-least-once", "consumer-id": "c"})


def test_asking_for_more_is_recorded_in_time() -> None:
    table = at_least_once(history("1 a", "2 b", "3 c"))
    stream = table.stream(1, "latest")
    next(stream)
    table.context.ambient.sleep(10)
    assert read_consumer(table.context, "c") == 1
    next(stream)
    assert read_consumer(table.context, "c") == 2
    next(stream)
    assert read_consumer(table.context, "c") == 2  # not yet: one record in 10 s
    assert list(stream) == []

    assert read_consumer(table.context, "c") == 4


def test_what_a_loop_was_left_with_is_not_done() -> None:
    table = at_least_once(history("1 a", "2 b", "3 c"))
    with table.stream(1, "latest") as stream:
        for number, _ in stream:
            if number == 2:
                break

    assert read_consumer(table.context, "c") == 2
    assert [number for number, _ in table.stream(until="latest")] == [2, 3]


def test_state_is_done_once_more_is_asked_for() -> None:
    table = at_least_once(history("1 a", "2 b"))

    assert [number for number, _ in table.stream(until="latest")] == [2]
    assert read_consumer(table.context, "c") == 3


def test_expired_snapshot_ends_the_loop_and_keeps_the_progress() -> None:
    table = at_least_once(history("1 a", "2 b", "3 c"))
    stream = table.stream(1, "latest")
    next(stream)
    table.context.store.delete(table.context.layout.snapshot(2))

    with pytest.raises(NotFound, match="expired"):
        next(stream)
    stream.close()
    assert read_consumer(table.context, "c") == 2
