"""Values of every type go to Spark and come back, in a session far from UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import types as s

import lakecore as lc
import spark_bridge
from lakecore.errors import Unsupported
from lakecore.model.types import parse_type
from spark_bridge.attach_tables import register
from spark_bridge.read_frame import read
from spark_bridge.types import arrow_of_spark, to_spark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ZONE = "spark.sql.session.timeZone"
US = 1_000_000
VALUES: dict[str, tuple[str, list[object]]] = {
    "c": ("CHAR(3)", ["abc", "", None]),
    "vc": ("VARCHAR(9)", ["größer", "", None]),
    "t": ("STRING", ["x" * 300, "", None]),
    "b": ("BOOLEAN", [True, False, None]),
    "bin": ("BINARY(2)", [b"\x00\xff", b"ab", None]),
    "vb": ("BYTES", [b"", b"\x00" * 40, None]),
    "i8": ("TINYINT", [-128, 127, None]),
    "i16": ("SMALLINT", [-32768, 32767, None]),
    "i32": ("INT", [-(2**31), 2**31 - 1, None]),
    "i64": ("BIGINT", [-(2**63), 2**63 - 1, None]),
    "f": ("FLOAT", [1.5, float("-inf"), None]),
    "d": ("DOUBLE", [1e300, -0.0, None]),
    "dec": ("DECIMAL(38, 10)", ["9999999999999999999999999999.9999999999", "-0.0000000001", None]),
    "small": ("DECIMAL(9, 2)", ["-9999999.99", "0.01", None]),
    "day": ("DATE", [-719_162, 2_932_896, None]),
    "ts0": ("TIMESTAMP(0)", [0, 1_700_000_000 * US, None]),
    "ts3": ("TIMESTAMP(3)", [1_000, -62_135_596_800 * US, None]),
    "ts6": ("TIMESTAMP(6)", [1, 253_402_300_799 * US + 999_999, None]),
    "ts9": ("TIMESTAMP(9)", [1, 1_700_000_000 * US + 1, None]),
    "ltz3": ("TIMESTAMP(3) WITH LOCAL TIME ZONE", [1_000, 1_700_000_000 * US, None]),
    "ltz6": ("TIMESTAMP(6) WITH LOCAL TIME ZONE", [-1, 1_699_165_800 * US, None]),
    "ltz9": ("TIMESTAMP(9) WITH LOCAL TIME ZONE", [-1, 1_699_165_800 * US, None]),
    "arr": ("ARRAY<INT>", [[1, None, 3], [], None]),
    "map": ("MAP<STRING, TIMESTAMP(6)>", [[("a", 1), ("b", None)], [], None]),
    "bag": ("MULTISET<STRING>", [[("a", 2)], [], None]),
    "row": (
        "ROW<x INT, y ARRAY<ROW<z DECIMAL(20, 3)>>, w TIMESTAMP(6) WITH LOCAL TIME ZONE>",
        [
            {"x": 1, "y": [{"z": "1.250"}, None], "w": 5},
            {"x": None, "y": None, "w": None},
            None,
        ],
    ),
}


@pytest.fixture(params=["America/New_York", "Asia/Kathmandu"])
def _zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, request.param)
    yield
    spark.conf.set(ZONE, before)


def column(kind: str, cells: list[object]) -> pa.Array:
    """The cells in the Arrow type of Spark's type; counts stand for timestamps and dates."""
    from decimal import Decimal

    def plain(value: object, arrow: pa.DataType) -> object:
        if value is None:
            return None
        if pa.types.is_decimal(arrow):
            return Decimal(str(value))
        if pa.types.is_list(arrow):
            assert isinstance(value, list)
            return [plain(each, arrow.value_type) for each in value]
        if pa.types.is_map(arrow):
            assert isinstance(value, list)
            return [(key, plain(each, arrow.item_type)) for key, each in value]
        if pa.types.is_struct(arrow):
            assert isinstance(value, dict)
            return {each.name: plain(value[each.name], each.type) for each in arrow}
        return value

    arrow = arrow_of_spark(to_spark(parse_type(kind, context="c"), nullable=True))
    return pa.array([plain(cell, arrow) for cell in cells], arrow)


def everything() -> pa.Table:
    arrays = [column(kind, cells) for kind, cells in VALUES.values()]
    keys = pa.array(range(3), pa.int64())
    return pa.Table.from_arrays([keys, *arrays], ["id", *VALUES])


