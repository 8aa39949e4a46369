"""A compaction by Spark makes the files, rows and changelog that one process makes."""

from __future__ import annotations

import os
import pickle
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark import TaskContext

import lakecore as lc
import spark_bridge
from lakecore.distributed import CompactionRequest, compact_table
from spark_bridge import compact_tasks
from spark_bridge.compact_tasks import SparkRunner, compact_function
from spark_bridge.spread import decoded
from spark_bridge.task import PACK_BYTES, packed
from tests.spark.cluster import once
from tests.spark.frames import files_of, held, live_files_of, table_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

SEEDS = int(os.environ.get("LAKECORE_SPARK_SEEDS", "1"))
COLUMNS = {"p": "STRING NOT NULL", "id": "BIGINT NOT NULL", "v": "INT", "w": "STRING"}
SUMS = {"fields__v__aggregate_function": "sum", "fields__w__aggregate_function": "max"}
TABLES: dict[str, dict[str, str]] = {
    "deduplicate": {"bucket": "3"},
    "lookup": {"bucket": "2", "changelog_producer": "lookup"},
    "full_compaction": {"bucket": "2", "changelog_producer": "full-compaction"},
    "aggregation": {"bucket": "2", "merge_engine": "aggregation", **SUMS},
    "dynamic": {"bucket": "-1", "dynamic_bucket__target_row_num": "20"},
    "append": {"bucket": "-1"},
}


def two_tables(home: Path, kind: str, seed: int) -> tuple[lc.Table, lc.Table]:
    """Two tables with the same files and snapshots, of several runs in each bucket."""
    chance = random.Random(seed)
    keys = [] if kind == "append" else ["p", "id"]
    options = {"write_only": "true", **TABLES[kind]}
    table = table_at(home / "one", COLUMNS, keys=keys, partitions=["p"], **options)
    deletes = kind in {"deduplicate", "lookup", "full_compaction", "dynamic"}
    for _ in range(chance.randint(3, 6)):
        rows = [
            (
                chance.choice("ab"),
                chance.randint(0, 40),
                chance.randint(0, 9),
                chance.choice(["x", None]),
                chance.choice(["+I", "+I", "+I", "-D"]) if deletes else "+I",
            )
            for _ in range(40)
        ]
        schema = {"p": pl.String, "id": pl.Int64, "v": pl.Int32, "w": pl.String}
        names = {**schema, "_row_kind": pl.String}
        table.write(pl.DataFrame(rows, schema=names, orient="row"))
    shutil.copytree(home / "one", home / "two")
    return table, lc.open_table(home / "two")


def shape_of(table: lc.Table) -> list[tuple[object, ...]]:
    """What the live files are, but for their names and times."""
    files = table.inspect.files()
    columns = ["partition", "bucket", "level", "record_count", "min_key", "max_key"]
    return sorted(files.select(columns).rows(), key=repr)


def changes_of(table: lc.Table) -> list[tuple[object, ...]]:
    rows: pl.DataFrame = table.changes(0).collect()
    return sorted(rows.rows(), key=repr)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.sampled(2)
def test_spark_compacts_as_one_process_does(
    spark: SparkSession, tmp_path: Path, kind: str, seed: int
) -> None:
    one, two = two_tables(tmp_path, kind, seed)
    before = held(one)
    full = kind != "append" or seed % 2 == 0
    alone = one.compact(full=full)
    spread = spark_bridge.compact(spark, two, full=full)

    assert held(two) == held(one) == before
    assert shape_of(two) == shape_of(one)
    assert (spread.buckets, spread.rows_before, spread.rows_after, spread.files_after) == (
        alone.buckets,
        alone.rows_before,
        alone.rows_after,
        alone.files_after,
    )
    assert spread.snapshot_ids == alone.snapshot_ids
    if one.options.changelog_producer != lc.options.ChangelogProducer.NONE:
        assert changes_of(two) == changes_of(one)


def test_each_step_commits_and_partitions_are_chosen(spark: SparkSession, tmp_path: Path) -> None:
    _, table = two_tables(tmp_path, "deduplicate", 7)
    result = spark_bridge.compact(
        spark, str(tmp_path / "two"), full=True, where="p = 'a'", max_bytes=1
    )

    assert (result.steps, result.buckets) == (3, 3)
    levels = table.inspect.files().select("partition", "level").rows()
    assert {level == 5 for partition, level in levels if "a" in str(partition)} == {True}
    assert 0 in {level for partition, level in levels if "b" in str(partition)}
    assert spark_bridge.compact(spark, table, full=True, dry_run=True).snapshot_ids == ()


