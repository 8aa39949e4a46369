"""Debezium's messages: in JSON, in Avro with a schema registry, and of MongoDB."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import uuid
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException

from lakecore.cdc.events import ChangeBatch, SourceSchema, SourceTable
from lakecore.cdc.formats.decoder import (
    DELETE,
    INSERT,
    BadEvent,
    Changes,
    Group,
    Groups,
    Messages,
    OnBad,
    Shape,
    given,
)
from lakecore.cdc.formats.shapes import (
    TextShape,
    TypedShape,
    converted,
    decoder_of,
    msgspec,
    object_decoder,
    struct,
)
from lakecore.cdc.types.avro import AvroColumn, avro_columns, without_null
from lakecore.cdc.types.debezium import ConnectField, debezium_column
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, STRING, TypeMapping
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.http import get_json
from lakecore.model.types import Field, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# --- debezium json -------------------------------------------------------------------------------
# `debezium-json`: Debezium's events as JSON, with or without the schema around the payload.
#
# - `c` and `r` insert `after`; `u` deletes `before` and inserts `after`; `d` deletes `before`.
# - `t` (truncate), `m` (message), tombstones, and events that only carry DDL change no row.
# - With a schema, columns have the types of the schema; without, every column is STRING.
# - The primary key is `pkNames`, else the fields of the message's key.
#
# An update or deletion without `before` is an error, because the changed row is unknown. PostgreSQL
# sends `before` only for tables with `REPLICA IDENTITY FULL`.
#
# See https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-events

_NULL = b"null"
_UNAVAILABLE = (b"__debezium_unavailable_value", b"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")
"""Debezium's placeholder for an unchanged large value of PostgreSQL, plain and as Base64."""


class DebeziumJson:
    """The format, with the options of `--type_mapping`."""

    name = "debezium-json"

    def __init__(self, mapping: TypeMapping = DEFAULT_MAPPING) -> None:
        self._mapping = mapping

    def envelope(self) -> Callable[[bytes], Any]:
        return _envelope()

    def changes(self, event: Any) -> Changes | None:
        schema = bytes(event.schema)
        payload = event.payload if schema else event
        if payload is None:
            raise BadEvent("the message has no payload")
        rows = _rows(payload)
        source = payload.source
        table = ("", "") if source is None else (source.db or "", source.table or "")
        return None if rows is None else Changes(table, schema, rows)

    def primary_key(self, event: Any, key: bytes | None) -> tuple[str, ...]:
        """The primary key in `pkNames`, or else the names of the key's fields."""
        names = (event.payload if bytes(event.schema) else event).pkNames
        return tuple(names) if names is not None else key_names(key)

    def shape(self, schema: bytes, primary_key: tuple[str, ...]) -> Shape:  # noqa: ARG002
        """The conversion to columns: with types if the message has a schema."""
        fields = [] if schema in {b"", _NULL} else _row_fields(schema)
        if not fields:
            return TextShape()
        return TypedShape([debezium_column(each, self._mapping) for each in fields])


def _rows(payload: Any) -> list[tuple[bytes, int]] | None:
    kind = payload.op
    match kind:
        case "c" | "r":
            return [(given(payload.after, "after", "an insertion"), INSERT)]
        case "u":
            after = given(payload.after, "after", "an update")
            if any(each in after for each in _UNAVAILABLE):
                raise BadEvent(
                    "an update lacks a large value that did not change; set REPLICA IDENTITY FULL "
                    "on the table"
                )
            return [(_before(payload), DELETE), (after, INSERT)]
        case "d":
            return [(_before(payload), DELETE)]
        case "t" | "m":
            return None
        case None if bytes(payload.ddl) not in {b"", _NULL}:
            return None
    raise BadEvent("the message has no op" if kind is None else f"unknown op {kind}")


def _before(payload: Any) -> bytes:
    before = bytes(payload.before)
    if before in {b"", _NULL}:
        raise BadEvent(
            "an update or deletion has no before image; for PostgreSQL, set REPLICA IDENTITY FULL "
            "on the table"
        )
    return before


