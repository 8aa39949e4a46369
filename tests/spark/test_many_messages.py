"""A job of many files: tasks encode them, and the driver holds no object for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import spark_bridge
from spark_bridge import write_frame
from tests.spark.cluster import fail, failing
from tests.spark.conftest import answer_of
from tests.spark.frames import files_of, frame, held, live_files_of, table_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = {"p": "INT NOT NULL", "id": "BIGINT NOT NULL", "v": "STRING"}
OLD = pl.DataFrame(
    {"p": [0, 1, 9], "id": [1, 2, 3], "v": ["old", "old", "old"]}, schema_overrides={"p": pl.Int32}
)
ROWS = pl.DataFrame(
    {"p": [n % 7 for n in range(200)], "id": range(200), "v": [f"v{n}" for n in range(200)]},
    schema_overrides={"p": pl.Int32},
)


def test_driver_holds_no_object_for_each_file(tmp_path: Path) -> None:
    found = answer_of("many_messages", tmp_path)

    assert (found["files"], found["listed"]) == (40_000, 40_000)
    assert found["driver_mib"] < 85
    assert found["driver_cpu_seconds"] < 2


@pytest.mark.parametrize("keys", [("p", "id"), ()])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"mode": "overwrite"},
        {"mode": "overwrite", "dynamic": True},
        {"by": "group"},
    ],
)
def test_encoded_files_make_the_same_table(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keys: tuple[str, ...],
    how: dict[str, Any],
) -> None:
    options = {"bucket": "3", "changelog_producer": "input"} if keys else {}
    tables = [
        table_at(tmp_path / name, COLUMNS, keys=keys, partitions=("p",), **options)
        for name in ("objects", "encoded")
    ]
    for table in tables:
        table.write(OLD.to_arrow())
    expected = spark_bridge.write(frame(spark, ROWS), tables[0], **how)
    monkeypatch.setattr(write_frame, "MESSAGES_MAX", 0)
    result = spark_bridge.write(frame(spark, ROWS), tables[1], **how)

    assert held(tables[1]) == held(tables[0])
    counted = [(r.rows, r.rows_stored, r.snapshot_ids, r.leftovers) for r in (result, expected)]
    assert counted[0] == counted[1]
    if keys:
        assert result.files == expected.files
    changes = [sorted(t.changes(1).collect().rows(), key=repr) for t in tables]
    assert changes[0] == changes[1]


def test_files_of_lost_attempts_are_told_from_encoded_ones(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(tmp_path / "t", COLUMNS, keys=("p", "id"), partitions=("p",), bucket="2")
    monkeypatch.setattr(write_frame, "MESSAGES_MAX", 0)
    monkeypatch.setattr(write_frame, "partition_function", failing(fail, str(tmp_path / "mark")))
    result = spark_bridge.write(frame(spark, ROWS), table)

    assert held(table) == sorted(ROWS.rows(), key=repr)
    assert result.leftovers > 0
    assert files_of(table) == live_files_of(table)
