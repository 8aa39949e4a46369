"""Checks of arguments that several verbs take: tables, counts, and the columns of a frame.

They raise an error before any task runs.
"""

from __future__ import annotations

import os
import sys
import warnings
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as s

from lakecore import InvalidRequest, Table, open_table
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
    from collections.abc import Callable

    from pyspark.sql.types import StructType

    from lakecore.distributed import TableContext

SPREAD_BYTES = 256 << 20
"""The driver does the work of a verb itself if the files have at most this many bytes."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def named_arguments(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The function, which then raises InvalidRequest for an unknown argument, naming the nearest.

    Every public function has this check, because users of Spark's APIs write `retainMax`. A
    function with flags checks lower-case names itself.
    """
    parameters = signature(function).parameters
    takes_flags = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    known = {name.replace("_", ""): name for name in parameters}

    @wraps(function)
    def checked(*given: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        for name in named.keys() - known.values():
            if takes_flags and name.islower():
                continue
            near = get_close_matches(name.lower().replace("_", ""), known, 1)
            raise InvalidRequest(
                f"{function.__name__} has no such argument",
                argument=name,
                **{"did_you_mean": known[near[0]]} if near else {"known": list(known.values())},
            )
        return function(*given, **named)

    return checked


def opened(table: Table | str | os.PathLike[str]) -> Table:
    """The table itself, or the table at the path. Raises InvalidRequest for anything else."""
    if isinstance(table, str | os.PathLike):
        return open_table(table)
    if not isinstance(table, Table):
        raise InvalidRequest(
            "the table is a lakecore table or its path; the order is write(df, table), "
            "read(spark, table), merge(spark, table, source)",
            given=_kind(table),
        )
    return table


def check_frame(df: object) -> None:
    """Raise InvalidRequest unless `df` is a Spark frame."""
    if not hasattr(df, "sparkSession"):
        raise InvalidRequest(
            "the rows are a Spark frame: spark.createDataFrame(rows) makes one of an Arrow table "
            "(frame.to_arrow() of Polars) or pandas; the table comes after it",
            given=_kind(df),
        )


def check_no_column(**given: object) -> None:
    """Raise InvalidRequest, naming the argument, for a Column of Spark."""
    for name, value in given.items():
        if type(value).__module__.startswith("pyspark."):
            raise InvalidRequest(
                "a Column of Spark is no condition or value here: give SQL or a Polars expression",
                argument=name,
                given=str(value),
            )


def warn(message: str) -> None:
    """Issue a UserWarning for the user's line that called spark_bridge."""
    level, frame = 1, sys._getframe()  # noqa: SLF001  warnings.warn takes only a level
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("spark_bridge."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def _kind(value: object) -> str:
    return f"{type(value).__module__.partition('.')[0]} {type(value).__name__}"


def overwrites_dynamically(context: TableContext, mode: str = "static") -> bool:
    """Whether INSERT OVERWRITE and `df.write` replace only partitions for which there are rows.

    The option `dynamic-partition-overwrite` decides if it is set, otherwise Spark's own `mode`
    (`spark.sql.sources.partitionOverwriteMode`).
    """
    if "dynamic-partition-overwrite" in context.options.texts:
        return context.options.dynamic_partition_overwrite
    return mode.lower() == "dynamic"


def check_counts(**counts: object) -> None:
    """Raise InvalidRequest, naming the argument, unless each is None or a whole number above 0."""
    for name, count in counts.items():
        if count is None:
            continue
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InvalidRequest(f"{name} is a whole number above 0", **{name: count})


def check_every(every: object) -> None:
    """Raise InvalidRequest unless `compact_every` is None or a whole number from 0 on."""
    if every is not None and (not isinstance(every, int) or isinstance(every, bool) or every < 0):
        raise InvalidRequest("compact_every is a whole number from 0 on", compact_every=every)


def check_spread(spread: object) -> None:
    """Raise InvalidRequest unless `spread` is True, False or None."""
    if spread not in (True, False, None):
        raise InvalidRequest("spread is True, False or None", spread=spread)


# --- columns of a frame --------------------------------------------------------------------------


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
