"""The compaction that goes on beside writers: when it waits, what it survives, how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CommitConflict, CommitUnknown, CorruptTable, NotFound, StorageError
from lakecore.io.stores.guarded import unguarded
from lakecore.table.verbs.compaction import PLANS_MAX, CompactionRequest
from lakecore.table.verbs.compaction_job import (
    BACK_OFF_SECONDS_MAX,
    BACK_OFF_SECONDS_MIN,
    Setback,
    StepDone,
    run_compaction,
)
from tests.stores import FailingStore, MeddledStore
from tests.tables import held, in_directory, new_table, put, reopened, with_options

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table

DAYS = {"day": "STRING NOT NULL", "id": "INT NOT NULL", "v": "STRING"}


class Waits:
    """Does something at each wait, and is the end after the last."""

    def __init__(self, *deeds: Callable[[], object]) -> None:
        self.seconds: list[float] = []
        self._deeds = list(deeds)
        self.ended = False

    def is_set(self) -> bool:
        return self.ended

    def wait(self, timeout: float) -> bool:
        self.seconds.append(timeout)
        if self._deeds:
            self._deeds.pop(0)()
        else:
            self.ended = True
        return self.ended


def run(
    table: Table, waits: Waits, store: Store | None = None, **how: int | bool
) -> list[StepDone | Setback]:
    """What the job told until the waits ended."""
    told: list[StepDone | Setback] = []
    context = reopened(table, store=store or table.context.store).context
    request = CompactionRequest(**how)  # type: ignore[arg-type]
    steps = run_compaction(context, request, interval_seconds=7.0, stop=waits, report=told.append)
    assert steps == sum(isinstance(each, StepDone) for each in told)
    return told


def some_runs(table: Table, count: int = 3) -> None:
    for turn in range(count):
        put(table, f"1 {turn} | 2 {turn}")


def test_what_asks_for_it_is_compacted_and_then_it_waits() -> None:
    table = new_table(write_only="true", num_sorted_run__compaction_trigger="2")
    waits = Waits(lambda: some_runs(table), lambda: None, lambda: put(table, "3 c"))

    told = run(table, waits)

    assert [type(each) for each in told] == [StepDone]
    assert waits.seconds == [7.0] * 4
    assert held(table) == "1 2 | 2 2 | 3 c"
    assert sorted(table.inspect.files()["level"]) == [0, 2]


def test_columns_and_options_that_come_meanwhile_are_seen() -> None:
    table = new_table(write_only="true", num_sorted_run__compaction_trigger="9")
    some_runs(table)
    waits = Waits(lambda: with_options(table, num_sorted_run__compaction_trigger="2"))

    assert len(run(table, waits)) == 1


def test_full_compactions_wait_for_the_interval() -> None:
    table = new_table(write_only="true")
    some_runs(table)
    waits = Waits(lambda: put(table, "3 c"), lambda: put(table, "4 d"))

    told = run(table, waits, full=True)

    assert len(told) == len(waits.seconds) == 3
    assert sorted(table.inspect.files()["level"]) == [5]


def test_steps_are_told_one_by_one() -> None:
    table = new_table(DAYS, keys=("day", "id"), partitions=("day",), write_only="true")
    for letter in "xy":
        put(table, f"a 1 {letter} | b 1 {letter}")

    told = run(table, Waits(), full=True, max_bytes=1)

    assert [each.step.snapshot_ids for each in told if isinstance(each, StepDone)] == [(3,), (4,)]


class Flaky(FailingStore):
    """Fails a read of a data file in each of its next attempts, in one of some ways.

    One alone: an attempt reads ahead of what fails, and how far depends on the machine.
    """

    def __init__(self, inner: Store, *errors: Exception) -> None:
        super().__init__(inner)
        self.errors = list(errors)
        self._has_failed = False

    def open_input(self, path: str) -> pa.NativeFile:
        if self.errors and not self._has_failed:
            self._has_failed = True
            raise self.errors.pop(0)
        return super().open_input(path)

    def go_on(self) -> None:
        """The next attempt begins."""
        self._has_failed = False


def test_store_that_does_not_answer_is_asked_again_later_and_later() -> None:
    table = new_table(write_only="true")
    some_runs(table)
    errors = [
        StorageError("nobody there"),
        ConnectionResetError("reset"),
        TimeoutError("too slow"),
        *[StorageError("nobody there")] * 6,
    ]
    store = Flaky(table.context.store, *errors)
    waits = Waits(*[store.go_on] * len(errors))

    told = run(table, waits, store, full=True)

    seconds = [min(BACK_OFF_SECONDS_MIN * 2**n, BACK_OFF_SECONDS_MAX) for n in range(len(errors))]
    assert waits.seconds == [*seconds, 7.0]
    assert seconds[-1] == BACK_OFF_SECONDS_MAX
    *lost, done = told
    assert all(isinstance(each, Setback) and isinstance(each.error, OSError) for each in lost)
    assert isinstance(done, StepDone)
    assert len(in_directory(table, "bucket-0")) == 4, "attempts that failed left nothing"


def test_after_a_success_the_first_setback_is_a_short_one_again() -> None:
    table = new_table(write_only="true")
    some_runs(table)
    store = Flaky(table.context.store, StorageError("one"), StorageError("two"))

    def fail_again() -> None:
        put(table, "9 z")
        store.errors.append(StorageError("three"))
        store.go_on()

    waits = Waits(store.go_on, store.go_on, fail_again, store.go_on)
    run(table, waits, store, full=True)

    assert waits.seconds == [1.0, 2.0, 7.0, 1.0, 7.0]


def test_races_that_are_lost_are_a_setback() -> None:
    table = new_table(write_only="true")
    some_runs(table)

    def work() -> None:
        table.compact(full=True)
        put(table, "1 w")

    store = MeddledStore(table.context.store, *[work] * PLANS_MAX)
    lost, done = run(table, Waits(lambda: None), store, full=True)

    assert isinstance(lost, Setback)
    assert isinstance(lost.error, CommitConflict)
    assert isinstance(done, StepDone)
    assert held(table) == "1 w | 2 2"


class Mute(MeddledStore):
    """The replies to some publications are lost, and whether they took effect cannot be seen."""

    def __init__(self, inner: Store, losses: int) -> None:
        super().__init__(inner)
        self._losses = losses
        self._hidden = ""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        done = super().put_if_absent(path, data)
        if self._losses:
            self._losses -= 1
            self._hidden = path
            raise CommitUnknown("no reply", path=path)
        return done

    def read(self, path: str) -> bytes:
        if self._hidden == path:
            self._hidden = ""
            raise StorageError("no reply", path=path)
        return super().read(path)


def test_commit_whose_outcome_is_unknown_is_looked_for() -> None:
    table = new_table(write_only="true")
    some_runs(table)
    waits = Waits(lambda: None)

    (lost,) = run(table, waits, Mute(table.context.store, 1), full=True)

    assert isinstance(lost, Setback)
    assert isinstance(lost.error, CommitUnknown)
    assert waits.seconds == [1.0, 7.0], "it was there: nothing was left to do"
    assert table.explain().raw_files == 1
    assert held(table) == "1 2 | 2 2"


def test_damaged_file_and_table_that_is_gone_end_it() -> None:
    table = new_table(write_only="true")
    some_runs(table)
    whole = dict.fromkeys(in_directory(table, "bucket-0"))
    lost = f"{table.path}/bucket-0/{min(whole)}"
    table.context.store.delete(lost)

    with pytest.raises(CorruptTable, match="missing"):
        run(table, Waits(), full=True)
    with pytest.raises(NotFound):
        run(table, Waits(lambda: unguarded(table.context.store).delete_directory(table.path)))


def test_end_in_the_middle_of_a_step_removes_what_it_wrote() -> None:
    table = new_table(bucket="8", write_only="true")
    for turn in range(3):
        put(table, " | ".join(f"{number} {turn}" for number in range(40)))
    names = [in_directory(table, f"bucket-{number}") for number in range(8)]
    waits = Waits()
    store = Flaky(table.context.store)
    opened = 0

    class Ending(Flaky):
        def open_input(self, path: str) -> pa.NativeFile:
            nonlocal opened
            opened += 1
            waits.ended = opened > 9
            return super().open_input(path)

    assert run(table, waits, Ending(store), full=True) == []
    assert [in_directory(table, f"bucket-{number}") for number in range(8)] == names
    assert len(table.inspect.snapshots()) == 3


def test_end_that_was_asked_for_before_it_began_does_nothing() -> None:
    table = new_table(write_only="true")
    some_runs(table)
    waits = Waits()
    waits.ended = True

    assert run(table, waits, full=True) == []
    assert waits.seconds == []
