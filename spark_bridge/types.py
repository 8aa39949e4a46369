"""Paimon's types as Spark's, and the Arrow types in which Spark exchanges them.

| Paimon | Spark |
|---|---|
| CHAR(n), VARCHAR(n), STRING | string; char(n) and varchar(n) come back with their length |
| BINARY(n), VARBINARY(n), BYTES | binary |
| TIMESTAMP(p) | timestamp_ntz |
| TIMESTAMP(p) WITH LOCAL TIME ZONE | timestamp, an instant in every time zone of the session |
| MULTISET<T> | map<T, int> |
| the others that both have | the type of the same name |

Spark timestamps have microseconds: a column with seven or more fractional digits can be read if its
values need at most six. When Spark reads, it exchanges a `timestamp` with the zone UTC.

INVARIANT: a type that the other side lacks raises Unsupported, naming the type and the column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as s

from lakecore import Unsupported
from lakecore.distributed import Array, Atomic, DataType, Field, Map, Multiset, Root, Row

if TYPE_CHECKING:
    from collections.abc import Iterable


COMMENT = "comment"
_LOCAL_ZONE = "UTC"

_PLAIN: dict[Root, s.DataType] = {
    Root.CHAR: s.StringType(),
    Root.VARCHAR: s.StringType(),
    Root.BOOLEAN: s.BooleanType(),
    Root.BINARY: s.BinaryType(),
    Root.VARBINARY: s.BinaryType(),
    Root.TINYINT: s.ByteType(),
    Root.SMALLINT: s.ShortType(),
    Root.INT: s.IntegerType(),
    Root.BIGINT: s.LongType(),
    Root.FLOAT: s.FloatType(),
    Root.DOUBLE: s.DoubleType(),
    Root.DATE: s.DateType(),
    Root.TIMESTAMP: s.TimestampNTZType(),
    Root.TIMESTAMP_LTZ: s.TimestampType(),
}
_ARROW: dict[type[s.DataType], pa.DataType] = {
    s.BooleanType: pa.bool_(),
    s.ByteType: pa.int8(),
    s.ShortType: pa.int16(),
    s.IntegerType: pa.int32(),
    s.LongType: pa.int64(),
    s.FloatType: pa.float32(),
    s.DoubleType: pa.float64(),
    s.StringType: pa.string(),
    s.BinaryType: pa.binary(),
    s.DateType: pa.date32(),
    s.TimestampType: pa.timestamp("us", tz=_LOCAL_ZONE),
    s.TimestampNTZType: pa.timestamp("us"),
    s.NullType: pa.null(),
}


# --- from Paimon to Spark -------------------------------------------------------------------------


def to_spark(data_type: DataType, *, column: str = "", nullable: bool = False) -> s.DataType:
    """The Spark type of a Paimon type; with `nullable`, every nested part is nullable too."""
    match data_type:
        case Atomic(root=Root.DECIMAL, precision=precision, scale=scale):
            return s.DecimalType(precision, scale)
        case Atomic(root=root):
            if root in _PLAIN:
                return _PLAIN[root]
            raise Unsupported("Spark has no such type", type=data_type, column=column)
        case Array(element=element):
            inner = to_spark(element, column=f"{column}.element", nullable=nullable)
            return s.ArrayType(inner, nullable or element.nullable)
        case Multiset(element=element):
            key = to_spark(element, column=f"{column}.element", nullable=nullable)
            return s.MapType(key, s.IntegerType(), nullable)
        case Map(key=key_type, value=value_type):
            key = to_spark(key_type, column=f"{column}.key", nullable=nullable)
            value = to_spark(value_type, column=f"{column}.value", nullable=nullable)
            return s.MapType(key, value, nullable or value_type.nullable)
        case Row(fields=fields):
            return spark_schema(fields, column=column, nullable=nullable)


def spark_schema(
    fields: Iterable[Field], *, column: str = "", nullable: bool = False
) -> s.StructType:
    """The Spark schema of some columns, with their comments."""
    return s.StructType(
        [
            s.StructField(
                field.name,
                to_spark(
                    field.type,
                    column=f"{column}.{field.name}" if column else field.name,
                    nullable=nullable,
                ),
                nullable or field.nullable,
                {COMMENT: field.description} if field.description else None,
            )
            for field in fields
        ]
    )


# --- Arrow, and comparing -------------------------------------------------------------------------


def arrow_of_spark(spark: s.DataType, *, column: str = "") -> pa.DataType:
    """The Arrow type with which Spark exchanges values of this type with Python.

    Raises Unsupported for a list or map of non-nullable void: Arrow has no such type.
    """
    match spark:
        case s.DecimalType():
            return pa.decimal128(spark.precision, spark.scale)
        case (
            s.ArrayType(elementType=s.NullType(), containsNull=False)
            | s.MapType(keyType=s.NullType())
        ):
            raise Unsupported(
                "the list or map has elements of type void: cast it to the type of the column, as "
                "in F.array().cast('array<int>')",
                column=column,
                type=_name(spark),
            )
        case s.ArrayType():
            inner = arrow_of_spark(spark.elementType, column=f"{column}.element")
            return pa.list_(pa.field("element", inner, nullable=spark.containsNull))
        case s.MapType():
            key = arrow_of_spark(spark.keyType, column=f"{column}.key")
            value = arrow_of_spark(spark.valueType, column=f"{column}.value")
            return pa.map_(
                pa.field("key", key, nullable=False),
                pa.field(
                    "value", value, nullable=spark.valueContainsNull or pa.types.is_null(value)
                ),
            )
        case s.StructType():
            return pa.struct(list(spark_arrow_schema(spark, column=column)))
        case s.CharType() | s.VarcharType():
            return pa.string()
        case s.StringType() if not _is_plain_text(spark):
            pass
        case _ if type(spark) in _ARROW:
            return _ARROW[type(spark)]
    raise Unsupported(
        "the bridge does not exchange this Spark type", type=_name(spark), column=column
    )


def spark_arrow_schema(schema: s.StructType, *, column: str = "") -> pa.Schema:
    """The Arrow schema in which Spark exchanges rows of this schema."""
    return pa.schema(
        [
            pa.field(
                field.name,
                arrow_of_spark(
                    field.dataType, column=f"{column}.{field.name}" if column else field.name
                ),
                nullable=field.nullable,
            )
            for field in schema.fields
        ]
    )


def same_type(one: s.DataType, other: s.DataType) -> bool:
    """Whether two Spark types have the same values, ignoring nullability."""
    return bool(arrow_of_spark(_nullable(one)).equals(arrow_of_spark(_nullable(other))))


def takes_nulls_of(there: s.DataType, asked: s.DataType) -> bool:
    """Whether `asked` allows nulls wherever `there` does.

    Assumes that both types are equal apart from nullability.
    """
    match asked, there:
        case s.ArrayType(), s.ArrayType():
            return asked.containsNull >= there.containsNull and takes_nulls_of(
                there.elementType, asked.elementType
            )
        case s.MapType(), s.MapType():
            return (
                asked.valueContainsNull >= there.valueContainsNull
                and takes_nulls_of(there.keyType, asked.keyType)
                and takes_nulls_of(there.valueType, asked.valueType)
            )
        case s.StructType(), s.StructType():
            return all(
                one.nullable >= other.nullable and takes_nulls_of(other.dataType, one.dataType)
                for one, other in zip(asked.fields, there.fields, strict=True)
            )
        case _:
            return True


def _nullable(spark: s.DataType) -> s.DataType:
    match spark:
        case s.ArrayType():
            return s.ArrayType(_nullable(spark.elementType), containsNull=True)
        case s.MapType():
            return s.MapType(
                _nullable(spark.keyType), _nullable(spark.valueType), valueContainsNull=True
            )
        case s.StructType():
            return s.StructType(
                [s.StructField(each.name, _nullable(each.dataType)) for each in spark.fields]
            )
        case _:
            return spark


def _is_plain_text(spark: s.StringType) -> bool:
    """Whether strings compare by bytes, as in Paimon; a Spark string may have a collation."""
    return type(spark) is s.StringType and spark == s.StringType()


def _name(spark: s.DataType) -> str:
    return str(spark.simpleString())
