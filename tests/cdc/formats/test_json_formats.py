from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.cdc.events import ChangeBatch, SourceTable
from lakecore.cdc.formats.decoder import BadMessage, Messages
from lakecore.cdc.formats.registry import FORMATS, decoder_for
from lakecore.cdc.types.mapping import TypeMapping
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AFTER_TEN = dt.datetime(2020, 1, 1, 10, 0, 0, 500000)
SIGNS = ("+I", "-U", "+U", "-D")


def fail(error: BadMessage) -> None:
    raise error


def decode(
    name: str, *messages: object, keys: list[object] | None = None, options: str = ""
) -> list[ChangeBatch]:
    values = [each if isinstance(each, bytes | None) else text(each) for each in messages]
    given = None if keys is None else [None if key is None else text(key) for key in keys]
    decoder = decoder_for(name, TypeMapping.parse(options))
    return decoder.decode(Messages(values=values, keys=given), fail)


def text(value: object) -> bytes:
    return json.dumps(value).encode()


def rows(batches: list[ChangeBatch]) -> list[tuple[Any, ...]]:
    return [
        (SIGNS[kind], *row.values())
        for batch in batches
        for kind, row in zip(batch.kinds.to_pylist(), batch.rows.to_pylist(), strict=True)
    ]


def types(batch: ChangeBatch) -> dict[str, str]:
    return {field.name: str(field.type) for field in batch.schema.fields}


# --- debezium-json --------------------------------------------------------------------------------


def debezium(op: str, before: object, after: object, **more: object) -> dict[str, object]:
    return {"op": op, "before": before, "after": after, "source": {"db": "d", "table": "t"}, **more}


def with_schema(fields: Sequence[Mapping[str, object]], payload: object) -> dict[str, object]:
    row = {"type": "struct", "fields": fields}
    parts = [{**row, "field": "before"}, {**row, "field": "after"}]
    return {"schema": {"type": "struct", "fields": parts}, "payload": payload}


def test_debezium_rows_in_order() -> None:
    (batch,) = decode(
        "debezium-json",
        debezium("r", None, {"id": 1, "v": "a"}),
        debezium("c", None, {"id": 2, "v": None}),
        debezium("u", {"id": 1, "v": "a"}, {"id": 1, "v": "b"}),
        None,
        debezium("d", {"id": 2, "v": None}, None),
        debezium("t", None, None),
        {"op": "m", "message": {}},
        {"databaseName": "d", "ddl": "CREATE TABLE t(id INT)", "source": {"db": "d"}},
        keys=[{"id": 1}, *[None] * 7],
    )

    assert batch.table == SourceTable("d", "t")
    assert batch.schema.primary_key == ("id",)
    assert types(batch) == {"id": "STRING", "v": "STRING"}
    assert rows([batch]) == [
        ("+I", "1", "a"),
        ("+I", "2", None),
        ("-D", "1", "a"),
        ("+I", "1", "b"),
        ("-D", "2", None),
    ]


def test_debezium_texts_are_those_of_java() -> None:
    values = {"a": 1.10, "b": True, "c": {"x": [1, 2]}, "d": "2020-01-01 00:00:00", "e": 2**64}
    raw = text(debezium("c", None, values)).replace(b"1.1,", b"1.10,").replace(b"1.1}", b"1.10}")

    (batch,) = decode("debezium-json", raw)

    assert rows([batch]) == [
        ("+I", "1.10", "true", '{"x":[1,2]}', "2020-01-01 00:00:00", "18446744073709551616")
    ]