@cache
def _envelope() -> Callable[[bytes], Any]:
    raw: Any = msgspec().Raw
    source = struct("Source", {"db": str | None, "table": str | None})
    event = {
        "op": str | None,
        "before": raw,
        "after": raw,
        "source": source | None,
        "pkNames": list[str] | None,
        "ddl": raw,
    }
    payload = struct("Payload", event)
    return decoder_of(struct("Envelope", {"schema": raw, "payload": payload | None, **event}))


@cache
def _schema_decoder() -> Callable[[bytes], Any]:
    members = {
        "type": str | None,
        "field": str | None,
        "name": str | None,
        "parameters": dict[str, str] | None,
        "doc": str | None,
    }
    inner: Any = struct("Column", members)
    row: Any = struct("Row", {**members, "fields": list[inner] | None})
    return decoder_of(struct("Schema", {"fields": list[row] | None}))


def _row_fields(schema: bytes) -> list[ConnectField]:
    """The fields of the row, from `after` or else from `before`."""
    parsed = _schema_decoder()(schema)
    rows = {each.field: each.fields for each in parsed.fields or ()}
    return [
        ConnectField(
            field=each.field,
            type=each.type or "string",
            name=each.name,
            parameters=each.parameters,
            comment=each.doc,
        )
        for each in rows.get("after") or rows.get("before") or ()
        if each.field is not None
    ]


def key_names(key: bytes | None) -> tuple[str, ...]:
    """The member names of a message's key, or of the key's `payload` if it has a schema.

    Empty if the key is not an object.
    """
    if not key:
        return ()
    decode = object_decoder()
    try:
        members = decode(key)
        if "schema" in members and "payload" in members:
            members = decode(bytes(members["payload"]))
    except ValueError:
        return ()
    return tuple(members)


# --- schema registry -----------------------------------------------------------------------------
# Avro schemas by id, from Confluent's schema registry or a registry with the same protocol.
#
# A message begins with a zero byte and the id of its schema in four bytes.

_HEADER = 5


class SchemaRegistry:
    """The schemas of one registry; each schema is fetched once."""

    def __init__(self, url: str, ask: Callable[[str], Any] = get_json) -> None:
        self._url = url.rstrip("/")
        self._ask = ask
        self._schemas: dict[int, Any] = {}

    def schema(self, number: int) -> Any:
        """The parsed Avro schema.

        Raises InvalidRequest, or StorageError if the registry does not answer.
        """
        if number not in self._schemas:
            answer = self._ask(f"{self._url}/schemas/ids/{number}")
            kind = answer.get("schemaType", "AVRO")
            if kind != "AVRO" or answer.get("references"):
                raise InvalidRequest(
                    "only Avro schemas without references can be read", schema=number, type=kind
                )
            try:
                self._schemas[number] = parse_schema(json.loads(answer["schema"]))
            except (KeyError, TypeError, ValueError, RecursionError, SchemaParseException) as error:
                raise InvalidRequest(
                    "the registry's answer is not an Avro schema", schema=number, cause=error
                ) from error
        return self._schemas[number]


def schema_number(message: bytes) -> tuple[int, bytes]:
    """The schema id and the body of a message.

    Raises ValueError unless the message begins with a zero byte.
    """
    if len(message) < _HEADER or message[0] != 0:
        raise ValueError("the message does not begin with the number of a schema")
    return int.from_bytes(message[1:_HEADER], "big"), message[_HEADER:]


# --- extended json -------------------------------------------------------------------------------
# Converts MongoDB's documents (extended JSON) to one string for each field, as Paimon does.
#
# Only top-level fields count. An ObjectId becomes its hexadecimal digits, a date its milliseconds
# since 1970, a timestamp its seconds, a byte string its Base64 form, a UUID its text form, and a
# regular expression `/pattern/options`. A document or an array is JSON with the same replacements
# inside. Null and undefined are null.
#
# See https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UUID_KINDS = frozenset({"03", "3", "04", "4"})
_PLAIN_LOW, _PLAIN_HIGH = 1e-3, 1e7


