"""Whether a table takes a frame: its columns are looked at before any task runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.table.writes.write import TableWrite
from spark_bridge.types import spark_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lakecore.table.context import TableContext

__all__ = ["check_schema"]


def check_schema(context: TableContext, schema: StructType, *, overwrite: bool = False) -> None:
    """Raise InvalidRequest or Unsupported if the table does not take rows of this schema."""
    names = schema.fieldNames()
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest("the frame has two columns of a name", columns=twice)
    arrow = spark_arrow_schema(schema)
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in arrow], schema=arrow)
    with TableWrite(context, overwrite=overwrite) as writer:
        writer.write(empty)
