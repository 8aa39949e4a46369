from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from lakecore.errors import CorruptTable
from lakecore.format import avro
from lakecore.format.avro import read_container

INNER: dict[str, Any] = {
    "type": "record",
    "name": "inner",
    "fields": [{"name": "_A", "type": "long"}, {"name": "_B", "type": ["null", "bytes"]}],
}
RECORD: dict[str, Any] = {
    "type": "record",
    "name": "record",
    "fields": [
        {"name": "_NAME", "type": "string"},
        {"name": "_IN", "type": INNER},
        {"name": "_LAST", "type": "int"},
    ],
}
NULLABLE_INNER = RECORD | {
    "fields": [
        field | {"type": ["null", INNER]} if field["name"] == "_IN" else field
        for field in RECORD["fields"]
    ]
}
ROWS = [
    {"_NAME": "a", "_IN": {"_A": 1, "_B": b"x"}, "_LAST": 7},
    {"_NAME": "b", "_IN": {"_A": 2, "_B": None}, "_LAST": 8},
]
FLAT = [("a", 1, b"x", 7), ("b", 2, None, 8)]


def _container(schema: Any, rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, rows)
    return out.getvalue()


@pytest.mark.parametrize(
    "schema",
    [RECORD, ["null", RECORD], NULLABLE_INNER, ["null", NULLABLE_INNER]],
    ids=["Java", "the whole nullable", "a record in it nullable", "paimon-rust"],
)
def test_records_come_flat_from_every_writers_schema(schema: Any) -> None:
    found = list(read_container(_container(schema, ROWS), "m", RECORD))

    assert found == FLAT


def test_a_record_that_may_be_null_stays_whole() -> None:
    rows: list[dict[str, Any]] = [*ROWS, {"_NAME": "c", "_IN": None, "_LAST": 9}]

    found = list(read_container(_container(NULLABLE_INNER, rows), "m", NULLABLE_INNER))

    assert found == [(row["_NAME"], row["_IN"], row["_LAST"]) for row in rows]


def test_null_in_place_of_a_record_is_corrupt() -> None:
    rows: list[dict[str, Any]] = [*ROWS, {"_NAME": "c", "_IN": None, "_LAST": 9}]

    with pytest.raises(CorruptTable, match=r"damaged.*path=m"):
        list(read_container(_container(["null", NULLABLE_INNER], rows), "m", RECORD))


def test_container_of_a_damaged_schema_is_corrupt() -> None:
    data = _container(RECORD, ROWS).replace(b'"name": "_NAME"', b'"Fame": "_NAME"')

    with pytest.raises(CorruptTable, match=r"damaged.* path=m "):
        list(read_container(data, "m", RECORD))


def test_container_of_another_type_of_a_field_is_corrupt() -> None:
    def schema(kind: str, part: str) -> dict[str, Any]:
        of = {"type": kind, part: "long"}
        return {"type": "record", "name": "record", "fields": [{"name": "_IN", "type": of}]}

    data = _container(schema("map", "values"), [{"_IN": {"a": 1}}])
    found: list[Any] = list(read_container(data, "m", schema("map", "values")))
    assert found == [{"a": 1}]
    with pytest.raises(CorruptTable, match="path=m"):
        list(read_container(data, "m", schema("array", "items")))


def test_plans_of_few_schemas_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: dict[Any, Any] = {}
    monkeypatch.setattr(avro, "_plans", plans)
    monkeypatch.setattr(avro, "_PLANS_MAX", 2)
    found = []
    for name in ("a", "b", "c", "c"):
        named = RECORD | {"name": name}
        assert list(read_container(_container(named, ROWS), "m", RECORD)) == FLAT
        found.append(len(plans))

    assert found == [1, 2, 1, 1]
