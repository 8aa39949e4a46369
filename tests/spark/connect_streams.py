"""Streams by Spark Connect, for `tests/spark/connect.py`: what works, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

import spark_bridge
from lakecore.errors import Unsupported
from tests.spark.frames import held, table_at
from tests.spark.streams import HAS_LIMITS, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    import lakecore as lc


_STARTS = 4


def streams(spark: SparkSession, home: Path) -> dict[str, object]:
    """What each way of reading and writing a stream did; an error names the way."""
    table = table_at(home / "from", bucket="2", changelog_producer="input", write_only="true")
    table.write(rows_of(*range(10)))
    calls = {
        "sink": _mirrored,
        "complete": _complete,
        "function": _by_a_function,
        "refused": _refused,
    }
    found: dict[str, object] = {}
    for name, call in calls.items():
        try:
            found[name] = call(spark, table, home)
        except Exception as error:  # noqa: BLE001  the test shows it
            found[name] = f"{type(error).__name__}: {str(error)[:500]}"
    return found


def ended(writer: Any, checkpoint: Path) -> str:
    """Run a query over all that there is. Returns its id."""
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    for left in reversed(range(_STARTS)):
        try:
            query = writer.start()
            break
        except PySparkException as error:
            # The process of a function has some seconds, whatever the settings say.
            if not left or "failed to connect back" not in str(error):
                raise
    query.awaitTermination()
    identity: str = query.id
    return identity


def _mirrored(spark: SparkSession, table: lc.Table, home: Path) -> object:
    """Changes into the sink, and again after more changes, with the same checkpoint."""
    target = table_at(home / "to", bucket="2")
    changes = spark_bridge.read_stream(spark, table).where("_row_kind <> '-U'")
    rows = spark_bridge.prepare(changes.drop("_snapshot_id"), target)
    alike = []
    for number in range(2):
        if number:
            table.write(rows_of(1, 2, v="b"))
            table.delete("id = 3")
        writer = rows.writeStream.format("lakecore").option("path", target.path)
        identity = ended(writer, home / "mirrored")
        alike.append(held(target) == held(table))
    batches = (0, 1, 2) if HAS_LIMITS else (0, 1)
    return [*alike, target.last_identifier(f"spark-{identity}") == batches[-1], len(held(target))]


def _complete(spark: SparkSession, table: lc.Table, home: Path) -> object:
    """A running aggregate of a stream by options replaces the table."""
    target = table_at(home / "sums", {"v": "STRING", "c": "BIGINT NOT NULL"}, keys=())
    stream = spark.readStream.format("lakecore").option("read.changelog", "false").load(table.path)
    sums = stream.groupBy("v").count().withColumnRenamed("count", "c")
    writer = sums.writeStream.format("lakecore").outputMode("complete")
    ended(writer.option("path", target.path), home / "complete")
    return held(target)


def _by_a_function(spark: SparkSession, table: lc.Table, home: Path) -> object:
    """A function of the user's own writes each batch under a user of its own."""
    target = table_at(home / "written", bucket="2")
    path = target.path

    def write(df: DataFrame, batch: int) -> None:
        spark_bridge.write(df, path, commit_user="first-checkpoint", identifier=batch)

    rows = spark_bridge.read_stream(spark, table, changelog=False, from_snapshot=1)
    ended(rows.writeStream.foreachBatch(write), home / "function")
    ids = sorted(int(str(row[0])) for row in held(target))
    batches = (0, 1, 2) if HAS_LIMITS else (0,)
    return [ids, target.last_identifier("first-checkpoint") == batches[-1]]


def _refused(spark: SparkSession, table: lc.Table, home: Path) -> object:
    """The functions that need the id of their query are not sent to the server."""
    sink = spark_bridge.foreach_batch(str(home / "written"))
    rows = spark_bridge.read_stream(spark, table, changelog=False)
    messages = rows.selectExpr("v AS value")

    def inside(df: DataFrame, batch: int) -> None:
        sink(df, batch)

    tries: dict[str, Callable[[], object]] = {
        "foreach_batch": lambda: rows.writeStream.foreachBatch(sink),
        "inside": lambda: rows.writeStream.foreachBatch(inside),
        "cdc": lambda: spark_bridge.cdc(messages, home / "cdc", "shop", format="debezium-json"),
    }
    found = []
    for name, call in tries.items():
        try:
            call()
        except Unsupported as error:
            found.append([name, error.facts["verb"]])
    return found
