"""The kit's own law: it passes implementations that are right, and finds each mutant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

import lakecore as lc
from lakecore.errors import InvalidRequest
from lakecore.testing import (
    Replay,
    Shape,
    Step,
    TableMachine,
    every_call,
    golden,
    golden_names,
    suite,
)
from lakecore.testing.model import Model
from tests.tables import new_table
from tests.testing import toys

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pyarrow as pa

    from lakecore.testing import FaultyWarehouse

SHAPES = st.sampled_from(
    [
        Shape(columns={"k": "INT NOT NULL", "v": "STRING"}, primary_keys=("k",)),
        Shape(columns={"v": "INT", "w": "DOUBLE"}, kinds=("+I",)),
    ]
)
VERBS = ("write", "delete", "rollback_to", "reopen")
QUICK = settings(
    max_examples=60,
    stateful_step_count=8,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[*HealthCheck],
)


def tried(toy: type[toys.Toy]) -> None:
    class ToyMachine(TableMachine):
        shapes = SHAPES
        verbs: ClassVar[Collection[str]] = VERBS

        def open_table(self, shape: Shape) -> toys.Toy:
            return toy(shape)

    run_state_machine_as_test(ToyMachine, settings=QUICK)


def test_machine_passes_a_table_that_is_right() -> None:
    tried(toys.Toy)


@pytest.mark.parametrize(
    "mutant", [toys.ForgetsDeletes, toys.MergesInTheWrongOrder, toys.ForgetsOldSnapshots]
)
def test_machine_finds_a_table_that_is_wrong(mutant: type[toys.Toy]) -> None:
    with pytest.raises(AssertionError, match=r"the rows differ|assert"):
        tried(mutant)


def crashed_everywhere(log: type[toys.Log]) -> None:
    def setup(warehouse: FaultyWarehouse) -> None:
        for number in (1, 2):
            log(warehouse).add(number)

    def check(warehouse: FaultyWarehouse) -> None:
        left = log(warehouse).numbers()
        assert left == [1, 2, 3] or (warehouse.crashes and left == [1, 2])
        log(warehouse).add(3)
        assert log(warehouse).numbers() == [1, 2, 3]

    every_call(lambda warehouse: log(warehouse).add(3), check, setup=setup)


def test_every_call_passes_commits_that_are_atomic() -> None:
    crashed_everywhere(toys.Log)


@pytest.mark.parametrize("mutant", [toys.LosesACommitAtACrash, toys.CommitsTwiceAfterACrash])
def test_every_call_finds_commits_that_are_not(mutant: type[toys.Log]) -> None:
    with pytest.raises(AssertionError):
        crashed_everywhere(mutant)


# --- the compliance suite -------------------------------------------------------------------------

UPSERTS = "paimon-2.1/pk_dynamic_bucket"


class TestLakecore(suite.ReadsPaimon):
    """lakecore reads all golden tables."""

    def read(self, path: str, snapshot_id: int) -> pa.Table:
        return lc.open_table(path).to_arrow(snapshot_id=snapshot_id)


class ReadsOnlyTheLatest(suite.ReadsPaimon):
    """A mutant: it reads the newest snapshot, whichever it is asked for."""

    def read(self, path: str, snapshot_id: int) -> pa.Table:  # noqa: ARG002 - that is the fault
        return lc.open_table(path).to_arrow()


class ShowsOldRows(suite.ReadsPaimon):
    """A mutant: it reads the rows of all files, unmerged."""

    def read(self, path: str, snapshot_id: int) -> pa.Table:
        table = lc.open_table(path)
        return table.changes(0, snapshot_id, columns=table.schema.names).collect().to_arrow()


@pytest.mark.parametrize("mutant", [ReadsOnlyTheLatest, ShowsOldRows])
def test_suite_finds_a_reader_that_is_wrong(mutant: type[suite.ReadsPaimon]) -> None:
    with pytest.raises(AssertionError, match="the rows differ"):
        mutant().test_reads_the_rows_that_java_read(UPSERTS)


def test_known_failure_must_still_fail() -> None:
    class Known(ReadsOnlyTheLatest):
        known_failures: ClassVar[Mapping[str, str]] = {
            UPSERTS: "reads the latest",
            "paimon-2.1/head_bucket_mod": "is right",
        }

    Known().test_reads_the_rows_that_java_read(UPSERTS)
    with pytest.raises(AssertionError, match="passes now; known_failures says: is right"):
        Known().test_reads_the_rows_that_java_read("paimon-2.1/head_bucket_mod")


def test_golden_table_is_a_copy_of_its_own() -> None:
    first, second = golden(UPSERTS), golden(UPSERTS)
    lc.open_table(first.path).write([{**first.rows().to_pylist()[0]}])

    assert lc.open_table(second.path).count() == second.rows().num_rows
    assert len(golden_names()) == 43
    with pytest.raises(lc.NotFound, match=r"did_you_mean=paimon-2\.1/pk_first_row"):
        golden("paimon-2.1/pk_first_rows")


# --- histories ------------------------------------------------------------------------------------


def test_replay_keeps_the_snapshots_of_both_sides_apart() -> None:
    table = new_table(num_sorted_run__compaction_trigger="2")
    replay = Replay(table, Model(table.schema))
    rows: list[dict[str, Any]] = [{"id": n, "v": "x"} for n in range(3)]
    for step in (
        *(Step(verb="write", rows=tuple(rows[: n + 1])) for n in range(3)),
        Step(verb="tag"),
        Step(verb="expire", number=1),
        Step(verb="write"),
        Step(verb="compact"),
    ):
        replay.step(step)
        replay.check()

    replay.check_history()
    assert len(replay.tags) == 1
    assert replay.snapshots.keys() < replay.model.schemas.keys()
    assert max(replay.snapshots) < max(replay.snapshots.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TableMachine().open_table(Shape(columns={})), "open_table"),
        (lambda: TableMachine().alter_table(None, lc.SchemaChange.drop_column("v")), "alter_table"),
        (lambda: suite.ReadsPaimon().read("x", 1), "read"),
    ],
)
def test_subclass_that_lacks_a_method_is_told(call: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        call()
