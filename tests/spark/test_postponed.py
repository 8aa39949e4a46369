"""Writes by tasks to tables with postponed buckets, and to tables whose keys move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from pyspark.errors import PySparkException

import spark_bridge
from tests.spark.frames import COLUMNS, files_of, frame, held, live_files_of, table_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    import lakecore as lc

DAYS = {"id": "BIGINT NOT NULL", "day": "STRING NOT NULL", "n": "INT"}


def rows(*ids: int, n: int = 1, days: int = 2) -> pl.DataFrame:
    return pl.DataFrame(
        {"id": list(ids), "day": [f"d{i % days}" for i in ids], "n": [n] * len(ids)},
        schema={"id": pl.Int64, "day": pl.String, "n": pl.Int32},
    )


def buckets(table: lc.Table) -> set[tuple[str, int, int]]:
    """The partition, the bucket and the number of buckets of each file."""
    context = table.context
    snapshot = context.history.latest_snapshot()
    assert snapshot is not None
    entries = context.history.live_entries(snapshot)
    return {
        (str(dict(context.partitions.texts(e.partition))), e.bucket, e.total_buckets)
        for e in entries
    }


def test_rows_go_to_real_buckets_as_in_one_process(spark: SparkSession, tmp_path: Path) -> None:
    """New partitions, then partitions whose number of buckets is known."""
    options = {"bucket": "-2", "postpone__target_row_num_per_bucket": "20"}
    table, alone = (
        table_at(tmp_path / name, DAYS, keys=("id", "day"), partitions=("day",), **options)
        for name in ("t", "alone")
    )
    for ids, n, days in ((range(100), 1, 2), (range(50, 160), 2, 2), (range(30), 3, 3)):
        given = rows(*ids, n=n, days=days)
        result = spark_bridge.write(frame(spark, given, 4), table)
        alone.write(given)
        assert result.rows == len(given)

    assert held(table) == held(alone)
    assert buckets(table) == buckets(alone)
    assert all(bucket >= 0 for _, bucket, _ in buckets(table))
    assert files_of(table) == live_files_of(table)


def test_known_number_of_buckets_is_shared_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="-2", postpone__default_bucket_num="4")
    given = rows(*range(200)).select("id", v=pl.lit("a"), n="n")
    first = spark_bridge.write(frame(spark, given), table)
    table.delete("id < 10")
    second = spark_bridge.write(frame(spark, given.filter(pl.col("id") < 5)), table)
    replaced = spark_bridge.write(frame(spark, given.head(3)), table, "overwrite")

    assert (first.distribution, first.files) == ("sql", 4)
    assert len({each.partition for each in first.tasks}) > 1
    assert second.rows == 5
    assert replaced.rows == 3
    assert [row[0] for row in held(table)] == [0, 1, 2]


def test_rows_wait_in_the_postponed_bucket_if_the_table_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_at(tmp_path / "t", bucket="-2", postpone__batch_write_fixed_bucket="false")
    given = rows(*range(100)).select("id", v=pl.lit("a"), n="n")
    spark_bridge.write(frame(spark, given), table)
    spark_bridge.write(frame(spark, given.with_columns(v=pl.lit("b"))), table)
    waiting = buckets(table)
    assert held(table) == []
    table.compact()

    assert {bucket for _, bucket, _ in waiting} == {-2}
    assert {row[1] for row in held(table)} == {"b"}
    assert len(held(table)) == 100


def test_frame_that_is_not_prepared_is_refused_if_tasks_share_a_partition(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark_bridge.register(spark)
    table = table_at(tmp_path / "t", bucket="-2")
    given = rows(*range(100)).select("id", v=pl.lit("a"), n="n")
    df = frame(spark, given, 3)
    with pytest.raises(PySparkException, match="several tasks wrote the same"):
        by_source(df, table)
    assert files_of(table) == set()
    by_source(spark_bridge.prepare(df, table), table)

    assert len(held(table)) == 100


def by_source(df: DataFrame, table: lc.Table) -> None:
    """Write by the data source."""
    df.write.format("lakecore").mode("append").option("path", table.path).save()


def test_key_moves_between_partitions(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", DAYS, partitions=("day",))
    alone = table_at(tmp_path / "alone", DAYS, partitions=("day",))
    for days in (2, 3):
        given = rows(*range(60), n=days, days=days)
        spark_bridge.write(frame(spark, given, 4), table)
        alone.write(given)

    assert held(table) == held(alone)
    assert len(held(table)) == 60
    spark_bridge.register(spark)
    with pytest.raises(PySparkException, match="several tasks wrote the same"):
        by_source(frame(spark, rows(*range(60)), 4), table)


def test_merge_into_new_partitions_gives_them_their_buckets(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The buckets of a partition are counted by one task; those of others are known."""
    options = {"bucket": "-2", "postpone__target_row_num_per_bucket": "20", "write_only": "true"}
    table, alone = (
        table_at(tmp_path / name, DAYS, keys=("id", "day"), partitions=("day",), **options)
        for name in ("t", "alone")
    )
    for each in (table, alone):
        each.write(rows(*range(30), days=1))
    given = rows(*range(200), n=2, days=3)
    for merge in (
        spark_bridge.merge(spark, table, frame(spark, given, 4), ["day", "id"], spread=True),
        alone.merge(given, ["day", "id"]),
    ):
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    assert held(table) == held(alone)
    assert len(held(table)) == 220
    assert buckets(table) == buckets(alone)
    assert len({count for _, _, count in buckets(table)}) > 1


