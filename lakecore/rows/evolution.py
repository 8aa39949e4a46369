"""How a file written under an older schema is read under a newer one.

1. A column, or a field inside a ROW, is found in the file's schema by its id; its name may have
   changed. A column that the file does not have was added later, and is null in every row.
2. If the type was changed since, the values are cast (`rows/casts.py`). Elements of arrays, and
   keys and values of maps, have no ids and match by position.

INVARIANT: a column that did not change is returned as read from the file, without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from lakecore.model.arrow_arrays import CODED, inner_of, list_like, nested_like, struct_array
from lakecore.model.casts import may_cast
from lakecore.model.types import (
    BINARIES,
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
    Variant,
    arrow_schema,
    arrow_type,
    inner_types,
    with_nullable,
)
from lakecore.rows.casts import cast, cast_may_fail, rule_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.model.schema import TableSchema

_STRING = Atomic(root=Root.VARCHAR, length=LENGTH_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """A column to read, and the file's column that holds it; None if the file has none."""

    read: Field
    stored: Field | None
    changed: bool

    @property
    def renamed(self) -> bool:
        """Whether the column has another name in the file."""
        return self.stored is not None and self.stored.name != self.read.name


def map_fields(read: Sequence[Field], stored: Sequence[Field]) -> tuple[ColumnMapping, ...]:
    """For each field to read, the field of the file's schema that holds it.

    Raises Unsupported with both types if a type was changed and Paimon has no cast for the change.
    """
    by_id = {field.id: field for field in stored}
    return tuple(_mapping(field, by_id.get(field.id)) for field in read)


def require_types(
    schema: TableSchema, newer: TableSchema, columns: Iterable[str], table: str
) -> None:
    """Raise InvalidRequest if one of these columns has another type in a newer schema.

    A handle that was opened before the change would cut the new values to the old type.
    """
    by_id = {field.id: field for field in newer.fields}
    for name in columns:
        field = schema.field(name) if name in schema.names else None
        later = by_id.get(field.id) if field is not None else None
        if field is not None and later is not None and not _same_type(field.type, later.type):
            raise InvalidRequest(
                "the type of a column was changed after this table was opened; open it again, "
                "or refresh it",
                column=name,
                type=field.type,
                new_type=later.type,
                new_schema=newer.id,
                table=table,
            )


def _same_type(one: DataType, other: DataType) -> bool:
    """Whether two types are equal, ignoring nullability and fields that only one of them has."""
    match one, other:
        case Atomic(), Atomic():
            return replace(one, nullable=True) == replace(other, nullable=True)
        case Row(), Row():
            parts = {field.id: field.type for field in other.fields}
            return all(_same_type(f.type, parts.get(f.id, f.type)) for f in one.fields)
        case _:
            inner = zip(inner_types(one), inner_types(other), strict=False)
            return type(one) is type(other) and all(_same_type(*pair) for pair in inner)


def stored_fields(mappings: Sequence[ColumnMapping]) -> tuple[Field, ...]:
    """The columns of the file that must be read, each once, in order."""
    found = [mapping.stored for mapping in mappings if mapping.stored is not None]
    return tuple(dict.fromkeys(found))


def is_identity(mappings: Sequence[ColumnMapping]) -> bool:
    """Whether batches of the stored fields need no change."""
    return not any(m.changed or m.renamed or m.stored is None for m in mappings)


def conform_batch(batch: pa.RecordBatch, mappings: Sequence[ColumnMapping]) -> pa.RecordBatch:
    """The columns to read, in order and in their Arrow types, made from a batch of file columns."""
    schema = arrow_schema([mapping.read for mapping in mappings])
    if batch.schema == schema and is_identity(mappings):
        return batch
    columns = [_column(batch, mapping) for mapping in mappings]
    for at, column in enumerate(columns):
        if column.type == CODED:
            schema = schema.set(at, schema.field(at).with_type(CODED))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def convert(array: pa.Array, stored: DataType, read: DataType, column: str) -> pa.Array:
    """The values of the stored type converted to the read type."""
    target = arrow_type(read)
    match stored, read:
        case Atomic(), Atomic():
            return cast(array, stored, read, column)
        case _, Atomic():
            return _text(array, stored, column)
        case Row(), Row():
            places = {field.id: place for place, field in enumerate(stored.fields)}
            # A cast must not see the values under a null row.
            values = array.flatten() if array.null_count else inner_of(array)
            children = [
                convert(values[places[part.id]], parts.type, part.type, column)
                if (parts := _of(stored.fields, part.id)) is not None
                else pa.nulls(len(array), arrow_type(part.type))
                for part in read.fields
            ]
            return struct_array(array, children, list(target))
        case _:
            pairs = zip(inner_types(stored), inner_types(read), inner_of(array), strict=True)
            inner = [convert(values, of, to, column) for of, to, values in pairs]
            return nested_like(array, target, inner)


