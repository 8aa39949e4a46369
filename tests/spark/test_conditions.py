"""`read(where=...)` keeps, on executors, the rows that DuckDB keeps of all of them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from lakecore.errors import InvalidRequest, Unsupported
from property_tests.test_conditions import CONDITION, asked_of_duckdb, filled, rows_of_files
from spark_bridge.read_frame import read
from tests.spark.frames import table_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@settings(max_examples=5, suppress_health_check=list(HealthCheck), deadline=None)
@given(files=rows_of_files(), condition=CONDITION)
def test_read_keeps_what_duckdb_keeps(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[dict[str, Any]]],
    condition: str,
) -> None:
    table = filled(tmp_path_factory.mktemp("t") / "t", files, keyed=True)
    wanted = asked_of_duckdb(table, condition)

    found = read(spark, table, columns=["id"], where=condition).collect()
    assert sorted(row[0] for row in found) == wanted, condition


def test_a_time_without_a_zone_is_one_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"id": "INT NOT NULL", "at": "TIMESTAMP(3) WITH LOCAL TIME ZONE"}
    table = table_at(tmp_path / "t", columns, bucket="1")
    table.write([{"id": 1, "at": dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)}])
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        for text in ("at = '2026-01-01 21:00:00'", "hour(at) = 21"):
            assert read(spark, table, where=text).count() == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_what_a_condition_cannot_hold_is_refused_on_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_at(tmp_path / "t", {"id": "INT NOT NULL"}, bucket="1")

    with pytest.raises(Unsupported, match="gives another value at each call"):
        read(spark, table, where="random() > id")
    with pytest.raises(InvalidRequest, match="position=6"):
        read(spark, table, where="id = = 1")