CONNECT: list[tuple[dict[str, Any], Any, str, Any]] = [
    ({"type": "int8"}, -5, "TINYINT", -5),
    ({"type": "int16"}, 300, "SMALLINT", 300),
    ({"type": "int32"}, 70000, "INT", 70000),
    ({"type": "int64"}, 2**62, "BIGINT", 2**62),
    ({"type": "float"}, 1.5, "FLOAT", 1.5),
    ({"type": "float32"}, 0.25, "FLOAT", 0.25),
    ({"type": "float64"}, 0.1, "DOUBLE", 0.1),
    ({"type": "double"}, 1e300, "DOUBLE", 1e300),
    ({"type": "boolean"}, True, "BOOLEAN", True),
    ({"type": "string"}, "2020-01-01", "STRING", "2020-01-01"),
    ({"type": "bytes"}, base64.b64encode(b"\x00\xff").decode(), "BYTES", b"\x00\xff"),
    (
        {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "9"}},
        base64.b64encode(b"\x01\x00").decode(),
        "BINARY(2)",
        b"\x00\x01",
    ),
    ({"type": "int32", "name": "io.debezium.time.Date"}, 18262, "DATE", dt.date(2020, 1, 1)),
    (
        {"type": "int64", "name": "io.debezium.time.Timestamp"},
        1_577_836_800_123,
        "TIMESTAMP(3)",
        dt.datetime(2020, 1, 1, 0, 0, 0, 123000),
    ),
    (
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        -1,
        "TIMESTAMP(6)",
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    ),
    (
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        "2020-01-01T02:00:00.5+02:00",
        "TIMESTAMP(6)",
        dt.datetime(2020, 1, 1, 0, 0, 0, 500000),
    ),
    (
        {"type": "int64", "name": "io.debezium.time.MicroTime"},
        3_600_000_000,
        "TIME(3)",
        dt.time(1),
    ),
    ({"type": "string", "name": "io.debezium.data.Json"}, '{"a": 1}', "STRING", '{"a": 1}'),
    ({"type": "array", "items": {"type": "int32"}}, [1, None], "STRING", "[1,null]"),
    (
        {"type": "struct", "name": "io.debezium.data.geometry.Point"},
        {"x": 1.0, "y": 1.0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAPA/", "srid": None},
        "STRING",
        '{"coordinates":[1,1],"type":"Point","srid":0}',
    ),
]


@pytest.mark.parametrize(("field", "given", "kind", "expected"), CONNECT)
def test_a_debezium_column_has_the_type_of_its_schema(
    field: dict[str, object], given: object, kind: str, expected: object
) -> None:
    fields = [{**field, "field": "v", "optional": True, "doc": "why"}]
    payload = debezium("c", None, {"v": given})
    (batch,) = decode(
        "debezium-json", *[with_schema(fields, p) for p in (payload, debezium("c", None, {}))]
    )

    assert types(batch) == {"v": kind}
    assert batch.schema.fields[0].description == "why"
    assert rows([batch]) == [("+I", expected), ("+I", None)]


FIVE_TWO = {"scale": "2", "connect.decimal.precision": "5"}


def decimal_field(**parameters: str) -> list[dict[str, object]]:
    name = "org.apache.kafka.connect.data.Decimal"
    return [{"type": "bytes", "name": name, "field": "v", "parameters": parameters}]


@pytest.mark.parametrize(
    ("parameters", "kind", "given", "expected"),
    [
        (FIVE_TWO, "DECIMAL(5, 2)", ["AJY="], ["1.50"]),
        (FIVE_TWO, "DECIMAL(5, 2)", ["/2o="], ["-1.50"]),
        (FIVE_TWO, "DECIMAL(5, 2)", ["1234"], ["-27.78"]),
        (
            FIVE_TWO,
            "DECIMAL(5, 2)",
            [1.5, 7],
            ["1.50", "7.00"],
        ),
        (
            FIVE_TWO,
            "DECIMAL(5, 2)",
            ["AJY=", 1.5, None],
            ["1.50", "1.50", None],
        ),
        ({"scale": "0"}, "DECIMAL(20, 0)", [2**64 - 1], ["18446744073709551615"]),
        ({"scale": "1", "connect.decimal.precision": "50"}, "STRING", ["AJY="], ["15.0"]),
    ],
)
def test_a_debezium_decimal_is_base64_or_a_number(
    parameters: dict[str, str], kind: str, given: list[object], expected: list[str | None]
) -> None:
    if given == ["1234"]:  # a text of digits is Base64, too
        unscaled = int.from_bytes(base64.b64decode("1234"), "big", signed=True)
        parameters = {**parameters, "connect.decimal.precision": "12"}
        kind, expected = "DECIMAL(12, 2)", [str(Decimal(unscaled).scaleb(-2))]
    messages = [
        with_schema(decimal_field(**parameters), debezium("c", None, {"v": v})) for v in given
    ]

    (batch,) = decode("debezium-json", *messages)

    assert types(batch) == {"v": kind}
    shown = [None if v is None else str(v) for v in batch.rows["v"].to_pylist()]
    assert shown == expected


