"""One Spark: `python -m bench.spark_contender ENGINE`. Each line of input is a JSON request, each
line of output an answer.

Engines: `bridge` (the newest PySpark and spark_bridge), `connector` (Paimon's own connector for
Spark, in the environment that `tests/interop/setup_peers.py --spark` makes), and `local` (lakecore
without Spark, which compacts only). Both Sparks run on `local[2]` with the same heap; only the verb
itself is timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CORES = 2
ONE_CORE = "BENCH_ONE_CORE" in os.environ
HEAP = os.environ.get("BENCH_SPARK_HEAP", "6g")
EXTENSIONS = "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions"
CATALOG = "org.apache.paimon.spark.SparkCatalog"
DDL = "id BIGINT NOT NULL, a INT, b BIGINT, c DOUBLE, d STRING, e INT"


def session(home: Path, conf: dict[str, str]) -> SparkSession:
    """A classic session on two cores."""
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("bench")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": HEAP,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.warehouse.dir": str(home / "spark-warehouse"),
        **conf,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Bridge:
    """spark_bridge, by its public API."""

    def __init__(self, warehouse: Path) -> None:
        import lakecore

        self.spark = session(warehouse, {})
        self._catalog = lakecore.connect(warehouse, create=True)
        self._catalog.create_database("bench", ignore_if_exists=True)

    def create(self, name: str, options: dict[str, str]) -> None:
        """A new table with a primary key."""
        columns = dict(part.split(" ", 1) for part in DDL.split(", "))
        self._catalog.create_table(f"bench.{name}", columns, primary_keys=["id"], options=options)

    def write(self, name: str, rows: DataFrame, arguments: dict[str, object]) -> object:
        """One commit."""
        import spark_bridge

        result = spark_bridge.write(rows, self._catalog.get_table(f"bench.{name}"), **arguments)  # type: ignore[arg-type]
        return {"rows": result.rows, "files": result.files, "bytes": result.bytes}

    def rows(self, name: str, columns: list[str] | None) -> DataFrame:
        """The table as it is now."""
        import spark_bridge

        table = self._catalog.get_table(f"bench.{name}")
        return spark_bridge.read(self.spark, table, columns=columns)

    def compact(self, name: str) -> object:
        """One run a bucket; the files of the table then."""
        import spark_bridge

        table = self._catalog.get_table(f"bench.{name}")
        spark_bridge.compact(self.spark, table, full=True)
        return table.inspect.files()["file_path"].to_list()

    def merge(self, name: str, rows: DataFrame) -> object:
        """Update what matches, insert what does not."""
        import spark_bridge

        table = self._catalog.get_table(f"bench.{name}")
        merging = spark_bridge.merge(self.spark, table, rows, ["id"])
        done = merging.when_matched_update_all().when_not_matched_insert_all().execute()
        return [done.rows_updated, done.rows_inserted]

    def create_append(self, name: str) -> None:
        """A new table of days without a key."""
        columns = dict(part.split(" ", 1) for part in f"day STRING, {DDL}".split(", "))
        self._catalog.create_table(f"bench.{name}", columns, partition_keys=["day"])

    def append(self, name: str, rows: DataFrame, *, one: bool) -> object:
        """Append the rows as one day, by all tasks or by one."""
        import spark_bridge

        table = self._catalog.get_table(f"bench.{name}")
        day = rows.selectExpr("'2026-01-01' AS day", "*")
        if not one:
            return len(spark_bridge.write(day, table).tasks)
        spark_bridge.register(self.spark)
        writer = day.coalesce(1).write.format("lakecore").mode("append")
        writer.option("path", table.path).save()
        return 1


class Local:
    """lakecore in one process, without Spark."""

    def __init__(self, warehouse: Path) -> None:
        if ONE_CORE:
            os.sched_setaffinity(0, {0})
        import lakecore

        self._catalog = lakecore.connect(warehouse, create=True)
        self._catalog.create_database("bench", ignore_if_exists=True)

    def compact(self, name: str) -> object:
        """Compact each bucket into one run."""
        return self._catalog.get_table(f"bench.{name}").compact(full=True).buckets


class Connector:
    """Paimon's connector, in SQL."""

    def __init__(self, warehouse: Path) -> None:
        self.spark = session(
            warehouse,
            {
                "spark.jars": os.environ["PAIMON_SPARK_JAR"],
                "spark.sql.extensions": EXTENSIONS,
                "spark.sql.catalog.p": CATALOG,
                "spark.sql.catalog.p.warehouse": str(warehouse),
            },
        )
        self.spark.sql("CREATE DATABASE IF NOT EXISTS p.bench")

    def create(self, name: str, options: dict[str, str]) -> None:
        """A new table with a primary key."""
        stated = {"primary-key": "id", **options}
        properties = ", ".join(f"'{key}'='{value}'" for key, value in stated.items())
        self.spark.sql(f"CREATE TABLE p.bench.{name} ({DDL}) TBLPROPERTIES ({properties})")

    def write(self, name: str, rows: DataFrame, arguments: dict[str, object]) -> object:
        """One commit."""
        assert not arguments
        rows.createOrReplaceTempView("incoming")
        self.spark.sql(f"INSERT INTO p.bench.{name} SELECT * FROM incoming")
        return {}

    def rows(self, name: str, columns: list[str] | None) -> DataFrame:
        """The table as it is now; Spark tells the connector what columns it needs."""
        del columns
        return self.spark.table(f"p.bench.{name}")

    def merge(self, name: str, rows: DataFrame) -> object:
        """Update what matches, insert what does not."""
        rows.createOrReplaceTempView("incoming")
        self.spark.sql(
            f"MERGE INTO p.bench.{name} t USING incoming s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        return None

    def compact(self, name: str) -> object:
        """Compact each bucket into one run."""
        self.spark.sql(f"CALL p.sys.compact(table => 'bench.{name}')")
        return None


def main(name: str, warehouse: str) -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    # What Spark prints is not an answer.
    os.dup2(2, 1)
    home = Path(warehouse)
    engines = {"bridge": Bridge, "connector": Connector, "local": Local}
    engine: Any = engines[name](home)
    for line in sys.stdin:
        request = json.loads(line)
        table = request["table"]
        began, found = time.perf_counter(), None
        if request["verb"] == "create":
            engine.create(table, request["options"])
        elif request["verb"] == "write":
            rows = engine.spark.read.parquet(*request["files"])
            found = engine.write(table, rows, request.get("arguments", {}))
        elif request["verb"] == "merge":
            found = engine.merge(table, engine.spark.read.parquet(*request["files"]))
        elif request["verb"] == "create append":
            engine.create_append(table)
        elif request["verb"] in {"append", "append one"}:
            rows = engine.spark.read.parquet(*request["files"])
            found = engine.append(table, rows, one=request["verb"] == "append one")
        elif request["verb"] == "scan":
            rows = engine.spark.read.parquet(*request["files"])
            rows.write.format("noop").mode("overwrite").save()
        elif request["verb"] == "read":
            engine.rows(table, None).write.format("noop").mode("overwrite").save()
        elif request["verb"] == "aggregate":
            rows = engine.rows(table, ["a", "c"])
            sums = rows.agg(f.count("*"), f.sum("a"), f.max("c")).collect()
            found = [str(cell) for cell in sums[0]]
        elif request["verb"] == "compact":
            found = engine.compact(table)
        answers.write(json.dumps({"seconds": time.perf_counter() - began, "found": found}) + "\n")
        answers.flush()
    if name != "local":
        engine.spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
