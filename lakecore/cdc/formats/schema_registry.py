"""Avro schemas by id, from Confluent's schema registry or a registry with the same protocol.

A message begins with a zero byte and the id of its schema in four bytes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fastavro import parse_schema
from fastavro.schema import SchemaParseException

from lakecore.errors import InvalidRequest
from lakecore.io.http import get_json

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SchemaRegistry", "schema_number"]

_HEADER = 5


class SchemaRegistry:
    """The schemas of one registry. Each is fetched once."""

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
            except (KeyError, ValueError, SchemaParseException) as error:
                raise InvalidRequest(
                    "the registry's answer is not an Avro schema", schema=number, cause=error
                ) from error
        return self._schemas[number]


def schema_number(message: bytes) -> tuple[int, bytes]:
    """The schema id and the body of a message.

    Raises ValueError unless it begins with a zero byte.
    """
    if len(message) < _HEADER or message[0] != 0:
        raise ValueError("the message does not begin with the number of a schema")
    return int.from_bytes(message[1:_HEADER], "big"), message[_HEADER:]
