"""VARIANT columns: to and from JSON text, and from their shredded form.

https://github.com/apache/parquet-format/blob/master/VariantShredding.md

In a shredded column, `typed_value` holds the values of the most common type, and nested parts are
shredded in the same way. `value` holds all other values, and the fields of an object that have no
column.
"""

from __future__ import annotations

import struct
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from lakecore.errors import CorruptTable, Unsupported
from lakecore.format.variant import (
    EPOCH,
    Object,
    Value,
    encoded,
    encoded_binary,
    encoded_number,
    variant_of_json,
)
from lakecore.format.variant_values import decoded, json_of_variant, names_of
from lakecore.model.types import METADATA, VALUE, Variant, arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable

TYPED = "typed_value"


def variants_of_json(texts: pa.Array) -> pa.Array:
    """The JSON texts as VARIANT values.

    Raises ValueError for the first text that is not JSON, with its position as second argument.
    """
    values: list[bytes | None] = []
    names: list[bytes | None] = []
    for at, text in enumerate(texts.to_pylist()):
        try:
            value, metadata = (b"", b"") if text is None else variant_of_json(text)
        except ValueError as error:
            raise ValueError(str(error), at) from error
        values.append(value)
        names.append(metadata)
    return _variants(values, names, texts)


def _variants(values: list[bytes | None], names: list[bytes | None], nulls: pa.Array) -> pa.Array:
    children = [pa.array(values, pa.binary()), pa.array(names, pa.binary())]
    missing = nulls.is_null() if nulls.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(Variant())), mask=missing)


def json_of_variants(variants: pa.Array) -> pa.Array:
    """VARIANT values as JSON texts; null stays null."""
    pairs = zip(variants.field(VALUE), variants.field(METADATA), variants, strict=True)
    return pa.array(
        [
            json_of_variant(value.as_py(), metadata.as_py()) if whole.is_valid else None
            for value, metadata, whole in pairs
        ],
        pa.string(),
    )


def whole_variants(column: pa.Array, path: str) -> pa.Array:
    """The values of a shredded column, reassembled. `path` is the path of the file.

    Raises Unsupported for a type of parts that Java does not shred; CorruptTable for damage.
    """
    read = _reader(column.type)
    values: list[bytes | None] = []
    names: list[bytes | None] = []
    for row in column.to_pylist():
        if row is None:
            values.append(b"")
            names.append(b"")
            continue
        try:
            whole = read(row, names_of(row[METADATA]))
            value, metadata = encoded(_present(whole))
        except (ValueError, IndexError, TypeError, struct.error) as error:
            raise CorruptTable("a shredded VARIANT is damaged", path=path) from error
        values.append(value)
        names.append(metadata)
    return _variants(values, names, column)


def _present(part: Value | _Missing) -> Value:
    if isinstance(part, _Missing):
        raise ValueError("a part is missing")  # noqa: TRY004  the data is wrong, not a call
    return part


class _Missing:
    """Stands for a field that an object does not have."""


_MISSING = _Missing()
_Read: TypeAlias = "Callable[[dict[str, Any], list[str]], Value | _Missing]"


def _reader(kind: pa.StructType) -> _Read:
    """The function that reassembles values from a struct of `value` and perhaps `typed_value`."""
    at = kind.get_field_index(TYPED)
    typed = None if at < 0 else kind.field(at).type
    if typed is None:
        return _plain
    if pa.types.is_struct(typed):
        fields = {field.name: _reader(field.type) for field in typed}
        return lambda row, names: _object(row, names, fields)
    if pa.types.is_list(typed) or pa.types.is_large_list(typed):
        element = _reader(typed.value_type)
        return lambda row, names: _list(row, names, element)
    encode = _scalar(typed)

    def scalar(row: dict[str, Any], names: list[str]) -> Value | _Missing:
        return _plain(row, names) if row[TYPED] is None else encode(row[TYPED])

    return scalar


def _plain(row: dict[str, Any], names: list[str]) -> Value | _Missing:
    value = row.get(VALUE)
    return _MISSING if value is None else decoded(value, names)


def _object(row: dict[str, Any], names: list[str], fields: dict[str, _Read]) -> Value | _Missing:
    typed = row[TYPED]
    if typed is None:
        return _plain(row, names)
    pairs: list[tuple[str, Value]] = []
    for name, read in fields.items():
        part = read(typed[name], names)
        if not isinstance(part, _Missing):
            pairs.append((name, part))
    rest = _plain(row, names)
    if not isinstance(rest, _Missing):
        if not isinstance(rest, Object) or not fields.keys().isdisjoint(dict(rest.pairs)):
            raise ValueError("the rest of an object is no object, or repeats a name")
        pairs += rest.pairs
    return Object(pairs)


def _list(row: dict[str, Any], names: list[str], element: _Read) -> Value | _Missing:
    typed = row[TYPED]
    if typed is None:
        return _plain(row, names)
    return [_present(element(each, names)) for each in typed]


def _scalar(kind: pa.DataType) -> Callable[[Any], Value]:
    """The function that encodes values of a typed column.

    Strings, integers and booleans are encoded as from JSON.
    """
    t = pa.types
    is_text = t.is_string(kind) or t.is_large_string(kind)
    if t.is_boolean(kind) or t.is_integer(kind) or t.is_decimal(kind) or is_text:
        return lambda value: value
    if t.is_float64(kind):
        return float
    if t.is_float32(kind):
        return lambda value: encoded_number("FLOAT", struct.pack("<f", value))
    if t.is_binary(kind) or t.is_large_binary(kind):
        return encoded_binary
    if t.is_date32(kind):
        return lambda value: encoded_number("DATE", struct.pack("<i", (value - _DAY).days))
    if t.is_timestamp(kind):
        root, zero = ("TIMESTAMP", EPOCH) if kind.tz else ("TIMESTAMP_NTZ", _EPOCH_NTZ)
        return lambda value: encoded_number(root, struct.pack("<q", (value - zero) // _MICRO))
    raise Unsupported("a VARIANT that is shredded by this type is not read", type=kind)


_DAY = date(1970, 1, 1)
_EPOCH_NTZ = datetime(1970, 1, 1)
_MICRO = timedelta(microseconds=1)
