"""Buckets that are much larger than the others are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import spark_bridge
from spark_bridge import spread
from spark_bridge.spread import BYTES_MIN, report_skew
from tests.spark.frames import frame, table_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MIB = 1 << 20


def files_of(sizes: dict[int, int]) -> pl.DataFrame:
    """A file of these bytes in each bucket."""
    return (
        pl.DataFrame({"bucket": sizes.keys(), "size_bytes": sizes.values()})
        .with_columns(partition=pl.lit(bytes(12)))
        .select("partition", "bucket", "size_bytes")
    )


@pytest.mark.parametrize(
    ("buckets", "sizes", "expected"),
    [
        ("4", {0: BYTES_MIN}, [0]),
        ("4", {0: BYTES_MIN - 1}, []),
        ("4", {0: 100 * MIB, 1: 100 * MIB, 2: 90 * MIB, 3: 80 * MIB}, []),
        ("4", {0: 10 * MIB, 1: 10 * MIB, 2: 10 * MIB, 3: 80 * MIB}, [3]),
        ("8", {0: 900 * MIB, 1: 10 * MIB, 5: 700 * MIB}, [0, 5]),
        ("1", {0: 900 * MIB}, []),
        ("2", {1: 900 * MIB}, [1]),
        ("-1", {0: 900 * MIB, 1: 1}, []),
    ],
)
def test_large_buckets_among_others(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    buckets: str,
    sizes: dict[int, int],
    expected: list[int],
) -> None:
    context = table_at(tmp_path / "t", bucket=buckets).context
    found = report_skew(context, files_of(sizes), "a job")

    assert [each.bucket for each in found] == expected
    assert [record.levelname for record in caplog.records] == ["WARNING"] * bool(expected)
    for each in found:
        assert each.bytes == sizes[each.bucket]
        assert each.times >= 4
        assert f"bucket {found[0].bucket} (" in caplog.text
        assert "bucket-key" in caplog.text


def test_buckets_that_need_no_compaction_are_not_taken_for_empty(tmp_path: Path) -> None:
    context = table_at(tmp_path / "t", bucket="8").context
    sizes = {3: 900 * MIB}

    assert report_skew(context, files_of(sizes), "a job", complete=True) == ()
    sizes |= {4: 10 * MIB}
    found = report_skew(context, files_of(sizes), "a job", complete=True)
    assert [each.bucket for each in found] == [3]


def test_write_and_compaction_name_the_bucket(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(spread, "BYTES_MIN", 1000)
    columns = {"p": "STRING NOT NULL", "k": "INT NOT NULL", "id": "INT NOT NULL", "v": "STRING"}
    table = table_at(
        tmp_path / "t",
        columns,
        keys=("p", "k", "id"),
        partitions=("p",),
        bucket="4",
        bucket_key="k",
    )
    rows = pl.DataFrame({"id": range(2000)}, schema={"id": pl.Int32}).with_columns(
        p=pl.lit("x"), k=pl.lit(1, pl.Int32), v=pl.col("id").cast(pl.String)
    )
    for _ in range(2):
        spark_bridge.write(frame(spark, rows.head(10).with_columns(k="id")), table)
        result = spark_bridge.write(frame(spark, rows), table)
    (found,) = result.skewed
    spark_bridge.compact(spark, table, full=True)

    assert (dict(found.partition), found.times) == ({"p": "x"}, float("inf"))
    assert found.bytes == result.bytes
    texts = [record.getMessage() for record in caplog.records if record.name == "lakecore.spark"]
    assert [text.partition(" of ")[0] for text in texts] == ["the write"] * 2 + ["the compaction"]
    assert all(f"bucket {found.bucket}, p=x" in text for text in texts)
    assert spark_bridge.write(frame(spark, rows.with_columns(k="id")), table).skewed == ()
