"""Buckets computed by Spark are those of the reference, and of lakecore, for every key type."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from lakecore.format.binary_row import decode_rows
from lakecore.model.types import Field, arrow_type, parse_type
from lakecore.options import BucketFunction
from lakecore.plan.bucketing import bucket_ids
from spark_bridge.bucket_sql import HASH, bucket_sql
from spark_bridge.placement import Owner, owner_of
from spark_bridge.types import spark_arrow_schema, spark_schema
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

VECTORS = Path(__file__).parents[1] / "golden" / "vectors"
COUNT = 5


def read_vectors(name: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (VECTORS / name).read_text().splitlines())
    return [line for line in lines if not any(isinstance(t, dict) for t in line["types"])]


def fields_of(types: Sequence[str]) -> list[Field]:
    return [Field(id=i, name=f"f{i}", type=parse_type(text)) for i, text in enumerate(types)]


def frame_of_vector(spark: SparkSession, vector: dict[str, Any]) -> tuple[DataFrame, list[Field]]:
    fields = fields_of(vector["types"])
    row = len(fields).to_bytes(4, "big") + bytes.fromhex(vector["rowHex"])
    schema = spark_schema(fields, nullable=True)
    columns = [
        column.cast(each.type)
        for column, each in zip(
            decode_rows([row], fields).columns, spark_arrow_schema(schema), strict=True
        )
    ]
    table = pa.table(columns, names=[field.name for field in fields])
    return spark.createDataFrame(table, schema), fields


def owner_numbers(
    df: DataFrame, fields: list[Field], counts: Sequence[int], function: str
) -> tuple[DataFrame, list[Column]]:
    """The bucket of each row as a write would route it, whichever way that takes; by each count."""
    owners = [owner(df, fields, count, function) for count in counts]
    numbers = [each.number for each in owners if each.number is not None]
    assert len(numbers) == len(counts)
    # More buckets than one take the same steps.
    return max(owners, key=lambda each: len(each.steps)).hashed(df), numbers


def owner(df: DataFrame, fields: list[Field], buckets: int, function: str) -> Owner:
    table = new_table(
        {f.name: f"{f.type}" for f in fields},
        keys=(),
        bucket=str(buckets),
        bucket_key=",".join(f.name for f in fields),
        bucket_function__type=function,
    )
    return owner_of(df, table.context, tasks=buckets)


def assert_buckets(spark: SparkSession, vectors: list[dict[str, Any]]) -> None:
    """One query for all vectors: a query each would take a minute."""
    frames = []
    for index, vector in enumerate(vectors):
        df, fields = frame_of_vector(spark, vector)
        function = vector.get("function", "default").lower()
        hashed, numbers = owner_numbers(df, fields, [*map(int, vector["bucket"])], function)
        frames.append(hashed.select(f.lit(index).alias("i"), f.array(*numbers).alias("buckets")))
    rows = reduce(lambda one, other: one.unionAll(other), frames).coalesce(2).collect()
    got = {row.i: row.buckets for row in rows}
    expected = {i: list(vector["bucket"].values()) for i, vector in enumerate(vectors)}

    assert got == expected


def is_exchanged(vector: dict[str, Any]) -> bool:
    """Spark has no TIME, and counts microseconds."""
    texts = [str(text) for text in vector["types"]]
    return not any(t.startswith("TIME(") or t == "TIME" or "(9)" in t for t in texts)


def test_vectors_are_nearly_all_exchanged() -> None:
    vectors = read_vectors("bucket_hash_default.jsonl")

    assert len([v for v in vectors if is_exchanged(v)]) >= len(vectors) - 4


@pytest.mark.parametrize("name", ["bucket_hash_default.jsonl", "bucket_functions_mod_hive.jsonl"])
def test_buckets_are_those_of_the_reference(spark: SparkSession, name: str) -> None:
    assert_buckets(spark, [vector for vector in read_vectors(name) if is_exchanged(vector)])


VALUES: dict[str, list[object]] = {
    "BOOLEAN": [True, False, None, True, False, True],
    "TINYINT": [0, -1, 127, -128, None, 5],
    "SMALLINT": [0, -1, 32767, -32768, None, 5],
    "INT": [0, -1, 2**31 - 1, -(2**31), None, 5],
    "BIGINT": [0, -1, 2**63 - 1, -(2**63), None, 2**40],
    "DATE": [date(1970, 1, 1), date(1969, 12, 31), date(2026, 2, 28), None, date(1, 1, 1)] * 2,
    "DECIMAL(10, 2)": [Decimal("0.00"), Decimal("-1.25"), Decimal("99999999.99"), None] * 2,
    "DECIMAL(18, 0)": [Decimal(0), Decimal(-(10**18) + 1), Decimal(10**18 - 1), None, Decimal(7)]
    * 2,
    "STRING": ["", "a", "1234567", "12345678", "äöü€", None, "x" * 100, "中文" * 9],
    "VARCHAR(40)": ["", "ab", None, "1234567", "123456789012345", "1234567890123456"],
    "BYTES": [b"", b"\x00\xff", b"1234567", b"12345678", None, b"\x80" * 33],
}
KEYS = [
    *((name,) for name in VALUES),
    ("BIGINT", "INT"),
    ("INT", "DECIMAL(18, 0)", "SMALLINT", "BIGINT", "DATE", "TINYINT", "BOOLEAN", "INT"),
    ("INT",) * 9,
    ("BIGINT", "STRING"),
    ("STRING", "BYTES", "INT"),
    ("VARCHAR(40)", "DATE", "STRING", "DECIMAL(10, 2)", "BOOLEAN"),
]


def test_expression_and_lakecore_agree_on_every_type_it_covers(spark: SparkSession) -> None:
    for key in KEYS:
        fields = fields_of(key)
        rows = min(len(VALUES[name]) for name in key)
        columns = [
            pa.array(VALUES[name][i:rows] + VALUES[name][:i], arrow_type(field.type))
            for i, (name, field) in enumerate(zip(key, fields, strict=True))
        ]
        df = spark.createDataFrame(pa.table(columns, names=[f.name for f in fields]))
        expression = bucket_sql(fields, [c.dataType for c in df.schema], COUNT)
        assert expression is not None, key
        expected = bucket_ids(columns, [f.type for f in fields], COUNT).tolist()
        hashed, (number,) = owner_numbers(df, fields, [COUNT], "default")

        assert [row[0] for row in df.selectExpr(expression).collect()] == expected, key
        assert [row[0] for row in hashed.select(number).collect()] == expected, key


def test_integers_of_other_widths_have_the_bucket_of_their_value(spark: SparkSession) -> None:
    fields = fields_of(["INT"])
    df = spark.createDataFrame(pa.table({"f0": pa.array([-1, 7, 2**40], pa.int64())}))
    expression = bucket_sql(fields, [df.schema["f0"].dataType], COUNT)
    narrow = pa.array([-1, 7], pa.int32())

    assert expression is not None
    got = [row[0] for row in df.selectExpr(expression).collect()]
    assert got[:2] == bucket_ids([narrow], [fields[0].type], COUNT).tolist()
    assert 0 <= got[2] < COUNT


def test_other_types_are_not_covered(spark: SparkSession) -> None:
    df = spark.createDataFrame(pa.table({"f0": pa.array([1.5])}))

    for text in ("DOUBLE", "STRING", "TIMESTAMP(3)", "DECIMAL(20, 2)"):
        assert bucket_sql(fields_of([text]), [df.schema["f0"].dataType], COUNT) is None
    hive = bucket_sql(fields_of(["DOUBLE"]), [df.schema["f0"].dataType], 4, BucketFunction.HIVE)
    assert hive is None


def test_whole_numbers_are_hashed_in_steps_and_no_column_is_left_of_them(
    spark: SparkSession,
) -> None:
    fields = fields_of(["BIGINT", "INT"])
    df = spark.createDataFrame(pa.table({"f0": [1, 2], "f1": pa.array([3, None], pa.int32())}))
    placed = owner(df, fields, COUNT, "default")

    assert len(placed.steps) == len(["header", *fields])
    assert placed.together(df).columns == df.columns


def test_column_of_the_name_of_the_steps_is_kept(spark: SparkSession) -> None:
    table = new_table({"id": "BIGINT", HASH: "STRING"}, bucket="2")
    df = spark.createDataFrame(pa.table({"id": [1, 2], HASH.upper(): ["x", "y"]}))
    placed = owner_of(df, table.context)

    assert placed.steps == ()
    assert sorted(row[1] for row in placed.together(df).collect()) == ["x", "y"]
