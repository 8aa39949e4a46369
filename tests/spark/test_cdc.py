"""Messages of change data capture through Spark's own streams; files stand for a topic."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import lakecore as lc
import spark_bridge
from lakecore.errors import InvalidRequest, Unsupported
from spark_bridge.cdc_decode import MESSAGE_COLUMNS
from tests.spark.conftest import ROOT
from tests.spark.frames import files_of, held, live_files_of
from tests.spark.messages import Queue, change

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_bridge import CdcBatch

KAFKA = ", ".join(f"{name} {kind}" for name, kind in MESSAGE_COLUMNS.items())


class Topic:
    """A queue whose messages are also Parquet files, one more at each `flush`."""

    def __init__(self, home: Path, partitions: int = 1) -> None:
        self.queue = Queue(partitions)
        self.home = home
        self.home.mkdir()
        self._flushed: dict[int, int] = {}

    def flush(self) -> None:
        tasks = self.queue.tasks(self._flushed, self.queue.ends())
        self._flushed = self.queue.ends()
        number = len(list(self.home.iterdir()))
        pq.write_table(pa.concat_tables(tasks), self.home / f"{number:04}.parquet")

    def frame(self, spark: SparkSession) -> DataFrame:
        """The messages as Spark's Kafka source gives them; a file is a batch."""
        reader = spark.readStream.schema(KAFKA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.home))


