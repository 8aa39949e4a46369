"""Canonical values to Arrow and back, for lakecore and for pypaimon (whose pyarrow is older).

Timestamps travel as their integers, so nothing passes through Python's microsecond datetime. The
decoder takes whatever Arrow type an engine chose for a column, and reads it as the Paimon type.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.interop import values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.interop.columns import Column, Json, Type
    from tests.interop.values import Row

_UNIT_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def arrow_type(kind: Type) -> pa.DataType:
    """The Arrow type in which a user would naturally hold the Paimon type."""
    root = kind.root
    if root in values.TEXTS:
        return pa.string()
    if root in values.BINARIES:
        return pa.binary()
    if root in values.TIMESTAMPS:
        unit = "ms" if kind.precision <= 3 else "us" if kind.precision <= 6 else "ns"
        return pa.timestamp(unit, tz="UTC" if root == "TIMESTAMP_LTZ" else None)
    if root == "DECIMAL":
        return pa.decimal128(kind.precision, kind.scale)
    if root in ("ARRAY", "MAP", "MULTISET", "ROW"):
        fields = [
            pa.field(child.name, arrow_type(child.type), nullable=child.type.nullable)
            for child in kind.children
        ]
        if root == "ROW":
            return pa.struct(fields)
        if root == "ARRAY":
            return pa.list_(fields[0])
        value = fields[1] if root == "MAP" else pa.field("value", pa.int32(), nullable=False)
        return pa.map_(fields[0].with_nullable(False), value)
    return {
        "BOOLEAN": pa.bool_(),
        "TINYINT": pa.int8(),
        "SMALLINT": pa.int16(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "FLOAT": pa.float32(),
        "DOUBLE": pa.float64(),
        "DATE": pa.date32(),
        "TIME": pa.time32("ms"),
    }[root]


def to_arrow(
    rows: Sequence[Row], columns: Sequence[Column], schema: pa.Schema | None = None
) -> pa.Table:
    """Canonical rows as an Arrow table, in the types of `schema` if given."""
    if schema is None:
        schema = pa.schema(
            [
                pa.field(column.name, arrow_type(column.type), nullable=column.type.nullable)
                for column in columns
            ]
        )
    arrays = [
        pa.array([_to_plain(row[index], column.type, field.type) for row in rows], type=field.type)
        for index, (column, field) in enumerate(zip(columns, schema, strict=True))
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def from_arrow(table: pa.Table, columns: Sequence[Column]) -> list[Row]:
    """The canonical rows of an Arrow table."""
    decoded = [
        [_from_scalar(scalar, column.type) for scalar in table.column(column.name)]
        for column in columns
    ]
    return [list(row) for row in zip(*decoded, strict=True)]


def _to_plain(value: Json, kind: Type, target: pa.DataType) -> Any:
    """What `pa.array` takes for the value."""
    if value is None:
        return None
    root = kind.root
    if root in values.FLOATS:
        return float(str(value))
    if root == "DECIMAL":
        return Decimal(str(value))
    if root in values.BINARIES:
        return bytes.fromhex(str(value))
    if root == "DATE":
        return values.date_days(str(value))
    if root == "TIME":
        return values.time_millis(str(value)) * _UNIT_NANOS["ms"] // _UNIT_NANOS[target.unit]
    if root in values.TIMESTAMPS:
        return values.timestamp_nanos(str(value)) // _UNIT_NANOS[target.unit]
    if root not in ("ARRAY", "MAP", "MULTISET", "ROW"):
        return value
    assert isinstance(value, list)
    types = [child.type for child in kind.children]
    if root == "ARRAY":
        return [_to_plain(item, types[0], target.value_type) for item in value]
    if root == "ROW":
        return {
            child.name: _to_plain(item, child.type, target.field(index).type)
            for index, (item, child) in enumerate(zip(value, kind.children, strict=True))
        }
    return [
        (
            _to_plain(pair[0], types[0], target.key_type),
            pair[1] if root == "MULTISET" else _to_plain(pair[1], types[1], target.item_type),
        )
        for pair in value
    ]


def _from_scalar(scalar: pa.Scalar, kind: Type) -> Json:
    if not scalar.is_valid:
        return None
    root = kind.root
    if root in values.TIMESTAMPS:
        return values.timestamp_text(scalar.value * _UNIT_NANOS[scalar.type.unit], kind)
    if root == "TIME":
        nanos = scalar.value * _UNIT_NANOS[scalar.type.unit]
        return values.time_text(nanos // _UNIT_NANOS["ms"])
    if root == "DATE":
        return values.date_text(scalar.value)
    if root in values.FLOATS:
        return values.float_text(scalar.as_py(), single=root == "FLOAT")
    if root == "DECIMAL":
        return values.decimal_text(scalar.as_py(), kind.scale)
    if root in values.BINARIES:
        content: bytes = scalar.as_py()
        return content.hex()
    if root not in ("ARRAY", "MAP", "MULTISET", "ROW"):
        plain: Json = scalar.as_py()
        return plain
    types = [child.type for child in kind.children]
    if root == "ROW":
        return [
            _from_scalar(scalar[index], child.type) for index, child in enumerate(kind.children)
        ]
    if root == "ARRAY":
        return [_from_scalar(item, types[0]) for item in scalar.values]
    entries = scalar.values
    pairs: list[Json] = []
    for key, value in zip(entries.field(0), entries.field(1), strict=True):
        item = value.as_py() if root == "MULTISET" else _from_scalar(value, types[1])
        pairs.append([_from_scalar(key, types[0]), item])
    return values.sort_pairs(pairs)
