"""Every logical type of Debezium and Kafka Connect: its column, values, and line in the docs."""

from __future__ import annotations

import base64
import json
import re
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from lakecore.cdc.formats.debezium import DebeziumJson
from lakecore.cdc.types.avro import avro_columns
from lakecore.cdc.types.debezium import LOGICAL
from lakecore.cdc.types.mapping import TypeMapping, TypeOption
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from lakecore.cdc.types.avro import AvroColumn

ROOT = Path(__file__).parents[3]


class Case(NamedTuple):
    """A field of a schema, its value in a message, and what must come of both."""

    kind: str
    wire: object
    type: str
    value: object
    text: str
    parameters: dict[str, str] | None = None
    avro: dict[str, object] | None = None


HOUR = 3_600
POINT = bytes.fromhex("0101000000000000000000F03F0000000000000040")
SHAPE = '{"coordinates":[1,2],"type":"Point","srid":0}'
WKB = {"wkb": base64.b64encode(POINT).decode(), "srid": None}
BYTES = base64.b64encode(b"\x30\x39").decode()


def same(kind: str, text: str) -> Case:
    return Case(kind, text, "STRING", text, text)


CASES = {
    "org.apache.kafka.connect.data.Date": Case("int32", 1, "DATE", date(1970, 1, 2), "1970-01-02"),
    "org.apache.kafka.connect.data.Time": Case(
        "int32", HOUR * 10**3, "TIME(3)", time(1), "01:00:00"
    ),
    "org.apache.kafka.connect.data.Timestamp": Case(
        "int64", 1, "TIMESTAMP(3)", datetime(1970, 1, 1, 0, 0, 0, 1000), "1970-01-01 00:00:00.001"
    ),
    "org.apache.kafka.connect.data.Decimal": Case(
        "bytes",
        BYTES,
        "DECIMAL(6, 2)",
        Decimal("123.45"),
        "123.45",
        {"scale": "2", "connect.decimal.precision": "6"},
        {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
    ),
    "io.debezium.time.Date": Case("int32", -1, "DATE", date(1969, 12, 31), "1969-12-31"),
    "io.debezium.time.Time": Case(
        "int32", HOUR * 10**3 + 7, "TIME(3)", time(1, 0, 0, 7000), "01:00:00.007"
    ),
    "io.debezium.time.MicroTime": Case("int64", HOUR * 10**6, "TIME(3)", time(1), "01:00:00"),
    "io.debezium.time.NanoTime": Case("int64", HOUR * 10**9, "TIME(3)", time(1), "01:00:00"),
    "io.debezium.time.Timestamp": Case(
        "int64",
        -1,
        "TIMESTAMP(3)",
        datetime(1969, 12, 31, 23, 59, 59, 999000),
        "1969-12-31 23:59:59.999",
    ),
    "io.debezium.time.MicroTimestamp": Case(
        "int64", 1, "TIMESTAMP(6)", datetime(1970, 1, 1, 0, 0, 0, 1), "1970-01-01 00:00:00.000001"
    ),
    "io.debezium.time.NanoTimestamp": Case(
        "int64",
        1000,
        "TIMESTAMP(9)",
        datetime(1970, 1, 1, 0, 0, 0, 1),
        "1970-01-01 00:00:00.000001000",
    ),
    "io.debezium.time.ZonedTimestamp": Case(
        "string",
        "2024-01-01T02:00:00+02:00",
        "TIMESTAMP(6)",
        datetime(2024, 1, 1),
        "2024-01-01 00:00:00.000000",
    ),
    "io.debezium.time.Year": Case("int32", 2024, "INT", 2024, "2024"),
    "io.debezium.time.MicroDuration": Case("int64", 2**40, "BIGINT", 2**40, str(2**40)),
    "io.debezium.time.NanoDuration": Case("int64", 2**40, "BIGINT", 2**40, str(2**40)),
    "io.debezium.time.Interval": same("string", "P1Y2M3DT4H5M6.78S"),
    "io.debezium.time.IsoDate": same("string", "2024-01-01Z"),
    "io.debezium.time.IsoTime": same("string", "10:00:00Z"),
    "io.debezium.time.IsoTimestamp": same("string", "2024-01-01T10:00:00Z"),
    "io.debezium.time.ZonedTime": same("string", "10:00:00+02:00"),
    "io.debezium.data.Enum": same("string", "small"),
    "io.debezium.data.EnumSet": same("string", "a,b"),
    "io.debezium.data.Json": same("string", '{"a": 1}'),
    "io.debezium.data.Ltree": same("string", "a.b"),
    "io.debezium.data.TsVector": same("string", "'a':1"),
    "io.debezium.data.Uuid": same("string", "123e4567-e89b-12d3-a456-426614174000"),
    "io.debezium.data.Xml": same("string", "<a/>"),
    "io.debezium.data.Bits": Case(
        "bytes", BYTES, "BINARY(2)", b"\x39\x30", "0011100100110000", {"length": "16"}
    ),
    "io.debezium.data.VariableScaleDecimal": Case(
        "struct", {"scale": 2, "value": BYTES}, "STRING", "123.45", "123.45"
    ),
    "io.debezium.data.geometry.Point": Case("struct", WKB, "STRING", SHAPE, SHAPE),
    "io.debezium.data.geometry.Geometry": Case("struct", WKB, "STRING", SHAPE, SHAPE),
    "io.debezium.data.geometry.Geography": Case("struct", WKB, "STRING", SHAPE, SHAPE),
    "io.debezium.data.FloatVector": Case(
        "array", [1.5, -2.0], "ARRAY<FLOAT>", [1.5, -2.0], "[1.5,-2.0]"
    ),
    "io.debezium.data.DoubleVector": Case(
        "array", [1.5, -2.0], "ARRAY<DOUBLE>", [1.5, -2.0], "[1.5,-2.0]"
    ),
    "io.debezium.data.SparseVector": Case(
        "struct", {"dimensions": 2}, "STRING", '{"dimensions":2}', '{"dimensions":2}'
    ),
}


def read(name: str, wire: object, options: tuple[TypeOption, ...] = ()) -> tuple[str, object]:
    """The type and the value of a field, from a JSON message with a schema."""
    case = CASES[name]
    field = {"field": "c", "type": case.kind, "name": name, "parameters": case.parameters}
    schema = {"fields": [{"field": "after", "type": "struct", "fields": [field]}]}
    row = json.dumps({"c": wire}, separators=(",", ":")).encode()
    shape = DebeziumJson(TypeMapping(frozenset(options))).shape(json.dumps(schema).encode(), ())
    source, table = shape.read([row, b'{"c":null}'], ())
    values = table.column("c").to_pylist()
    assert values[1] is None
    return str(source.fields[0].type), values[0]


def test_every_logical_type_is_tried() -> None:
    by_parameters = {"org.apache.kafka.connect.data.Decimal", "io.debezium.data.Bits"}
    assert set(CASES) == set(LOGICAL) | by_parameters


@pytest.mark.parametrize("name", CASES)
def test_logical_type_has_its_column_and_its_line_in_the_docs(name: str) -> None:
    case = CASES[name]
    assert read(name, case.wire) == (case.type, case.value)
    assert read(name, case.wire, (TypeOption.TO_STRING,)) == ("STRING", case.text)
    page = (ROOT / "docs/cdc-messages.md").read_text().split("### Logical types", 1)[1]
    short = re.sub(r"^(io\.debezium|org\.apache\.kafka\.connect)\.", "", name)
    lines = [each for each in page.splitlines() if f"`{short}`" in each]
    general = re.sub(r"\(6, 2\)", "(p, s)", case.type).replace("(2)", "(n)")
    assert any(each.split("|")[2].strip() == shown(general) for each in lines), lines


def shown(data_type: str) -> str:
    return data_type.replace("<", "&lt;").replace(">", "&gt;")


def avro(name: str) -> AvroColumn:
    case = CASES[name]
    names = {"int32": "int", "int64": "long", "string": "string", "bytes": "bytes"}
    if case.kind == "struct":
        members = [{"name": each, "type": ["null", "bytes"]} for each in case.wire]  # type: ignore[attr-defined]
        base: dict[str, object] = {"type": "record", "name": "r", "fields": members}
    elif case.kind == "array":
        base = {"type": "array", "items": "float" if "Float" in name else "double"}
    else:
        base = {"type": names[case.kind]}
    base = (case.avro or base) | {"connect.name": name, "connect.parameters": case.parameters or {}}
    [column] = avro_columns({"fields": [{"name": "c", "type": ["null", base]}]})
    return column


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"io.debezium.data.SparseVector"}))
def test_avro_gives_the_same_columns(name: str) -> None:
    case = CASES[name]
    wire = case.wire
    if case.kind == "struct":
        assert isinstance(wire, dict)
        wire = {k: base64.b64decode(v) if isinstance(v, str) else v for k, v in wire.items()}
    elif name.endswith("Decimal"):
        wire = case.value
    elif case.kind == "bytes":
        wire = base64.b64decode(str(wire))
    column = avro(name)
    values = column.convert([wire, None], "c")
    assert (str(column.type), values.to_pylist()) == (case.type, [case.value, None])


