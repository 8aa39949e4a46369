"""Casts the rows of an INSERT as Spark's ANSI store assignment does, by Spark's analyzer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from lakecore import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

__all__ = ["assigned"]

_POLICY = "spark.sql.storeAssignmentPolicy"


def assigned(
    spark: SparkSession, df: DataFrame, types: StructType, names: Sequence[str]
) -> DataFrame:
    """The columns of a frame, in order, with these names and with their types in the table.

    Raises InvalidRequest for a column whose type Spark would not store in that of the table, and
    Unsupported for another policy than ANSI.
    """
    policy = str(spark.conf.get(_POLICY, "ANSI"))
    if policy.upper() != "ANSI":
        raise Unsupported(
            "INSERT has the store assignment ANSI alone", option=_POLICY, value=policy
        )
    places = [str(place) for place in range(len(names))]
    given = df.toDF(*places)
    wanted = [types[name].dataType for name in names]
    known = [
        StructField(place, _with_names_of(field.dataType, kind))
        for place, field, kind in zip(places, given.schema.fields, wanted, strict=True)
    ]
    for place, name, field in zip(places, names, known, strict=True):
        try:
            # The cast is Spark's; analysis happens when the schema is asked for.
            _ = given.select(place).to(StructType([field])).schema
        except AnalysisException as error:
            raise InvalidRequest(
                "Spark's ANSI store assignment does not store this type in the column: CAST the "
                "value in the query",
                column=name,
                given=given.schema[place].dataType.simpleString(),
                wanted=types[name].dataType.simpleString(),
            ) from error
    fitted = given.to(StructType(known))
    return fitted.select(
        *(
            f.col(place).cast(kind).alias(name)
            for place, kind, name in zip(places, wanted, names, strict=True)
        )
    )


def _with_names_of(given: DataType, kind: DataType) -> DataType:
    """A type of the table with the field names of a given type.

    INSERT assigns nested fields by place, and `DataFrame.to` by name.
    """
    if isinstance(given, StructType) and isinstance(kind, StructType):
        if len(given.fields) != len(kind.fields):
            raise InvalidRequest(
                "a ROW has another number of fields than that of the table",
                given=given.simpleString(),
                wanted=kind.simpleString(),
            )
        return StructType(
            [
                StructField(own.name, _with_names_of(own.dataType, field.dataType))
                for own, field in zip(given.fields, kind.fields, strict=True)
            ]
        )
    if isinstance(given, ArrayType) and isinstance(kind, ArrayType):
        return ArrayType(_with_names_of(given.elementType, kind.elementType))
    if isinstance(given, MapType) and isinstance(kind, MapType):
        return MapType(
            _with_names_of(given.keyType, kind.keyType),
            _with_names_of(given.valueType, kind.valueType),
        )
    return kind