def _text(array: pa.Array, stored: DataType, column: str) -> pa.Array:
    """Values as Java's text of them: `[1, null]`, `{k -> v}` and, for a ROW, `{1, a}`."""
    if isinstance(stored, Atomic):
        return cast(array, stored, _STRING, column)
    parts = [
        pc.coalesce(_text(values, kind, column), pa.scalar("null"))
        for kind, values in zip(inner_types(stored), inner_of(array), strict=True)
    ]
    if isinstance(stored, Row):
        joined = pc.binary_join_element_wise(*parts, ", ") if parts else pa.repeat("", len(array))
        joined = pc.if_else(array.is_valid(), joined, pa.scalar(None, pa.string()))
    else:
        each = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, " -> ")
        joined = pc.binary_join(list_like(array, pa.list_(pa.string()), each), ", ")
    begin, end = "[]" if isinstance(stored, Array) else "{}"
    return pc.binary_join_element_wise(begin, joined, end, "")


def may_fail(stored: DataType, read: DataType) -> bool:
    """Whether some values of the stored type cannot be cast."""
    match stored, read:
        case Atomic(), Atomic():
            return cast_may_fail(stored, read)
        case _, Atomic():
            return False
        case Row(), Row():
            pairs = [(_of(stored.fields, part.id), part) for part in read.fields]
            return any(of is not None and may_fail(of.type, to.type) for of, to in pairs)
        case _:
            inner = zip(inner_types(stored), inner_types(read), strict=True)
            return any(may_fail(of, to) for of, to in inner)


def _mapping(read: Field, stored: Field | None) -> ColumnMapping:
    changed = stored is not None and _changed(stored.type, read.type, read.name)
    return ColumnMapping(read=read, stored=stored, changed=changed)


def _changed(stored: DataType, read: DataType, column: str) -> bool:
    """Whether values must be cast or rebuilt; raises Unsupported if they cannot be."""
    match stored, read:
        case Atomic(), Atomic():
            return _needs_cast(stored, read, column)
        case (Variant(), Variant()):
            return False
        case Row(), Row() if not isinstance(stored, Variant) and not isinstance(read, Variant):
            inner = map_fields(read.fields, stored.fields)
            return not is_identity(inner) or arrow_type(stored) != arrow_type(read)
        case Array(), Array():
            deeper = _changed(stored.element, read.element, column)
        case Multiset(), Multiset():
            deeper = _changed(stored.element, read.element, column)
        case Map(), Map():
            keys = _changed(stored.key, read.key, column)
            deeper = _changed(stored.value, read.value, column) or keys
        case _, Atomic() if may_cast(stored, with_nullable(read, nullable=True), explicit=True):
            return True
        case _:
            raise Unsupported(
                "no cast between the types", column=column, stored=stored, wanted=read
            )
    return deeper or arrow_type(stored) != arrow_type(read)


def _needs_cast(stored: Atomic, read: Atomic, column: str) -> bool:
    if replace(stored, nullable=True) == replace(read, nullable=True):
        return False
    rule_of(stored, read, column)
    if stored.root in TIMESTAMPS and stored.root is read.root:
        return _size(read) < _size(stored) or arrow_type(stored) != arrow_type(read)
    kinds = STRINGS if read.root is Root.VARCHAR else BINARIES
    varying = read.root in {Root.VARCHAR, Root.VARBINARY} and stored.root in kinds
    return not varying or _size(read) < _size(stored)


def _size(data_type: Atomic) -> int:
    size = data_type.precision if data_type.length is None else data_type.length
    return size or 0


def _column(batch: pa.RecordBatch, mapping: ColumnMapping) -> pa.Array:
    read, stored = mapping.read, mapping.stored
    if stored is None:
        return pa.nulls(batch.num_rows, arrow_type(read.type))
    index = batch.schema.get_field_index(stored.name)
    if index < 0:
        raise CorruptTable("a batch lacks a column", column=stored.name, columns=batch.schema.names)
    column = batch.column(index)
    return convert(column, stored.type, read.type, read.name) if mapping.changed else column


def _of(fields: Sequence[Field], id_: int) -> Field | None:
    return next((field for field in fields if field.id == id_), None)
