"""The Parquet type of each column: Paimon's message type, expressed in Arrow types.

Arrow's encoder makes the message type from an Arrow schema, except INT96, which it cannot write for
a single column. Timestamps past microseconds are therefore encoded as twelve fixed bytes, and
declared as INT96 in the footer afterwards.

Field ids: columns and fields of a ROW have the ids of the schema. The element of an array, and the
value of a map, have 536870911 + 1024 * id + depth; the key of a map has 536870911 - 1024 * id -
depth. Here, `id` is the id of the enclosing column or field, and `depth` counts arrays and maps
from 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import Unsupported
from lakecore.format.parquet_footer import INT96_BYTES
from lakecore.format.variant import TYPED, whole_variants
from lakecore.model.arrow_arrays import CODED, cast_leaf, retype_chunked, without_nulls_under_nulls
from lakecore.model.types import (
    TIMESTAMPS,
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Row,
    Variant,
    arrow_type,
    inner_types,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_INT96 = pa.binary(INT96_BYTES)
_MICROS = 6
_ELEMENT_ID = 536_870_911
_IDS_PER_COLUMN = 1024
_DAY_NS = 86_400_000_000_000
_JULIAN_DAY_OF_EPOCH = 2_440_588


def parquet_leaf(data_type: Atomic) -> pa.DataType:
    """The Arrow type from which Arrow's encoder makes the column of that type."""
    return _INT96 if _is_int96(data_type) else arrow_type(data_type)


def physical_schema(
    fields: Sequence[Field],
    leaf: Callable[[Atomic], pa.DataType] = parquet_leaf,
    id_name: str = "PARQUET:field_id",
) -> pa.Schema:
    """The Arrow schema of the rows to encode.

    `leaf` maps an atomic type to its Arrow type. The metadata of each field holds its id under the
    key `id_name`.
    """
    return pa.schema([_Nodes(leaf, id_name).column(field) for field in fields])