@pytest.mark.parametrize(
    ("name", "wire", "text"),
    [
        ("io.debezium.time.Time", 86_400_000, "24:00:00"),
        ("org.apache.kafka.connect.data.Time", -1, "-00:00:00.001"),
        ("io.debezium.time.MicroTime", 1, "00:00:00.000001"),
        ("io.debezium.time.NanoTime", 86_399_999_999_999, "23:59:59.999999999"),
    ],
)
def test_time_that_no_time_column_holds_is_refused_and_kept_as_text(
    name: str, wire: int, text: str
) -> None:
    with pytest.raises(InvalidRequest, match="to-string keeps it as text"):
        read(name, wire)
    assert read(name, wire, (TypeOption.TO_STRING,)) == ("STRING", text)


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("io.debezium.data.VariableScaleDecimal", {"value": BYTES}),
        ("io.debezium.data.VariableScaleDecimal", {"scale": "x", "value": BYTES}),
        ("io.debezium.data.geometry.Point", {"wkb": "AA=="}),
        ("io.debezium.data.FloatVector", ["x"]),
        ("io.debezium.data.FloatVector", "x"),
    ],
)
def test_wrong_value_of_a_struct_is_an_error_of_the_message(name: str, wire: object) -> None:
    with pytest.raises(InvalidRequest):
        read(name, wire)
