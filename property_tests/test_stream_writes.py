"""A stream write that is killed at random, again and again, counts each checkpoint exactly once.

The table adds up what it is given, so a checkpoint that is lost or counted twice changes a sum. The
job commits late: some checkpoints are in flight when it dies. Some jobs store their messages and
recover them; others write again what was not committed. Another process compacts meanwhile.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import CommitConflict, LakecoreError
from lakecore.model.snapshot import CommitKind
from lakecore.testing import Model, assert_same_rows
from tests.stores import FailingStore, StoreFailure
from tests.tables import new_table, reopened

if TYPE_CHECKING:
    from lakecore.model.files import CommitMessage
    from lakecore.table.handle import Table

OPTIONS: dict[str, dict[str, Any]] = {
    "fixed": {"bucket": "2", "num_sorted_run__compaction_trigger": "1", "num_levels": "3"},
    "dynamic": {"bucket": "-1", "dynamic_bucket__target_row_num": "2"},
    "full": {"bucket": "2", "full_compaction__delta_commits": "2"},
    "write-only": {"bucket": "1", "write_only": "true"},
}


@dataclass(frozen=True)
class Job:
    """What a job writes, and how. `kills` are the store calls at which its processes die."""

    options: str
    checkpoints: list[list[int]]
    late: int
    stores_messages: bool
    compactions: frozenset[int]
    kills: list[int]


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    ids = st.lists(st.integers(0, 5), max_size=4)
    return Job(
        options=draw(st.sampled_from([*OPTIONS])),
        checkpoints=draw(st.lists(ids, min_size=1, max_size=6)),
        late=draw(st.integers(0, 2)),
        stores_messages=draw(st.booleans()),
        compactions=draw(st.frozensets(st.integers(1, 6), max_size=3)),
        kills=draw(st.lists(st.integers(1, 40), max_size=4)),
    )


class Process:
    """One process of a job. `stored` is what survives it."""

    def __init__(self, table: Table, job: Job, stored: dict[int, bytes]) -> None:
        self.table = table
        self.job = job
        self.stored = stored

    def run(self) -> None:
        """Go on where the last process died."""
        job = self.job
        with self.table.new_stream_write("job") as writer:
            prepared: dict[int, list[CommitMessage]] = {}
            if job.stores_messages:
                prepared = {each: pickle.loads(data) for each, data in self.stored.items()}
                writer.recover(prepared)
            done = max([writer.committed() or 0, *prepared])
            for checkpoint in range(done + 1, len(job.checkpoints) + 1):
                writer.write(frame(job.checkpoints[checkpoint - 1]))
                messages = writer.prepare_commit(checkpoint)
                self.stored[checkpoint] = pickle.dumps(messages)
                if checkpoint in job.compactions:
                    reopened(self.table).compact(full=True)
                due = [each for each in writer.in_flight if each <= checkpoint - job.late]
                if due:
                    writer.commit(due[-1])
            if writer.in_flight:
                writer.commit(writer.in_flight[-1])


def frame(ids: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int32()), "n": pa.array([1] * len(ids), pa.int64())})


@given(job=jobs())
def test_each_checkpoint_counts_once_whenever_its_processes_die(job: Job) -> None:
    table = new_table(
        {"id": "INT NOT NULL", "n": "BIGINT"},
        merge_engine="aggregation",
        fields__n__aggregate_function="sum",
        **OPTIONS[job.options],
    )
    stored: dict[int, bytes] = {}
    for kill in job.kills:
        failing = FailingStore(table.context.store, fail_at=kill, after=kill % 2 == 0)
        try:
            Process(reopened(table, store=failing), job, stored).run()
        except CommitConflict:
            raise
        except (StoreFailure, LakecoreError):
            assert failing.is_dead
    Process(reopened(table), job, stored).run()

    model = Model(table.schema)
    for ids in job.checkpoints:
        model.write(frame(ids))
    assert_same_rows(reopened(table), model)
    history = reopened(table).context.history
    appended = [
        snapshot.commit_identifier
        for snapshot in map(history.snapshot, history.snapshot_ids())
        if snapshot.commit_kind is CommitKind.APPEND
    ]
    assert appended == [*range(1, len(job.checkpoints) + 1)]
