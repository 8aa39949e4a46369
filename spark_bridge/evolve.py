"""Schema evolution by a write of a frame (`write.merge-schema`).

Spark knows the columns before any row is computed. The tasks write under the new schema; the driver
stores it once all rows are known to fit, before it commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.distributed.tables import reload_context
from lakecore.distributed.writing import evolution_for, type_changes_of
from spark_bridge.types import spark_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lakecore.distributed.tables import TableContext
    from lakecore.distributed.writing import Evolution

__all__ = ["evolved"]


def evolved(
    context: TableContext, schema: StructType, *, evolve_schema: bool | None = None
) -> tuple[TableContext, Evolution | None]:
    """The table with the columns of a frame, and the schema to store; None if it is not new.

    `evolve_schema`: as for `Table.write`. Raises InvalidRequest for a column that cannot be added.
    """
    types = type_changes_of(context.options, evolve_schema=evolve_schema)
    if types is None:
        return context, None
    newest = reload_context(context)
    found = evolution_for(newest, spark_arrow_schema(schema), types)
    return (newest, None) if found is None else found
