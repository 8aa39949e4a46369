from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import (
    Array,
    Atomic,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    arrow_field,
    arrow_schema,
    arrow_type,
    fields_from_arrow,
    from_arrow,
    parse_field,
    parse_type,
    plain_type,
    string_array,
    timestamp_unit,
    type_to_json,
    with_nullable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

INT = Atomic(root=Root.INT)
TEXTS = [
    "CHAR(3)",
    "VARCHAR(20) NOT NULL",
    "STRING",
    "BOOLEAN",
    "BINARY(16)",
    "VARBINARY(5)",
    "BYTES NOT NULL",
    "DECIMAL(38, 18)",
    "TINYINT",
    "SMALLINT",
    "INT NOT NULL",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DATE",
    "TIME(3)",
    "TIMESTAMP(0)",
    "TIMESTAMP(9) NOT NULL",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE NOT NULL",
    "ARRAY<INT NOT NULL>",
    "MULTISET<STRING> NOT NULL",
    "MAP<STRING NOT NULL, ARRAY<DOUBLE>>",
    "ROW<`x` INT, `odd ``name``` MAP<INT, DATE NOT NULL> NOT NULL>",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_of_a_type_comes_back(text: str) -> None:
    assert str(parse_type(text)) == text


@pytest.mark.parametrize("text", TEXTS)
def test_json_of_a_type_comes_back(text: str) -> None:
    data_type = parse_type(text)

    assert parse_type(type_to_json(data_type)) == data_type


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("integer", "INT"),
        ("decimal", "DECIMAL(10, 0)"),
        ("dec(5)", "DECIMAL(5, 0)"),
        ("NUMERIC( 5 ,2 )", "DECIMAL(5, 2)"),
        ("char", "CHAR(1)"),
        ("time", "TIME(0)"),
        ("timestamp", "TIMESTAMP(6)"),
        ("timestamp_ltz(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        ("timestamp(3)with local time zone", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        ("double precision null", "DOUBLE"),
        ("varchar(2147483647)", "STRING"),
        ("array<int>not null", "ARRAY<INT> NOT NULL"),
        ("row(a int, b row<c string>)", "ROW<`a` INT, `b` ROW<`c` STRING>>"),
    ],
)
def test_parsing_is_lenient(text: str, same: str) -> None:
    assert str(parse_type(text)) == same


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "NUMBER",
        "INT INT",
        "INT NOT",
        "CHAR(0)",
        "VARCHAR(2147483648)",
        "DECIMAL(39, 0)",
        "DECIMAL(5, 6)",
        "DECIMAL(5, 2, 1)",
        "DECIMAL()",
        "TIMESTAMP(10)",
        "TIME(-1)",
        "ARRAY",
        "ARRAY<INT",
        "MAP<INT>",
        "ROW<a>",
        "ROW<a INT",
        "INT; DROP",
    ],
)
def test_text_that_is_no_type_is_refused_with_its_column(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"column=price"):
        parse_type(text, context="price")


@pytest.mark.parametrize("text", ["GEOGRAPHY", "GEOMETRY"])
def test_younger_types_are_unsupported(text: str) -> None:
    with pytest.raises(Unsupported, match=text):
        parse_type(text, context="c")


def test_younger_type_in_a_schema_file_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="GEOMETRY"):
        parse_type({"type": "GEOMETRY NOT NULL", "element": "FLOAT"})


@pytest.mark.parametrize("source", [7, None, [], {"type": "ROW"}, {"type": "MAP", "key": "INT"}])
def test_json_that_is_no_type_is_refused(source: object) -> None:
    with pytest.raises(InvalidRequest):
        parse_type(source)  # type: ignore[arg-type]


def test_field_of_a_schema_file_keeps_its_parts() -> None:
    field = parse_field(
        {"id": 3, "name": "n", "type": "INT", "description": "d", "defaultValue": "1"}
    )

    assert field == Field(id=3, name="n", type=INT, description="d", default_value="1")
    with pytest.raises(InvalidRequest, match="a field needs"):
        parse_field({"id": 3, "name": "n"})


@pytest.mark.parametrize(
    ("text", "arrow"),
    [
        ("CHAR(3)", pa.string()),
        ("STRING", pa.string()),
        ("BINARY(4)", pa.binary()),
        ("BYTES", pa.binary()),
        ("DECIMAL(38, 10)", pa.decimal128(38, 10)),
        ("TINYINT", pa.int8()),
        ("DATE", pa.date32()),
        ("TIME(0)", pa.time32("ms")),
        ("TIMESTAMP(0)", pa.timestamp("ms")),
        ("TIMESTAMP(3)", pa.timestamp("ms")),
        ("TIMESTAMP(4)", pa.timestamp("us")),
        ("TIMESTAMP(6)", pa.timestamp("us")),
        ("TIMESTAMP(7)", pa.timestamp("ns")),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.timestamp("us", tz="UTC")),
        ("ARRAY<INT NOT NULL>", pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ("MAP<STRING, INT>", pa.map_(pa.string(), pa.int32())),
        (
            "MULTISET<STRING>",
            pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
        ),
        ("ROW<a INT NOT NULL>", pa.struct([pa.field("a", pa.int32(), nullable=False)])),
    ],
)
def test_arrow_twin_of_a_type(text: str, arrow: pa.DataType) -> None:
    assert arrow_type(parse_type(text)) == arrow


@pytest.mark.parametrize("text", ["STRING", "BYTES", "DECIMAL(7, 3)", "BIGINT", "TIMESTAMP(9)"])
def test_type_comes_back_from_arrow(text: str) -> None:
    data_type = parse_type(text)

    assert from_arrow(arrow_type(data_type)) == data_type


