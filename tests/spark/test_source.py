"""`df.write.format("lakecore")`: one owner of a bucket, one commit, an abort that is careful."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

import spark_bridge
from lakecore.errors import InvalidRequest
from spark_bridge.source import writer
from spark_bridge.types import spark_schema
from tests.spark.frames import COLUMNS, files_of, frame, held, live_files_of, table_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    import lakecore as lc

ROWS = pl.DataFrame(
    [(i, f"v{i % 3}", i % 11) for i in range(300)],
    schema={"id": pl.Int64, "v": pl.String, "n": pl.Int32},
    orient="row",
)


def into(df: DataFrame, table: lc.Table, mode: str = "append") -> DataFrameWriter:
    return df.write.format("lakecore").mode(mode).option("path", table.path)


def batches(rows: pl.DataFrame) -> Iterator[pa.RecordBatch]:
    return iter(rows.to_arrow().to_batches())


def test_prepared_frame_is_written(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="3")
    df = spark_bridge.prepare(frame(spark, ROWS, 3), table)
    into(df, table).option("write.commit-user", "job").option("write.identifier", "4").save()
    into(df, table).option("write.commit-user", "job").option("write.identifier", "4").save()

    assert held(table) == sorted(ROWS.rows(), key=repr)
    assert table.last_identifier("job") == 4
    assert table.inspect.snapshots().height == 1
    assert files_of(table) == live_files_of(table)


def test_bucket_of_several_tasks_is_refused_with_the_way_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_at(tmp_path / "t", bucket="2")

    with pytest.raises(PySparkException, match=r"spark_bridge\.prepare"):
        into(frame(spark, ROWS, 2), table).save()
    assert table.context.history.latest_snapshot() is None
    assert files_of(table) == set()


def test_append_table_takes_any_frame(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", keys=())
    into(frame(spark, ROWS, 2), table).save()

    assert held(table) == sorted(ROWS.rows(), key=repr)


def test_overwrite_replaces_the_table_unless_told_otherwise(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_at(tmp_path / "t", keys=(), partitions=("v",))
    into(frame(spark, ROWS), table).save()
    v1 = ROWS.filter(v="v1").head(2)
    dynamic = into(frame(spark, v1), table, "overwrite")
    dynamic.option("dynamic-partition-overwrite", "true").save()

    kept = pl.concat([ROWS.filter(pl.col("v") != "v1"), v1])
    assert held(table) == sorted(kept.rows(), key=repr)
    into(frame(spark, v1), table, "overwrite").save()
    assert held(table) == sorted(v1.rows(), key=repr)


def test_failed_task_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", keys=())
    df = frame(spark, ROWS, 4).withColumn("n", f.expr("if(id = 7, 5000000000L, cast(n as bigint))"))

    with pytest.raises(PySparkException, match="column=n"):
        into(df, table).save()
    assert files_of(table) == set()


def test_frame_that_does_not_fit_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", keys=())

    with pytest.raises(PySparkException, match="unknown column"):
        into(spark.range(3).withColumn("other", f.lit(1)), table).save()


def test_abort_after_a_commit_removes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1")
    sink = writer(table, {}, spark_schema(table.schema.fields), overwrite=False)
    message = sink.write(batches(ROWS))
    sink.commit([message])
    sink.abort([message])
    sink.abort([message, None])

    assert held(table) == sorted(ROWS.rows(), key=repr)
    assert spark is not None


def test_abort_of_a_failed_job_removes_its_files_alone(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1")
    table.write(ROWS)
    sink = writer(table, {}, spark_schema(table.schema.fields), overwrite=False)
    message = sink.write(batches(ROWS))
    assert len(files_of(table)) == 2
    table.write(ROWS.head(1))
    sink.abort([message, None])

    assert files_of(table) == live_files_of(table)
    assert len(files_of(table)) == 2
    assert spark is not None


def test_abort_that_cannot_read_the_log_removes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_at(tmp_path / "t", COLUMNS, bucket="1")
    sink = writer(table, {}, spark_schema(table.schema.fields), overwrite=False)
    message = sink.write(batches(ROWS))
    snapshots = tmp_path / "t" / "snapshot"
    snapshots.mkdir(exist_ok=True)
    (snapshots / "snapshot-1").write_text("no snapshot")
    (snapshots / "LATEST").write_text("1")
    sink.abort([message, None])

    assert len(files_of(table)) == 1
    assert spark is not None


def test_options_that_say_nothing_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1")
    schema = spark_schema(table.schema.fields)

    with pytest.raises(InvalidRequest, match="whole number"):
        writer(table, {"write.identifier": "x"}, schema, overwrite=False)
    with pytest.raises(InvalidRequest, match="give both"):
        writer(table, {"write.identifier": "1"}, schema, overwrite=False)
    with pytest.raises(InvalidRequest, match="a whole number, 1 or more"):
        writer(table, {"write.memory-per-task": "0"}, schema, overwrite=False)
    with pytest.raises(PySparkException, match="a system table takes no rows"):
        into(frame(spark, ROWS, 1), table).option("path", f"{table.path}$files").save()
    for option in ("snapshot-id", "versionAsOf", "scan.tag-name"):
        with pytest.raises(PySparkException, match="newest state"):
            into(frame(spark, ROWS, 1), table).option(option, "1").save()
    with pytest.raises(PySparkException, match=r"(?s)provider|CREATE TABLE"):
        into(frame(spark, ROWS, 1), table).options(provider="x", branch="b").save()
    assert table.inspect.snapshots().is_empty()


@pytest.mark.parametrize("way", ["write", "format"])
def test_messages_of_many_files_fit_a_small_limit_of_results(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    columns = {"p": "INT NOT NULL", "v": "STRING"}
    table = table_at(tmp_path / "t", columns, keys=(), partitions=("p",))
    rows = pl.DataFrame({"p": range(1500), "v": "x"}, schema={"p": pl.Int32, "v": pl.String})
    conf = spark.sparkContext._jsc.sc().conf()  # noqa: SLF001  the session's is a copy
    conf.set("spark.driver.maxResultSize", "300k")
    try:
        df = frame(spark, rows, 2)
        _ = spark_bridge.write(df, table) if way == "write" else into(df, table).save()
    finally:
        conf.remove("spark.driver.maxResultSize")

    assert table.inspect.files().height >= 1500
    assert len(held(table)) == 1500
