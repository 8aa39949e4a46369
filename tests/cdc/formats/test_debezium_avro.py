from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from lakecore.cdc.events import ChangeBatch, SourceTable
from lakecore.cdc.formats.debezium import DebeziumAvro, SchemaRegistry
from lakecore.cdc.formats.decoder import BadMessage, Messages
from lakecore.cdc.types.mapping import TypeMapping
from lakecore.errors import InvalidRequest

UTC = dt.UTC
SIGNS = ("+I", "-U", "+U", "-D")


class Registry:
    """A registry in memory; `asked` has the ids of the requested schemas."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.asked: list[int] = []

    def add(self, schema: dict[str, Any]) -> int:
        self.schemas.append(schema)
        return len(self.schemas) - 1

    def __call__(self, url: str) -> dict[str, Any]:
        number = int(url.rpartition("/")[2])
        assert url == f"http://registry/schemas/ids/{number}"
        self.asked.append(number)
        return {"schema": json.dumps(self.schemas[number])}

    def message(self, number: int, value: object) -> bytes:
        out = io.BytesIO()
        schemaless_writer(out, parse_schema(self.schemas[number]), value)
        return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def envelope(fields: list[dict[str, Any]]) -> dict[str, Any]:
    row = {"type": "record", "name": "Value", "namespace": "m.d.t", "fields": fields}
    names = [{"name": name, "type": ["null", "string"]} for name in ("db", "table")]
    source = {"type": "record", "name": "Source", "namespace": "io", "fields": names}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "m.d.t",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "m.d.t.Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
        ],
    }


def event(op: str, before: object = None, after: object = None) -> dict[str, object]:
    return {"op": op, "before": before, "after": after, "source": {"db": "d", "table": "t"}}


def fail(error: BadMessage) -> None:
    raise error


def one(field: dict[str, Any], value: object, options: str = "") -> tuple[str, str, object]:
    """The name, type and value of one column."""
    registry = Registry()
    schema = registry.add(envelope([{**field, "name": "v"}]))
    decoder = DebeziumAvro(SchemaRegistry("http://registry/", registry), TypeMapping.parse(options))
    message = registry.message(schema, event("c", None, {"v": value}))
    (batch,) = decoder.decode(Messages(values=[message]), fail)
    (column,) = batch.schema.fields
    return column.name, str(column.type), batch.rows.column(0)[0].as_py()


def rows(batches: list[ChangeBatch]) -> list[tuple[Any, ...]]:
    return [
        (SIGNS[kind], *row.values())
        for batch in batches
        for kind, row in zip(batch.kinds.to_pylist(), batch.rows.to_pylist(), strict=True)
    ]


def test_events_become_rows_and_each_schema_is_asked_for_once() -> None:
    registry = Registry()
    key = registry.add({"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]})
    optional = ["null", "string"]
    old = registry.add(envelope([{"name": "id", "type": "int"}, {"name": "v", "type": optional}]))
    new = registry.add(envelope([{"name": "id", "type": "long"}]))
    decoder = DebeziumAvro(SchemaRegistry("http://registry", registry))
    values = [
        registry.message(old, event("r", None, {"id": 1, "v": None})),
        registry.message(old, event("u", {"id": 1, "v": None}, {"id": 1, "v": "b"})),
        registry.message(old, event("t")),
        None,
        registry.message(new, event("d", {"id": 1})),
    ]
    keys = [registry.message(key, {"id": 1})] * len(values)

    batches = decoder.decode(Messages(values=values, keys=keys), fail)

    assert [(b.table, b.schema.primary_key) for b in batches] == [
        (SourceTable("d", "t"), ("id",)),
        (SourceTable("d", "t"), ("id",)),
    ]
    assert [str(b.schema.fields[0].type) for b in batches] == ["INT", "BIGINT"]
    assert rows(batches) == [("+I", 1, None), ("-D", 1, None), ("+I", 1, "b"), ("-D", 1)]
    assert registry.asked == [old, key, new]


def logical(base: str, name: str, **more: object) -> dict[str, Any]:
    return {"type": {"type": base, "logicalType": name, **more}}


def connect(base: str, name: str, **more: object) -> dict[str, Any]:
    return {"type": ["null", {"type": base, "connect.name": name, **more}]}


@pytest.mark.parametrize(
    ("field", "value", "kind", "expected"),
    [
        ({"type": "boolean"}, True, "BOOLEAN", True),
        ({"type": "int"}, 5, "INT", 5),
        ({"type": "long"}, 2**40, "BIGINT", 2**40),
        ({"type": "float"}, 0.5, "FLOAT", 0.5),
        ({"type": "double"}, 0.1, "DOUBLE", 0.1),
        ({"type": "bytes"}, b"\xff", "BYTES", b"\xff"),
        ({"type": ["null", "string"]}, None, "STRING", None),
        ({"type": {"type": "enum", "name": "E", "symbols": ["A"]}}, "A", "STRING", "A"),
        (logical("int", "date"), dt.date(2020, 1, 1), "DATE", dt.date(2020, 1, 1)),
        (logical("int", "time-millis"), dt.time(1, 2, 3), "TIME(3)", dt.time(1, 2, 3)),
        (
            logical("long", "timestamp-millis"),
            dt.datetime(2020, 1, 1, tzinfo=UTC),
            "TIMESTAMP(3)",
            dt.datetime(2020, 1, 1),
        ),
        (
            logical("long", "timestamp-micros"),
            dt.datetime(2020, 1, 1, 0, 0, 0, 7, tzinfo=UTC),
            "TIMESTAMP(6)",
            dt.datetime(2020, 1, 1, 0, 0, 0, 7),
        ),
        (
            logical("bytes", "decimal", precision=5, scale=2),
            Decimal("1.50"),
            "DECIMAL(5, 2)",
            Decimal("1.50"),
        ),
        (connect("int", "io.debezium.time.Date"), 1, "DATE", dt.date(1970, 1, 2)),
        (
            connect("long", "io.debezium.time.MicroTimestamp"),
            1,
            "TIMESTAMP(6)",
            dt.datetime(1970, 1, 1, 0, 0, 0, 1),
        ),
        (
            connect("string", "io.debezium.time.ZonedTimestamp"),
            "2020-01-01T00:00:00Z",
            "TIMESTAMP(6)",
            dt.datetime(2020, 1, 1),
        ),
        (
            connect("bytes", "io.debezium.data.Bits", **{"connect.parameters": {"length": "9"}}),
            b"\x01\x00",
            "BINARY(2)",
            b"\x00\x01",
        ),
        ({"type": {"type": "array", "items": "int"}}, [1, 2], "ARRAY<INT>", [1, 2]),
        (
            {"type": {"type": "map", "values": "long"}},
            {"a": 1},
            "MAP<STRING NOT NULL, BIGINT>",
            [("a", 1)],
        ),
        (
            {
                "type": {
                    "type": "record",
                    "name": "P",
                    "fields": [{"name": "x", "type": "int"}],
                }
            },
            {"x": 1},
            "ROW<`x` INT>",
            {"x": 1},
        ),
    ],
)
def test_a_column_has_the_type_of_its_schema(
    field: dict[str, Any], value: object, kind: str, expected: object
) -> None:
    assert one(field, value) == ("v", kind, expected)


def source_type(base: str, name: str, **more: str) -> dict[str, Any]:
    about = {"type": name, "name": "Column", **more}
    parameters = {f"__debezium.source.column.{key}": text for key, text in about.items()}
    return {"type": ["null", {"type": base, "connect.parameters": parameters}]}


@pytest.mark.parametrize(
    ("field", "value", "kind", "expected"),
    [
        (source_type("int", "TINYINT", length="1"), 1, "BOOLEAN", True),
        (source_type("int", "SMALLINT UNSIGNED"), 60000, "INT", 60000),
        (source_type("long", "BIGINT UNSIGNED"), 5, "DECIMAL(20, 0)", Decimal(5)),
        (
            source_type("string", "DECIMAL", length="5", scale="2"),
            "1.5",
            "DECIMAL(5, 2)",
            Decimal("1.50"),
        ),
        (source_type("string", "VARCHAR", length="3"), "abc", "VARCHAR(3)", "abc"),
        (source_type("string", "SET"), "a,b", "ARRAY<STRING>", ["a", "b"]),
        (source_type("bytes", "VARBINARY", length="3"), b"\xff", "VARBINARY(3)", b"\xff"),
        (source_type("int", "YEAR"), 2023, "INT", 2023),
        (source_type("string", "TIMESTAMPTZ"), "x", "STRING", "x"),
    ],
)
def test_the_type_of_the_source_decides_if_it_is_known(
    field: dict[str, Any], value: object, kind: str, expected: object
) -> None:
    assert one(field, value) == ("Column", kind, expected)


def test_to_string_prints_values() -> None:
    moment = dt.datetime(2020, 1, 1, tzinfo=UTC)

    assert one(logical("long", "timestamp-millis"), moment, "to-string")[1:] == (
        "STRING",
        "2020-01-01 00:00:00.000",
    )


@pytest.mark.parametrize("bad", ["text", "unknown schema", "unknown op", "no before"])
def test_a_bad_message_is_reported_and_the_others_are_kept(bad: str) -> None:
    registry = Registry()
    number = registry.add(envelope([{"name": "v", "type": "string"}]))
    good = registry.message(number, event("c", None, {"v": "a"}))
    message = {
        "text": b"{}",
        "unknown schema": b"\0\0\0\0\7",
        "unknown op": registry.message(number, event("x")),
        "no before": registry.message(number, event("u", None, {"v": "a"})),
    }[bad]
    caught: list[BadMessage] = []

    batches = DebeziumAvro(SchemaRegistry("http://registry", registry)).decode(
        Messages(values=[good, message, good]), caught.append
    )

    assert rows(batches) == [("+I", "a"), ("+I", "a")]
    assert [error.facts["number"] for error in caught] == [1]


def test_a_value_that_does_not_fit_names_its_message() -> None:
    registry = Registry()
    field = source_type("string", "DECIMAL", length="5", scale="2")
    number = registry.add(envelope([{**field, "name": "v"}]))
    values = [registry.message(number, event("c", None, {"v": text})) for text in ("1.5", "1.555")]
    caught: list[BadMessage] = []

    batches = DebeziumAvro(SchemaRegistry("http://registry", registry)).decode(
        Messages(values=values), caught.append
    )

    assert rows(batches) == [("+I", Decimal("1.50"))]
    assert caught[0].facts["number"] == 1


def test_a_registry_that_answers_something_else_is_refused() -> None:
    registry = SchemaRegistry("http://registry", lambda _: {"schemaType": "PROTOBUF"})

    with pytest.raises(InvalidRequest, match="only Avro"):
        registry.schema(1)
