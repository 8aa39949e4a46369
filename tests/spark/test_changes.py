"""DELETE, UPDATE and MERGE by tasks of Spark change what the verbs of one process change."""

from __future__ import annotations

import os
import random
import shutil
from datetime import datetime
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import lakecore as lc
import spark_bridge
from spark_bridge import change_job
from tests.spark.frames import files_of, frame, held, live_files_of, table_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

FUTURE = datetime(2099, 1, 1)
SEEDS = int(os.environ.get("LAKECORE_SPARK_SEEDS", "1"))
COLUMNS = {"p": "STRING NOT NULL", "id": "BIGINT NOT NULL", "v": "INT", "w": "STRING"}
SCHEMA = {"p": pl.String, "id": pl.Int64, "v": pl.Int32, "w": pl.String}
WRITE_ONLY = {"write_only": "true"}
TABLES: dict[str, dict[str, str]] = {
    "deduplicate": {"bucket": "3"},
    "input": {"bucket": "2", "changelog_producer": "input"},
    "partial-update": {
        "bucket": "2",
        "merge_engine": "partial-update",
        "partial_update__remove_record_on_delete": "true",
    },
    "vectors": {"bucket": "2", "deletion_vectors__enabled": "true", "write_only": "false"},
    "lookup": {"bucket": "2", "changelog_producer": "lookup", "write_only": "false"},
    "dynamic": {"bucket": "-1", "dynamic_bucket__target_row_num": "20"},
    "postponed": {"bucket": "-2", "postpone__default_bucket_num": "2"},
    "postponed-counted": {"bucket": "-2", "postpone__target_row_num_per_bucket": "15"},
    "crossing": {"bucket": "-1", "dynamic_bucket__target_row_num": "20"},
    "append": {"bucket": "-1"},
    "append-vectors": {"bucket": "-1", "deletion_vectors__enabled": "true"},
    "append-buckets": {"bucket": "2", "bucket_key": "id"},
    "append-tracked": {"bucket": "-1", "row_tracking__enabled": "true"},
    "append-evolving": {
        "bucket": "-1",
        "row_tracking__enabled": "true",
        "data_evolution__enabled": "true",
        "deletion_vectors__enabled": "true",
    },
}
Builder = Any


def rows_of(chance: random.Random, count: int, kind: str = "") -> pl.DataFrame:
    rows = [
        (
            chance.choice("abc"),
            chance.randint(0, 60),
            chance.randint(0, 9),
            chance.choice(["x", "y", None]),
        )
        for _ in range(count)
    ]
    key = ["id"] if kind == "crossing" else ["p", "id"]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row").unique(
        key, keep="first", maintain_order=True
    )


def two_tables(home: Path, kind: str, chance: random.Random) -> tuple[lc.Table, lc.Table]:
    """Two tables with the same files, which the same verb changes in two ways."""
    keys = [] if kind.startswith("append") else ["p", "id"]
    partitions = ["p"] if chance.random() < 0.7 else []
    if kind == "crossing":
        keys, partitions = ["id"], ["p"]
    options = {**WRITE_ONLY, **TABLES[kind]}
    table = table_at(home / "one", COLUMNS, keys=keys, partitions=partitions, **options)
    for _ in range(3):
        table.write(rows_of(chance, 50, kind))
    shutil.copytree(home / "one", home / "two")
    return table, lc.open_table(home / "two")


def clauses(chance: random.Random, kind: str) -> Callable[[Builder], Builder]:
    """Some clauses that a merge of every engine takes."""
    changes = chance.choice(["all", "some", "sql"])
    deletes, inserts = chance.random() < 0.5, chance.random() < 0.8
    by_source = chance.random() < 0.3
    limit = chance.randint(1, 8)

    def add(merge: Builder) -> Builder:
        if deletes:
            merge = merge.when_matched_delete(f"source.v > {limit}")
        if changes == "all" and kind != "partial-update":
            merge = merge.when_matched_update_all()
        elif changes == "sql":
            merge = merge.when_matched_update(
                {"w": lc.sql_expr("concat(source.w, target.v)")}, "source.w is not null"
            )
        else:
            merge = merge.when_matched_update({"v": pl.col("source.v")}, pl.col("source.v") > 2)
        if inserts:
            merge = merge.when_not_matched_insert_all(f"source.v < {limit}")
        if by_source:
            merge = merge.when_not_matched_by_source_delete(f"target.v = {limit}")
        return merge

    return add


def changes_of(table: lc.Table) -> list[tuple[object, ...]]:
    rows: pl.DataFrame = table.changes(0).collect()
    return sorted(rows.rows(), key=repr)


def counts(result: lc.CommitResult) -> tuple[object, ...]:
    return (
        result.rows_inserted,
        result.rows_updated,
        result.rows_deleted,
        len(result.snapshot_ids),
    )