def test_compaction_that_others_overtake_plans_again_and_keeps_the_rest(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, table = two_tables(tmp_path, "deduplicate", 3)
    rows = held(table)
    times: list[int] = []

    def overtaken(sizes: Sequence[int], cores: int) -> list[list[int]]:
        times.append(len(sizes))
        if len(times) == 1:
            table.compact(full=True, buckets=[0])
        return packed(sizes, cores)

    monkeypatch.setattr(compact_tasks, "packed", overtaken)
    result = spark_bridge.compact(spark, table, full=True)

    assert result.attempts == 2
    assert times[0] == 6
    assert held(table) == rows
    assert {level for (level,) in table.inspect.files().select("level").rows()} == {5}
    assert live_files_of(table) <= files_of(table)


def test_task_that_dies_after_its_work_runs_again_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, table = two_tables(tmp_path, "full_compaction", 5)
    rows, old = held(table), files_of(table)
    mark = str(tmp_path / "mark")

    def dying(task: Any) -> Callable[[Any], Any]:
        compact = compact_function(task)

        def compact_and_die(batches: Any) -> Any:
            done = list(compact(batches))
            context = TaskContext.get()
            if context is not None and context.partitionId() == 0 and once(mark):
                message = "dies after its files are written"
                raise RuntimeError(message)
            yield from done

        return compact_and_die

    monkeypatch.setattr(compact_tasks, "compact_function", dying)
    result = spark_bridge.compact(spark, table, full=True)
    new = files_of(table) - old

    assert result.steps == 1
    assert held(table) == rows
    assert {name for name in new if name.startswith("data-")} == live_files_of(table)


def test_damaged_file_is_named_once_and_nothing_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    _, table = two_tables(tmp_path, "deduplicate", 9)
    Path(min(table.inspect.files()["file_path"].to_list())).unlink()
    old = files_of(table)
    with pytest.raises(lc.CorruptTable, match="missing"):
        spark_bridge.compact(spark, table, full=True)

    assert files_of(table) == old
    with pytest.raises(lc.InvalidRequest, match="memory_per_task"):
        spark_bridge.compact(spark, table, memory_per_task=0)


@pytest.mark.parametrize("kind", ["deduplicate", "aggregation", "lookup"])
def test_large_bucket_is_cut_by_key(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    one, two = two_tables(tmp_path, kind, 4)
    one.compact(full=True, buckets=[0])
    tasks: list[int] = []

    def counted(sizes: Sequence[int], cores: int) -> list[list[int]]:
        tasks.append(len(sizes))
        return packed(sizes, cores)

    monkeypatch.setattr(compact_tasks, "PART_BYTES", 1)
    monkeypatch.setattr(compact_tasks, "_PARTS_PER_CORE", 8)
    monkeypatch.setattr(compact_tasks, "packed", counted)
    result = spark_bridge.compact(spark, two, full=True, buckets=[0])

    assert tasks[0] == 2 if kind == "lookup" else tasks[0] > 2, "partitions"
    assert (result.buckets, result.steps) == (2, 1)
    assert held(two) == held(one)
    levels = two.inspect.files().filter(pl.col("bucket") == 0)["level"]
    assert set(levels) == {5}
    assert live_files_of(two) <= files_of(two)
    rows = {"p": ["a", "b"], "id": [1, 40], "v": [3, 4], "w": ["n", "n"]}
    for table in (one, two):
        table.write(pl.DataFrame(rows, schema_overrides={"v": pl.Int32}))
        table.compact(full=True)
    assert held(two) == held(one)


def test_part_that_fails_leaves_no_file_of_the_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, table = two_tables(tmp_path, "deduplicate", 9)
    monkeypatch.setattr(compact_tasks, "PART_BYTES", 1)
    monkeypatch.setattr(compact_tasks, "_PARTS_PER_CORE", 8)
    Path(min(table.inspect.files()["file_path"].to_list())).unlink()
    old = files_of(table)
    with pytest.raises(lc.CorruptTable, match="missing"):
        spark_bridge.compact(spark, table, full=True)

    assert files_of(table) == old


class _Here(SparkRunner):
    """Runs the tasks of the job in this process, as an executor does."""

    def _collected(
        self, context: Any, task: Any, works: Sequence[Any], groups: Sequence[Sequence[int]]
    ) -> tuple[list[Any], bool]:
        del context
        sealed = [pickle.dumps([(number, works[number]) for number in group]) for group in groups]
        units = pa.record_batch({"number": range(len(sealed)), "unit": sealed})
        task = pickle.loads(pickle.dumps(task))
        batches = list(compact_function(task)(iter([units])))
        rows = [row for batch in batches for row in batch.to_pylist()]
        rows.sort(key=lambda row: row["number"])
        return [decoded(row["outcome"]) for row in rows], False


@pytest.mark.parametrize("strategy", ["order", "zorder", "hilbert"])
def test_sorting_by_tasks_makes_the_files_of_one_process(tmp_path: Path, strategy: str) -> None:
    columns = {"p": "INT", "x": "INT", "y": "INT"}
    table = table_at(tmp_path / "one", columns, keys=(), partitions=("p",))
    for number in range(3):
        table.write(
            pl.DataFrame({"p": [i % 2 for i in range(400)], "x": range(400), "y": range(400)})
            .with_columns(y=(pl.col("x") * 37 + number) % 101)
            .cast(pl.Int32)
        )
    other = lc.open_table(shutil.copytree(table.path, tmp_path / "other"))
    request = CompactionRequest(order_strategy=strategy, order_by=["x", "y"])
    runner = _Here(spark=None, cores=2, memory_bytes=64 << 20)
    result = compact_table(table.context, request, run=runner)
    alone = other.compact(order_strategy=strategy, order_by=["x", "y"])

    assert table.to_polars().rows() == other.to_polars().rows()
    assert (result.files_after, result.rows_after) == (alone.files_after, alone.rows_after)


def test_large_buckets_are_alone_and_small_ones_packed() -> None:
    large = PACK_BYTES * 2
    assert packed([1, large, large + 1], 1) == [[2], [1], [0]]
    assert sorted(map(len, packed([PACK_BYTES // 4] * 40, 2))) == [4] * 10
    assert len(packed([10] * 12, 2)) == 6
    assert sorted(each for group in packed([0, 0], 2) for each in group) == [0, 1]
