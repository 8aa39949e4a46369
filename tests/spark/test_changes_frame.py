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


def test_points_are_ids_tags_and_times_in_the_zone_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_at(tmp_path / "t", {"id": "INT NOT NULL"}, bucket="1")
    for number in range(3):
        table.write({"id": [number]})
    table.create_tag("monday", 1)
    table.create_tag("2026-01-01", 2)

    def ids(*points: object) -> list[int]:
        return sorted(row.id for row in spark_bridge.changes(spark, table, *points).collect())  # type: ignore[arg-type]

    assert ids("monday") == ids(1) == ids("1") == [1, 2]
    assert ids("monday", "2026-01-01") == [1]
    assert ids("2026-01-01") == [2]
    assert ids("monday", "2999-01-01") == [1, 2]
    assert ids(None, dt.datetime(2999, 1, 1)) == [0, 1, 2]
    with pytest.raises(lc.NotFound, match="tuesday"):
        ids("tuesday")
