"""The data source `lakecore` of Spark: what `format("lakecore")` names.

Spark runs each method in a process of its own beside the driver: only the options, all texts,
reach it.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

__all__ = ["LakecoreSource"]


class LakecoreSource(DataSource):
    """Tables by path: `spark.read.format("lakecore").load(path)`, `df.write.format("lakecore")`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "lakecore"
