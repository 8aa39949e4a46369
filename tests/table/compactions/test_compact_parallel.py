"""Buckets side by side: how many, what is told, and what a failure leaves."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.errors import CorruptTable
from lakecore.memory import Budget
from lakecore.table.compactions import compact_work
from lakecore.table.compactions.compact_work import (
    ROOM_BYTES,
    CompactionProgress,
    Tally,
    WorkKind,
    compact_buckets,
    do_work,
    plan_work,
    worker_count,
)
from lakecore.table.verbs.compaction import CompactionRequest, compact_table
from tests.tables import held, in_directory, new_table, put

if TYPE_CHECKING:
    from lakecore.model.files import CommitMessage
    from lakecore.table.compactions.compact_work import RowsDone, Work
    from lakecore.table.handle import Table

BUCKETS = 6


def bucketed() -> Table:
    table = new_table(bucket=str(BUCKETS), write_only="true")
    for turn in range(3):
        put(table, " | ".join(f"{number} {turn}" for number in range(60)))
    return table


def planned(table: Table) -> list[Work]:
    context = table.context
    snapshot = context.history.latest_snapshot()
    assert snapshot is not None
    entries = context.history.live_entries(snapshot)
    return list(plan_work(context, snapshot, entries, WorkKind(full=True)))


@pytest.fixture
def _four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pa, "cpu_count", lambda: 4)


@pytest.mark.usefixtures("_four_processors")
@pytest.mark.parametrize(
    ("room", "buckets", "wanted"),
    [(8.0, 9, 4), (8.0, 3, 3), (2.5, 9, 2), (0.5, 9, 1), (8.0, 0, 1)],
)
def test_as_many_as_there_are_processors_and_as_the_budget_has_room_for(
    room: float, buckets: int, wanted: int
) -> None:
    assert worker_count(Budget(int(room * ROOM_BYTES)), buckets) == wanted


@pytest.mark.usefixtures("_four_processors")
def test_what_others_hold_of_the_budget_is_no_room() -> None:
    budget = Budget(4 * ROOM_BYTES)

    with budget.acquire(3 * ROOM_BYTES):
        assert worker_count(budget, 9) == 1
    assert worker_count(budget, 9) == 4


@pytest.mark.usefixtures("_four_processors")
def test_buckets_are_compacted_by_several_threads_and_told_in_order_of_the_plan() -> None:
    table = bucketed()
    together = threading.Barrier(4, timeout=60)
    plan = planned(table)[:4]
    messages: list[CommitMessage] = []

    def meet(work: Work, rows_done: RowsDone) -> CommitMessage:
        together.wait()  # breaks if four are not under way at once
        return do_work(table.context, work, rows_done)

    compact_buckets(plan, meet, table.context.budget, Tally(None), messages)

    assert [message.bucket for message in messages] == [work.bucket for work in plan]
    assert table.context.budget.used_bytes == 0


def test_bucket_alone_stays_in_the_thread_that_asks() -> None:
    table = new_table(write_only="true")
    put(table, "1 a")
    put(table, "1 b")
    seen: list[threading.Thread] = []

    def look(work: Work, rows_done: RowsDone) -> CommitMessage:
        seen.append(threading.current_thread())
        return do_work(table.context, work, rows_done)

    compact_buckets(planned(table), look, table.context.budget, Tally(None), [])

    assert seen == [threading.current_thread()]


@pytest.mark.usefixtures("_four_processors")
def test_progress_never_goes_back_and_is_told_by_one_thread_at_a_time() -> None:
    table = bucketed()
    told: list[CompactionProgress] = []
    busy = threading.Lock()

    def tell(at: CompactionProgress) -> None:
        assert busy.acquire(blocking=False), "two threads tell at once"
        told.append(at)
        busy.release()

    compact_table(table.context, CompactionRequest(full=True, max_bytes=1), tell)

    assert told == sorted(told, key=lambda at: (at.rows_done, at.buckets_done))
    assert [at.buckets_done for at in told] == sorted(at.buckets_done for at in told)
    assert all(at.rows_done <= at.rows and at.buckets_done <= at.buckets for at in told)
    last = CompactionProgress(buckets_done=BUCKETS, buckets=BUCKETS, rows_done=180, rows=180)
    assert told[-1] == last


@pytest.mark.usefixtures("_four_processors")
def test_others_stop_when_one_fails_and_no_file_stays_behind() -> None:
    table = bucketed()
    plan = planned(table)
    messages: list[CommitMessage] = []
    failed = threading.Event()
    begun: list[int] = []

    def fail_first(work: Work, rows_done: RowsDone) -> CommitMessage:
        begun.append(work.bucket)
        if work is plan[0]:
            failed.set()
            message = "bucket 0 is damaged"
            raise CorruptTable(message)
        failed.wait(60)
        while True:  # a bucket without an end, but for the failure of another
            rows_done(0)

    with pytest.raises(CorruptTable, match="bucket 0"):
        compact_buckets(plan, fail_first, table.context.budget, Tally(None), messages)
    assert messages == []
    assert len(begun) <= 4, "the last buckets are not begun"


@pytest.mark.usefixtures("_four_processors")
def test_missing_file_of_one_bucket_leaves_the_table_as_it_was() -> None:
    table = bucketed()
    before = held(table)
    names = {number: in_directory(table, f"bucket-{number}") for number in range(BUCKETS)}
    lost = min(names[4])
    table.context.store.delete(f"{table.path}/bucket-4/{lost}")

    with pytest.raises(CorruptTable, match=lost):
        table.compact(full=True)

    names[4].remove(lost)
    assert {n: in_directory(table, f"bucket-{n}") for n in range(BUCKETS)} == names
    assert len(table.inspect.snapshots()) == 3
    assert table.context.budget.used_bytes == 0
    assert before.startswith("0 2 | 1 2")


@pytest.mark.usefixtures("_four_processors")
def test_interrupt_ends_every_thread_and_removes_what_was_done() -> None:
    table = bucketed()
    names = {number: in_directory(table, f"bucket-{number}") for number in range(BUCKETS)}

    def stop(at: CompactionProgress) -> None:
        if at.buckets_done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact_table(table.context, CompactionRequest(full=True), stop)

    assert {n: in_directory(table, f"bucket-{n}") for n in range(BUCKETS)} == names
    workers = [each.name for each in threading.enumerate()]
    assert not any(name.startswith(compact_work.WORKER) for name in workers)
    assert table.context.budget.used_bytes == 0


@pytest.mark.usefixtures("_four_processors")
def test_one_seed_makes_the_same_files_whichever_thread_is_first() -> None:
    names = []
    for _ in range(3):
        table = bucketed()
        table.compact(full=True)
        names.append([in_directory(table, f"bucket-{number}") for number in range(BUCKETS)])

    assert names[0] == names[1] == names[2]
