"""One partition of dynamic buckets is assigned by several tasks, and no key changes its bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

import spark_bridge
from lakecore.errors import InvalidRequest
from spark_bridge.placement import assigners_of, fitting
from tests.spark.frames import COLUMNS, frame, held, table_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    import lakecore as lc

ROWS = pl.DataFrame(
    {
        "id": range(2000),
        "v": [f"v{i % 7}" for i in range(2000)],
        "n": [i % 11 for i in range(2000)],
    },
    schema={"id": pl.Int64, "v": pl.String, "n": pl.Int32},
)


def dynamic(path: Path, initial: str | None = None) -> lc.Table:
    stated = {} if initial is None else {"dynamic_bucket__initial_buckets": initial}
    return table_at(path, COLUMNS, bucket="-1", dynamic_bucket__target_row_num="300", **stated)


def changed(rows: pl.DataFrame, number: int) -> pl.DataFrame:
    return rows.with_columns(n=pl.lit(number, pl.Int32))


def assert_each_key_once(table: lc.Table, rows: pl.DataFrame) -> None:
    assert held(table) == sorted(rows.rows(), key=repr)
    table.compact(full=True)
    assert held(table) == sorted(rows.rows(), key=repr)


def test_a_load_has_several_tasks_and_later_writes_keep_each_bucket(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = dynamic(tmp_path / "t")
    first = spark_bridge.write(frame(spark, ROWS, 3), table)
    again = spark_bridge.write(frame(spark, changed(ROWS, 77), 3), table)

    assert len(first.tasks) == len(again.tasks) == 2
    assert_each_key_once(table, changed(ROWS, 77))


def test_a_table_filled_by_one_writer_is_written_by_one_task(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = dynamic(tmp_path / "t")
    table.write(ROWS)
    result = spark_bridge.write(frame(spark, changed(ROWS, 5), 3), table)

    assert len(result.tasks) == 1
    assert_each_key_once(table, changed(ROWS, 5))


def test_a_local_write_after_a_spread_load_keeps_each_bucket(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = dynamic(tmp_path / "t")
    spark_bridge.write(frame(spark, ROWS.head(1000), 3), table)
    table.write(changed(ROWS, 6))
    result = spark_bridge.write(frame(spark, changed(ROWS, 7), 3), table)

    assert len(result.tasks) == 1  # the local writer filled buckets of both assigners
    assert_each_key_once(table, changed(ROWS, 7))


@pytest.mark.parametrize("key", ["id BIGINT", "id DOUBLE"])
def test_initial_buckets_state_the_assigners_of_each_partition(
    spark: SparkSession, tmp_path: Path, key: str
) -> None:
    columns = {**COLUMNS, "id": f"{key.split()[1]} NOT NULL", "v": "STRING NOT NULL"}
    table = table_at(
        tmp_path / "t",
        columns,
        keys=("id", "v"),
        partitions=("v",),
        bucket="-1",
        dynamic_bucket__target_row_num="300",
        dynamic_bucket__initial_buckets="3",
    )
    rows = ROWS if "BIGINT" in key else ROWS.with_columns(pl.col("id") / 2)
    for number in (1, 2):
        spark_bridge.prepare(frame(spark, changed(rows, number), 3), table).write.format(
            "lakecore"
        ).mode("append").option("path", table.path).save()
        spark_bridge.write(frame(spark, changed(rows, number + 2), 3), table)

    assert table.inspect.files()["bucket"].n_unique() >= 3
    assert_each_key_once(table, changed(rows, 4))


def test_an_unprepared_frame_is_still_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = dynamic(tmp_path / "t", "2")
    writer = frame(spark, ROWS, 3).write.format("lakecore").mode("append")

    with pytest.raises(Exception, match="several tasks wrote the same partition"):
        writer.option("path", table.path).save()
    assert held(table) == []


def test_an_overwrite_begins_with_an_empty_index(spark: SparkSession, tmp_path: Path) -> None:
    table = dynamic(tmp_path / "t")
    table.write(ROWS)
    result = spark_bridge.write(frame(spark, changed(ROWS, 9), 3), table, "overwrite")

    assert len(result.tasks) == 2
    assert_each_key_once(table, changed(ROWS, 9))


def test_the_largest_number_that_fits_the_index_is_found() -> None:
    by_six = [(b, np.arange(b, 60, 6, dtype=np.int32) * sign) for b in range(6) for sign in (1, -1)]

    assert [fitting(by_six, most) for most in (8, 6, 5, 3, 2, 1)] == [6, 6, 3, 3, 2, 1]
    assert fitting([(0, np.array([0, 1], dtype=np.int32))], 8) == 1
    assert fitting([], 8) == 8
    smallest = np.array([-(2**31)], dtype=np.int32)
    assert fitting([(2, smallest)], 3) == 3


def test_fixed_buckets_and_append_tables_have_no_assigners(tmp_path: Path) -> None:
    assert assigners_of(table_at(tmp_path / "f", bucket="4").context, 8) == 1
    assert assigners_of(table_at(tmp_path / "a", keys=()).context, 8) == 1
    limited = table_at(tmp_path / "m", bucket="-1", dynamic_bucket__max_buckets="3")
    assert assigners_of(limited.context, 8) == 3


def test_a_row_that_does_not_fit_is_tried_once(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", {"id": "BIGINT NOT NULL", "n": "TINYINT"}, bucket="2")
    attempts = spark.sparkContext.accumulator(0)
    df = spark.range(4).selectExpr("id", "id * 100 AS n")

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempts.add(1)
        yield from batches

    with pytest.raises(InvalidRequest, match="task="):
        spark_bridge.write(df.mapInArrow(counted, df.schema).repartition(1), table)
    assert attempts.value == 2  # the two tasks of the range, once each
    assert held(table) == []
