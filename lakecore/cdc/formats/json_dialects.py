"""Formats of messages in JSON, apart from Debezium's."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from lakecore.cdc.formats.decoder import (
    DELETE,
    INSERT,
    BadEvent,
    Changes,
    Shape,
    TableRows,
    TextFormat,
    deleted,
    given,
    inserted,
    updated,
)
from lakecore.cdc.formats.shapes import (
    TextShape,
    TypedShape,
    decoder_of,
    msgspec,
    objects,
    overlaid,
    struct,
)
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, TypeMapping
from lakecore.cdc.types.mysql import aliyun_column, canal_column
from lakecore.model.rows import RowKind

if TYPE_CHECKING:
    from collections.abc import Callable


# --- aliyun json ---------------------------------------------------------------------------------
# `aliyun-json`: the messages of Alibaba Cloud's data integration. One message is one row.
#
# - `payload.op` is INSERT, UPDATE_BEFORE, UPDATE_AFTER or DELETE; the row kinds are +I, -U, +U, -D.
#   The row is `dataColumn` of `payload.after`, or of `payload.before` for -U and -D.
# - `schema.dataColumn` states the columns with their types, `schema.primaryKey` the primary key and
#   `schema.source` the table. A message with `ddl` changes no row.

_KINDS = {
    "INSERT": RowKind.INSERT,
    "UPDATE_BEFORE": RowKind.UPDATE_BEFORE,
    "UPDATE_AFTER": RowKind.UPDATE_AFTER,
    "DELETE": RowKind.DELETE,
}


class AliyunJson:
    """The format, with the options of `--type_mapping`."""

    name = "aliyun-json"

    def __init__(self, mapping: TypeMapping = DEFAULT_MAPPING) -> None:
        self._mapping = mapping

    def envelope(self) -> Callable[[bytes], Any]:
        return _envelope()

    def changes(self, event: Any) -> Changes | None:
        if event.ddl:
            return None
        payload = event.payload
        if payload is None:
            raise BadEvent("the message has no payload")
        kind = _KINDS.get(payload.op)
        if kind is None:
            raise BadEvent(f"unknown op {payload.op}")
        side = "before" if kind.retracts else "after"
        image = getattr(payload, side)
        if image is None:
            raise BadEvent(f"the message has no payload.{side}")
        row = given(image.dataColumn, f"payload.{side}.dataColumn", "every change")
        schema = event.schema
        if schema is None or schema.dataColumn is None:
            raise BadEvent("the message has no schema.dataColumn")
        source = schema.source
        table = ("", "") if source is None else (source.dbName or "", source.tableName or "")
        return Changes(table, bytes(schema.dataColumn), [(row, int(kind))])

    def primary_key(self, event: Any, key: bytes | None) -> tuple[str, ...]:  # noqa: ARG002
        return tuple(event.schema.primaryKey or ())

    def shape(self, schema: bytes, primary_key: tuple[str, ...]) -> Shape:
        """The conversion to columns: with the stated types."""
        columns = _columns_decoder()(schema)
        exact = self._mapping.exact((each.name for each in columns), primary_key)
        return TypedShape(
            [
                aliyun_column(each.name, each.type, self._mapping, in_key=each.name in exact)
                for each in columns
            ],
            exact,
        )


@cache
def _envelope() -> Callable[[bytes], Any]:
    raw: Any = msgspec().Raw
    image = struct("Image", {"dataColumn": raw})
    payload = struct("Payload", {"op": str | None, "before": image | None, "after": image | None})
    source = struct("Source", {"dbName": str | None, "tableName": str | None})
    schema = struct(
        "Schema",
        {"dataColumn": raw, "primaryKey": list[str] | None, "source": source | None},
    )
    members = {"ddl": bool | None, "payload": payload | None, "schema": schema | None}
    return decoder_of(struct("Aliyun", members))


@cache
def _columns_decoder() -> Callable[[bytes], Any]:
    column: Any = struct("Column", {"name": str, "type": str})
    return decoder_of(list[column])


# --- canal json ----------------------------------------------------------------------------------
# `canal-json`: the messages of Alibaba Canal. One message holds the rows of one statement.
#
# - INSERT and ROW insert each row of `data`; DELETE deletes each row of `data`. UPDATE deletes the
#   old row (the row of `data` with the values of `old`), and inserts the row of `data`.
# - A message with `isDdl` changes no row.
# - `mysqlType` states the columns with their types; without it every column is STRING.
# - `pkNames` is the primary key.
#
# See https://github.com/alibaba/canal/wiki/Canal-Kafka-RocketMQ-QuickStart


class CanalJson:
    """The format, with the options of `--type_mapping`."""

    name = "canal-json"

    def __init__(self, mapping: TypeMapping = DEFAULT_MAPPING) -> None:
        self._mapping = mapping

    def envelope(self) -> Callable[[bytes], Any]:
        return _canal_json_envelope()

    def changes(self, event: Any) -> Changes | None:
        if event.isDdl:
            return None
        if event.data is None:
            raise BadEvent("the message has no data")
        table = (event.database or "", event.table or "")
        data = [bytes(row) for row in event.data]
        match event.type:
            case "INSERT" | "ROW":
                rows = [(row, INSERT) for row in data]
            case "DELETE":
                rows = [(row, DELETE) for row in data]
            case "UPDATE":
                rows = _updates(data, event.old)
            case _:
                raise BadEvent(f"unknown type {event.type}")
        return Changes(table, bytes(event.mysqlType), rows)

    def primary_key(self, event: Any, key: bytes | None) -> tuple[str, ...]:  # noqa: ARG002
        return tuple(event.pkNames or ())

    def shape(self, schema: bytes, primary_key: tuple[str, ...]) -> Shape:
        """The conversion to columns: with types if the message has `mysqlType`."""
        if schema in {b"", b"null"}:
            return TextShape()
        types = decoder_of(dict[str, str])(schema)
        exact = self._mapping.exact(types, primary_key)
        return TypedShape(
            [
                canal_column(name, text, self._mapping, in_key=name in exact)
                for name, text in types.items()
            ],
            exact,
        )


def _updates(data: list[bytes], old: list[Any] | None) -> list[tuple[bytes, int]]:
    if old is None or len(old) != len(data):
        raise BadEvent("an update has not one old row for each row of data")
    rows: list[tuple[bytes, int]] = []
    for after, changed in zip(data, old, strict=True):
        before = bytes(changed)
        rows.append((after if before == b"null" else overlaid(after, before), DELETE))
        rows.append((after, INSERT))
    return rows


@cache
def _canal_json_envelope() -> Callable[[bytes], Any]:
    raw: Any = msgspec().Raw
    members = {
        "isDdl": bool | None,
        "type": str | None,
        "database": str | None,
        "table": str | None,
        "data": list[raw] | None,
        "old": list[raw] | None,
        "mysqlType": raw,
        "pkNames": list[str] | None,
    }
    return decoder_of(struct("Canal", members))


# --- dms json ------------------------------------------------------------------------------------
# `aws-dms-json`: the messages of AWS DMS. One message is one row; columns are STRING.
#
# - `load` and `insert` insert `data`, `delete` deletes `data`. `update` deletes the old row, and
#   inserts `data` without the members `BI_NAME`, which hold the old values of the columns `NAME`.
# - A `record-type` that is not `data` changes no row. No primary key is stated.
#
# See https://docs.aws.amazon.com/dms/latest/userguide/CHAP_Target.Kafka.html

_BEFORE = "BI_"


def _rows(event: Any) -> TableRows | None:
    about = event.metadata
    if about is None:
        raise BadEvent("the message has no metadata")
    if about.record_type != "data":
        return None
    data = given(event.data, "data", "every change")
    match about.operation:
        case "load" | "insert":
            rows = inserted(data)
        case "delete":
            rows = deleted(data)
        case "update":
            rows = _update(data)
        case _:
            raise BadEvent(f"unknown operation {about.operation}")
    return (about.schema_name or "", about.table_name or ""), rows


def _update(data: bytes) -> list[tuple[bytes, int]]:
    members = objects([data])[0]
    after = {name: value for name, value in members.items() if not name.startswith(_BEFORE)}
    before = {
        name.removeprefix(_BEFORE): value
        for name, value in members.items()
        if name.startswith(_BEFORE)
    }
    encode = msgspec().json.encode
    return updated(encode({**after, **before}), encode(after))


@cache
def _dms_json_envelope() -> Callable[[bytes], Any]:
    about = struct(
        "Metadata",
        dict.fromkeys(("record_type", "operation", "schema_name", "table_name"), str | None),
        record_type="record-type",
        schema_name="schema-name",
        table_name="table-name",
    )
    return decoder_of(struct("Dms", {"data": msgspec().Raw, "metadata": about | None}))


DMS_JSON = TextFormat(name="aws-dms-json", reader=_dms_json_envelope, rows=_rows)
"""The format."""


# --- maxwell json --------------------------------------------------------------------------------
# `maxwell-json`: the messages of Maxwell's daemon. One message is one row; columns are STRING.
#
# - `insert` inserts `data`, and so does `bootstrap-insert`, for a table that is read at the start.
#   `update` deletes the old row (`data` with the values of `old`) and inserts `data`. `delete`
#   deletes `data`.
# - DDL, and the messages around a bootstrap, change no row.
# - `primary_key_columns` is the primary key.
#
# See https://maxwells-daemon.io/dataformat/

_WITHOUT_ROWS = ("table-", "database-", "bootstrap-")


def _maxwell_json_rows(event: Any) -> TableRows | None:
    kind = event.type or ""
    if kind.startswith(_WITHOUT_ROWS) and kind != "bootstrap-insert":
        return None
    data = given(event.data, "data", "every change")
    match kind:
        case "insert" | "bootstrap-insert":
            rows = inserted(data)
        case "delete":
            rows = deleted(data)
        case "update":
            rows = updated(overlaid(data, given(event.old, "old", "an update")), data)
        case _:
            raise BadEvent(f"unknown type {event.type}")
    return (event.database or "", event.table or ""), rows


@cache
def _maxwell_json_envelope() -> Callable[[bytes], Any]:
    raw: Any = msgspec().Raw
    members = {
        "type": str | None,
        "database": str | None,
        "table": str | None,
        "data": raw,
        "old": raw,
        "primary_key_columns": list[str] | None,
    }
    return decoder_of(struct("Maxwell", members))


MAXWELL_JSON = TextFormat(
    name="maxwell-json",
    reader=_maxwell_json_envelope,
    rows=_maxwell_json_rows,
    key_member="primary_key_columns",
)
"""The format."""


# --- ogg json ------------------------------------------------------------------------------------
# `ogg-json`: the messages of Oracle GoldenGate. One message is one row; columns are STRING.
#
# - `I` inserts `after`, `U` deletes `before` and inserts `after`, `D` deletes `before`. `T`
#   (truncate) changes no row.
# - `table` is `database.table`, `primary_keys` the primary key.
#
# See https://docs.oracle.com/goldengate/bd1221/gg-bd/GADBD/


def _ogg_json_rows(event: Any) -> TableRows | None:
    match event.op_type:
        case "I":
            rows = inserted(given(event.after, "after", "an insertion"))
        case "U":
            before = given(event.before, "before", "an update")
            rows = updated(before, given(event.after, "after", "an update"))
        case "D":
            rows = deleted(given(event.before, "before", "a deletion"))
        case "T":
            return None
        case _:
            raise BadEvent(f"unknown op_type {event.op_type}")
    database, _, name = (event.table or "").partition(".")
    return (database, name) if name else ("", database), rows


@cache
def _ogg_json_envelope() -> Callable[[bytes], Any]:
    raw: Any = msgspec().Raw
    members = {
        "op_type": str | None,
        "table": str | None,
        "before": raw,
        "after": raw,
        "primary_keys": list[str] | None,
    }
    return decoder_of(struct("Ogg", members))


OGG_JSON = TextFormat(
    name="ogg-json", reader=_ogg_json_envelope, rows=_ogg_json_rows, key_member="primary_keys"
)
"""The format."""


# --- plain json ----------------------------------------------------------------------------------
# `json`: each message is a row to insert. Columns are STRING; there is no primary key.
#
# A message names no table, so only the action for one table can read this format.


def _plain_json_rows(event: Any) -> TableRows:
    return ("", ""), inserted(bytes(event))


def _plain_json_envelope() -> Callable[[bytes], Any]:
    return decoder_of(msgspec().Raw)


PLAIN_JSON = TextFormat(name="json", reader=_plain_json_envelope, rows=_plain_json_rows)
"""The format."""
