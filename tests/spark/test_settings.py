"""What a job changes in the session is put back, and versions are looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

import lakecore
import spark_bridge
from lakecore.errors import InvalidRequest, Unsupported
from spark_bridge.attach_tables import register
from spark_bridge.read_frame import read
from spark_bridge.settings import BY_BYTES, BY_ROWS, described, require_version, settings, transfer
from tests.spark.frames import table_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
DESCRIPTION = "spark.job.description"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
UNSET = "spark.sql.adaptive.advisoryPartitionSizeInBytes"


def test_settings_hold_meanwhile_and_are_put_back(spark: SparkSession) -> None:
    before = spark.conf.get(UNSET)
    with settings(spark, {RECORDS: "7", UNSET: "1", "spark.master": "refused"}):
        assert (spark.conf.get(RECORDS), spark.conf.get(UNSET)) == ("7", "1")

    assert (spark.conf.get(RECORDS), spark.conf.get(UNSET)) == ("10000", before)
    assert spark.conf.get("spark.master").startswith("local")


def test_rows_that_may_be_large_keep_spark_s_limit_of_bytes(spark: SparkSession) -> None:
    def chosen(columns: str) -> Mapping[str, str]:
        return transfer(spark, spark.createDataFrame([], columns).schema)

    texts = [f"t{number} string" for number in range(17)]
    assert (
        chosen("a long, b decimal(38, 2), c date, d timestamp_ntz, e boolean, f string") == BY_ROWS
    )
    assert chosen(", ".join(texts[1:])) == BY_ROWS
    assert chosen(", ".join(texts)) == BY_BYTES
    assert {repr(chosen(f"a long, b {kind}")) for kind in ("binary", "array<int>")} == {
        repr(BY_BYTES)
    }


def test_limit_of_bytes_that_the_user_set_is_kept(spark: SparkSession) -> None:
    schema = spark.range(1).schema
    spark.conf.set(BYTES, "1048576")
    kept = transfer(spark, schema)
    spark.conf.unset(BYTES)

    assert (kept, transfer(spark, schema)) == (BY_BYTES, BY_ROWS)
    with settings(spark, BY_ROWS):
        assert spark.conf.get(BYTES) == BY_ROWS[BYTES], "Spark takes it as none"


def test_jobs_are_named_and_the_user_s_own_names_come_back(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("mine", "my job")
    with described(spark, "lakecore: write d.t"):
        assert context.getLocalProperty(DESCRIPTION) == "lakecore: write d.t"
        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
        assert spark.getTags() == {"lakecore: write d.t"}

    assert context.getLocalProperty(DESCRIPTION) == "my job"
    assert spark.getTags() == set()
    context.setLocalProperty("spark.jobGroup.id", None)
    context.setLocalProperty(DESCRIPTION, None)


@pytest.mark.parametrize("verb", [require_version, register, lambda old: read(old, "/nowhere")])
def test_older_spark_is_refused(verb: Callable[[SparkSession], object]) -> None:
    old = cast("SparkSession", SimpleNamespace(version="4.0.1", catalog=None))

    with pytest.raises(Unsupported, match=r"4\.1 or newer"):
        verb(old)


def test_other_version_of_lakecore_on_an_executor_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_at(tmp_path / "t", {"id": "BIGINT"}, keys=())
    monkeypatch.setattr(lakecore, "__version__", "0.0.9")

    with pytest.raises(InvalidRequest, match="different versions") as caught:
        spark_bridge.write(spark.range(3), table)
    assert caught.value.facts["driver"] == "0.0.9"


def test_settings_of_jobs_side_by_side_are_put_back_by_the_last(spark: SparkSession) -> None:
    before = spark.conf.get(RECORDS)
    schema = spark.range(1).schema
    first, second = settings(spark, BY_ROWS), settings(spark, BY_ROWS)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    meanwhile = spark.conf.get(RECORDS), transfer(spark, schema)
    second.__exit__(None, None, None)

    assert meanwhile == (BY_ROWS[RECORDS], BY_ROWS)
    assert spark.conf.get(RECORDS) == before
    assert transfer(spark, schema) == BY_ROWS