@pytest.mark.parametrize(
    ("arrow", "text"),
    [
        (pa.uint8(), "SMALLINT"),
        (pa.uint16(), "INT"),
        (pa.uint32(), "BIGINT"),
        (pa.uint64(), "DECIMAL(20, 0)"),
        (pa.float16(), "FLOAT"),
        (pa.large_string(), "STRING"),
        (pa.string_view(), "STRING"),
        (pa.dictionary(pa.int32(), pa.string()), "STRING"),
        (pa.binary(16), "BINARY(16)"),
        (pa.large_binary(), "BYTES"),
        (pa.date64(), "DATE"),
        (pa.time64("us"), "TIME(3)"),
        (pa.time32("s"), "TIME(0)"),
        (pa.timestamp("s"), "TIMESTAMP(0)"),
        (pa.timestamp("us", tz="Europe/Berlin"), "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        (pa.large_list(pa.int8()), "ARRAY<TINYINT>"),
        (pa.list_(pa.int8(), 3), "ARRAY<TINYINT>"),
        (pa.map_(pa.string(), pa.int8()), "MAP<STRING NOT NULL, TINYINT>"),
        (pa.struct([("a", pa.int8()), ("b", pa.string())]), "ROW<`a` TINYINT, `b` STRING>"),
    ],
)
def test_foreign_arrow_types_find_a_type_that_holds_them(arrow: pa.DataType, text: str) -> None:
    assert str(from_arrow(arrow)) == text


@pytest.mark.parametrize(
    "arrow", [pa.null(), pa.duration("s"), pa.decimal256(50, 2), pa.month_day_nano_interval()]
)
def test_arrow_type_without_a_twin_is_unsupported_with_its_path(arrow: pa.DataType) -> None:
    with pytest.raises(Unsupported, match=r"column=outer\.inner"):
        fields_from_arrow([pa.field("outer", pa.struct([("inner", arrow)]))])


def test_nullability_travels_to_arrow_and_back() -> None:
    fields = (
        Field(id=0, name="k", type=with_nullable(INT, nullable=False)),
        Field(id=1, name="a", type=Array(element=with_nullable(INT, nullable=False))),
    )

    assert arrow_field(fields[0]) == pa.field("k", pa.int32(), nullable=False)
    assert fields_from_arrow(list(arrow_schema(fields))) == fields


def test_arrow_schema_becomes_a_polars_frame() -> None:
    schema = arrow_schema(
        (
            Field(id=0, name="d", type=parse_type("DECIMAL(10, 2)")),
            Field(id=1, name="t", type=parse_type("TIMESTAMP(6) WITH LOCAL TIME ZONE")),
            Field(id=2, name="l", type=parse_type("ARRAY<ROW<a INT>>")),
        )
    )

    frame = pl.from_arrow(schema.empty_table())

    assert isinstance(frame, pl.DataFrame)
    assert frame.schema == {
        "d": pl.Decimal(10, 2),
        "t": pl.Datetime("us", "UTC"),
        "l": pl.List(pl.Struct({"a": pl.Int32})),
    }


def test_timestamp_units_follow_the_fraction_digits() -> None:
    assert [timestamp_unit(p) for p in range(10)] == ["ms"] * 4 + ["us"] * 3 + ["ns"] * 3


def test_types_are_values() -> None:
    assert Map(key=INT, value=INT) == Map(key=INT, value=INT)
    assert len({Multiset(element=INT), Multiset(element=INT)}) == 1
    assert Row(fields=()) != Row(fields=(), nullable=False)


def test_plain_type_is_that_of_the_values_at_any_depth() -> None:
    coded = pa.dictionary(pa.int8(), pa.string())
    key, item = pa.field("k", coded, nullable=False), pa.field("i", pa.list_view(coded))
    given = pa.struct([pa.field("m", pa.map_(key, item)), pa.field("j", pa.json_())])

    plain_key, plain_item = key.with_type(pa.string()), item.with_type(pa.list_(pa.string()))
    expected = pa.struct([("m", pa.map_(plain_key, plain_item)), ("j", pa.string())])
    assert plain_type(given) == expected


def test_constant_strings_are_plain_arrow_strings() -> None:
    assert string_array(["a", "é"]).equals(pa.array(["a", "é"]))


@pytest.mark.parametrize(
    "around",
    [
        lambda inner: {"type": "ARRAY", "element": inner},
        lambda inner: {"type": "MULTISET", "element": inner},
        lambda inner: {"type": "MAP", "key": inner, "value": "INT"},
        lambda inner: {"type": "MAP", "key": "INT", "value": inner},
        lambda inner: {"type": "ROW", "fields": [{"id": 0, "name": "f", "type": inner}]},
    ],
    ids=["array", "multiset", "key", "value", "row"],
)
def test_types_are_nested_up_to_a_depth(around: Callable[[Any], Any]) -> None:
    inner: Any = "ARRAY<INT>"
    for _ in range(99):
        inner = around(inner)

    parse_type(inner)
    with pytest.raises(Unsupported, match="nested too deeply"):
        parse_type(around(inner))


def test_digits_and_decimals_are_numbers_for_every_type() -> None:
    kinds = [parse_type(text) for text in ("DECIMAL(10, 2)", "TIMESTAMP(9)", "TIME(0)", "INT")]

    found = [(kind.digits, kind.decimals) for kind in kinds if isinstance(kind, Atomic)]
    assert found == [(10, 2), (9, 0), (0, 0), (0, 0)]
