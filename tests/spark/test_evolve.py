"""Frames with columns that the table lacks: the schema is stored after the rows, or not at all."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType, StructField, StructType

import lakecore as lc
import spark_bridge
from lakecore.errors import CommitConflict, InvalidRequest
from spark_bridge import job_commit, source, write_frame
from spark_bridge.source import LakecoreSource
from tests.spark.frames import files_of, frame, held, live_files_of, table_at
from tests.spark.micro_batches import TaskStandIn

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = pl.DataFrame(
    {"id": range(40), "v": "a", "n": range(40), "note": [f"x{i}" for i in range(40)]},
    schema={"id": pl.Int64, "v": pl.String, "n": pl.Int64, "note": pl.String},
)


def types_of(table: lc.Table) -> dict[str, str]:
    newest = lc.open_table(table.path)
    return {field.name: str(field.type) for field in newest.schema.fields}


def test_new_columns_and_wider_types_come_with_the_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_at(tmp_path / "t", bucket="2")
    table.write(pl.DataFrame({"id": [1000], "v": ["old"], "n": [7]}))
    df = frame(spark, ROWS).withColumn("more", f.struct(f.col("id").alias("a")))
    with pytest.raises(InvalidRequest, match="unknown column"):
        spark_bridge.write(df, table)
    result = spark_bridge.write(df, table, evolve_schema=True)
    deeper = frame(spark, ROWS.head(1)).withColumn(
        "more", f.struct(f.lit(1).cast("long").alias("a"), f.lit("b").alias("b"))
    )
    spark_bridge.write(deeper.drop("note"), table, evolve_schema=True)

    assert result.rows == 40
    assert types_of(table) == {
        "id": "BIGINT NOT NULL",
        "v": "STRING",
        "n": "BIGINT",
        "note": "STRING",
        "more": "ROW<`a` BIGINT, `b` STRING>",
    }
    newest = lc.open_table(table.path)
    rows = {row[0]: row[1:] for row in held(newest)}
    assert rows[1000] == ("old", 7, None, None)
    assert rows[0] == ("a", 0, None, {"a": 1, "b": "b"})
    assert rows[39] == ("a", 39, "x39", {"a": 39, "b": None})
    assert files_of(table) == live_files_of(newest)


def test_schema_that_another_job_changed_meanwhile_is_a_conflict(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(tmp_path / "t", bucket="2", write__merge_schema="true")
    publish = job_commit.publish

    def late(*given: Any) -> Any:
        lc.open_table(table.path).write(
            pl.DataFrame({"id": [1], "v": ["a"], "n": [1], "other": [1]}), evolve_schema=True
        )
        return publish(*given)

    small = ROWS.with_columns(pl.col("n").cast(pl.Int32))
    with monkeypatch.context() as patch:
        patch.setattr(write_frame, "publish", late)
        with pytest.raises(CommitConflict, match="changed the schema"):
            spark_bridge.write(frame(spark, small), table)

    assert list(types_of(table)) == ["id", "v", "n", "other"]
    assert files_of(table) == live_files_of(table)
    spark_bridge.write(frame(spark, small), table)
    assert list(types_of(table)) == ["id", "v", "n", "other", "note"]
    assert len(held(lc.open_table(table.path))) == 40


def test_rows_that_do_not_fit_leave_the_schema_alone(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="2", write__merge_schema="true")
    large = frame(spark, ROWS).withColumn("n", f.col("n") + (1 << 40))
    with pytest.raises(InvalidRequest, match="range"):
        spark_bridge.write(large, table)
    with pytest.raises(InvalidRequest, match="lower case"):
        spark_bridge.write(frame(spark, ROWS).withColumnRenamed("note", "V"), table)

    assert list(types_of(table)) == ["id", "v", "n"]
    assert files_of(table) == set()


def test_option_of_a_write_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="2")
    spark.dataSource.register(LakecoreSource)
    prepared = spark_bridge.prepare(frame(spark, ROWS), table, evolve_schema=True)
    writer = prepared.write.format("lakecore").mode("append").option("path", table.path)
    writer.option("write.merge-schema", "true").option(
        "write.merge-schema.type-widening", "true"
    ).save()

    assert types_of(table)["n"] == "BIGINT"
    assert held(lc.open_table(table.path)) == sorted(ROWS.rows(), key=repr)


@pytest.mark.parametrize("crash", [False, True], ids=["", "before the commit"])
def test_batch_of_a_stream_brings_its_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, crash: bool
) -> None:
    monkeypatch.setattr(source, "TaskContext", TaskStandIn)
    monkeypatch.setattr(TaskStandIn, "query", "query-1")
    table = table_at(tmp_path / "t", bucket="1")
    columns = [StructField("id", LongType()), StructField("note", StringType())]
    sink = LakecoreSource({"path": table.path, "write.merge-schema": "true"})

    def batch(number: int, rows: pl.DataFrame) -> None:
        writer = pickle.dumps(sink.streamWriter(StructType(columns), False))
        messages = [pickle.loads(writer).write(iter(rows.to_arrow().to_batches()))]
        # Spark commits with another writer object.
        committer = pickle.loads(pickle.dumps(sink.streamWriter(StructType(columns), False)))
        committer.commit(pickle.loads(pickle.dumps(messages)), number)

    rows = pl.DataFrame({"id": [1, 2], "note": ["a", "b"]})
    if crash:

        def die(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(job_commit, "commit_append", die)
            with pytest.raises(KeyboardInterrupt):
                batch(0, rows)
        assert list(types_of(table)) == ["id", "v", "n", "note"]
    batch(0, rows)
    batch(0, rows)
    batch(1, rows.with_columns(id=pl.col("id") + 2))

    newest = lc.open_table(table.path)
    assert [row[0] for row in held(newest)] == [1, 2, 3, 4]
    assert newest.inspect.snapshots().height == 2
