"""`Table.compact(max_bytes=…)`: a commit a step, nothing twice, an end whatever others write."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.errors import CommitConflict, InvalidRequest
from lakecore.table.verbs.compaction import PLANS_MAX, CompactionRequest, compact_table
from tests.stores import MeddledStore
from tests.tables import held, in_directory, new_table, put, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.table.compactions.compact_work import CompactionProgress
    from lakecore.table.handle import Table

DAYS = {"day": "STRING NOT NULL", "id": "INT NOT NULL", "v": "STRING"}
ALL = "abcd"


def days(**options: Any) -> Table:
    """A table of four partitions, each with two runs of equal size."""
    table = new_table(DAYS, keys=("day", "id"), partitions=("day",), write_only="true", **options)
    for letter in "xy":
        put(table, " | ".join(f"{day} 1 {letter}" for day in ALL))
    return table


def bucket_bytes(table: Table) -> int:
    """The bytes of a partition of `days`."""
    files = table.inspect.files()
    (size_bytes,) = {
        files.filter(partition=f"{{{day}}}")["file_size_in_bytes"].sum() for day in ALL
    }
    return int(size_bytes)


def kinds(table: Table) -> list[str]:
    return [str(kind) for kind in table.inspect.snapshots()["commit_kind"]]


def steps(table: Table, **how: int | bool) -> list[lc.CompactionResult]:
    """Each step of a compaction, and in the end their sum."""
    told: list[lc.CompactionResult] = []
    request = CompactionRequest(**how)  # type: ignore[arg-type]
    told.append(compact_table(table.context, request, stepped=told.append))
    return told


def test_fields_of_the_result_are_these() -> None:
    assert [field.name for field in fields(lc.CompactionResult)] == [
        "snapshot_ids",
        "buckets",
        "files_before",
        "files_after",
        "files_upgraded",
        "bytes_before",
        "bytes_after",
        "rows_before",
        "rows_after",
        "steps",
        "attempts",
    ]
    assert lc.CompactionResult(snapshot_ids=(3, 4)).snapshot_id == 4
    assert lc.CompactionResult().snapshot_id is None


def test_each_step_takes_whole_buckets_up_to_so_many_bytes() -> None:
    table = days()
    size_bytes = bucket_bytes(table)
    before = held(table)

    *each, done = steps(table, full=True, max_bytes=3 * size_bytes)

    assert [step.buckets for step in each] == [3, 1]
    assert [step.bytes_before for step in each] == [3 * size_bytes, size_bytes]
    assert kinds(table) == ["APPEND", "APPEND", "COMPACT", "COMPACT"]
    assert done == lc.CompactionResult(
        snapshot_ids=(3, 4),
        buckets=4,
        files_before=8,
        files_after=4,
        bytes_before=4 * size_bytes,
        bytes_after=sum(step.bytes_after or 0 for step in each),
        rows_before=8,
        rows_after=4,
        steps=2,
        attempts=2,
    )
    assert [held(table, snapshot_id=number) for number in (2, 3, 4)] == [before] * 3


@pytest.mark.parametrize("less", [0, 1])
def test_bucket_that_is_larger_is_a_step_of_its_own(less: int) -> None:
    table = days()

    done = table.compact(full=True, max_bytes=bucket_bytes(table) * (1 - less) + less)

    assert (done.steps, done.buckets, len(done.snapshot_ids)) == (4, 4, 4)
    assert table.explain().merged_files == 0


def test_without_bytes_there_is_one_step() -> None:
    assert days().compact(full=True).snapshot_ids == (3,)


def test_dry_run_counts_the_steps_and_writes_nothing() -> None:
    table = days()
    size_bytes = bucket_bytes(table)

    planned = table.compact(full=True, max_bytes=2 * size_bytes, dry_run=True)

    assert (planned.steps, planned.buckets, planned.bytes_before) == (2, 4, 4 * size_bytes)
    assert (planned.snapshot_ids, planned.bytes_after) == ((), None)
    assert len(kinds(table)) == 2


def test_no_bytes_at_all_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"at least 1\. max_bytes=0"):
        days().compact(max_bytes=0)


def test_who_is_stopped_between_two_steps_is_taken_over_and_nothing_is_done_twice() -> None:
    table = days()
    size_bytes = bucket_bytes(table)

    class Killed(BaseException):
        pass

    def kill(step: lc.CompactionResult) -> None:
        raise Killed(step)

    request = CompactionRequest(full=True, max_bytes=size_bytes)
    with pytest.raises(Killed):
        compact_table(table.context, request, stepped=kill)
    rest = reopened(table).compact(full=True, max_bytes=size_bytes)

    assert (rest.steps, rest.buckets, rest.files_before) == (3, 3, 6)
    assert kinds(table).count("COMPACT") == 4
    for day in ALL:
        assert len(in_directory(table, f"day={day}/bucket-0")) == 3, "each written once"


def test_who_is_stopped_within_a_step_leaves_what_was_committed_and_no_more() -> None:
    table = days()
    size_bytes = bucket_bytes(table)

    def stop(at: CompactionProgress) -> None:
        if at.rows_done > 5:
            raise KeyboardInterrupt

    request = CompactionRequest(full=True, max_bytes=2 * size_bytes)
    with pytest.raises(KeyboardInterrupt):
        compact_table(table.context, request, stop)

    assert kinds(table).count("COMPACT") == 1
    assert [len(in_directory(table, f"day={day}/bucket-0")) for day in ALL] == [3, 3, 2, 2]
    assert table.context.budget.used_bytes == 0


# --- universal picking ----------------------------------------------------------------------------


def cascade() -> Table:
    """A bucket of five runs, of which three are picked, and then what comes out and a fourth."""
    table = new_table(write_only="true", num_sorted_run__compaction_trigger="2", num_levels="6")
    put(table, " | ".join(f"{number} loaded-{number * 7919}" for number in range(4000)))
    table.compact(full=True)
    with table.new_write() as writer:
        text = " | ".join(f"{number} second-{number * 7919}" for number in range(0, 4000, 2))
        writer.write(rows(table.schema, text))
        (message,) = writer.prepare_commit()
    moved = tuple(replace(file, level=4) for file in message.new_files)
    table.commit([replace(message, new_files=moved)])
    for text in ("1 a", "2 b", "3 c"):
        put(table, text)
    return table


def test_with_bytes_picking_goes_on_until_nothing_asks_for_more() -> None:
    table = cascade()
    before = held(table)

    done = table.compact(max_bytes=1)

    assert (done.steps, done.buckets, done.files_before) == (2, 1, 3 + 2)
    assert kinds(table)[-2:] == ["COMPACT", "COMPACT"]
    assert table.compact() == lc.CompactionResult()
    assert held(table) == before


def test_without_bytes_a_bucket_has_one_turn() -> None:
    table = cascade()

    assert table.compact().files_before == 3
    assert table.compact().files_before == 2, "there was more to do"
    assert table.compact() == lc.CompactionResult()


# --- others meanwhile -----------------------------------------------------------------------------


class Busy(MeddledStore):
    """Another writes before every second snapshot that is to be published."""

    def __init__(self, table: Table, act: Callable[[Table], object]) -> None:
        super().__init__(table.context.store)
        self._act = partial(act, reopened(table))
        self._puts = 0

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._puts += 1
        if self._puts % 2:
            self._act()
        return super().put_if_absent(path, data)


@pytest.mark.parametrize("full", [True, False])
def test_steps_end_though_others_always_write(*, full: bool) -> None:
    table = days(num_sorted_run__compaction_trigger="1")
    busy = Busy(table, lambda other: put(other, "a 7 w | e 1 w"))

    done = reopened(table, store=busy).compact(full=full, max_bytes=1)

    # Partition a has one turn of a full compaction, and at most twice its files of others.
    assert 4 <= done.steps <= (4 if full else 3 + 4)
    assert held(table) == "a 1 y | a 7 w | b 1 y | c 1 y | d 1 y | e 1 w"
    assert {file["level"] for file in table.inspect.files().filter(partition="{e}").to_dicts()} == {
        0
    }, "a partition that came meanwhile is left to the next call"


def test_step_that_loses_every_race_ends_the_call_and_leaves_earlier_steps() -> None:
    table = days(commit__max_retries="0")
    size_bytes = bucket_bytes(table)

    def work() -> None:
        table.compact(full=True, partitions=[{"day": "b"}])
        put(table, "b 9 w")

    store = MeddledStore(table.context.store, lambda: None, *[work] * PLANS_MAX)
    late = reopened(table, store=store)
    with pytest.raises(CommitConflict, match=f"every plan.*attempts={PLANS_MAX}"):
        late.compact(full=True, max_bytes=size_bytes)

    levels = table.inspect.files().sort("partition", "level").select("partition", "level").rows()
    assert ("{a}", 5) in levels
    assert ("{c}", 5) not in levels
    assert held(table) == "a 1 y | b 1 y | b 9 w | c 1 y | d 1 y"


def test_moves_of_postponed_rows_are_steps() -> None:
    table = new_table(DAYS, keys=("day", "id"), partitions=("day",), bucket="-2")
    put(
        table.copy({"postpone.batch-write-fixed-bucket": "false"}),
        " | ".join(f"{day} 1 x" for day in ALL),
    )

    *told, whole = steps(table, max_bytes=1)
    assert [step.snapshot_ids for step in told] == [(2,), (3,), (4,), (5,)]
    assert whole.snapshot_ids == (2, 3, 4, 5)
    assert held(reopened(table)) == " | ".join(f"{day} 1 x" for day in ALL)