def test_a_change_of_schema_ends_a_batch() -> None:
    old = [{"type": "int32", "field": "v"}]
    new = [{"type": "int64", "field": "v"}, {"type": "string", "field": "w"}]
    batches = decode(
        "debezium-json",
        with_schema(old, debezium("c", None, {"v": 1})),
        with_schema(new, debezium("c", None, {"v": 2, "w": "x"})),
        with_schema(old, debezium("c", None, {"v": 3})),
    )

    assert [types(batch) for batch in batches] == [
        {"v": "INT"},
        {"v": "BIGINT", "w": "STRING"},
        {"v": "INT"},
    ]
    assert rows(batches) == [("+I", 1), ("+I", 2, "x"), ("+I", 3)]


def test_to_string_prints_every_type() -> None:
    fields = [
        {**field, "field": f"c{at}", "optional": True} for at, (field, *_) in enumerate(CONNECT)
    ]
    values = {f"c{at}": case[1] for at, case in enumerate(CONNECT)}
    (batch,) = decode(
        "debezium-json", with_schema(fields, debezium("c", None, values)), options="to-string"
    )

    assert set(types(batch).values()) == {"STRING"}
    shown = batch.rows.to_pylist()[0]
    assert shown["c11"] == "0000000000000001"
    assert (shown["c12"], shown["c16"]) == ("2020-01-01", "01:00:00")


def test_pk_names_come_before_the_key() -> None:
    (batch,) = decode(
        "debezium-json",
        debezium("c", None, {"id": 1}, pkNames=["id", "pt"]),
        keys=[{"schema": {}, "payload": {"x": 1}}],
    )

    assert batch.schema.primary_key == ("id", "pt")


def test_the_key_may_carry_a_schema() -> None:
    keys: list[object] = [{"schema": {}, "payload": {"x": 1, "y": 2}}]
    (batch,) = decode("debezium-json", debezium("c", None, {"x": 1}), keys=keys)

    assert batch.schema.primary_key == ("x", "y")


# --- the other formats ----------------------------------------------------------------------------


def canal(kind: str, data: object, old: object = None, **more: object) -> dict[str, object]:
    event = {"data": data, "old": old, "type": kind, "database": "d", "table": "t", "isDdl": False}
    return {**event, "pkNames": ["id"], "es": 1, "ts": 2, "sql": "", "sqlType": {}, **more}


def test_canal_rows_in_order() -> None:
    (batch,) = decode(
        "canal-json",
        canal("INSERT", [{"id": "1", "v": "a"}, {"id": "2", "v": "b"}]),
        canal("ROW", [{"id": "3", "v": None}]),
        canal("UPDATE", [{"id": "1", "v": "x"}, {"id": "2", "v": "y"}], [{"v": None}, {"id": "9"}]),
        canal("ALTER", None, isDdl=True, sql="ALTER TABLE t ..."),
        canal("DELETE", [{"id": "3", "v": None}]),
    )

    assert (batch.table, batch.schema.primary_key) == (SourceTable("d", "t"), ("id",))
    assert rows([batch]) == [
        ("+I", "1", "a"),
        ("+I", "2", "b"),
        ("+I", "3", None),
        ("-D", "1", None),
        ("+I", "1", "x"),
        ("-D", "9", "y"),
        ("+I", "2", "y"),
        ("-D", "3", None),
    ]


