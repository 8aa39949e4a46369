"""Orphan files, expiry and statistics by Spark jobs give the results of the table's verbs."""

from __future__ import annotations

import shutil
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import lakecore as lc
import spark_bridge
from spark_bridge.maintenance import SparkFiles
from tests.spark.frames import files_of, held, live_files_of, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecore import AnalyzeResult

DAYS = 6
FUTURE = datetime(2099, 1, 1)


def history(path: Path, **options: str) -> lc.Table:
    """A table of partitions and buckets with a few snapshots, and files that nothing references."""
    columns = {"day": "STRING NOT NULL", "id": "BIGINT NOT NULL", "v": "STRING"}
    table = table_at(path, columns, keys=("day", "id"), partitions=("day",), bucket="2", **options)
    for number in range(4):
        rows = pl.DataFrame({"id": range(60)}).with_columns(
            day=pl.format("d{}", pl.col("id") % DAYS), v=pl.lit(f"v{number}")
        )
        table.write(rows)
    for place in sorted(Path(table.path).glob("day=*/bucket-*"))[::2]:
        (place / "data-00000000-0000-0000-0000-000000000000-0.parquet").write_bytes(b"orphan")
    return table


def all_files(table: lc.Table) -> dict[str, int]:
    root = Path(table.path)
    return {str(f.relative_to(root)): f.stat().st_size for f in root.rglob("*") if f.is_file()}


