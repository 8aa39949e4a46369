"""Every row once, whatever dies; and nothing of what died is left, or is looked for in vain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import spark_bridge
from lakecore.io.stores.local import LocalStore
from spark_bridge import write_frame
from spark_bridge.task import partition_function
from tests.spark.cluster import fail, failing, once
from tests.spark.conftest import answer_of
from tests.spark.frames import files_of, frame, held, live_files_of, table_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    import lakecore as lc
    from spark_bridge.task import WriteTask

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

    def die(*_: object, **__: object) -> None:
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


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bucket directories that this process lists."""
    found: list[str] = []
    listing = LocalStore.list

    def watched(self: LocalStore, directory: str) -> Any:
        if "bucket-" in directory:
            found.append(directory)
        return listing(self, directory)

    monkeypatch.setattr(LocalStore, "list", watched)
    return found


def merge(spark: SparkSession, table: lc.Table) -> None:
    merging = spark_bridge.merge(spark, table, frame(spark, ROWS), ["id"], spread=True)
    merging.when_matched_update_all().execute()


VERBS: dict[str, Callable[[Any, Any], object]] = {
    "write": lambda spark, table: spark_bridge.write(frame(spark, ROWS), table),
    "write by group": lambda spark, table: spark_bridge.write(
        frame(spark, ROWS), table, by="group"
    ),
    "delete": lambda spark, table: spark_bridge.delete(spark, table, "n = 3", spread=True),
    "merge": merge,
    "compact": lambda spark, table: spark_bridge.compact(spark, table, full=True),
    "rescale": lambda spark, table: spark_bridge.rescale(spark, table, bucket_num=8, spread=True),
}


@pytest.mark.parametrize("verb", list(VERBS))
def test_no_bucket_is_listed_if_every_task_ran_once(
    spark: SparkSession, tmp_path: Path, listed: list[str], verb: str
) -> None:
    table = table_at(tmp_path / "t", bucket="4", write_only="true")
    for _ in range(2):
        table.write(ROWS)
    VERBS[verb](spark, table)

    assert listed == []
    assert table.inspect.snapshots().height >= 3
    assert live_files_of(table) <= files_of(table)


def test_buckets_are_listed_if_a_task_ran_again(
    spark: SparkSession, tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(tmp_path / "t", bucket="2")
    monkeypatch.setattr(write_frame, "partition_function", failing(fail, str(tmp_path / "mark")))
    result = spark_bridge.write(frame(spark, ROWS), table)

    assert (len(listed), result.leftovers) == (2, 1)
    assert files_of(table) == live_files_of(table)


def test_buckets_are_listed_if_a_stage_ran_again(
    spark: SparkSession, tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(tmp_path / "t", bucket="8")
    home, mark = str(spark.conf.get("spark.local.dir")), str(tmp_path / "mark")

    def losing(task: WriteTask) -> Callable[[Any], Any]:
        """In place of `partition_function`: the first task loses the rows that Spark shuffled."""
        write = partition_function(task)

        def write_and_lose(batches: Any) -> Any:
            yield from write(batches)
            if once(mark):
                for file in Path(home).rglob("shuffle_*"):
                    file.unlink(missing_ok=True)

        return write_and_lose

    monkeypatch.setattr(write_frame, "partition_function", losing)
    result = spark_bridge.write(frame(spark, ROWS), table)

    assert {task.attempt for task in result.tasks} == {0}, "Spark counts from 0 again"
    assert len(listed) == 8
    assert held(table) == sorted(ROWS.rows(), key=repr)
