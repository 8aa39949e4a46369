"""Canonical values as objects of Java Paimon, and back: what the Java peer writes and reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jpype

from tests.interop import values
from tests.interop.columns import type_from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.interop.columns import Json, Type
    from tests.interop.values import Row

    # Objects of the JVM: JPype knows their classes only at run time.
    Java = Any

PAIMON = "org.apache.paimon."
MILLIS_NANOS = 1_000_000


def paimon_class(name: str) -> Java:
    """A class of Paimon, by its name below `org.apache.paimon`."""
    return jpype.JClass(PAIMON + name)


def java_list(items: Sequence[Any]) -> Java:
    """An ArrayList."""
    found = jpype.JClass("java.util.ArrayList")()
    for item in items:
        found.add(item)
    return found


def java_map(items: dict[str, str] | None) -> Java:
    """A HashMap."""
    found = jpype.JClass("java.util.HashMap")()
    for key, value in (items or {}).items():
        found.put(key, value)
    return found


def java_type(tree: Json) -> Java:
    """A type, from the JSON of a schema file."""
    mapper = paimon_class("shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper")()
    return paimon_class("types.DataTypeJsonParser").parseDataType(mapper.readTree(json.dumps(tree)))


_DESCRIPTOR_HEAD, _VIEW_HEAD = "02" + b"CSEDBOLB".hex(), "01" + b"WEIVBOLB".hex()


class Codec:
    """Canonical values to Paimon's internal ones, and back."""

    def __init__(self) -> None:
        self._string = paimon_class("data.BinaryString")
        self._decimal = paimon_class("data.Decimal")
        self._timestamp = paimon_class("data.Timestamp")
        self._big_decimal = jpype.JClass("java.math.BigDecimal")
        self._boxes = {
            root: jpype.JClass(f"java.lang.{name}")
            for root, name in {
                "BOOLEAN": "Boolean",
                "TINYINT": "Byte",
                "SMALLINT": "Short",
                "INT": "Integer",
                "DATE": "Integer",
                "TIME": "Integer",
                "BIGINT": "Long",
                "FLOAT": "Float",
                "DOUBLE": "Double",
            }.items()
        }

    def row_writer(self, types: Sequence[Type]) -> Callable[[Row], Java]:
        generic_row = paimon_class("data.GenericRow")
        writers = [self.to_java(kind) for kind in types]

        def write(row: Row) -> Java:
            record = generic_row(len(writers))
            for index, (writer, value) in enumerate(zip(writers, row, strict=True)):
                record.setField(index, None if value is None else writer(value))
            return record

        return write

    def row_reader(self, types: Sequence[Type]) -> Callable[[Java], Row]:
        readers = [self._reader(kind) for kind in types]

        def read(record: Java) -> Row:
            return [
                None if record.isNullAt(index) else reader(record, index)
                for index, reader in enumerate(readers)
            ]

        return read

    def to_java(self, kind: Type) -> Callable[[Any], Java]:
        """Return the function that turns one canonical value into Paimon's."""
        root = kind.root
        if root in values.TEXTS:
            return self._string_from
        if root in values.BINARIES:
            return lambda value: jpype.JArray(jpype.JByte)(bytes.fromhex(value))
        if root == "BLOB":
            return self._blob_from
        if root == "DECIMAL":
            return lambda value: self._decimal.fromBigDecimal(
                self._big_decimal(value), kind.precision, kind.scale
            )
        if root == "DATE":
            return lambda value: self._boxes["DATE"](values.date_days(value))
        if root == "TIME":
            return lambda value: self._boxes["TIME"](values.time_millis(value))
        if root in values.TIMESTAMPS:
            return self._timestamp_from
        if root == "VARIANT":
            variant: Callable[[Any], Java] = paimon_class("data.variant.GenericVariant").fromJson
            return variant
        if root in values.FLOATS:
            return lambda value: self._boxes[root](float(value))
        if root in self._boxes:
            box: Callable[[Any], Java] = self._boxes[root]
            return box
        return self._nested_to_java(kind)

    def _string_from(self, value: str) -> Java:
        return self._string.fromString(value)

    def _blob_from(self, value: str) -> Java:
        """A value, or what a descriptor or a view names."""
        data = jpype.JArray(jpype.JByte)(bytes.fromhex(value))
        blob = paimon_class("data.Blob")
        if value.startswith(_DESCRIPTOR_HEAD):
            named = paimon_class("data.BlobDescriptor").deserialize(data)
            files = paimon_class("fs.local.LocalFileIO").create()
            return blob.fromFile(files, named.uri(), named.offset(), named.length())
        if value.startswith(_VIEW_HEAD):
            return blob.fromView(paimon_class("data.BlobViewStruct").deserialize(data))
        return blob.fromData(data)

    def _timestamp_from(self, value: str) -> Java:
        millis, nanos = divmod(values.timestamp_nanos(value), MILLIS_NANOS)
        return self._timestamp.fromEpochMillis(millis, nanos)

    def _nested_to_java(self, kind: Type) -> Callable[[Any], Java]:
        types = [child.type for child in kind.children]
        if kind.root == "ROW":
            return self.row_writer(types)
        element = self.to_java(types[0])
        if kind.root == "VECTOR":
            assert types[0].root == "FLOAT", "the other elements are not needed yet"
            floats = jpype.JArray(jpype.JFloat)
            binary_vector = paimon_class("data.BinaryVector")
            return lambda value: binary_vector.fromPrimitiveArray(floats(list(map(float, value))))
        if kind.root == "ARRAY":
            generic_array = paimon_class("data.GenericArray")
            objects = jpype.JArray(jpype.JObject)
            return lambda value: generic_array(
                objects([None if item is None else element(item) for item in value])
            )
        entry = self.to_java(types[1]) if kind.root == "MAP" else self._boxes["INT"]

        def to_map(value: list[list[Json]]) -> Java:
            pairs = jpype.JClass("java.util.HashMap")()
            for key, item in value:
                pairs.put(
                    None if key is None else element(key), None if item is None else entry(item)
                )
            return paimon_class("data.GenericMap")(pairs)

        return to_map

    def _reader(self, kind: Type) -> Callable[[Java, int], Json]:
        root, precision = kind.root, kind.precision
        if root in values.TEXTS:
            return lambda row, i: str(row.getString(i).toString())
        if root in values.BINARIES:
            return lambda row, i: bytes(row.getBinary(i)).hex()
        if root == "BLOB":
            return lambda row, i: bytes(row.getBlob(i).toData()).hex()
        if root == "DECIMAL":
            return lambda row, i: str(
                row.getDecimal(i, precision, kind.scale).toBigDecimal().toPlainString()
            )
        if root in values.TIMESTAMPS:
            return lambda row, i: values.timestamp_text(
                _nanos(row.getTimestamp(i, precision)), kind
            )
        if root == "VARIANT":
            return lambda row, i: str(row.getVariant(i).toJson())
        if root in _READERS:
            return _READERS[root]
        return self._nested_reader(kind)

    def _nested_reader(self, kind: Type) -> Callable[[Java, int], Json]:
        types = [child.type for child in kind.children]
        if kind.root == "ROW":
            read = self.row_reader(types)
            return lambda row, i: read(row.getRow(i, len(types)))
        element = self._reader(types[0])
        if kind.root == "ARRAY":
            return lambda row, i: _items(row.getArray(i), element)
        if kind.root == "VECTOR":
            return lambda row, i: _items(row.getVector(i), element)
        value = (
            self._reader(types[1])
            if kind.root == "MAP"
            else lambda array, index: int(array.getInt(index))
        )

        def pairs(row: Java, i: int) -> Json:
            found = row.getMap(i)
            keys = _items(found.keyArray(), element)
            items = _items(found.valueArray(), value)
            return values.sort_pairs([[key, item] for key, item in zip(keys, items, strict=True)])

        return pairs