def jobs_of(spark: SparkSession) -> int:
    """How many jobs Spark has run."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId())  # noqa: SLF001


def test_orphans_and_expiry_leave_the_same_files(spark: SparkSession, tmp_path: Path) -> None:
    one = history(tmp_path / "one")
    other = lc.open_table(shutil.copytree(one.path, tmp_path / "other"))
    rows, before = held(one), jobs_of(spark)

    for dry_run in (True, False):
        found = spark_bridge.remove_orphan_files(
            spark, one, FUTURE, dry_run=dry_run, force=True, spread=True
        )
        alone = other.remove_orphan_files(FUTURE, dry_run=dry_run, force=True)
        assert found.files == alone.files == DAYS
        assert [path.removeprefix(one.path) for path in found.paths] == [
            path.removeprefix(other.path) for path in alone.paths
        ]
        expired = spark_bridge.expire_snapshots(
            spark, one.path, retain_max=1, retain_min=1, dry_run=dry_run, spread=True
        )
        assert expired == other.expire_snapshots(retain_max=1, retain_min=1, dry_run=dry_run)
        assert all_files(one) == all_files(other)
    assert jobs_of(spark) > before

    before = jobs_of(spark)
    assert spark_bridge.remove_orphan_files(spark, one, FUTURE, force=True).files == 0
    spark_bridge.expire_snapshots(spark, one)
    assert jobs_of(spark) == before, "few files are the driver's own work"
    assert held(one) == rows
    assert files_of(one) == live_files_of(one)


def test_errors_are_those_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    table = history(tmp_path / "t")
    with pytest.raises(lc.InvalidRequest, match="last hour"):
        spark_bridge.remove_orphan_files(spark, table, "1 min", spread=True)
    with pytest.raises(lc.InvalidRequest, match="spread is True, False or None"):
        spark_bridge.expire_snapshots(spark, table, spread="yes")  # type: ignore[arg-type]
    with pytest.raises(lc.InvalidRequest, match="column"):
        spark_bridge.analyze(spark, table, ["nothing"], spread=True)
    before = all_files(table)
    snapshot = Path(table.path) / "snapshot" / "snapshot-2"
    text = snapshot.read_text()
    snapshot.write_text("{")
    with pytest.raises(lc.CorruptTable):
        spark_bridge.remove_orphan_files(spark, table, FUTURE, force=True, spread=True)
    snapshot.write_text(text)
    assert all_files(table) == before


def test_paths_are_listed_and_deleted_in_parts(spark: SparkSession, tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    files = SparkFiles(spark=spark, cores=2, identifier="t", few=0)
    places = [tmp_path / "t" / f"d{number}" for number in range(11)]
    for number, place in enumerate(places):
        place.mkdir()
        for name in range(number):
            (place / f"f{name}").write_text("x")
    listed = files.list_all(table.context.store, [str(place) for place in places])

    assert [len(listing) for listing in listed] == list(range(11))
    assert list(files.list_all(table.context.store, [])) == []
    paths = [status.path for listing in listed for status in listing]
    files.delete_all(table.context.store, iter([*paths, str(tmp_path / "t" / "absent")]))
    assert not any(list(place.iterdir()) for place in places)


def test_statistics_are_those_of_one_process(spark: SparkSession, tmp_path: Path) -> None:
    columns = {
        "id": "BIGINT NOT NULL",
        "i": "INT",
        "d": "DOUBLE",
        "s": "STRING",
        "b": "BYTES",
        "m": "DECIMAL(10, 2)",
        "day": "DATE",
        "t": "TIME(3)",
        "ts": "TIMESTAMP(9)",
        "ltz": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
        "flag": "BOOLEAN",
        "l": "ARRAY<INT>",
    }
    table = table_at(tmp_path / "one", columns, bucket="4", source__split__target_size="1 kb")
    count = 70_000
    ids = pl.int_range(0, count, eager=True)
    rows = pl.DataFrame(
        {
            "id": ids,
            "i": (ids % 7).cast(pl.Int32),
            "d": pl.Series([float("nan"), -0.0, None, 1.5]).gather(ids % 4),
            "s": ids.cast(pl.String),
            "b": pl.Series([b"", b"abc", None]).gather(ids % 3),
            "m": pl.Series([Decimal("1.25"), Decimal("-7.50")]).gather(ids % 2),
            "day": pl.Series([date(2020, 1, 1), date(1960, 2, 3)]).gather(ids % 2),
            "t": pl.Series([time(1, 2, 3), time(23, 59)]).gather(ids % 2),
            "ts": (ids * 1_000_000_007).cast(pl.Datetime("ns")),
            "ltz": (ids * 1000).cast(pl.Datetime("ms", "UTC")),
            "flag": ids % 2 == 0,
            "l": pl.Series([[1], [2, 3]]).gather(ids % 2).cast(pl.List(pl.Int32)),
        }
    )
    table.write(rows)
    table.write(rows.head(20_000).with_columns(i=pl.lit(100, pl.Int32)))
    other = lc.open_table(shutil.copytree(table.path, tmp_path / "other"))
    found = spark_bridge.analyze(spark, table, spread=True)
    alone = other.analyze()

    assert found == alone
    assert told(table, found) == told(other, alone)
    assert "l" not in (found.statistics.columns if found.statistics else {})
    few = spark_bridge.analyze(spark, table, "i", spread=True)
    assert few.statistics is not None
    assert few.statistics.columns["i"].distinct_count == 8
    assert spark_bridge.analyze(spark, table, [], spread=True).statistics is not None
    assert spark_bridge.analyze(spark, table_at(tmp_path / "empty"), spread=True).statistics is None


def told(table: lc.Table, result: AnalyzeResult) -> list[tuple[object, ...]]:
    assert result.snapshot_ids
    return table.inspect.statistics().rows()


def test_statements_run_as_jobs(spark: SparkSession, tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "house", create=True)
    session.create_database("care")
    table = session.create_table("care.t", {"id": "INT NOT NULL"}, primary_keys=["id"])
    for number in range(3):
        table.write([{"id": number}])
    spark_bridge.attach(spark, session.warehouse, "care")
    expire = "CALL sys.expire_snapshots(table => 'care.t', retain_max => 1, retain_min => 1)"
    spark_bridge.sql(spark, expire)
    spark_bridge.sql(spark, "CALL sys.remove_orphan_files(table => 'care.t')")
    spark_bridge.sql(spark, "ANALYZE TABLE care.t COMPUTE STATISTICS FOR COLUMNS id")

    assert table.inspect.snapshots()["commit_kind"].to_list() == ["APPEND", "ANALYZE"]
    assert table.inspect.statistics().height == 1


@pytest.mark.parametrize(
    ("before", "after", "options"),
    [
        (4, 8, {}),
        (6, 4, {"bucket_function__type": "mod", "bucket_key": "id"}),
        (3, 5, {"deletion_vectors__enabled": "true"}),
        (4, 2, {"keys": ()}),
    ],
)
def test_rescaled_buckets_hold_what_one_process_puts_there(
    spark: SparkSession, tmp_path: Path, before: int, after: int, options: dict[str, str]
) -> None:
    columns = {"day": "STRING NOT NULL", "id": "BIGINT NOT NULL", "v": "STRING", "t": "TIME(3)"}
    given = {"keys": ("day", "id"), "partitions": ("day",), "bucket": str(before), **options}
    if not given["keys"]:
        given["bucket_key"] = "id"
    table = table_at(tmp_path / "one", columns, **given)  # type: ignore[arg-type]
    rows = pl.DataFrame({"id": range(-500, 500)}).with_columns(
        day=pl.format("d{}", pl.col("id") % 3), v=pl.lit("a"), t=pl.lit(time(1, 2, 3))
    )
    table.write(rows)
    table.write(rows.slice(200, 300).with_columns(v=pl.lit("b")))
    table.delete("id % 10 = 0")
    other = lc.open_table(shutil.copytree(table.path, tmp_path / "other"))
    held_before = held(table)
    with pytest.raises(lc.InvalidRequest, match="bucket_num"):
        spark_bridge.rescale(spark, table, bucket_num=0)
    some = spark_bridge.rescale(
        spark, table, bucket_num=after, partition={"day": "d1"}, spread=True
    )
    rest = spark_bridge.rescale(spark, table, bucket_num=after, spread=True)
    alone = other.rescale(bucket_num=after)

    assert held(table) == held(other) == held_before
    assert (some.rows or 0) + (rest.rows or 0) == alone.rows
    shape = ["partition", "bucket", "level", "record_count", "min_key", "max_key"]
    assert (
        table.inspect.files().select(shape).sort(shape[:2]).rows()
        == other.inspect.files().select(shape).sort(shape[:2]).rows()
    )
    assert table.remove_orphan_files(FUTURE, dry_run=True, force=True).files == 0
    assert spark_bridge.rescale(spark, table, bucket_num=after).snapshot_ids == ()
