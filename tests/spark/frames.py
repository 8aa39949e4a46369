"""Frames and tables for tests of the bridge, on a local disk where both processes see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

import lakecore as lc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {"id": "BIGINT NOT NULL", "v": "STRING", "n": "INT"}


def table_at(
    path: Path,
    columns: Mapping[str, str] = COLUMNS,
    *,
    keys: Sequence[str] = ("id",),
    partitions: Sequence[str] = (),
    **options: str,
) -> lc.Table:
    """A new table there; options with `_` for `-` and `__` for `.`."""
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return lc.open_table(
        path,
        create=True,
        schema=dict(columns),
        primary_keys=keys,
        partition_keys=partitions,
        options=stated,
    )


def frame(spark: SparkSession, rows: pl.DataFrame, parts: int = 2) -> DataFrame:
    """The rows as a Spark frame of so many partitions."""
    df = spark.createDataFrame(rows.to_arrow(compat_level=pl.CompatLevel.oldest()))
    return df.repartition(parts)


def held(table: lc.Table, **when: object) -> list[tuple[object, ...]]:
    """The rows of the table, sorted."""
    rows: pl.DataFrame = table.scan(**when).collect()  # type: ignore[arg-type]
    return sorted(rows.rows(), key=repr)


def files_of(table: lc.Table) -> set[str]:
    """The names of all files under the table's buckets."""
    from pathlib import Path

    return {path.name for path in Path(table.path).rglob("bucket-*/*") if path.is_file()}


def live_files_of(table: lc.Table) -> set[str]:
    """The names of the files that the latest snapshot holds."""
    return {path.rpartition("/")[2] for path in table.inspect.files()["file_path"].to_list()}
