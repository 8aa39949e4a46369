"""Checks whether the columns of a frame fit a table, before any task runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as s

from lakecore.distributed import (
    Evolution,
    TableContext,
    TableWrite,
    check_once,
    evolution_for,
    reload_context,
    type_changes_of,
)
from spark_bridge.bucket_sql import quoted
from spark_bridge.types import spark_arrow_schema, to_spark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def with_types_of(df: DataFrame, context: TableContext) -> DataFrame:
    """The frame with the table's types in place of `void` inside nested columns.

    Spark gives `array()` and `map()` elements of type void, which have no value to convert.
    """
    by_name = context.schema.by_name
    casts = {}
    for field in df.schema.fields:
        if field.name in by_name and _has_void(field.dataType):
            stored = to_spark(by_name[field.name].type, column=field.name, nullable=True)
            casts[field.name] = f.col(quoted(field.name)).cast(_filled(field.dataType, stored))
    return df.withColumns(casts) if casts else df


def with_names_of(df: DataFrame, context: TableContext) -> DataFrame:
    """The frame with the table's spelling of the names, unless `spark.sql.caseSensitive` is set."""
    if df.sparkSession.conf.get("spark.sql.caseSensitive", "false") == "true":
        return df
    given = df.columns
    names = []
    for name in given:
        alike = [each for each in context.schema.names if each.lower() == name.lower()]
        is_plain = name in alike or len(alike) != 1 or alike[0] in given
        names.append(name if is_plain else alike[0])
    return df if names == given else df.toDF(*names)


def _has_void(spark: s.DataType) -> bool:
    match spark:
        case s.ArrayType():
            parts: list[s.DataType] = [spark.elementType]
        case s.MapType():
            parts = [spark.keyType, spark.valueType]
        case s.StructType():
            parts = [each.dataType for each in spark.fields]
        case _:
            return False
    return any(isinstance(part, s.NullType) or _has_void(part) for part in parts)


def _filled(given: s.DataType, stored: s.DataType) -> s.DataType:
    """The given type, with each void part replaced by the stored type."""
    match given, stored:
        case s.NullType(), _:
            return stored
        case s.ArrayType(), s.ArrayType():
            inner = _filled(given.elementType, stored.elementType)
            return s.ArrayType(inner, given.containsNull)
        case s.MapType(), s.MapType():
            return s.MapType(
                _filled(given.keyType, stored.keyType),
                _filled(given.valueType, stored.valueType),
                given.valueContainsNull,
            )
        case s.StructType(), s.StructType():
            types = {each.name: each.dataType for each in stored.fields}
            return s.StructType(
                [
                    s.StructField(
                        each.name,
                        _filled(each.dataType, types.get(each.name, each.dataType)),
                        each.nullable,
                    )
                    for each in given.fields
                ]
            )
        case _:
            return given


def check_schema(context: TableContext, schema: StructType, *, overwrite: bool = False) -> None:
    """Raise InvalidRequest if rows of this schema do not fit the table."""
    check_once(schema.fieldNames())
    arrow = spark_arrow_schema(schema)
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in arrow], schema=arrow)
    with TableWrite(context, overwrite=overwrite) as writer:
        writer.write(empty)


# --- evolve --------------------------------------------------------------------------------------
# Schema evolution by a write of a frame (`write.merge-schema`).
#
# Spark knows the columns before any row is computed. The tasks write under the new schema; the
# driver stores it once all rows are known to fit, before it commits.


def evolved(
    context: TableContext, schema: StructType, *, evolve_schema: bool | None = None
) -> tuple[TableContext, Evolution | None]:
    """The table with the columns of a frame, and the schema to store; None for no new schema.

    `evolve_schema`: as for `Table.write`. Raises InvalidRequest for a column that cannot be added.
    """
    types = type_changes_of(context.options, evolve_schema=evolve_schema)
    if types is None:
        return context, None
    newest = reload_context(context)
    found = evolution_for(newest, spark_arrow_schema(schema), types)
    return (newest, None) if found is None else found