@pytest.mark.parametrize(
    ("definition", "given", "kind", "expected"),
    [
        ("int(11)", "5", "INT", 5),
        ("tinyint(1)", "1", "BOOLEAN", True),
        ("bigint(20) unsigned", str(2**64 - 1), "DECIMAL(20, 0)", Decimal(2**64 - 1)),
        ("decimal(5,2)", "1.5", "DECIMAL(5, 2)", Decimal("1.50")),
        ("double", "1.000011", "DOUBLE", 1.000011),
        ("float", "0.1", "FLOAT", pytest.approx(0.1)),
        ("date", "2020-01-01", "DATE", dt.date(2020, 1, 1)),
        ("date", "0000-00-00", "DATE", None),
        (
            "datetime(3)",
            "2020-01-01 10:00:00.5",
            "TIMESTAMP(3)",
            dt.datetime(2020, 1, 1, 10, 0, 0, 500000),
        ),
        ("timestamp", "0000-00-00 00:00:00", "TIMESTAMP(0)", None),
        ("time", "10:13:23", "TIME(3)", dt.time(10, 13, 23)),
        ("time(3)", "10:13:23.5", "TIME(3)", dt.time(10, 13, 23, 500000)),
        ("year", "2023", "INT", 2023),
        ("bit(1)", "1", "BOOLEAN", True),
        ("bit(10)", "513", "BINARY(2)", b"\x02\x01"),
        ("enum('a','b')", "2", "STRING", "b"),
        ("enum('a','b')", "0", "STRING", ""),
        ("enum('a','b')", "b", "STRING", "b"),
        ("set('x','y','z')", "5", "ARRAY<STRING>", ["x", "z"]),
        ("set('x','y','z')", "0", "ARRAY<STRING>", []),
        ("json", '{"a": 1}', "STRING", '{"a": 1}'),
        ("varchar(3)", "a😀b", "VARCHAR(3)", "a😀b"),
        ("blob", "\x00\xff", "BYTES", b"\x00\xff"),
        ("varbinary(2)", "\xe9!", "VARBINARY(2)", b"\xe9!"),
        (
            "point",
            "\x00\x00\x00\x00\x01\x01" + "\x00" * 9 + "\xf0?" + "\x00" * 6 + "\xf0?",
            "STRING",
            '{"coordinates":[1,1],"type":"Point","srid":0}',
        ),
    ],
)
def test_a_canal_column_has_its_mysql_type(
    definition: str, given: str, kind: str, expected: object
) -> None:
    event = canal("INSERT", [{"v": given}, {"v": None}], mysqlType={"v": definition})
    (batch,) = decode("canal-json", event)

    assert types(batch) == {"v": kind}
    assert rows([batch]) == [("+I", expected), ("+I", None)]


def test_keys_of_canal_and_aliyun_keep_different_values_apart() -> None:
    columns = {"flag": "tinyint(1)", "kinds": "set('x','y')", "other": "tinyint(1)"}
    given = [{"flag": str(flag), "kinds": "3", "other": "1"} for flag in range(3)]
    event = canal("INSERT", given, mysqlType=columns, pkNames=["flag", "kinds"])
    (batch,) = decode("canal-json", event)
    other = canal("INSERT", given[:2], mysqlType=columns, pkNames=["other"])
    (second,) = decode("canal-json", other)

    assert types(batch) == {"flag": "TINYINT", "kinds": "STRING", "other": "BOOLEAN"}
    assert rows([batch]) == [("+I", flag, "x,y", True) for flag in range(3)]
    assert batch.schema.exact == {"flag", "kinds"}
    assert types(second) == {"flag": "BOOLEAN", "kinds": "ARRAY<STRING>", "other": "TINYINT"}

    schema = {
        "dataColumn": [{"name": name, "type": "tinyint(1)"} for name in ("flag", "other")],
        "primaryKey": ["flag"],
    }
    images = [{"op": "INSERT", "after": {"dataColumn": {"flag": n, "other": 1}}} for n in range(3)]
    (third,) = decode("aliyun-json", *({"schema": schema, "payload": each} for each in images))
    assert types(third) == {"flag": "TINYINT", "other": "BOOLEAN"}
    assert rows([third]) == [("+I", flag, True) for flag in range(3)]


def test_messages_of_one_schema_and_several_keys_are_apart() -> None:
    columns = {"a": "tinyint(1)", "b": "tinyint(1)"}

    def event(key: list[str] | None, *, a: int, kind: str = "INSERT") -> dict[str, object]:
        data = [{"a": str(a), "b": "1"}]
        return canal(kind, data, mysqlType=columns, pkNames=key)

    found = decode(
        "canal-json",
        event(["a"], a=0),
        event(["a"], a=2),
        event(None, a=3),  # states no key: that of the messages before it
        event(["b"], a=1),
        event(["b"], a=0, kind="DELETE"),
    )

    assert [batch.schema.primary_key for batch in found] == [("a",), ("b",)]
    assert [types(batch) for batch in found] == [
        {"a": "TINYINT", "b": "BOOLEAN"},
        {"a": "BOOLEAN", "b": "TINYINT"},
    ]
    assert rows(found[:1]) == [("+I", 0, True), ("+I", 2, True), ("+I", 3, True)]
    assert rows(found[1:]) == [("+I", True, 1), ("-D", False, 1)]


def maxwell(kind: str, data: object, old: object = None) -> dict[str, object]:
    event = {"database": "d", "table": "t", "type": kind, "data": data, "ts": 1, "xid": 2}
    return {**event, **({"old": old} if old else {}), "primary_key_columns": ["id"]}


