"""Wrong arguments are named in one sentence, and warnings point at the line of the caller."""

from __future__ import annotations

import warnings
from inspect import isfunction, signature
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

import lakecore as lc
import spark_bridge
from spark_bridge import arguments
from tests.spark.frames import table_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_arguments_of_another_kind_are_named(spark: SparkSession, tmp_path: Path) -> None:
    table: Any = table_at(tmp_path / "t", bucket="1")
    rows: Any = pl.DataFrame({"id": [1]})
    df: Any = spark.range(1)
    column: Any = f.col("id") == 1
    wrong: list[tuple[Any, str]] = [
        (lambda: spark_bridge.write(rows, table), "Spark frame.*given=polars DataFrame"),
        (lambda: spark_bridge.write(table, df), "Spark frame.*given=lakecore Table"),
        (lambda: spark_bridge.write(df, df), "lakecore table or its path"),
        (lambda: spark_bridge.merge(spark, df, table, ["id"]), "Spark frame|lakecore table"),
        (lambda: spark_bridge.merge(spark, table, rows, ["id"]), "Spark frame"),
        (lambda: spark_bridge.merge(spark, table, df, column), "Column of Spark.*argument=on"),
        (lambda: spark_bridge.read(table, spark), "first argument is the Spark session"),
        (lambda: spark_bridge.delete(spark, table, column), "Column of Spark.*argument=where"),
        (lambda: spark_bridge.update(spark, table, {"n": column}), "Column of Spark.*argument=n"),
        (lambda: spark_bridge.read(spark, table, where=column), "Column of Spark"),
    ]
    for call, match in wrong:
        with pytest.raises(lc.InvalidRequest, match=match):
            call()


def test_argument_in_camel_case_is_named_as_ours() -> None:
    functions = [getattr(spark_bridge, name) for name in spark_bridge.__all__]
    for function in filter(isfunction, functions):
        parameters = signature(function).parameters
        takes_flags = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        for name in parameters:
            if takes_flags and "_" not in name:
                continue
            head, *rest = name.split("_")
            camel = "".join([head, *(each.title() for each in rest), "" if rest else "s"])
            with pytest.raises(lc.InvalidRequest, match=f"did_you_mean={name}$"):
                function(**{camel: 1})
        with pytest.raises(lc.InvalidRequest, match="argument=zZz known="):
            function(zZz=1)


def test_warning_points_at_the_caller() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        arguments.warn("careful")

    assert seen[0].filename == __file__


def test_error_of_a_source_has_no_frames_of_lakecore(spark: SparkSession, tmp_path: Path) -> None:
    spark_bridge.register(spark)
    table = table_at(tmp_path / "t", bucket="1")
    calls: list[Any] = [
        lambda: spark.read.format("lakecore").load(str(tmp_path / "absent")),
        lambda: spark.read.format("lakecore").option("where", "x >").load(table.path).collect(),
        lambda: spark.range(1).write.format("lakecore").mode("append").save(table.path + "x"),
    ]
    for call in calls:
        with pytest.raises(PySparkException) as failure:
            call()
        text = str(failure.value)
        frames = [line for line in text.splitlines() if "/lakecore/" in line]

        assert "lakecore.errors." in text
        assert not frames, text