def to_physical(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in the types that are encoded. Strings and binaries keep their layout."""
    columns: list[pa.ChunkedArray] = []
    nodes: list[pa.Field] = []
    for column, node in zip(table.columns, schema, strict=True):
        if _same_bytes(column.type, node.type):
            columns.append(column)
            nodes.append(node.with_type(column.type))
            continue
        retyped = retype_chunked(column, node.type, _encode_leaf)
        chunks = [without_nulls_under_nulls(chunk) for chunk in retyped.chunks]
        columns.append(pa.chunked_array(chunks, type=node.type))
        nodes.append(node)
    return pa.Table.from_arrays(columns, schema=pa.schema(nodes))


def leaf_paths(fields: Sequence[Field]) -> Iterator[tuple[str, Atomic]]:
    """The path and type of every leaf column of the Parquet schema."""
    for field in fields:
        for path, leaf in _leaves(field.type):
            yield ".".join([field.name, *path]), leaf


def int96_paths(fields: Sequence[Field]) -> frozenset[str]:
    """The paths of the columns that are stored as INT96: timestamps past microseconds."""
    return frozenset(path for path, leaf in leaf_paths(fields) if _is_int96(leaf))


def _is_int96(data_type: Atomic) -> bool:
    return data_type.root in TIMESTAMPS and data_type.digits > _MICROS


def _same_bytes(given: pa.DataType, wanted: pa.DataType) -> bool:
    t = pa.types
    if t.is_string(wanted):
        return bool(t.is_large_string(given) or t.is_string_view(given) or given == CODED)
    return bool(t.is_binary(wanted) and (t.is_large_binary(given) or t.is_binary_view(given)))


def _encode_leaf(array: pa.Array, target: pa.DataType) -> pa.Array:
    if target == _INT96 and pa.types.is_timestamp(array.type):
        return _to_int96(array)
    return cast_leaf(array, target)


def _to_int96(array: pa.Array) -> pa.Array:
    """INT96 values: nanoseconds of the day (8 bytes), then the Julian day (4), little-endian."""
    nanos = array.cast(pa.timestamp("ns", array.type.tz)).cast(pa.int64())
    values = nanos.fill_null(0).to_numpy()
    out = np.empty(len(values), dtype=[("nanos", "<i8"), ("day", "<i4")])
    days = values // _DAY_NS
    out["nanos"] = values - days * _DAY_NS
    out["day"] = days + _JULIAN_DAY_OF_EPOCH
    validity = array.is_valid().buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(_INT96, len(values), [validity, pa.py_buffer(out)])


def shredded_columns(stored: pa.Schema, fields: Sequence[Field], path: str) -> frozenset[str]:
    """The columns of `fields`, whose types hold a VARIANT, that are shredded in a file.

    Raises Unsupported if a VARIANT within another type is shredded.
    """
    shredded: set[str] = set()
    for field in fields:
        at = stored.get_field_index(field.name)
        if at < 0 or not _is_shredded(field.type, stored.field(at).type):
            continue
        if not isinstance(field.type, Variant):
            raise Unsupported(
                "a shredded VARIANT is not read within another type", column=field.name, path=path
            )
        shredded.add(field.name)
    return frozenset(shredded)


def with_whole_variants(
    batch: pa.RecordBatch, shredded: Iterable[str], path: str
) -> pa.RecordBatch:
    """The batch with the values of shredded VARIANT columns reassembled."""
    for name in shredded:
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, name, whole_variants(batch.column(at), path))
    return batch


def _is_shredded(data_type: DataType, stored: pa.DataType) -> bool:
    if isinstance(data_type, Variant):
        return bool(stored.get_field_index(TYPED) >= 0)
    if isinstance(data_type, Row):
        inner = [stored.field(part.name).type for part in data_type.fields]
    elif isinstance(data_type, Map | Multiset):
        inner = [stored.key_type, stored.item_type]
    else:
        inner = [stored.value_type] if isinstance(data_type, Array) else []
    return any(map(_is_shredded, inner_types(data_type), inner))


def _leaves(data_type: DataType) -> Iterator[tuple[tuple[str, ...], Atomic]]:
    parts: tuple[tuple[tuple[str, ...], DataType], ...]
    match data_type:
        case Atomic():
            yield (), data_type
            return
        case Array():
            parts = ((("list", "element"), data_type.element),)
        case Multiset() | Map():
            keys, values = inner_types(data_type)
            parts = ((("key_value", "key"), keys), (("key_value", "value"), values))
        case Row():
            parts = tuple(((field.name,), field.type) for field in data_type.fields)
    for prefix, part in parts:
        for path, leaf in _leaves(part):
            yield (*prefix, *path), leaf


@dataclass(frozen=True, slots=True)
class _Nodes:
    leaf: Callable[[Atomic], pa.DataType]
    id_name: str

    def column(self, field: Field) -> pa.Field:
        return self._node(field.name, field.type, field.id, (field.id, 0))

    def _node(self, name: str, data_type: DataType, id_: int, around: tuple[int, int]) -> pa.Field:
        """An Arrow field. `around` has the id of the enclosing column, and the depth inside it."""
        column, depth = around[0], around[1] + 1
        offset = column * _IDS_PER_COLUMN + depth

        def key(of: DataType) -> pa.Field:
            of = replace(of, nullable=False)
            return self._node("key", of, _ELEMENT_ID - offset, (column, depth))

        def part(part_name: str, of: DataType) -> pa.Field:
            return self._node(part_name, of, _ELEMENT_ID + offset, (column, depth))

        physical: pa.DataType
        match data_type:
            case Atomic():
                physical = self.leaf(data_type)
            case Array():
                physical = pa.list_(part("element", data_type.element))
            case Multiset() | Map():
                keys, values = inner_types(data_type)
                physical = pa.map_(key(keys), part("value", values))
            case Row():
                physical = pa.struct([self.column(field) for field in data_type.fields])
        metadata = {self.id_name: str(id_)}
        return pa.field(name, physical, nullable=data_type.nullable, metadata=metadata)
