"""The changes of a table as a Spark frame."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
import spark_bridge
from tests.spark.frames import table_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_changes_are_a_frame_whose_times_keep_their_value(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = {"id": "INT NOT NULL", "at": "TIMESTAMP(6)", "m": "MAP<STRING, INT>"}
    table = table_at(tmp_path / "t", columns, bucket="1", changelog_producer="input")
    # In Berlin, this time did not exist on that day.
    gap = dt.datetime(2026, 3, 29, 2, 30)
    table.write({"id": [1, 2], "at": [gap, None], "m": [{"a": 1}, None]})
    table.write({"id": [1], "at": [gap], "m": [None], "_row_kind": ["-D"]})
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        rows = spark_bridge.changes(spark, str(tmp_path / "t")).orderBy("id", "_row_kind").collect()
        later = spark_bridge.changes(spark, table, 1)
        kinds = [(row.id, row["_row_kind"]) for row in later.collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))

    assert [tuple(row) for row in rows] == [
        (1, gap, {"a": 1}, "+I"),
        (1, gap, None, "-D"),
        (2, None, None, "+I"),
    ]
    assert kinds == [(1, "-D")]
    assert later.schema["at"].dataType.typeName() == "timestamp_ntz"
    assert spark_bridge.changes(spark, table, 2).count() == 0
    with pytest.raises(lc.LakecoreError):
        spark_bridge.changes(spark, table, 77)