def test_maxwell_rows_in_order() -> None:
    (batch,) = decode(
        "maxwell-json",
        {"type": "bootstrap-start", "database": "d", "table": "t", "data": {}},
        maxwell("bootstrap-insert", {"id": 0, "v": 1.5}),
        maxwell("insert", {"id": 1, "v": 2}),
        maxwell("update", {"id": 1, "v": 3}, {"v": 2}),
        {"type": "table-alter", "database": "d", "table": "t", "sql": "ALTER ..."},
        maxwell("delete", {"id": 1, "v": 3}),
    )

    assert (batch.table, batch.schema.primary_key) == (SourceTable("d", "t"), ("id",))
    assert rows([batch]) == [
        ("+I", "0", "1.5"),
        ("+I", "1", "2"),
        ("-D", "1", "2"),
        ("+I", "1", "3"),
        ("-D", "1", "3"),
    ]


def test_ogg_rows_in_order() -> None:
    def ogg(op: str, before: object = None, after: object = None) -> dict[str, object]:
        about = {
            "table": "D.T",
            "op_ts": "x",
            "current_ts": "y",
            "pos": "0",
            "primary_keys": ["ID"],
        }
        return {**about, "op_type": op, "before": before, "after": after}

    (batch,) = decode(
        "ogg-json",
        ogg("I", after={"ID": 1, "V": "a"}),
        ogg("U", {"ID": 1, "V": "a"}, {"ID": 1, "V": "b"}),
        ogg("T"),
        ogg("D", {"ID": 1, "V": "b"}),
    )

    assert (batch.table, batch.schema.primary_key) == (SourceTable("D", "T"), ("ID",))
    assert rows([batch]) == [
        ("+I", "1", "a"),
        ("-D", "1", "a"),
        ("+I", "1", "b"),
        ("-D", "1", "b"),
    ]


def test_plain_json_is_inserted() -> None:
    (batch,) = decode("json", {"a": 1, "b": "x"}, {"b": None, "c": [1]}, None)

    assert (batch.table, batch.schema.primary_key) == (SourceTable("", ""), ())
    assert rows([batch]) == [("+I", "1", "x", None), ("+I", None, None, "[1]")]


def test_dms_rows_in_order() -> None:
    def dms(op: str, data: object, record: str = "data") -> dict[str, object]:
        about = {"record-type": record, "operation": op, "schema-name": "d", "table-name": "t"}
        return {"data": data, "metadata": {**about, "timestamp": "x", "partition-key-type": "pk"}}

    (batch,) = decode(
        "aws-dms-json",
        dms("load", {"id": 1, "v": "a"}),
        dms("insert", {"id": 2, "v": "b"}),
        dms("update", {"id": 2, "v": "c", "BI_v": "b"}),
        dms("create-table", {}, "control"),
        dms("delete", {"id": 1, "v": "a"}),
    )

    assert batch.table == SourceTable("d", "t")
    assert rows([batch]) == [
        ("+I", "1", "a"),
        ("+I", "2", "b"),
        ("-D", "2", "b"),
        ("+I", "2", "c"),
        ("-D", "1", "a"),
    ]


def test_aliyun_keeps_its_row_kinds() -> None:
    columns = {"id": "LONG", "val": "DOUBLE", "name": "STRING", "at": "DATE"}

    def aliyun(op: str, **images: object) -> dict[str, object]:
        schema = {
            "dataColumn": [{"name": name, "type": kind} for name, kind in columns.items()],
            "primaryKey": ["id"],
            "source": {"dbType": "MySQL", "dbName": "d", "tableName": "t"},
        }
        payload = {"op": op, "ddl": None, **{k: {"dataColumn": v} for k, v in images.items()}}
        return {"schema": schema, "payload": payload, "version": "0.0.1"}

    day = {"id": 2, "val": "1.100000", "name": "a", "at": 86_400_000}
    batches = decode(
        "aliyun-json",
        aliyun("INSERT", after=day),
        aliyun("UPDATE_BEFORE", before=day, after=None),
        aliyun("UPDATE_AFTER", before=day, after={**day, "val": None}),
        {**aliyun("INSERT"), "ddl": True},
        aliyun("DELETE", before=day),
    )

    (batch,) = batches
    assert (batch.table, batch.schema.primary_key) == (SourceTable("d", "t"), ("id",))
    assert types(batch) == {"id": "BIGINT", "val": "DOUBLE", "name": "STRING", "at": "DATE"}
    assert [(sign, row[1]) for sign, *row in rows(batches)] == [
        ("+I", 1.1),
        ("-U", 1.1),
        ("+U", None),
        ("-D", 1.1),
    ]
    assert rows(batches)[0][4] == dt.date(1970, 1, 2)


