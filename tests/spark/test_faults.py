"""Every row once, whatever dies; and nothing of what died is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import spark_bridge
from spark_bridge import write_frame
from tests.spark.conftest import answer_of
from tests.spark.frames import files_of, frame, held, live_files_of, table_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = pl.DataFrame(
    [(i, f"v{i % 3}", i % 11) for i in range(500)],
    schema={"id": pl.Int64, "v": pl.String, "n": pl.Int32},
    orient="row",
)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each scenario left, on a cluster with executors that die."""
    found: dict[str, Any] = answer_of("cluster", tmp_path_factory.mktemp("cluster"))
    return found


@pytest.mark.parametrize("name", ["raised", "worker_killed", "executor_killed", "run_twice"])
def test_every_row_is_there_once_and_leftovers_are_removed(
    outcomes: dict[str, Any], name: str
) -> None:
    state = outcomes[name]

    assert state["right"], state
    assert (state["snapshots"], state["files_not_live"], state["again"]) == (1, 0, True)
    assert state["leftovers"] >= 1
    assert state["rows"] == 4000


@pytest.mark.parametrize("name", ["always_raised", "always_killed"])
def test_job_that_cannot_succeed_leaves_nothing(outcomes: dict[str, Any], name: str) -> None:
    state = outcomes[name]

    assert "error" in state
    assert state["files"] == 0


@pytest.mark.parametrize("verb", ["compact", "merge"])
@pytest.mark.parametrize("killed", ["worker", "executor"])
def test_verb_whose_task_is_killed_in_the_middle_does_all_of_its_work(
    outcomes: dict[str, Any], verb: str, killed: str
) -> None:
    state = outcomes[f"{verb}_{killed}"]

    assert state["error"] == ""
    assert state["right"], "the rows, and the changelog, of the verb of one process"
    assert (state["snapshots"], state["orphans"]) == (3, 0)


@pytest.mark.parametrize("verb", ["compact", "merge"])
def test_verb_whose_tasks_are_always_killed_changes_nothing(
    outcomes: dict[str, Any], verb: str
) -> None:
    state = outcomes[f"{verb}_always"]

    assert state["error"]
    assert state["unchanged"]
    assert (state["snapshots"], state["orphans"]) == (2, 0)
    assert state["right"], "the next run does the work"


class _Died(BaseException):
    """What ends a driver."""


def test_driver_that_dies_before_the_commit_writes_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(tmp_path / "t", bucket="2")

    def die(*_: object) -> None:
        raise _Died

    with monkeypatch.context() as patch:
        patch.setattr(write_frame, "publish", die)
        with pytest.raises(_Died):
            spark_bridge.write(frame(spark, ROWS), table, commit_user="job", identifier=1)
    assert table.context.history.latest_snapshot() is None
    result = spark_bridge.write(frame(spark, ROWS), table, commit_user="job", identifier=1)

    assert not result.already_committed
    assert held(table) == sorted(ROWS.rows(), key=repr)
    assert len(files_of(table) - live_files_of(table)) == 2, "orphans of the first run"


def test_driver_that_dies_after_the_commit_does_not_write_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(tmp_path / "t", bucket="2")

    def die(*_: object) -> None:
        raise _Died

    with monkeypatch.context() as patch:
        patch.setattr(write_frame, "remove_leftovers", die)
        with pytest.raises(_Died):
            spark_bridge.write(frame(spark, ROWS), table, commit_user="job", identifier=1)
    result = spark_bridge.write(frame(spark, ROWS), table, commit_user="job", identifier=1)

    assert (result.already_committed, result.snapshot_ids) == (True, (1,))
    assert held(table) == sorted(ROWS.rows(), key=repr)
    assert files_of(table) == live_files_of(table)


def test_commit_that_another_driver_made_meanwhile_is_not_made_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(tmp_path / "t", bucket="2")
    df = frame(spark, ROWS)
    first = spark_bridge.write(df, table, commit_user="job", identifier=1)
    with monkeypatch.context() as patch:
        patch.setattr(write_frame, "_done_before", lambda *_: None)
        second = spark_bridge.write(df, table, commit_user="job", identifier=1)

    assert (first.already_committed, second.already_committed) == (False, True)
    assert second.snapshot_ids == first.snapshot_ids
    assert files_of(table) == live_files_of(table)
