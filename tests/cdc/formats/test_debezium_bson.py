from __future__ import annotations

import json
from typing import Any

import pytest

from lakecore.cdc.events import SourceTable
from lakecore.cdc.formats.debezium import document_texts, java_double
from lakecore.cdc.formats.decoder import BadMessage, Messages
from lakecore.cdc.formats.registry import decoder_for

OID = {"$oid": "67ab25755c0d5ac87eb8c632"}
SIGNS = ("+I", "-U", "+U", "-D")


def event(op: str, before: object = None, after: object = None) -> bytes:
    images = {"before": before, "after": after}
    shown = {name: None if doc is None else json.dumps(doc) for name, doc in images.items()}
    return json.dumps({**shown, "op": op, "source": {"db": "d", "collection": "c"}}).encode()


def decode(values: list[bytes | None], keys: list[bytes | None] | None = None) -> list[Any]:
    def fail(error: BadMessage) -> None:
        raise error

    batches = decoder_for("debezium-bson").decode(Messages(values=values, keys=keys), fail)
    assert all(batch.table == SourceTable("d", "c") for batch in batches)
    assert all(batch.schema.primary_key == ("_id",) for batch in batches)
    return [
        (SIGNS[kind], row)
        for batch in batches
        for kind, row in zip(batch.kinds.to_pylist(), batch.rows.to_pylist(), strict=True)
    ]


def test_documents_in_order() -> None:
    key = json.dumps({"id": json.dumps(OID)}).encode()
    with_schema = json.dumps({"schema": {}, "payload": {"id": json.dumps(OID)}}).encode()
    wrapped = json.dumps({"schema": {}, "payload": json.loads(event("d"))}).encode()
    document = {"_id": OID, "n": {"$numberLong": "5"}}

    found = decode(
        [event("c", None, document), event("u", None, {"_id": OID}), None, wrapped],
        [key, key, key, with_schema],
    )

    number = "67ab25755c0d5ac87eb8c632"
    assert found == [
        ("+I", {"_id": number, "n": "5"}),
        ("-D", {"_id": number, "n": None}),
        ("+I", {"_id": number, "n": None}),
        ("-D", {"_id": number, "n": None}),
    ]


def test_the_document_before_is_taken_if_it_is_there() -> None:
    assert decode([event("u", {"_id": 1, "v": "a"}, {"_id": 1, "v": "b"})]) == [
        ("-D", {"_id": "1", "v": "a"}),
        ("+I", {"_id": "1", "v": "b"}),
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("text", "text"),
        (True, "true"),
        (5, "5"),
        (1.5, "1.5"),
        (1e10, "1.0E10"),
        (OID, "67ab25755c0d5ac87eb8c632"),
        ({"$numberInt": "7"}, "7"),
        ({"$numberLong": "9007199254740993"}, "9007199254740993"),
        ({"$numberDouble": "NaN"}, "NaN"),
        ({"$numberDouble": "-Infinity"}, "-Infinity"),
        ({"$numberDecimal": "1.10"}, "1.10"),
        ({"$date": 1739455397970}, "1739455397970"),
        ({"$date": {"$numberLong": "1739455397970"}}, "1739455397970"),
        ({"$date": "1970-01-01T00:00:01.500Z"}, "1500"),
        ({"$timestamp": {"t": 1736997330, "i": 2}}, "1736997330"),
        ({"$binary": {"base64": "AAE=", "subType": "00"}}, "AAE="),
        ({"$binary": "AAE=", "$type": "00"}, "AAE="),
        (
            {"$binary": {"base64": "c3Byc2RhdGFiYXNlMTIzNA==", "subType": "04"}},
            "73707273-6461-7461-6261-736531323334",
        ),
        ({"$regularExpression": {"pattern": "a/b", "options": "i"}}, "/a\\/b/i"),
        ({"$regex": "", "$options": ""}, "/(?:)/"),
        ({"$symbol": "s"}, "s"),
        ({"$code": "f()"}, "f()"),
        (
            {"$code": "f()", "$scope": {"x": OID}},
            f'{{"$code":"f()","$scope":{{"x":"{OID["$oid"]}"}}}}',
        ),
        ({"$undefined": True}, None),
        ({"$minKey": 1}, "BsonMinKey"),
        ([1, {"a": OID}], f'[1,{{"a":"{OID["$oid"]}"}}]'),
        ({"a": {"b": [None, "é"]}}, '{"a":{"b":[null,"é"]}}'),
    ],
)
def test_a_field_is_the_text_that_paimon_writes(value: object, expected: str | None) -> None:
    assert document_texts(json.dumps({"v": value})) == {"v": expected}


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0.0, "0.0"),
        (100.0, "100.0"),
        (1e7, "1.0E7"),
        (123456789.125, "1.23456789125E8"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (-2.5e-10, "-2.5E-10"),
    ],
)
def test_doubles_are_printed_as_by_java(number: float, expected: str) -> None:
    assert java_double(number) == expected


@pytest.mark.parametrize(
    "bad",
    [
        event("d"),
        event("c"),
        event("x"),
        b"{",
        b'{"op": "c", "after": "[1]"}',
        b'{"op": "c", "after": {"a": 1}}',
        json.dumps({"op": "c", "after": '{"v": {"$numberInt": "x"}}'}).encode(),
    ],
)
def test_a_bad_message_is_reported(bad: bytes) -> None:
    caught: list[BadMessage] = []
    values = [event("c", None, {"_id": 1}), bad]

    (batch,) = decoder_for("debezium-bson").decode(Messages(values=values), caught.append)

    assert len(batch) == 1
    assert [error.facts["number"] for error in caught] == [1]


@pytest.mark.parametrize(
    "form", ["{}", '{{"$numberLong": "{}"}}', '{{"$date": {{"$numberLong": "{}"}}}}']
)
def test_integer_of_too_many_digits_is_a_bad_message(form: str) -> None:
    document = '{"_id": 1, "v": ' + form.format("9" * 4301) + "}"
    message = json.dumps({"after": document, "op": "c", "source": {"db": "d", "collection": "c"}})

    with pytest.raises(BadMessage, match="not an integer of MongoDB"):
        decode([message.encode()])