# --- what cannot be read --------------------------------------------------------------------------


TESTED = sorted(FORMATS.keys() - {"debezium-bson"})
BAD: list[tuple[str, object, str]] = [
    *[(name, b"not json", "cannot be read") for name in TESTED if name != "json"],
    *[(name, b"[1]", "") for name in TESTED],
    *[(name, b'{"a": "\xff"}', "") for name in ("json",)],
    ("debezium-json", {"op": "x"}, "unknown op x"),
    ("debezium-json", {"after": {}}, "no op"),
    ("debezium-json", debezium("u", None, {"id": 1}), "REPLICA IDENTITY"),
    (
        "debezium-json",
        debezium("u", {"id": 1}, {"id": 1, "v": "__debezium_unavailable_value"}),
        "lacks a large value",
    ),
    ("debezium-json", debezium("c", None, None), "no after"),
    ("debezium-json", {"schema": None, "payload": None}, "no payload"),
    ("debezium-json", debezium("c", None, [1]), ""),
    ("canal-json", canal("MERGE", []), "unknown type MERGE"),
    ("canal-json", canal("INSERT", None), "no data"),
    ("canal-json", canal("UPDATE", [{"id": "1"}], []), "one old row"),
    ("canal-json", canal("INSERT", [{"v": "1"}], mysqlType={"v": "vector(3)"}), "cause=no Paimon"),
    ("canal-json", canal("INSERT", [{"v": "9"}], mysqlType={"v": "enum('a')"}), "ENUM"),
    ("canal-json", canal("INSERT", [{"v": "x"}], mysqlType={"v": "int"}), "column_value=x"),
    ("maxwell-json", maxwell("merge", {"id": 1}), "unknown type merge"),
    ("maxwell-json", maxwell("update", {"id": 1}), "no old"),
    ("ogg-json", {"op_type": "Q"}, "unknown op_type Q"),
    ("ogg-json", {"op_type": "D", "table": "a.b"}, "no before"),
    ("aws-dms-json", {"data": {}}, "no metadata"),
    ("aws-dms-json", {"data": {}, "metadata": {"record-type": "data"}}, "unknown operation"),
    ("aliyun-json", {"payload": {"op": "MERGE"}}, "unknown op MERGE"),
    ("aliyun-json", {"payload": {"op": "DELETE", "after": {}}}, "no payload.before"),
]


@pytest.mark.parametrize(("name", "message", "expected"), BAD)
def test_a_bad_message_is_named_and_the_others_are_kept(
    name: str, message: object, expected: str
) -> None:
    good = {
        "debezium-json": debezium("c", None, {"id": 1}),
        "canal-json": canal("INSERT", [{"id": "1"}]),
        "maxwell-json": maxwell("insert", {"id": 1}),
        "ogg-json": {"op_type": "I", "table": "d.t", "after": {"id": 1}},
        "json": {"id": 1},
        "aws-dms-json": {
            "data": {"id": 1},
            "metadata": {"record-type": "data", "operation": "load"},
        },
        "aliyun-json": {
            "payload": {"op": "INSERT", "after": {"dataColumn": {"id": 1}}},
            "schema": {"dataColumn": [{"name": "id", "type": "STRING"}]},
        },
    }[name]
    values = [text(good), message if isinstance(message, bytes) else text(message), text(good)]
    metadata = pa.table(
        {
            "topic": ["orders"] * 3,
            "partition": pa.array([0] * 3, pa.int32()),
            "offset": [7, 8, 9],
        }
    )
    caught: list[BadMessage] = []

    batches = decoder_for(name).decode(Messages(values=values, metadata=metadata), caught.append)

    assert [error.facts["offset"] for error in caught] == [8]
    assert caught[0].facts["topic"] == "orders"
    assert expected in str(caught[0])
    assert [(sign, row[0]) for sign, *row in rows(batches)] == [("+I", "1"), ("+I", "1")]
    offsets = [each for batch in batches if batch.metadata for each in batch.metadata["offset"]]
    assert [each.as_py() for each in offsets] == [7, 9]


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="canal-json"):
        decoder_for("csv")
