"""Streams in Spark itself: from table to table, aggregates, several tables, a driver that dies."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

import lakecore as lc
import spark_bridge
from lakecore.errors import InvalidRequest, Unsupported
from tests.spark.conftest import ROOT, spark_environment
from tests.spark.frames import files_of, held, live_files_of, table_at
from tests.spark.streams import HAS_LIMITS, ONE_SNAPSHOT, rows_of, run

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def sunk(df: DataFrame, path: str, checkpoint: Path, **options: str) -> StreamingQuery:
    """Run a query into `writeStream.format("lakecore")` over all that there is."""
    writer = df.writeStream.format("lakecore").option("path", path).options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_changes_stream_from_table_to_table(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="2", changelog_producer="input")
    target = table_at(tmp_path / "to", bucket="2")
    table.write(rows_of(1, 2, 3))
    table.write(rows_of(2, v="b"))
    df = spark_bridge.prepare(spark_bridge.read_stream(spark, table).drop("_snapshot_id"), target)
    first = sunk(df, target.path, tmp_path / "c")
    assert held(target) == held(table)
    table.delete("id = 1")
    table.write(rows_of(4, v="c"))
    second = sunk(df, target.path, tmp_path / "c")

    assert held(target) == held(table)
    assert first.id == second.id
    assert target.last_identifier(f"spark-{first.id}") == (2 if HAS_LIMITS else 1)
    assert files_of(target) == live_files_of(target)
    progress: Any = second.lastProgress
    (source,) = progress["sources"]
    assert '"snapshot": 4' in str(source["endOffset"]).replace('\\"', '"').replace("'", '"')


def test_running_aggregate_of_update_mode_and_several_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = table_at(tmp_path / "log", keys=())
    sums = table_at(
        tmp_path / "sums", {"v": "STRING NOT NULL", "n": "BIGINT"}, keys=("v",), bucket="1"
    )
    copy = table_at(tmp_path / "copy", keys=())
    log.write(rows_of(1, 2))
    log.write(rows_of(3, v="b"))
    spark_bridge.register(spark)
    rows = spark.readStream.format("lakecore").options(startingVersion="1", **ONE_SNAPSHOT)
    totals = rows.load(log.path).groupBy("v").agg(f.sum("n").alias("n"))
    into_sums, into_copy = spark_bridge.foreach_batch(sums), spark_bridge.foreach_batch(copy.path)

    def write(batch: DataFrame, number: int) -> None:
        into_sums(batch, number)
        into_copy(batch.selectExpr("0L id", "v", "cast(n as int) n"), number)

    def start() -> StreamingQuery:
        return (
            totals.writeStream.outputMode("update")
            .foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )

    start().awaitTermination()
    log.write(rows_of(4, v="b"))
    query = start()
    query.awaitTermination()

    assert held(sums) == [("a", 2), ("b", 2)]
    assert held(copy) == [(0, "a", 2), (0, "b", 1), (0, "b", 2)]
    written = [(number, result.rows) for number, result in into_copy.results]
    assert written == ([(0, 1), (1, 1), (2, 1)] if HAS_LIMITS else [(0, 2), (1, 1)])
    assert [number for number, _ in into_sums.results] == [number for number, _ in written]
    assert sums.last_identifier(f"spark-{query.id}") == written[-1][0]


def test_second_write_of_a_batch_needs_a_name(spark: SparkSession, tmp_path: Path) -> None:
    table, target = table_at(tmp_path / "t", keys=()), table_at(tmp_path / "to", keys=())
    table.write(rows_of(1, 2))
    df = spark_bridge.read_stream(spark, table, changelog=False)
    first, second = (spark_bridge.foreach_batch(target) for _ in range(2))
    named = spark_bridge.foreach_batch(target, name="even")

    def twice(rows: DataFrame, batch: int) -> None:
        first(rows.where("id = 1"), batch)
        second(rows.where("id = 2"), batch)

    def apart(rows: DataFrame, batch: int) -> None:
        first(rows.where("id = 1"), batch)
        named(rows.where("id = 2"), batch)

    with pytest.raises(StreamingQueryException, match="give each sink a"):
        run(df, tmp_path / "c", twice)
    assert [row[0] for row in held(target)] == [1]
    # The batch is repeated: the first part is there, the other one comes now.
    run(df, tmp_path / "c", apart)
    assert [row[0] for row in held(target)] == [1, 2]
    assert [result.already_committed for _, result in first.results] == [False, True]


def test_driver_that_dies_after_a_commit_goes_on_with_the_next_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, target = table_at(tmp_path / "from", keys=()), table_at(tmp_path / "to", keys=())
    for number in range(3):
        table.write(rows_of(number))
    died = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.spark.stream_driver", str(tmp_path)],
        cwd=ROOT,
        env=spark_environment(),
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
        timeout=300,
    )
    assert died.returncode == -9, died.stderr[-3000:]
    assert [row[0] for row in held(target)] == ([0, 1] if HAS_LIMITS else [0, 1, 2])
    sink = spark_bridge.foreach_batch(target)
    df = spark_bridge.read_stream(
        spark, table, changelog=False, from_snapshot=1, options=ONE_SNAPSHOT
    )
    run(df, tmp_path / "checkpoint", sink)

    assert [row[0] for row in held(target)] == [0, 1, 2]
    again = [(1, True), (2, False)] if HAS_LIMITS else [(0, True)]
    assert [(n, result.already_committed) for n, result in sink.results] == again
    assert files_of(target) == live_files_of(target)


def test_attached_table_takes_a_stream_and_gives_none(spark: SparkSession, tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("streamed")
    target = session.create_table("streamed.t", {"id": "BIGINT", "v": "STRING", "n": "INT"})
    table = table_at(tmp_path / "t", keys=())
    table.write(rows_of(1))
    spark_bridge.attach(spark, session.warehouse)
    df = spark_bridge.read_stream(spark, table, changelog=False)
    query = df.writeStream.option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).toTable("streamed.t").awaitTermination()

    assert held(target) == [(1, "a", 1)]
    with pytest.raises(StreamingQueryException, match="read_stream"):
        run(spark.readStream.table("streamed.t"), tmp_path / "d", lambda *_: None)


def test_arguments_are_checked_before_a_query_starts(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1")
    table.write(rows_of(1))
    sink = spark_bridge.foreach_batch(table)
    narrow = spark_bridge.read_stream(spark, table, columns=["ID"])

    assert narrow.columns == ["_row_kind", "_snapshot_id", "id"]
    with pytest.raises(InvalidRequest, match="nothing"):
        spark_bridge.read_stream(spark, table, where="nothing > 1")
    with pytest.raises(InvalidRequest, match="nothing"):
        spark_bridge.read_stream(spark, table, columns=["nothing"])
    with pytest.raises(InvalidRequest, match="streaming query"):
        sink(spark.range(1), 0)
    with pytest.raises(InvalidRequest, match="compact_every"):
        spark_bridge.foreach_batch(table, compact_every=-1)
    with pytest.raises(InvalidRequest, match="mode"):
        spark_bridge.foreach_batch(table, "update")  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="one process"):
        spark_bridge.read_stream(
            spark, lc.open_table("memory:///x", create=True, schema={"id": "INT"})
        )
