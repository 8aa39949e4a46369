"""Registers the format `lakecore` with Spark, which looks for modules named `pyspark_*`.

If this package is installed with PySpark, `format("lakecore")` works without a call to
`spark_bridge.register`.
"""

from __future__ import annotations

from spark_bridge.source import LakecoreSource

__all__ = ["DefaultSource"]


class DefaultSource(LakecoreSource):
    """The data source under the name that Spark looks for."""