_READERS: dict[str, Callable[[Java, int], Json]] = {
    "BOOLEAN": lambda row, i: bool(row.getBoolean(i)),
    "TINYINT": lambda row, i: int(row.getByte(i)),
    "SMALLINT": lambda row, i: int(row.getShort(i)),
    "INT": lambda row, i: int(row.getInt(i)),
    "BIGINT": lambda row, i: int(row.getLong(i)),
    "FLOAT": lambda row, i: values.float_text(float(row.getFloat(i)), single=True),
    "DOUBLE": lambda row, i: values.float_text(float(row.getDouble(i)), single=False),
    "DATE": lambda row, i: values.date_text(int(row.getInt(i))),
    "TIME": lambda row, i: values.time_text(int(row.getInt(i))),
}


def _items(array: Java, reader: Callable[[Java, int], Json]) -> list[Json]:
    return [None if array.isNullAt(i) else reader(array, i) for i in range(array.size())]


def _nanos(timestamp: Java) -> int:
    return int(timestamp.getMillisecond()) * MILLIS_NANOS + int(timestamp.getNanoOfMillisecond())


def types_of_table(table: Java) -> list[Type]:
    return types_of(table.rowType())


def types_of(row_type: Java) -> list[Type]:
    serializer = paimon_class("utils.JsonSerdeUtil")
    fields = json.loads(str(serializer.toFlatJson(row_type)))["fields"]
    return [type_from_json(field["type"]) for field in fields]
