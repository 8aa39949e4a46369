"""Schemas of Iceberg."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakecore.errors import Unsupported
from lakecore.format.iceberg.documents import iceberg_schema, partition_spec, reads_as
from lakecore.io.files.parquet_types import physical_schema
from lakecore.model.schema import TableSchema, number_fields
from lakecore.model.types import Field, parse_type


def schema_of(types: dict[str, str], **parts: Any) -> TableSchema:
    fields, following = number_fields(
        [Field(id=0, name=name, type=parse_type(text)) for name, text in types.items()]
    )
    return TableSchema(id=3, fields=fields, highest_field_id=following - 1, **parts)


def ids_in_files(node: pa.Field) -> list[int]:
    own = [int(node.metadata[b"PARQUET:field_id"])]
    kind = node.type
    if pa.types.is_struct(kind):
        inner = list(kind)
    elif pa.types.is_map(kind):
        inner = [kind.key_field, kind.item_field]
    else:
        inner = [kind.value_field] if pa.types.is_list(kind) else []
    return own + [each for part in inner for each in ids_in_files(part)]


def ids_in_schema(of: Any) -> list[int]:
    if isinstance(of, str):
        return []
    if of["type"] == "struct":
        return [
            each for part in of["fields"] for each in (part["id"], *ids_in_schema(part["type"]))
        ]
    if of["type"] == "list":
        return [of["element-id"], *ids_in_schema(of["element"])]
    keys = [of["key-id"], *ids_in_schema(of["key"])]
    return [*keys, of["value-id"], *ids_in_schema(of["value"])]


def test_ids_are_those_of_the_data_files() -> None:
    schema = schema_of(
        {
            "a": "INT NOT NULL",
            "l": "ARRAY<ARRAY<ROW<x INT, y MAP<STRING, ARRAY<INT>>>>>",
            "m": "MAP<STRING, ROW<z INT>>",
            "s": "MULTISET<STRING>",
        }
    )
    stored = [each for node in physical_schema(schema.fields) for each in ids_in_files(node)]

    assert ids_in_schema(iceberg_schema(schema)) == stored


def test_types_are_those_of_java() -> None:
    types = {
        "BOOLEAN": "boolean",
        "TINYINT": "int",
        "SMALLINT": "int",
        "INT": "int",
        "BIGINT": "long",
        "FLOAT": "float",
        "DOUBLE": "double",
        "DECIMAL(9, 3)": "decimal(9, 3)",
        "DATE": "date",
        "TIME(3)": "time",
        "CHAR(3)": "string",
        "STRING": "string",
        "BINARY(3)": "binary",
        "BYTES": "binary",
        "TIMESTAMP(6)": "timestamp",
        "TIMESTAMP(3) WITH LOCAL TIME ZONE": "timestamptz",
    }
    schema = schema_of({f"c{place}": text for place, text in enumerate(types)})

    assert [each["type"] for each in iceberg_schema(schema)["fields"]] == list(types.values())


@pytest.mark.parametrize("text", ["TIMESTAMP(9)", "VARIANT", "BLOB"])
def test_type_without_a_twin_is_refused_with_its_column(text: str) -> None:
    with pytest.raises(Unsupported, match=r"column=r\.x type="):
        iceberg_schema(schema_of({"r": f"ROW<x {text}>"}))


def test_spec_keeps_the_values_of_partition_keys() -> None:
    schema = schema_of({"a": "INT", "b": "DATE", "c": "INT"}, partition_keys=("b", "a"))

    assert partition_spec(schema)["fields"] == [
        {"name": "b", "transform": "identity", "source-id": 1, "field-id": 1000},
        {"name": "a", "transform": "identity", "source-id": 0, "field-id": 1001},
    ]


@pytest.mark.parametrize(
    ("stored", "now", "reads"),
    [
        ("INT", "BIGINT", True),
        ("TINYINT", "INT", True),
        ("FLOAT", "DOUBLE", True),
        ("DECIMAL(4, 2)", "DECIMAL(6, 2)", True),
        ("ARRAY<INT>", "ARRAY<BIGINT>", True),
        ("ROW<x INT>", "ROW<x BIGINT>", True),
        ("DECIMAL(4, 2)", "DECIMAL(6, 3)", False),
        ("DECIMAL(6, 2)", "DECIMAL(4, 2)", False),
        ("BIGINT", "INT", False),
        ("INT", "STRING", False),
        ("MAP<STRING, INT>", "MAP<STRING, STRING>", False),
        ("ROW<x INT>", "ROW<x DOUBLE>", False),
        ("ARRAY<INT>", "MAP<INT, INT>", False),
        ("MAP<INT, INT>", "ARRAY<INT>", False),
        ("ROW<x INT>", "ARRAY<INT>", False),
    ],
)
def test_only_widened_types_read_old_files(stored: str, now: str, reads: bool) -> None:  # noqa: FBT001
    before, after = (iceberg_schema(schema_of({"c": text})) for text in (stored, now))

    assert reads_as(before, after) is reads
