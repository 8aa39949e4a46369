from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import lakecore as lc
from spark_bridge.read_frame import read
from spark_bridge.source import LakecoreSource

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from lakecore.table.handle import Table

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING", "qty": "INT"}


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(LakecoreSource)


def make(path: Path, **options: str) -> Table:
    """A table of 100 rows, half of which a second commit replaced."""
    table = lc.open_table(
        path,
        create=True,
        schema=COLUMNS,
        primary_keys=["id"],
        options={"bucket": "2", "write-only": "true"} | options,
    )
    first = pl.DataFrame({"id": range(100), "name": [f"n{i}" for i in range(100)], "qty": 1})
    table.write(first)
    table.write(first.filter(pl.col("id") >= 50).with_columns(qty=pl.lit(2)))
    return table


def rows(frame: DataFrame, by: str = "id") -> list[dict[str, object]]:
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: str(row[by]))


def expected(table: Table, by: str = "id", **arguments: object) -> list[dict[str, object]]:
    found: Sequence[dict[str, object]] = table.to_arrow(**arguments).to_pylist()  # type: ignore[arg-type]
    return sorted(found, key=lambda row: str(row[by]))


def load(spark: SparkSession, table: Table, **options: object) -> DataFrame:
    reader = spark.read.format("lakecore")
    for key, value in options.items():
        reader = reader.option(key.replace("_", "-"), str(value))
    return reader.load(table.path)


def test_the_source_gives_the_merged_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")

    assert rows(load(spark, table)) == expected(table)


def test_read_gives_the_merged_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path / "t")

    assert rows(read(spark, table)) == expected(table)
    assert rows(read(spark, table.path, columns=["qty", "id"])) == expected(
        table, columns=["qty", "id"]
    )


def test_files_that_need_no_merge_go_to_sparks_own_reader(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path / "t")
    table.compact(full=True)
    by_spark, by_lakecore = read(spark, table), read(spark, table, raw_by_spark=False)

    assert by_spark.inputFiles()
    assert not by_lakecore.inputFiles()
    assert rows(by_spark) == rows(by_lakecore) == expected(table)