def make(path: Path, **options: str) -> lc.Table:
    schema = {"id": "BIGINT NOT NULL"} | {name: kind for name, (kind, _) in VALUES.items()}
    return lc.open_table(
        path, create=True, schema=schema, primary_keys=["id"], options={"bucket": "1"} | options
    )


def as_numbers(table: pa.Table) -> list[dict[str, object]]:
    """The rows by id, instants as counts, so that no time zone has a say."""
    arrays = [flat(column.combine_chunks()) for column in table.columns]
    plain = pa.Table.from_arrays(arrays, table.column_names)
    found: list[dict[str, object]] = plain.sort_by("id").to_pylist()
    return found


def flat(array: pa.Array) -> pa.Array:
    from lakecore.model.arrow_arrays import cast_leaf, retype

    def bare(arrow: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(arrow):
            return pa.timestamp("us")
        if pa.types.is_list(arrow):
            return pa.list_(bare(arrow.value_type))
        if pa.types.is_map(arrow):
            return pa.map_(arrow.key_type, bare(arrow.item_type))
        if pa.types.is_struct(arrow):
            return pa.struct([pa.field(each.name, bare(each.type)) for each in arrow])
        return arrow

    def leaf(values: pa.Array, target: pa.DataType) -> pa.Array:
        if pa.types.is_timestamp(values.type) and values.type.tz is not None:
            values = values.cast(pa.timestamp(values.type.unit, "UTC")).view(
                pa.timestamp(values.type.unit)
            )
        return cast_leaf(values, target)

    return retype(array, bare(array.type), leaf)


@pytest.mark.usefixtures("_zone")
def test_values_come_to_spark_and_back(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    ours, theirs = make(tmp_path / "ours", **{"write-only": "true"}), make(tmp_path / "theirs")
    ours.write(everything())
    wanted = as_numbers(everything())

    for frame in (read(spark, ours), spark.read.format("lakecore").load(ours.path)):
        assert as_numbers(frame.toArrow()) == wanted
    spark_bridge.write(read(spark, ours), theirs)
    assert as_numbers(theirs.to_arrow()) == wanted
    theirs.compact(full=True)
    flat_columns = [
        name for name, (kind, _) in VALUES.items() if "<" not in kind and "9)" not in kind
    ]
    raw = read(spark, theirs, columns=["id", *flat_columns])
    assert raw.inputFiles()
    assert as_numbers(raw.toArrow()) == as_numbers(everything().select(["id", *flat_columns]))


@pytest.mark.usefixtures("_zone")
def test_an_instant_is_shown_in_the_zone_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path / "t")
    table.write(everything())
    row = read(spark, table, columns=["ltz6", "ts6"], where="id = 1").selectExpr(
        "cast(ltz6 as string) ltz", "unix_micros(ltz6) us", "cast(ts6 as string) ts"
    )
    zone = spark.conf.get(ZONE)

    shown = {"America/New_York": "2023-11-05 01:30:00", "Asia/Kathmandu": "2023-11-05 12:15:00"}
    assert row.collect()[0] == (
        shown[zone or ""],
        1_699_165_800 * US,
        "9999-12-31 23:59:59.999999",
    )


def test_a_text_that_compares_in_another_way_is_not_taken() -> None:
    with pytest.raises(Unsupported, match=r"type=string collate UTF8_LCASE column=a\.element"):
        arrow_of_spark(s.ArrayType(s.StringType("UTF8_LCASE")), column="a")


def test_what_a_frame_leaves_open_is_null(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"id": "BIGINT NOT NULL", "v": "STRING", "r": "ROW<x INT, y ARRAY<INT>>"}
    table = lc.open_table(tmp_path / "t", create=True, schema=columns, primary_keys=["id"])
    df = spark.sql("SELECT 1L AS id, NULL AS v, named_struct('x', 1) AS r")
    spark_bridge.write(df, table)
    spark_bridge.write(df.selectExpr("2L AS id", "named_struct('x', 1, 'y', NULL) AS r"), table)

    empty = {"x": 1, "y": None}
    assert sorted(table.to_polars().rows()) == [(1, None, empty), (2, None, empty)]


def test_time_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match=r"type=TIME\(3\) column=a.element"):
        to_spark(parse_type("ARRAY<TIME(3)>", context="a"), column="a")