def check_alike(one: lc.Table, two: lc.Table) -> None:
    """The same rows, snapshots and changelog; no file of `two` is an orphan."""
    assert held(two) == held(one)
    assert two.inspect.snapshots().select("commit_kind").rows() == (
        one.inspect.snapshots().select("commit_kind").rows()
    )
    if one.options.changelog_producer != lc.options.ChangelogProducer.NONE:
        assert changes_of(two) == changes_of(one)
    assert not two.remove_orphan_files(FUTURE, force=True).paths


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.sampled(2)
def test_merge_by_tasks_equals_the_merge_of_one_process(
    spark: SparkSession, tmp_path: Path, kind: str, seed: int
) -> None:
    chance = random.Random(f"{kind} {seed}")
    one, two = two_tables(tmp_path, kind, chance)
    source = rows_of(chance, 60, kind)
    add = clauses(chance, kind)
    on: Any = chance.choice(
        [["p", "id"], "target.p = source.p and target.id = source.id and source.v >= 0"]
    )
    alone = add(one.merge(source, on)).execute(commit_user="job", identifier=1)
    merge = spark_bridge.merge(spark, two, frame(spark, source, 3), on, spread=True)
    spread = add(merge).execute(commit_user="job", identifier=1)
    again = add(merge).execute(commit_user="job", identifier=1)

    check_alike(one, two)
    assert counts(spread) == counts(alone)
    assert again.facts["already_committed"] or not spread.snapshot_ids


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", ["deduplicate", "postponed-counted", "crossing", "append"])
@pytest.mark.sampled(2)
def test_merge_on_other_columns_equals_the_merge_of_one_process(
    spark: SparkSession, tmp_path: Path, kind: str, seed: int
) -> None:
    chance = random.Random(f"{kind} {seed} others")
    one, two = two_tables(tmp_path, kind, chance)
    source = rows_of(chance, 60).unique("id", keep="first", maintain_order=True)
    inserts = kind == "append"

    def add(merge: Builder) -> Builder:
        merge = merge.when_matched_update({"w": pl.lit("hit")}, pl.col("source.v") > 3)
        return merge.when_not_matched_insert_all() if inserts else merge

    on = ["id"] if chance.random() < 0.5 else pl.col("source.id") == pl.col("target.id")
    alone = add(one.merge(source, on)).execute()
    merge = spark_bridge.merge(spark, two, frame(spark, source), on, spread=True)
    spread = add(merge).execute()

    check_alike(one, two)
    assert counts(spread) == counts(alone)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.sampled(3)
def test_update_and_delete_by_tasks_equal_those_of_one_process(
    spark: SparkSession, tmp_path: Path, kind: str, seed: int
) -> None:
    chance = random.Random(f"{kind} {seed} rows")
    one, two = two_tables(tmp_path, kind, chance)
    values = {"v": lc.sql_expr("v + 1")} if chance.random() < 0.5 else {"v": pl.col("v") + 1}
    where: Any = chance.choice(["v > 3", pl.col("id") < 30, "w = 'x' or id % 7 = 0"])
    alone = one.update(values, where)
    spread = spark_bridge.update(spark, two, values, where, spread=True)
    assert counts(spread) == counts(alone)
    check_alike(one, two)
    where = chance.choice(["v > 7", "p = 'a' and id > 10", pl.col("w").is_null()])
    alone = one.delete(where)
    spread = spark_bridge.delete(spark, str(tmp_path / "two"), where, spread=True)

    assert counts(spread) == counts(alone)
    check_alike(one, two)