def test_changed_rows_wait_in_the_postponed_bucket_if_the_table_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = {
        "bucket": "-2",
        "postpone__batch_write_fixed_bucket": "false",
        "postpone__default_bucket_num": "4",
    }
    table, alone = (table_at(tmp_path / name, COLUMNS, **options) for name in ("t", "alone"))
    given = rows(*range(100)).select("id", v=pl.lit("a"), n="n")
    more = rows(*range(50, 150), n=7).select("id", v=pl.lit("b"), n="n")
    for each in (table, alone):
        each.write(given)
        each.compact()
    merge = spark_bridge.merge(spark, table, frame(spark, more), ["id"], spread=True)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    merged = held(table)
    table.compact()
    spark_bridge.update(spark, table, {"n": 9}, "id % 10 = 0", spread=True)
    spark_bridge.delete(spark, table, "id % 10 = 1", spread=True)
    waiting = {bucket for _, bucket, _ in buckets(table)}
    table.compact()
    alone.merge(more, ["id"]).when_matched_update_all().when_not_matched_insert_all().execute()
    alone.compact()
    alone.update({"n": 9}, "id % 10 = 0")
    alone.delete("id % 10 = 1")
    alone.compact()

    assert {row[1] for row in merged} == {"a"}, "what waits is not read"
    assert waiting == {-2, 0, 1, 2, 3}
    assert held(table) == held(alone)
    assert len(held(table)) == 135


def test_changes_of_keys_that_move_between_partitions(spark: SparkSession, tmp_path: Path) -> None:
    table, alone = (table_at(tmp_path / name, DAYS, partitions=("day",)) for name in ("t", "alone"))
    for each in (table, alone):
        each.write(rows(*range(60)))
    given = rows(*range(30, 90), n=5, days=3)
    for verbs in ("spark", "alone"):
        merge = (
            spark_bridge.merge(spark, table, frame(spark, given, 4), ["id"], spread=True)
            if verbs == "spark"
            else alone.merge(given, ["id"])
        )
        merge = merge.when_matched_delete("target.id = 40")
        merge = merge.when_matched_update({"n": pl.col("source.n"), "day": pl.col("source.day")})
        merge.when_not_matched_insert_all().execute()
    spark_bridge.update(spark, table, {"day": "d9"}, "n = 1 AND id < 5", spread=True)
    alone.update({"day": "d9"}, "n = 1 AND id < 5")
    spark_bridge.delete(spark, table, "id % 7 = 0", spread=True)
    alone.delete("id % 7 = 0")

    assert held(table) == held(alone)
    assert len({row[0] for row in held(table)}) == len(held(table)) == 76
    assert {row[1] for row in held(table)} == {"d0", "d1", "d2", "d9"}