def synced(df: DataFrame, home: Path, checkpoint: str = "c", **more: Any) -> list[CdcBatch]:
    """Run a query over all that there is."""
    found: list[CdcBatch] = []
    given = {"format": "debezium-json", "table_conf": {"bucket": "2"}, **more}
    writer = spark_bridge.cdc(df, home / "w", "shop", reports=found.append, **given)
    query = (
        writer.option("checkpointLocation", str(home / checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


def table(home: Path, name: str) -> lc.Table:
    return lc.connect(home / "w").get_table(f"shop.{name}")


def test_messages_become_tables_that_follow_their_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = Topic(tmp_path / "topic", partitions=2)
    for number in range(40):
        topic.queue.put(change("ab"[number % 2], None, {"id": number, "v": "x"}), number)
    topic.flush()
    for number in range(0, 40, 4):
        old: dict[str, object] = {"id": number, "v": "x"}
        topic.queue.put(change("a", old, {"id": number, "v": "y", "more": "m"}), number)
        topic.queue.put(change("b", {"id": number + 1, "v": "x"}, None), number + 1)
    topic.flush()
    batches = synced(topic.frame(spark), tmp_path)

    assert [each.batch for each in batches] == [0, 1]
    assert batches[0].tables == {"shop.a": 20, "shop.b": 20}
    assert [each.schemas_changed for each in batches] == [2, 1]
    assert held(table(tmp_path, "a")) == sorted(
        ((str(n), "y", "m") if n % 4 == 0 else (str(n), "x", None) for n in range(0, 40, 2)),
        key=repr,
    )
    assert len(held(table(tmp_path, "b"))) == 10
    for name in "ab":
        assert files_of(table(tmp_path, name)) == live_files_of(table(tmp_path, name))
    # A restart with nothing new does nothing.
    assert synced(topic.frame(spark), tmp_path) == []


def test_worker_that_is_killed_loses_nothing_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(tmp_path / "topic", partitions=2)
    for number in range(30):
        topic.queue.put(change("a", None, {"id": number}), number)
    topic.flush()
    from spark_bridge import cdc_batches

    mark = str(tmp_path / "mark")
    for name in ("decode_function", "write_function"):
        function = getattr(cdc_batches, name)
        monkeypatch.setattr(cdc_batches, name, dying(function, f"{mark}-{name}"))
    append: dict[str, Any] = {
        "sync_primary_keys_from_source_schema": False,
        "table_conf": {"bucket": "-1"},
    }
    (batch,) = synced(topic.frame(spark), tmp_path, **append)

    assert batch.tables == {"shop.a": 30}
    assert [row[0] for row in held(table(tmp_path, "a"))] == sorted(map(str, range(30)))
    assert files_of(table(tmp_path, "a")) == live_files_of(table(tmp_path, "a"))
    assert sorted(path.name for path in tmp_path.glob("mark-*")) == [
        "mark-decode_function",
        "mark-write_function",
    ]


def dying(make: Any, mark: str) -> Any:
    """The maker of a task's function, whose worker is killed once, when its work is done."""

    def made(task: Any) -> Any:
        function = make(task)

        def run(batches: Any) -> Any:
            import os
            import signal

            found = list(function(batches))
            if found and task.targets and not Path(mark).exists():
                Path(mark).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield from found

        return run

    return made


def test_two_queries_share_a_table_and_each_widens_it(spark: SparkSession, tmp_path: Path) -> None:
    for name, columns in (("one", {"x": "1"}), ("two", {"y": "2"})):
        topic = Topic(tmp_path / name)
        for number in range(2):
            row: dict[str, object] = {"id": f"{name}{number}", **(columns if number else {})}
            topic.queue.put(change("a", None, row))
            topic.flush()
    queries = []
    for name in ("one", "two"):
        df = spark.readStream.schema(KAFKA).option("maxFilesPerTrigger", 1)
        writer = spark_bridge.cdc(
            df.parquet(str(tmp_path / name)),
            tmp_path / "w",
            "shop",
            format="debezium-json",
            table_conf={"bucket": "2"},
        )
        checkpointed = writer.option("checkpointLocation", str(tmp_path / f"c-{name}"))
        queries.append(checkpointed.trigger(availableNow=True).start())
    for query in queries:
        query.awaitTermination()

    found = {row["id"]: row for row in table(tmp_path, "a").to_polars().to_dicts()}
    assert len(found) == 4
    assert (found["one1"]["x"], found["two1"]["y"], found["two1"]["x"]) == ("1", "2", None)


def test_error_of_a_message_ends_the_query_and_names_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = Topic(tmp_path / "topic")
    topic.queue.put(change("a", None, {"id": 1}))
    topic.queue.put(b"{")
    topic.flush()
    with pytest.raises(StreamingQueryException, match="cannot be read"):
        synced(topic.frame(spark), tmp_path)
    (batch,) = synced(topic.frame(spark), tmp_path, "d", dead_letters=True)

    assert (batch.tables, batch.left_out) == ({"shop.a": 1}, 1)
    (path,) = (tmp_path / "w" / ".cdc").glob("spark-*/dead-letters-0.jsonl")
    assert json.loads(path.read_text())["offset"] == "1"


def test_wrong_arguments_are_refused_before_a_query_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = Topic(tmp_path / "topic").frame(spark)
    w = tmp_path / "w"
    with pytest.raises(InvalidRequest, match="streaming frame"):
        spark_bridge.cdc(spark.range(1), w, "shop", format="json")
    with pytest.raises(InvalidRequest, match=r"unknown argument.*nearest='?including_tables"):
        spark_bridge.cdc(df, w, "shop", format="canal-json", include_tables="a")
    with pytest.raises(InvalidRequest, match="column value"):
        spark_bridge.cdc(df.drop("value"), w, "shop", format="canal-json")
    with pytest.raises(InvalidRequest, match="column=offset"):
        spark_bridge.cdc(df.withColumn("offset", df.topic), w, "shop", format="canal-json")
    with pytest.raises(InvalidRequest, match=r"unknown value\.format"):
        spark_bridge.cdc(df, w, "shop", format="canal")
    with pytest.raises(InvalidRequest, match="belong together"):
        spark_bridge.cdc(df, w, "shop", format="debezium-avro")
    with pytest.raises(Unsupported, match="name no table"):
        spark_bridge.cdc(df, w, "shop", format="json")
    with pytest.raises(InvalidRequest, match="unknown metadata column"):
        spark_bridge.cdc(
            df.select("value"), w, "shop", format="canal-json", metadata_column="offset"
        )
    with pytest.raises(InvalidRequest, match="compact_every"):
        spark_bridge.cdc(df, w, "shop", format="canal-json", compact_every=-1)
    with pytest.raises(InvalidRequest, match="dead_letters=True"):
        spark_bridge.cdc(df, w, "shop", format="canal-json", state=str(w))
    with pytest.raises(InvalidRequest, match="bucket"):
        spark_bridge.cdc(df, w, "shop", format="canal-json", table_conf={"bucket": [1]})  # type: ignore[dict-item]
    assert not w.exists()


def test_example_of_the_page_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs" / "spark-cdc.md").read_text()
    (code,) = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/spark-cdc.md", "exec"), {"spark": spark})  # noqa: S102  ours
