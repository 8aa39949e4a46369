"""What the tasks of a job receive and return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql.classic.dataframe import DataFrame

import spark_bridge
from spark_bridge.spread import map_units
from tests.spark.frames import frame, held, table_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    import lakecore as lc

ROWS = pl.DataFrame(
    [(i, f"v{i % 3}", i % 11) for i in range(500)],
    schema={"id": pl.Int64, "v": pl.String, "n": pl.Int32},
    orient="row",
)


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        yield batch.append_column("task", pa.array([context.partitionId()] * batch.num_rows))


@pytest.mark.parametrize("size_bytes", [None, 100, 5 << 20, 1 << 40])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_each_unit_is_the_only_row_of_its_task(
    spark: SparkSession, count: int, size_bytes: int | None
) -> None:
    units = [b"%d" % number * 50 for number in range(count)]
    schema = "number int, unit binary, task long"
    rows = map_units(spark, units, where, schema, size_bytes)

    assert sorted(map(tuple, rows.collect())) == [
        (number, unit, number) for number, unit in enumerate(units)
    ]


@pytest.mark.parametrize(("count", "size_bytes"), [(1, 20 << 20), (2, 3 << 20), (7, 20 << 20)])
def test_size_of_a_frame_is_not_that_of_its_units(
    spark: SparkSession, count: int, size_bytes: int
) -> None:
    rows = map_units(spark, [b"unit"] * count, where, "id int", size_bytes)
    size = rows._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()  # noqa: SLF001

    assert size_bytes <= size
    assert size < 1.1 * size_bytes or count > 2, "more units than cores: unknown, so large"


def read(spark: SparkSession, table: lc.Table) -> None:
    assert spark_bridge.read(spark, table, raw_by_spark=False).count() == 500


def merge(spark: SparkSession, table: lc.Table) -> None:
    merging = spark_bridge.merge(spark, table, frame(spark, ROWS), ["id"], spread=True)
    merging.when_matched_update_all().execute()


JOBS: dict[str, Callable[[Any, Any], object]] = {
    "read": read,
    "compact": lambda spark, table: spark_bridge.compact(spark, table, full=True),
    "analyze": lambda spark, table: spark_bridge.analyze(spark, table, spread=True),
    "delete": lambda spark, table: spark_bridge.delete(spark, table, "n = 3", spread=True),
    "merge": merge,
}


@pytest.mark.parametrize("job", list(JOBS))
def test_closure_of_a_job_does_not_grow_with_the_pieces(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    sizes: list[int] = []
    mapped = DataFrame.mapInArrow

    def measured(self: Any, function: Any, *args: Any, **named: Any) -> Any:
        sizes.append(len(cloudpickle.dumps(function)))
        return mapped(self, function, *args, **named)

    for buckets in ("1", "24"):
        table = table_at(tmp_path / buckets, bucket=buckets, write_only="true")
        for _ in range(2):
            table.write(ROWS)
        with monkeypatch.context() as patch:
            patch.setattr(DataFrame, "mapInArrow", measured)
            JOBS[job](spark, table)
        assert held(table)[-1] is not None
    few, many = sizes

    assert many < few + 1000