def test_files_with_columns_of_the_same_rows_are_changed_by_one_task(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_at(
        tmp_path / "t", keys=[], row_tracking__enabled="true", data_evolution__enabled="true"
    )
    for first in (0, 10):
        keys = range(first, first + 10)
        table.write(pl.DataFrame({"id": keys, "v": ["a"] * 10, "n": keys}))
    for _ in range(2):
        spark_bridge.update(spark, table, {"n": pl.col("n") + 100}, "n % 2 = 0", spread=True)
    source = pl.DataFrame({"id": [2, 13, 40], "v": ["x", "y", "z"], "n": [0, 0, 0]})
    merge = spark_bridge.merge(spark, table, frame(spark, source), ["id"], spread=True)
    merge = merge.when_matched_update({"v": lc.sql_expr("concat(source.v, target.n)")})
    merge.when_not_matched_insert_all().execute()

    rows = [(at, "a", at + (0 if at % 2 else 200)) for at in range(20)]
    rows[2], rows[13] = (2, "x202", 202), (13, "y13", 13)
    assert table.to_polars().sort("id").rows() == [*rows, (40, "z", 0)]


def test_conflict_on_a_matched_key_alone_and_an_attempt_that_reads_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(tmp_path / "t", bucket="2", write_only="true")
    table.write(pl.DataFrame({"id": range(20), "v": ["a"] * 20, "n": [1] * 20}))
    source = pl.DataFrame({"id": [3, 40], "v": ["new", "new"], "n": [5, 5]})
    commit: Any = vars(change_job)["commit_changes"]
    meanwhile: list[int] = []

    def overtaken(*given: Any) -> Any:
        if meanwhile:
            table.write({"id": [meanwhile.pop()], "v": ["theirs"], "n": [9]})
        return commit(*given)

    monkeypatch.setattr(change_job, "commit_changes", overtaken)
    df = frame(spark, source)

    def merge(attempts: int) -> lc.CommitResult:
        builder = spark_bridge.merge(spark, table, df, ["id"], spread=True, attempts=attempts)
        add = lc.sql_expr("target.n + source.n")
        return builder.when_matched_update({"n": add}).when_not_matched_insert_all().execute()

    meanwhile.append(4)
    assert merge(1).rows_updated == 1
    assert (3, "a", 6) in held(table)
    assert (4, "theirs", 9) in held(table)
    files = files_of(table)
    meanwhile.append(3)
    with pytest.raises(lc.CommitConflict):
        merge(1)
    assert len(files_of(table) - files) == 1, "the files of the merge are removed"
    meanwhile.append(3)
    assert merge(2).rows_updated == 2
    assert (3, "theirs", 14) in held(table)
    meanwhile.append(5)
    with pytest.raises(lc.CommitConflict):
        spark_bridge.update(spark, table, {"n": 0}, "id = 5", spread=True)
    assert spark_bridge.delete(spark, table, "id = 5", spread=True).rows_deleted == 1


def test_what_is_wrong_is_said_before_any_task_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(tmp_path / "t", bucket="2")
    table.write({"id": [1, 2], "v": ["a", "b"], "n": [1, 2]})

    def no_job(*_: object, **__: object) -> None:
        pytest.fail("a task ran")

    df = frame(spark, pl.DataFrame({"id": [1, 1], "v": ["a", "b"], "n": [5, 6]}))
    merge = spark_bridge.merge(spark, table, df, ["id"], spread=True)
    with monkeypatch.context() as patch:
        patch.setattr(change_job.ChangeJob, "run", no_job)
        with pytest.raises(lc.InvalidRequest, match="needs a clause"):
            merge.execute()
        with pytest.raises(lc.InvalidRequest, match="unknown column"):
            merge.when_matched_update({"n": pl.col("source.absent")}).execute()
        with pytest.raises(lc.InvalidRequest, match="primary key"):
            spark_bridge.update(spark, table, {"id": 1}, spread=True)
        with pytest.raises(lc.InvalidRequest, match="absent"):
            spark_bridge.delete(spark, table, "absent > 1", spread=True)
        with pytest.raises(lc.InvalidRequest, match="attempts"):
            spark_bridge.delete(spark, table, "n > 1", attempts=0)
    with pytest.raises(lc.InvalidRequest, match="several rows of the source"):
        merge.when_matched_update_all().execute()
    with pytest.raises(lc.InvalidRequest, match=r"does not fit|null"):
        spark_bridge.update(spark, table, {"n": lc.sql_expr("n + 3000000000")}, spread=True)

    assert held(table) == [(1, "a", 1), (2, "b", 2)]
    assert files_of(table) == live_files_of(table)


def test_few_rows_are_changed_by_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(tmp_path / "t", bucket="2")
    table.write({"id": [1, 2, 3], "v": ["a", "b", "c"], "n": [1, 2, 3]})
    monkeypatch.setattr(change_job.ChangeJob, "run", lambda *_: pytest.fail("a task ran"))
    df = frame(spark, pl.DataFrame({"id": [1, 9], "v": ["A", "Z"], "n": [5, 9]}))
    merge = spark_bridge.merge(spark, table, df, "target.id = source.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    spark_bridge.delete(spark, table, "id = 2")
    spark_bridge.update(spark, table, {"n": 0}, "id = 3")

    assert held(table) == [(1, "A", 5), (3, "c", 0), (9, "Z", 9)]


@pytest.mark.parametrize("keys", [["id"], []])
def test_a_source_that_turns_out_empty_changes_what_one_process_changes(
    spark: SparkSession, tmp_path: Path, keys: list[str]
) -> None:
    table = table_at(tmp_path / "t", keys=keys, bucket="2" if keys else "-1")
    table.write(pl.DataFrame({"id": range(9), "v": ["a"] * 9, "n": range(9)}))
    # Spark learns only at run time that the frame is empty, and removes the shuffle above it.
    source = spark.range(9).selectExpr("id", "'b' v", "cast(id as int) n").where("n > 20")
    merge = spark_bridge.merge(spark, table, source, ["id"], spread=True)
    merge = merge.when_matched_update_all().when_not_matched_insert_all()
    merge = merge.when_not_matched_by_source_update({"v": "z"}, "target.n = 3")
    result = merge.when_not_matched_by_source_delete("target.n > 3").execute()

    assert (result.rows_updated, result.rows_deleted) == (1, 5)
    assert held(table) == [(0, "a", 0), (1, "a", 1), (2, "a", 2), (3, "z", 3)]
