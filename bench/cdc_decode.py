"""Messages of change data capture -> changes as Arrow tables, on one core.

Compared with a version written by hand: `json.loads` for each message, and Arrow from the rows.
"""

from __future__ import annotations

import json
from functools import partial
from statistics import median

import pyarrow as pa

from bench.report import Figures, console, promise
from lakecore.cdc.formats.decoder import BadMessage, Messages
from lakecore.cdc.formats.registry import decoder_for

MESSAGES = 100_000
STEP = 10_000
TYPES = {
    "id": ("int64", None),
    "name": ("string", None),
    "price": ("double", None),
    "note": ("string", None),
    "created": ("int64", "io.debezium.time.Timestamp"),
    "flag": ("boolean", None),
    "quantity": ("int32", None),
    "city": ("string", None),
}
MYSQL = {
    "id": "bigint(20)",
    "name": "varchar(100)",
    "price": "double",
    "note": "text",
    "created": "datetime(3)",
    "flag": "tinyint(1)",
    "quantity": "int(11)",
    "city": "varchar(50)",
}


def run(runs: int = 3) -> bool:
    """Measure. Returns whether every promise was kept."""
    plain = [_debezium(number) for number in range(MESSAGES)]
    cases = {
        "debezium-json": plain,
        "debezium-json with its schema": [_with_schema(each) for each in plain],
        "canal-json": [_canal(number) for number in range(MESSAGES)],
    }
    kept = True
    for name, messages in cases.items():
        figures = Figures(f"{name}, {len(messages[0])} bytes a message", rows=MESSAGES)
        for _ in range(runs):
            figures.time("lakecore", partial(_decode, name.split()[0], messages))
            if name == "debezium-json":
                figures.time("json.loads, then Arrow", partial(_by_hand, messages))
        figures.show("lakecore")
        rate = MESSAGES / median(figures.cpu_seconds["lakecore"])
        if name.startswith("debezium"):
            kept &= promise("messages per second of one core", rate, 100_000, at_least=True)
    console.print()
    return kept


def _decode(value_format: str, messages: list[bytes]) -> None:
    decoder = decoder_for(value_format)
    rows = 0
    for start in range(0, len(messages), STEP):
        part = Messages(values=messages[start : start + STEP])
        rows += sum(map(len, decoder.decode(part, _fail)))
    assert rows >= len(messages), rows


def _by_hand(messages: list[bytes]) -> None:
    for start in range(0, len(messages), STEP):
        rows = []
        for message in messages[start : start + STEP]:
            event = json.loads(message)
            rows += [each for each in (event["before"], event["after"]) if each is not None]
        pa.Table.from_pylist(rows)


def _row(number: int, quantity: int) -> dict[str, object]:
    return {
        "id": number,
        "name": f"customer {number}",
        "price": 12.5 + number,
        "note": "some text that is a little longer",
        "created": 1_700_000_000_000 + number,
        "flag": True,
        "quantity": quantity,
        "city": "Berlin",
    }


def _debezium(number: int) -> bytes:
    kind = "cud"[number % 3]
    source = {
        "version": "3.4.0.Final",
        "connector": "mariadb",
        "name": "m",
        "ts_ms": 1_700_000_000_000,
        "snapshot": "false",
        "db": "d",
        "sequence": None,
        "table": "t",
        "server_id": 1,
        "gtid": "0-1-7",
        "file": "binlog.000001",
        "pos": 1234,
        "row": 0,
    }
    event = {
        "before": None if kind == "c" else _row(number, 1),
        "after": None if kind == "d" else _row(number, 2),
        "source": source,
        "transaction": None,
        "op": kind,
        "ts_ms": 1_700_000_000_001,
    }
    return json.dumps(event, separators=(",", ":")).encode()


def _with_schema(message: bytes) -> bytes:
    fields = [
        {"type": kind, "optional": True, "field": name, **({"name": logical} if logical else {})}
        for name, (kind, logical) in TYPES.items()
    ]
    row = {"type": "struct", "fields": fields, "optional": True, "name": "m.d.t.Value"}
    schema = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}]}
    head = json.dumps(schema, separators=(",", ":")).encode()
    return b'{"schema":' + head + b',"payload":' + message + b"}"


def _canal(number: int) -> bytes:
    texts = {name: str(value) for name, value in _row(number, 2).items()}
    row = {**texts, "created": "2023-11-14 22:13:20.123", "flag": "1"}
    event = {
        "data": [row],
        "database": "d",
        "table": "t",
        "type": "INSERT",
        "isDdl": False,
        "mysqlType": MYSQL,
        "pkNames": ["id"],
        "old": None,
    }
    return json.dumps(event, separators=(",", ":")).encode()


def _fail(error: BadMessage) -> None:
    raise error