def document_texts(text: str) -> dict[str, str | None]:
    """The top-level fields of a document as strings.

    Raises ValueError if the text is not a document.
    """
    document = parsed_json(text)
    if not isinstance(document, dict):
        raise ValueError("not a document")  # noqa: TRY004  a message is wrong, not a type
    return {name: _text(_value(value)) for name, value in document.items()}


def parsed_json(text: str) -> Any:
    """The value of a JSON string. Raises ValueError for an integer that Python does not parse."""
    return json.loads(text, parse_int=_whole)


def java_double(number: float) -> str:
    """A double as Java prints it."""
    if number != number:  # noqa: PLR0124  NaN alone differs from itself
        return "NaN"
    if number in {float("inf"), float("-inf")}:
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or _PLAIN_LOW <= abs(number) < _PLAIN_HIGH:
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    power = exponent + len(shown) - 1
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{power}"


def _text(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return java_double(value)
        case dict() | list():
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
        case _:
            return str(value)


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(each) for each in value]
    if not isinstance(value, dict):
        return value
    for name, convert in _SPECIAL.items():
        if name in value:
            return convert(value)
    return {name: _value(each) for name, each in value.items()}


def _whole(text: str | int) -> int:
    """The integer. Raises ValueError for a number that Python does not parse."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("a number is not an integer of MongoDB") from None


def _date(value: dict[str, Any]) -> int:
    given = value["$date"]
    if isinstance(given, dict):
        return _whole(given["$numberLong"])
    if isinstance(given, str):
        moment = dt.datetime.fromisoformat(given)
        return (moment - _EPOCH) // dt.timedelta(milliseconds=1)
    return _whole(given)


def _binary(value: dict[str, Any]) -> str:
    given = value["$binary"]
    data, kind = (
        (given["base64"], given["subType"])
        if isinstance(given, dict)
        else (given, value.get("$type", "00"))
    )
    if str(kind) in _UUID_KINDS:
        return str(uuid.UUID(bytes=base64.b64decode(data)))
    return str(data)


def _regex(pattern: str, options: str) -> str:
    escaped = pattern.replace("/", "\\/") if pattern else "(?:)"
    return f"/{escaped}/{options}"


def _code(value: dict[str, Any]) -> object:
    if "$scope" in value:
        return {"$code": value["$code"], "$scope": _value(value["$scope"])}
    return value["$code"]


_SPECIAL: dict[str, Callable[[dict[str, Any]], Any]] = {
    "$oid": lambda value: value["$oid"],
    "$numberInt": lambda value: _whole(value["$numberInt"]),
    "$numberLong": lambda value: _whole(value["$numberLong"]),
    "$numberDouble": lambda value: float(value["$numberDouble"]),
    "$numberDecimal": lambda value: Decimal(value["$numberDecimal"]),
    "$date": _date,
    "$binary": _binary,
    "$uuid": lambda value: value["$uuid"],
    "$timestamp": lambda value: value["$timestamp"]["t"],
    "$regularExpression": lambda value: _regex(
        value["$regularExpression"]["pattern"], value["$regularExpression"]["options"]
    ),
    "$regex": lambda value: _regex(value["$regex"], value.get("$options", "")),
    "$symbol": lambda value: value["$symbol"],
    "$code": _code,
    "$undefined": lambda _value: None,
    "$minKey": lambda _value: "BsonMinKey",
    "$maxKey": lambda _value: "BsonMaxKey",
}


# --- debezium avro -------------------------------------------------------------------------------
# `debezium-avro`: Debezium's events in Avro, with a schema registry.
#
# The events are as in debezium-json: `c`, `r`, `u`, `d`; `t` and `m` change no row. The record type
# of `after`, or else of `before`, gives the columns of a row. The fields of the message's key are
# the primary key.
#
# See https://debezium.io/documentation/reference/stable/configuration/avro.html

_WITHOUT_ROWS = frozenset({"t", "m"})


class DebeziumAvro:
    """Decodes messages of one or more tables, with one request to the registry for each schema."""

    def __init__(self, registry: SchemaRegistry, mapping: TypeMapping = DEFAULT_MAPPING) -> None:
        self._registry = registry
        self._mapping = mapping
        self._shapes: dict[int, AvroShape] = {}

    def decode(self, messages: Messages, on_bad: OnBad) -> list[ChangeBatch]:
        groups = Groups(messages, on_bad)
        for index, value in enumerate(messages.values):
            if value is None:
                continue
            of: SourceTable | None = None
            try:
                number, event = self._read(value)
                rows = _debezium_avro_rows(event)
                if not rows:
                    continue
                source = event.get("source") or {}
                table = (str(source.get("db") or ""), str(source.get("table") or ""))
                group = groups.find(table, number)
                if group is None:
                    of = SourceTable(*table)
                    key = self._key_names(messages.key(index))
                    group = Group(of, self._shape(number), key)
                    groups.begin(table, number, group)
            except (ValueError, EOFError, IndexError, KeyError, TypeError, Unsupported) as error:
                reason = "not a message of debezium-avro"
                on_bad(messages.bad(index, reason, of, format="debezium-avro", cause=error))
                continue
            for row, kind in rows:
                group.add(row, kind, index)
        return groups.batches()

    def _read(self, message: bytes) -> tuple[int, Any]:
        number, data = schema_number(message)
        return number, schemaless_reader(io.BytesIO(data), self._registry.schema(number), None)

    def _key_names(self, key: bytes | None) -> tuple[str, ...]:
        if not key:
            return ()
        schema = self._registry.schema(schema_number(key)[0])
        fields = schema.get("fields", ()) if isinstance(schema, dict) else ()
        return tuple(each["name"] for each in fields)

    def _shape(self, number: int) -> AvroShape:
        found = self._shapes.get(number)
        if found is None:
            schema = self._registry.schema(number)
            found = AvroShape(avro_columns(_row_record(schema), self._mapping))
            self._shapes[number] = found
        return found


class AvroShape:
    """Converts rows, as fastavro reads them, to columns."""

    def __init__(self, columns: Sequence[AvroColumn]) -> None:
        self._columns = tuple(columns)
        self._fields = tuple(
            Field(id=at, name=each.name, type=each.type, description=each.comment)
            for at, each in enumerate(columns)
        )

    def read(
        self, raws: Sequence[Any], primary_key: tuple[str, ...]
    ) -> tuple[SourceSchema, pa.Table]:
        columns = [
            converted(each.convert, [row.get(each.field) for row in raws], each.name)
            for each in self._columns
        ]
        schema = SourceSchema(fields=self._fields, primary_key=primary_key)
        arrow = pa.schema([each.with_nullable(True) for each in arrow_schema(self._fields)])
        return schema, pa.Table.from_arrays(columns, schema=arrow)


def _debezium_avro_rows(event: Any) -> list[tuple[Any, int]]:
    kind = event["op"]
    if kind in _WITHOUT_ROWS:
        return []
    rows: list[tuple[Any, int]] = []
    if kind in {"u", "d"}:
        rows.append((event["before"], DELETE))
    if kind in {"c", "r", "u"}:
        rows.append((event["after"], INSERT))
    if not rows:
        raise InvalidRequest("unknown op", op=kind)
    if any(row is None for row, _ in rows):
        raise InvalidRequest("the message lacks before or after", op=kind)
    return rows


def _row_record(schema: Any) -> Any:
    """The record type of a row.

    A record type that was defined earlier in the schema is only named.
    """
    fields = {each["name"]: without_null(each["type"]) for each in schema["fields"]}
    for side in ("before", "after"):
        if isinstance(fields.get(side), dict):
            return fields[side]
    raise InvalidRequest("the schema has no record of a row", fields=sorted(fields))


# --- debezium bson -------------------------------------------------------------------------------
# `debezium-bson`: Debezium's events for MongoDB. Each document is a string in extended JSON.
#
# Each top-level field is a column of type STRING; the primary key is `_id`. Before version 6,
# MongoDB does not report the old document; then the `_id` in the message's key identifies the row
# to delete.

_ID = "_id"


class DebeziumBson:
    """Decodes messages of one or more collections."""

    def decode(self, messages: Messages, on_bad: OnBad) -> list[ChangeBatch]:
        groups = Groups(messages, on_bad)
        decode = _debezium_bson_envelope()
        for index, value in enumerate(messages.values):
            if value is None:
                continue
            try:
                root = decode(value)
                event = root.payload if bytes(root.schema) else root
                rows = _debezium_bson_rows(event, messages.key(index))
            except (RecursionError, ValueError, KeyError, TypeError, AttributeError) as error:
                reason = str(error) if isinstance(error, BadEvent) else "the message cannot be read"
                on_bad(messages.bad(index, reason, format="debezium-bson", cause=error))
                continue
            if not rows:
                continue
            source = event.source
            table = ("", "") if source is None else (source.db or "", source.collection or "")
            group = groups.find(table, None)
            if group is None:
                group = groups.begin(
                    table, None, Group(SourceTable(*table), DocumentShape(), (_ID,))
                )
            for row, kind in rows:
                group.add(row, kind, index)
        return groups.batches()


class DocumentShape:
    """Converts documents to string columns, in order of appearance."""

    def read(
        self, raws: Sequence[Any], primary_key: tuple[str, ...]
    ) -> tuple[SourceSchema, pa.Table]:
        names: dict[str, None] = {}
        for row in raws:
            names.update(dict.fromkeys(row))
        fields = tuple(Field(id=at, name=name, type=STRING) for at, name in enumerate(names))
        columns = {name: pa.array([row.get(name) for row in raws], pa.string()) for name in names}
        return SourceSchema(fields=fields, primary_key=primary_key), pa.table(columns)


def _debezium_bson_rows(event: Any, key: bytes | None) -> list[tuple[dict[str, str | None], int]]:
    if event is None:
        raise BadEvent("the message has no payload")
    match event.op:
        case "c" | "r":
            return [(_document(event.after, "after"), INSERT)]
        case "u":
            return [
                (_debezium_bson_before(event, key), DELETE),
                (_document(event.after, "after"), INSERT),
            ]
        case "d":
            return [(_debezium_bson_before(event, key), DELETE)]
        case "t" | "m":
            return []
    raise BadEvent("the message has no op" if event.op is None else f"unknown op {event.op}")


def _document(text: str | None, name: str) -> dict[str, str | None]:
    if text is None:
        raise BadEvent(f"the message has no {name}")
    return document_texts(text)


def _debezium_bson_before(event: Any, key: bytes | None) -> dict[str, str | None]:
    if event.before is not None:
        return document_texts(event.before)
    if key is None:
        raise BadEvent("neither a document before nor a key says what is deleted")
    parsed = _key()(key)
    members = parsed.payload if parsed.payload is not None else parsed
    if members.id is None:
        raise BadEvent("the key of the message has no id")
    return document_texts(json.dumps({_ID: parsed_json(members.id)}))


@cache
def _debezium_bson_envelope() -> Callable[[bytes], Any]:
    source = struct("Source", {"db": str | None, "collection": str | None})
    event = {
        "op": str | None,
        "before": str | None,
        "after": str | None,
        "source": source | None,
    }
    payload = struct("Payload", event)
    raw: Any = msgspec().Raw
    return decoder_of(struct("Envelope", {"schema": raw, "payload": payload | None, **event}))


@cache
def _key() -> Callable[[bytes], Any]:
    members = {"id": str | None}
    return decoder_of(struct("Key", {**members, "payload": struct("Inner", members) | None}))
