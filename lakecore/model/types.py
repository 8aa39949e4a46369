"""Paimon's logical types: the values, their text and JSON forms, and their Arrow twins.

Each part is a file of its own: `data_types.py`, `type_text.py`, `type_arrow.py`.
"""

from __future__ import annotations

from lakecore.model.data_types import (
    BINARIES,
    INTEGERS,
    LENGTH_MAX,
    STRINGS,
    TIMESTAMPS,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    inner_types,
    leaves,
    with_nullable,
)
from lakecore.model.type_arrow import (
    arrow_field,
    arrow_schema,
    arrow_type,
    check_no_objects,
    fields_from_arrow,
    fields_from_polars,
    from_arrow,
    plain_type,
    timestamp_unit,
)
from lakecore.model.type_text import Json, field_to_json, parse_field, parse_type, type_to_json

__all__ = [
    "BINARIES",
    "INTEGERS",
    "LENGTH_MAX",
    "STRINGS",
    "TIMESTAMPS",
    "Array",
    "Atomic",
    "DataType",
    "Field",
    "Json",
    "Map",
    "Multiset",
    "Root",
    "Row",
    "arrow_field",
    "arrow_schema",
    "arrow_type",
    "check_no_objects",
    "field_to_json",
    "fields_from_arrow",
    "fields_from_polars",
    "from_arrow",
    "inner_types",
    "leaves",
    "parse_field",
    "parse_type",
    "plain_type",
    "timestamp_unit",
    "type_to_json",
    "with_nullable",
]
