"""The blocks of the pages about Spark, marked `py3`, run in order on a table of their own."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import lakecore as lc
import spark_bridge
from spark_bridge.cdc_decode import MESSAGE_COLUMNS
from tests.api_page import page_of
from tests.spark.conftest import ROOT
from tests.spark.connector import SETTINGS
from tests.spark.messages import change

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

BLOCK = re.compile(r"^```py3\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/spark*.md"))]
BLOCKS = {page.name: BLOCK.findall(page.read_text()) for page in PAGES}
_, *PARTS = re.split(r"^### (\w+)$", page_of("api-spark"), flags=re.MULTILINE)
EXAMPLES = {name: BLOCK.findall(text) for name, text in zip(PARTS[::2], PARTS[1::2], strict=True)}
ROWS = "dt string, id long, region string, price double"


class Topic(DataSource):  # type: ignore[misc]
    """One message of Debezium: Spark's Kafka source is a package of its own."""

    @classmethod
    def name(cls) -> str:
        return "topic"

    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in MESSAGE_COLUMNS.items())

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        return Messages()


class Messages(DataSourceStreamReader):  # type: ignore[misc]
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"read": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"read": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:  # noqa: ARG002
        message = {"value": change("orders", None, {"id": 1, "v": "x"}), "partition": 0}
        given = {**message, "topic": "shop.orders", "offset": 0}
        yield tuple(given.get(name) for name in MESSAGE_COLUMNS)


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose views, artifacts and settings end with the page."""
    session = spark.newSession()
    yield session
    for query in session.streams.active:
        query.stop()
    spark.sql("DROP DATABASE IF EXISTS shop CASCADE")


def set_up(session: SparkSession, home: Path) -> dict[str, object]:
    """What the pages take as given: a table with seven snapshots and two tags, frames, a stream."""
    catalog = lc.connect(home / "warehouse", create=True)
    catalog.create_database("shop")
    schema = {
        "dt": "STRING NOT NULL",
        "id": "BIGINT NOT NULL",
        "region": "STRING",
        "price": "DOUBLE",
    }
    orders = catalog.create_table(
        "shop.orders", schema, primary_keys=["dt", "id"], partition_keys=["dt"],
        options={"bucket": "2"},
    )  # fmt: skip
    for number in range(7):
        orders.write([{"dt": "2026-01-01", "id": number, "region": "north", "price": 9.0 + number}])
    orders.create_tag("monday", 1)
    orders.create_tag("tuesday", 5)
    shutil.copytree(orders.path, home / "shop" / "orders")
    events = lc.open_table(
        home / "events", create=True, schema={"x": "INT", "y": "INT"}, options={"bucket": "-1"}
    )
    events.write([{"x": 2, "y": 1}, {"x": 1, "y": 2}])
    df = session.createDataFrame([("2026-01-01", 10, "south", 30.0)], ROWS)
    changes = session.createDataFrame(
        [("2026-01-01", 1, "south", 31.0, False)], f"{ROWS}, deleted boolean"
    )
    df.createOrReplaceTempView("incoming")
    changes.createOrReplaceTempView("changes")
    return {
        "__name__": "page", "lc": lc, "spark_bridge": spark_bridge, "spark": session, "df": df,
        "orders": orders, "events": events, "changes": changes,
    }  # fmt: skip


@pytest.mark.parametrize("page", [name for name, blocks in BLOCKS.items() if blocks])
def test_blocks_of_the_page_run(page: str, session: SparkSession, tmp_path: Path) -> None:
    names = set_up(session, tmp_path)
    session.dataSource.register(Topic)
    (tmp_path / "lakecore.zip").write_bytes(b"PK\5\6" + bytes(18))
    if page == "spark-cdc.md":  # the pipeline creates its table
        lc.connect(tmp_path / "warehouse").drop_table("shop.orders")
    if page == "spark-streams.md":
        cast("DataFrame", names["df"]).write.parquet(str(tmp_path / "arrived"))
        names["df"] = session.readStream.schema(ROWS).parquet(str(tmp_path / "arrived"))
    places = {
        "/data/": f"{tmp_path}/",
        '"kafka"': '"topic"',
        "lakecore.zip": f"{tmp_path}/lakecore.zip",
    }
    for number, block in enumerate(BLOCKS[page]):
        names["checkpoint"] = str(tmp_path / f"checkpoint-{number}")
        code = block
        for place, own in places.items():
            code = code.replace(place, own)
        exec(compile(code, page, "exec"), names)  # noqa: S102 - ours
        for query in session.streams.active:
            query.processAllAvailable()
            query.stop()

    catalog = lc.connect(tmp_path / "warehouse")
    held = {
        "spark-cdc.md": lambda: catalog.get_table("shop.orders").count("id = '1'"),
        "spark-streams.md": lambda: lc.open_table(tmp_path / "shop/orders").count("id = 10"),
    }
    if page in held:
        assert held[page]() == 1


@pytest.mark.parametrize("name", spark_bridge.__all__)
def test_the_example_of_a_public_name_runs(
    name: str, session: SparkSession, tmp_path: Path
) -> None:
    names = {**set_up(session, tmp_path), "lakecore": lc, "path": str(tmp_path / "checkpoint")}
    session.dataSource.register(Topic)
    if name in {"foreach_batch", "BatchSink"}:
        cast("DataFrame", names["df"]).write.parquet(str(tmp_path / "arrived"))
        names["df"] = session.readStream.schema(ROWS).parquet(str(tmp_path / "arrived"))
    if name in {"cdc", "CdcBatch"}:  # the pipeline creates its table
        lc.connect(tmp_path / "warehouse").drop_table("shop.orders")
        names["df"] = session.readStream.format("topic").load()
    [code] = EXAMPLES[name]
    exec(compile(code.replace("/data/", f"{tmp_path}/"), name, "exec"), names)  # noqa: S102 - ours
    for query in session.streams.active:
        query.processAllAvailable()


def test_the_recipe_has_the_settings_that_the_connector_is_run_with() -> None:
    recipe = (ROOT / "docs" / "recipes.md").read_text()
    settings = dict(re.findall(r"^--conf (\S+)=(\S+)$", recipe, re.MULTILINE))

    assert settings == {
        "spark.sql.catalog.paimon": SETTINGS["spark.sql.catalog.p"],
        "spark.sql.catalog.paimon.warehouse": "file:/data/warehouse",
    }


def test_the_page_of_the_api_is_up_to_date() -> None:
    page = (ROOT / "docs" / "api-spark.md").read_text()

    assert page == page_of("api-spark"), "write it again, as it says at its top"
