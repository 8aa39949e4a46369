"""What users of Delta and Iceberg try first on attached tables: it works, or is refused clearly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import lakecore as lc
import spark_bridge
from tests.spark.frames import held

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def parts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[lc.Table]:
    """A table of two partitions without a key, attached as `moves.parts`."""
    home = tmp_path_factory.mktemp("moves")
    session = lc.connect(home)
    session.create_database("moves")
    table = session.create_table(
        "moves.parts", {"p": "STRING", "id": "BIGINT", "n": "BIGINT"}, partition_keys=["p"]
    )
    spark_bridge.attach(spark, home)
    yield table
    spark.sql("DROP DATABASE moves CASCADE")


def test_overwrite_partitions_is_refused_by_spark_and_changes_nothing(
    spark: SparkSession, parts: lc.Table
) -> None:
    parts.overwrite({"p": ["a", "b"], "id": [1, 2], "n": [1, 2]}, dynamic=False)
    df = spark.sql("SELECT 'a' AS p, 7L AS id, 7L AS n")
    with pytest.raises(PySparkException, match="does not support dynamic overwrite"):
        df.writeTo("moves.parts").overwritePartitions()
    assert held(parts) == [("a", 1, 1), ("b", 2, 2)]

    spark_bridge.write(df, parts, "overwrite", dynamic=True)
    assert held(parts) == [("a", 7, 7), ("b", 2, 2)]


def test_stream_to_a_table_commits_its_batches_once(
    spark: SparkSession, parts: lc.Table, tmp_path: Path
) -> None:
    parts.truncate()
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
    rows = source.selectExpr("'s' AS p", "value AS id", "value AS n")
    writer = rows.writeStream.trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).toTable("moves.parts")

    assert query.awaitTermination(120)
    assert held(parts) == [("s", 0, 0), ("s", 1, 1)]
    last = parts.inspect.snapshots().row(-1, named=True)
    assert (last["commit_user"], last["commit_identifier"]) == (f"spark-{query.id}", 0)


def test_optimize_sorts_the_partitions_of_its_condition(
    spark: SparkSession, parts: lc.Table
) -> None:
    parts.overwrite({"p": ["a", "b"], "id": [9, 9], "n": [9, 9]}, dynamic=False)
    parts.write({"p": ["a", "b"], "id": [1, 1], "n": [1, 1]})
    before = {file["partition"]: file["file_path"] for file in parts.inspect.files().to_dicts()}
    spark_bridge.sql(spark, "OPTIMIZE moves.parts WHERE p = 'a' ZORDER BY (id, n)").collect()
    after = parts.inspect.files()

    assert sorted(after["partition"].to_list()) == ["{a}", "{b}", "{b}"]
    assert before["{b}"] in after["file_path"].to_list()
    assert parts.to_polars(where="p = 'a'")["id"].to_list() == [1, 9]
    for text, match in (
        ("WHERE id = 1 ZORDER BY (id)", "partition"),
        ("ZORDER BY (absent)", "absent"),
        ("ZORDER BY (p)", "partition key"),
        ("SORT BY id", "ends before this"),
    ):
        with pytest.raises(lc.InvalidRequest, match=match):
            spark_bridge.sql(spark, f"OPTIMIZE moves.parts {text}")


def test_replace_where_replaces_rows_in_one_snapshot(spark: SparkSession, parts: lc.Table) -> None:
    parts.overwrite({"p": ["a", "a", "b"], "id": [1, 2, 3], "n": [1, 2, 3]}, dynamic=False)
    before = parts.inspect.snapshots().height
    replacing = "INSERT INTO moves.parts REPLACE WHERE id = 1 OR (p = 'b' AND id < 9)"

    spark_bridge.sql(spark, f"{replacing} SELECT 'b', id, 7 FROM VALUES (1L), (4L) AS v (id)")
    assert held(parts) == [("a", 2, 2), ("b", 1, 7), ("b", 4, 7)]
    assert parts.inspect.snapshots().height == before + 1

    with pytest.raises(lc.InvalidRequest, match=r"not true for a row of the query.*'id': 9"):
        spark_bridge.sql(spark, f"{replacing} WITH q AS (SELECT 9L AS id) SELECT 'b', id, 1 FROM q")
    with pytest.raises(lc.InvalidRequest, match="for each column"):
        spark_bridge.sql(
            spark, "INSERT INTO moves.parts (p, id) REPLACE WHERE id = 1 SELECT 'a', 1"
        )
    with pytest.raises(lc.InvalidRequest, match="cannot judge"):
        spark_bridge.sql(spark, "INSERT INTO moves.parts REPLACE WHERE x = 1 SELECT 'a', 1, 1")
    with pytest.raises(lc.InvalidRequest, match="and then a query"):
        spark_bridge.sql(spark, "INSERT INTO moves.parts REPLACE WHERE id = 1")
    assert held(parts) == [("a", 2, 2), ("b", 1, 7), ("b", 4, 7)]

    spark_bridge.sql(spark, f"{replacing} SELECT p, id, n FROM moves.parts WHERE false")
    assert held(parts) == [("a", 2, 2)]


def test_replace_where_of_a_table_with_a_key_replaces_the_row_of_a_key(
    spark: SparkSession, parts: lc.Table
) -> None:
    spark_bridge.sql(
        spark,
        "CREATE TABLE moves.keyed (id BIGINT, n BIGINT) "
        "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '2')",
    )
    table = lc.open_table(parts.path.replace("parts", "keyed"))
    table.write({"id": [1, 2, 3], "n": [1, 2, 30]})
    before = table.inspect.snapshots().height

    spark_bridge.sql(
        spark,
        "INSERT INTO moves.keyed (n, id) REPLACE WHERE n < 10 SELECT n, id FROM VALUES "
        "(5L, 2L), (6L, 3L), (7L, 4L) AS v (n, id)",
    )

    assert held(table) == [(2, 5), (3, 6), (4, 7)]
    assert table.inspect.snapshots().height == before + 1


def test_replace_where_of_a_writer_is_refused_with_the_way_out(
    spark: SparkSession, parts: lc.Table
) -> None:
    parts.overwrite({"p": ["a"], "id": [1], "n": [1]}, dynamic=False)
    df = spark.sql("SELECT 'a' AS p, 7L AS id, 7L AS n")
    writer = df.write.format("lakecore").mode("overwrite").option("replaceWhere", "id = 1")
    with pytest.raises(PySparkException, match=r"spark_bridge\.write\(.*'overwrite'"):
        writer.option("path", parts.path).save()

    assert held(parts) == [("a", 1, 1)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE moves.spark_s (id INT) USING parquet CLUSTERED BY (id) INTO 2 BUCKETS",
        "CREATE TABLE IF NOT EXISTS `moves`.`spark_s` (id INT) LOCATION '/nowhere'",
        "create external table spark_catalog.moves.spark_s (id INT) STORED AS parquet",
    ],
)
@pytest.mark.usefixtures("parts")
def test_no_table_of_spark_is_made_in_an_attached_database(
    spark: SparkSession, statement: str
) -> None:
    with pytest.raises(lc.LakecoreError):
        spark_bridge.sql(spark, statement)

    assert not spark.catalog.tableExists("moves.spark_s")
