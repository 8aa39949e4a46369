"""The changes between two states of a table, as a Spark frame.

The rows pass through the driver, so they must fit in its memory; `read_stream` reads many changes
by tasks. Values have the types of `read`: a TIMESTAMP stays a time without a zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from lakecore.distributed.changes import ROW_KIND, changes_between
from lakecore.distributed.reading import reader
from spark_bridge.arguments import named_arguments, opened
from spark_bridge.plan_read import read_schema
from spark_bridge.read_frame import in_zone_of_session
from spark_bridge.read_job import to_exchange
from spark_bridge.settings import require_version
from spark_bridge.types import spark_arrow_schema

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame, SparkSession

    from lakecore import Table
    from lakecore.distributed.values import Time

__all__ = ["changes"]


@named_arguments
def changes(
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
    start: Time | None = None,
    end: Time | None = None,
) -> DataFrame:
    """The changes after `start` up to and including `end`, as a Spark DataFrame.

    The frame has the columns of the table and `_row_kind` (+I, -U, +U, -D). `start` and `end` are
    those of `Table.changes`: snapshot ids, tags or times; a time without a zone is in the zone of
    the session. None means the beginning, and the latest snapshot. All columns are nullable. The
    rows are read now, into the memory of the driver.

    Raises NotFound, naming the earliest snapshot left, if the changes have expired.

        spark_bridge.changes(spark, "/data/shop/orders", 7).where("_row_kind <> '-U'")
    """
    require_version(spark)
    context = opened(table).context
    context.options.require_readable()
    points = (in_zone_of_session(spark, start), in_zone_of_session(spark, end))
    source = changes_between(context, *points)
    names = [*context.schema.names, ROW_KIND]
    kind = StructField(ROW_KIND, StringType(), nullable=True)
    schema = StructType([*read_schema(context.schema).fields, kind])
    exchange = spark_arrow_schema(schema)
    batches = [to_exchange(batch, exchange) for batch in reader(source, names, None)]
    if not batches:
        return spark.createDataFrame([], schema)
    return spark.createDataFrame(pa.Table.from_batches(batches, exchange), schema)
