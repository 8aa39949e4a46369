"""Write and read by Spark Connect: `python -m tests.spark.connect DIRECTORY` prints what it saw.

A session of its own process, since a process has either a classic session or a remote one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import polars as pl
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakecore
import spark_bridge
from lakecore.errors import InvalidRequest
from tests.spark.conftest import CONF, spark_environment
from tests.spark.connect_streams import streams
from tests.spark.frames import frame, held, table_at

ROWS = pl.DataFrame(
    [(i, f"v{i % 3}", i % 11) for i in range(500)],
    schema={"id": pl.Int64, "v": pl.String, "n": pl.Int32},
    orient="row",
)


def main(home: Path) -> None:
    os.environ.update(spark_environment())
    builder = SparkSession.builder.remote("local[2]")
    for key, value in CONF.items():
        builder = builder.config(key, value)
    spark = builder.config("spark.sql.warehouse.dir", str(home / "warehouse")).getOrCreate()
    keyed, sunk = table_at(home / "keyed", bucket="2"), table_at(home / "sunk", bucket="2")
    found: dict[str, object] = {}
    result = spark_bridge.write(frame(spark, ROWS), keyed, commit_user="job", identifier=1)
    found["write"] = [result.rows, result.distribution, result.files]
    found["again"] = spark_bridge.write(
        frame(spark, ROWS), keyed, commit_user="job", identifier=1
    ).already_committed
    found["rows"] = held(keyed) == sorted(ROWS.rows(), key=repr)
    grouped = spark_bridge.write(frame(spark, ROWS), keyed, by="group")
    found["grouped"] = grouped.rows
    try:
        spark_bridge.write(frame(spark, ROWS).selectExpr("id", "v", "id * 9999999999 n"), keyed)
    except InvalidRequest as error:
        found["refused"] = sorted(error.facts)
    try:
        spark.dataSource.register(_source())
        prepared = spark_bridge.prepare(frame(spark, ROWS), sunk)
        prepared.write.format("lakecore").mode("append").option("path", sunk.path).save()
        found["sunk"] = held(sunk) == sorted(ROWS.rows(), key=repr)
    except PySparkException as error:
        found["sunk"] = str(error)[:500]
    found |= reads(spark, home)
    found["verbs"] = verbs(spark, home)
    found["streams"] = streams(spark, home)
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    spark.stop()


def reads(spark: SparkSession, home: Path) -> dict[str, object]:
    """How many rows each way of reading gives."""
    session = lakecore.connect(home / "house", create=True)
    session.create_database("remote")
    columns = {"id": "BIGINT NOT NULL", "v": "STRING", "n": "INT"}
    table = session.create_table(
        "remote.t", columns, primary_keys=["id"], options={"bucket": "2", "write-only": "true"}
    )
    table.write(ROWS)
    table.write(ROWS.head(100).with_columns(v=pl.lit("new")))
    found: dict[str, object] = {}
    try:
        attached = spark_bridge.attach(spark, session.warehouse)
        new = "v = 'new'"
        found["attached"] = list(attached.tables)
        found["merged"] = spark_bridge.read(spark, table).where(new).count()
        found["pruned"] = spark_bridge.read(spark, table, where=f"{new} AND id < 7").count()
        found["loaded"] = spark.read.format("lakecore").load(table.path).where(new).count()
        found["selected"] = spark.sql(f"SELECT id FROM remote.t WHERE {new}").count()
        spark.sql("INSERT INTO remote.t VALUES (10000, 'new', 1)")
        found["inserted"] = spark.sql(f"SELECT id FROM remote.t WHERE {new}").count()
        table.compact(full=True)
        found["raw"] = spark_bridge.read(spark, table).where(new).count()
        found["files"] = spark_bridge.read(spark, f"{table.path}$files").count()
    except PySparkException as error:
        found["error"] = str(error)[:500]
    return found


def verbs(spark: SparkSession, home: Path) -> dict[str, object]:
    """The result of each verb through Connect; an error names the verb."""
    table = table_at(home / "verbs", bucket="2", write_only="true")
    log = table_at(home / "log", keys=())
    table.write(ROWS)
    changed = frame(spark, ROWS.head(10).with_columns(v=pl.lit("merged")))
    more = frame(spark, ROWS.head(5)).selectExpr("id", "v", "n", "'x' AS note")

    def merge() -> object:
        merging = spark_bridge.merge(spark, table, changed, ["id"], spread=True)
        result = merging.when_matched_update_all().when_not_matched_insert_all().execute()
        return [result.rows_updated, result.rows_inserted]

    def sql() -> object:
        session = lakecore.connect(home / "house")
        spark_bridge.attach(spark, session.warehouse)
        (row,) = spark_bridge.sql(spark, "DELETE FROM remote.t WHERE id = 1").collect()
        at = "SELECT * FROM remote.t VERSION AS OF 1"
        return [row["rows_deleted"], spark_bridge.sql(spark, at).count()]

    calls = {
        "limit": lambda: spark_bridge.read(spark, table, limit=7).count(),
        "delete": lambda: spark_bridge.delete(spark, table, "id = 499", spread=True).rows_deleted,
        "update": lambda: (
            spark_bridge.update(spark, table, {"v": "u"}, "id < 3", spread=True).rows_updated
        ),
        "merge": merge,
        "changes": lambda: spark_bridge.changes(spark, table, 1).count() > 0,
        "compact": lambda: spark_bridge.compact(spark, table, full=True).buckets,
        "analyze": lambda: len(spark_bridge.analyze(spark, table, spread=True).snapshot_ids),
        "expire": lambda: (
            spark_bridge.expire_snapshots(
                spark, table, retain_max=1, retain_min=1, spread=True
            ).snapshots_expired
        ),
        "orphans": lambda: spark_bridge.remove_orphan_files(spark, table, spread=True).files,
        "rescale": lambda: spark_bridge.rescale(spark, table, bucket_num=4, spread=True).rows,
        "evolve": lambda: spark_bridge.write(more, log, evolve_schema=True).rows,
        "sql": sql,
    }
    found: dict[str, object] = {}
    for name, call in calls.items():
        try:
            found[name] = call()
        except Exception as error:  # noqa: BLE001  the test shows it
            found[name] = f"{type(error).__name__}: {str(error)[:500]}"
    return found


def _source() -> type:
    from spark_bridge.source import LakecoreSource

    return LakecoreSource


if __name__ == "__main__":
    main(Path(sys.argv[1]))
