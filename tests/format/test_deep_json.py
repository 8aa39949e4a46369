"""Metadata that is nested without end is CorruptTable, and no RecursionError."""

from __future__ import annotations

import json

import pytest

from lakecore.errors import CorruptTable, LakecoreError
from lakecore.format import metadata
from lakecore.format.avro_container import assemble, read_batches, read_container
from lakecore.format.manifest_files import decode_entries

DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("around", [DEEP, b'{"version": 3, "fields": ' + DEEP + b"}"])
def test_deep_json_is_corrupt(around: bytes) -> None:
    for decode in (metadata.decode_schema, metadata.decode_snapshot):
        with pytest.raises(CorruptTable, match=r"the .* file is no JSON.*path=p"):
            decode(around, "p")


def deep_avro(depth: int) -> bytes:
    schema = b'{"type": "array", "items": ' * depth + b'"int"' + b"}" * depth
    return assemble({"avro.schema": schema, "avro.codec": b"null"}, bytes(16), [(1, b"\x00")])


@pytest.mark.parametrize("depth", [500, 50_000])
def test_deep_avro_schema_is_corrupt(depth: int) -> None:
    data = deep_avro(depth)
    wanted = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}
    for read in (
        lambda: list(read_container(data, "p", wanted)),
        lambda: list(read_batches(data, "p", 10, 10)),
        lambda: decode_entries(data, "p"),
        lambda: metadata.decode_manifest_list(data, "p"),
    ):
        with pytest.raises(LakecoreError, match="path=p"):
            read()


def test_deep_type_of_a_schema_file_is_refused() -> None:
    kind: object = "INT"
    for _ in range(300):
        kind = {"type": "ARRAY", "element": kind}
    schema = {"version": 3, "id": 0, "fields": [{"id": 0, "name": "a", "type": kind}]}

    with pytest.raises(LakecoreError, match="nested too deep"):
        metadata.decode_schema(json.dumps(schema).encode(), "p")
