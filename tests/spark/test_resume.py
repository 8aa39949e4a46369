"""A driver that dies between its tasks and its commit is started again, and runs no task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import lakecore as lc
import spark_bridge
from lakecore.distributed import author, of_job
from lakecore.errors import CommitConflict, InvalidRequest, Unsupported
from lakecore.table.writes.write import TableWrite
from spark_bridge import write_frame
from spark_bridge.job_commit import Publication, publish, stage, staged, unstage
from spark_bridge.task import TaskOutcome
from tests.spark.frames import files_of, frame, held, live_files_of, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"p": "INT NOT NULL", "id": "BIGINT NOT NULL", "v": "STRING"}
ROWS = pl.DataFrame(
    {"p": [n % 3 for n in range(60)], "id": range(60), "v": [f"v{n}" for n in range(60)]},
    schema_overrides={"p": pl.Int32},
)
OLD = pl.DataFrame(
    {"p": [0, 8], "id": [1, 2], "v": ["old", "old"]}, schema_overrides={"p": pl.Int32}
)
JOB = "5a23e36b-0000-4000-8000-000000000000"
BY: dict[str, Any] = {"commit_user": "nightly", "identifier": 3, "resume": True}


class _Died(BaseException):
    """The driver dies."""


def die(*_: object, **__: object) -> None:
    raise _Died


def partitioned(home: Path, *, keys: tuple[str, ...] = ("p", "id"), **options: str) -> lc.Table:
    stated = {"bucket": "2", **options} if keys else options
    return table_at(home / "t", COLUMNS, keys=keys, partitions=("p",), **stated)


def staged_files(table: lc.Table) -> list[str]:
    return [path.name for path in Path(table.path).glob("manifest/staged-*")]


def dies_before_commit(df: Any, table: lc.Table, patch: pytest.MonkeyPatch, **how: Any) -> None:
    with patch.context() as dying:
        dying.setattr(write_frame, "publish", die)
        with pytest.raises(_Died):
            spark_bridge.write(df, table, **how)


@pytest.mark.parametrize("keys", [("p", "id"), ()])
@pytest.mark.parametrize("messages_max", [0, 10_000])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"mode": "overwrite", "dynamic": True},
        {"mode": "overwrite", "dynamic": False},
        {"mode": "overwrite", "partition": {"p": 0}},
    ],
)
def test_tasks_of_a_driver_that_died_are_not_run_again(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: tuple[str, ...],
    messages_max: int,
    how: dict[str, Any],
) -> None:
    rows = ROWS.filter(pl.col("p") == 0) if "partition" in how else ROWS
    df = frame(spark, rows)
    options = {"changelog_producer": "input"} if keys else {}
    usual, table = (
        partitioned(tmp_path / "usual", keys=keys, **options),
        partitioned(tmp_path, keys=keys, **options),
    )
    for each in (usual, table):
        each.write(OLD.to_arrow())
    expected = spark_bridge.write(df, usual, **how)
    monkeypatch.setattr(write_frame, "MESSAGES_MAX", messages_max)
    dies_before_commit(df, table, monkeypatch, **BY, **how)

    assert held(table) == sorted(OLD.rows(), key=repr), "nothing is visible"
    assert len(staged_files(table)) == 1
    with monkeypatch.context() as patch:
        patch.setattr(write_frame, "_run", die)
        result = spark_bridge.write(df, table, **BY, **how)
        again = spark_bridge.write(df, table, **BY, **how)
    assert (result.resumed, again.resumed, again.already_committed) == (True, False, True)
    assert (result.rows, result.rows_stored, result.snapshot_ids) == (
        expected.rows,
        expected.rows_stored,
        (2,),
    )
    assert held(table) == held(usual)
    changes = [sorted(each.changes(1).collect().rows(), key=repr) for each in (table, usual)]
    assert changes[0] == changes[1]
    assert staged_files(table) == []
    assert table.inspect.snapshots().height == 2


def test_driver_that_dies_after_its_commit_leaves_what_the_next_run_removes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, df = partitioned(tmp_path), frame(spark, ROWS)
    with monkeypatch.context() as patch:
        patch.setattr(write_frame, "unstage", die)
        with pytest.raises(_Died):
            spark_bridge.write(df, table, **BY)
    assert len(staged_files(table)) == 1
    result = spark_bridge.write(df, table, **BY)

    assert (result.already_committed, result.resumed) == (True, False)
    assert staged_files(table) == []
    assert held(table) == sorted(ROWS.rows(), key=repr)


@pytest.mark.parametrize("changed", ["mode", "identifier", "schema", "files", "not asked"])
def test_tasks_run_where_the_staged_files_are_not_those_of_this_write(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    table, df = partitioned(tmp_path), frame(spark, ROWS)
    dies_before_commit(df, table, monkeypatch, **BY)
    how: dict[str, Any] = dict(BY)
    match changed:
        case "mode":
            how["mode"] = "overwrite"
        case "identifier":
            how["identifier"] = 4
        case "schema":
            how["evolve_schema"] = True
            df = frame(spark, ROWS.with_columns(w=pl.lit(1, pl.Int32)))
        case "files":
            name = min(files_of(table))
            next(Path(table.path).rglob(name)).unlink()
        case "not asked":
            how["resume"] = False
    result = spark_bridge.write(df, lc.open_table(table.path), **how)

    assert not result.resumed
    assert result.rows == ROWS.height
    assert len(held(lc.open_table(table.path))) == ROWS.height


def test_new_schema_of_a_driver_that_died_is_stored_by_the_next_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = partitioned(tmp_path)
    rows = ROWS.with_columns(w=pl.lit(1, pl.Int32))
    df = frame(spark, rows)
    dies_before_commit(df, table, monkeypatch, **BY, evolve_schema=True)
    assert table.schema.names == lc.open_table(table.path).schema.names
    with monkeypatch.context() as patch:
        patch.setattr(write_frame, "_run", die)
        result = spark_bridge.write(df, table, **BY, evolve_schema=True)

    assert result.resumed
    assert held(lc.open_table(table.path)) == sorted(rows.rows(), key=repr)


def test_leftovers_are_orphans(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, df = partitioned(tmp_path), frame(spark, ROWS)
    dies_before_commit(df, table, monkeypatch, **BY)
    later = table.context.ambient.now_ms() + 60_000
    removed = table.remove_orphan_files(older_than=later, force=True)

    assert removed.files == 6 + 1
    assert files_of(table) == set()
    result = spark_bridge.write(df, table, **BY)
    assert not result.resumed
    assert held(table) == sorted(ROWS.rows(), key=repr)


def test_table_whose_messages_need_objects_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table, df = partitioned(tmp_path, bucket="-1"), frame(spark, ROWS)

    with pytest.raises(Unsupported, match=r"resume=True.*dynamic buckets"):
        spark_bridge.write(df, table, **BY)
    with pytest.raises(InvalidRequest, match="commit_user and identifier"):
        spark_bridge.write(df, table, resume=True)
    assert files_of(table) == set()


# --- two drivers ---------------------------------------------------------------------------------


def outcomes_of(table: lc.Table) -> list[TaskOutcome]:
    """What two tasks of a job have answered."""
    found = []
    for number in range(2):
        context = replace(table.context, ambient=of_job(JOB))
        with TableWrite(context) as writer:
            writer.write(ROWS.filter(pl.col("p") == number).to_arrow())
            messages = tuple(writer.prepare_commit())
        found.append(
            TaskOutcome(
                partition=number, attempt=0, rows=20, began_ms=1, ended_ms=2, messages=messages
            )
        )
    return found


def test_driver_that_was_taken_for_dead_commits_nothing_twice(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    how = Publication(by=author(table.context, "nightly", 3), staged=True)
    own = outcomes_of(table)
    stage(table.context, JOB, own, how)
    other = lc.open_table(table.path)
    found = staged(other.context, how)
    assert found is not None
    job, outcomes = found
    assert (job, [each.rows for each in outcomes]) == (JOB, [20, 20])
    first, leftovers = write_frame._commit(  # noqa: SLF001
        other.context, job, outcomes, how, lost=True, is_staged=True
    )
    second, none_left = write_frame._commit(  # noqa: SLF001
        table.context, JOB, own, how, lost=False, is_staged=True
    )

    assert (first.snapshot_ids, second.facts) == ((1,), {"already_committed": 1})
    assert (leftovers, none_left) == (0, 0)
    expected = ROWS.filter(pl.col("p") < 2)
    assert held(lc.open_table(table.path)) == sorted(expected.rows(), key=repr)
    assert files_of(table) == live_files_of(table)


def test_staged_file_that_is_damaged_is_not_resumed(tmp_path: Path) -> None:
    table = partitioned(tmp_path)
    how = Publication(by=author(table.context, "nightly", 3), staged=True)
    stage(table.context, JOB, outcomes_of(table), how)
    (name,) = staged_files(table)
    path = Path(table.path) / "manifest" / name
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        damaged = [whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]]
        for data in damaged:
            path.write_bytes(data)
            assert staged(table.context, how) is None
    path.write_bytes(whole)
    assert staged(table.context, how) is not None


def test_failed_commit_of_a_staged_job_leaves_its_files_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = partitioned(tmp_path)
    how = Publication(by=author(table.context, "nightly", 3), staged=True)
    own = outcomes_of(table)
    found_by_other = []

    def conflict(*_: object) -> None:
        found = staged(lc.open_table(table.path).context, how)
        assert found is not None
        found_by_other.append(found)
        raise CommitConflict("lost every race")

    with monkeypatch.context() as patch:
        patch.setattr(write_frame, "publish", conflict)
        with pytest.raises(CommitConflict, match="every race"):
            write_frame._commit(table.context, JOB, own, how, lost=False, is_staged=False)  # noqa: SLF001
    assert staged_files(table) == [], "the next run does not fail in the same way"
    ((_, outcomes),) = found_by_other
    publish(table.context, outcomes, how)

    expected = ROWS.filter(pl.col("p") < 2)
    assert held(lc.open_table(table.path)) == sorted(expected.rows(), key=repr)
    unstage(table.context, how)
