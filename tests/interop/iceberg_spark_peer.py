"""Spark with Iceberg's own runtime: `python -m tests.interop.iceberg_spark_peer`.

It gets the directory of a table, and answers with rows as `iceberg_rows` writes them.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from functools import cache
from typing import Any

from tests.interop.iceberg_rows import plain_rows
from tests.interop.protocol import serve
from tests.interop.setup_peers import iceberg_spark_jar

os.environ["TZ"] = "UTC"
time.tzset()


def main() -> None:
    """Answer requests."""
    serve({"read": read, "query": query, "shown": shown})


def read(path: str, where: str = "true", tag: str | None = None) -> list[str]:
    """The rows that match, of the newest snapshot or of a tag."""
    reader = _spark().read.format("iceberg")
    if tag is not None:
        reader = reader.option("tag", tag)
    return _rows(reader.load(path).where(where))


def shown(snippet: str) -> list[str]:
    """The rows that a snippet of the documentation shows."""
    return _rows(eval(snippet, {"spark": _spark()}))  # noqa: S307 - ours


def query(warehouse: str, text: str) -> list[str]:
    """The answer of a query; `lake` is the catalog of a warehouse, as Iceberg's Hadoop catalog."""
    _spark().conf.set("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    _spark().conf.set("spark.sql.catalog.lake.type", "hadoop")
    _spark().conf.set("spark.sql.catalog.lake.cache-enabled", "false")
    _spark().conf.set("spark.sql.catalog.lake.warehouse", f"{warehouse}/iceberg")
    return _rows(_spark().sql(text))


def _rows(frame: Any) -> list[str]:
    from pyspark.sql.types import TimestampType

    names = tuple(each.name for each in frame.schema if isinstance(each.dataType, TimestampType))
    return plain_rows([_python(row, names) for row in frame.collect()])


def _python(value: Any, zoned: tuple[str, ...] = ()) -> Any:
    """A value of Spark as the other readers give it; the columns in `zoned` are of a zone."""
    from pyspark.sql import Row

    if isinstance(value, Row):
        found = {name: _python(value[name]) for name in value.asDict()}
        for name in zoned:
            moment: datetime | None = found[name]
            found[name] = None if moment is None else moment.replace(tzinfo=UTC)
        return found
    if isinstance(value, dict):
        return [(_python(key), _python(each)) for key, each in value.items()]
    if isinstance(value, list):
        return [_python(each) for each in value]
    return bytes(value) if isinstance(value, bytearray) else value


@cache
def _spark() -> Any:
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", str(iceberg_spark_jar()))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


if __name__ == "__main__":
    main()
