"""Paimon's types -> the names of Hive's types, as Paimon's Hive catalog writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.model.types import Array, Atomic, Map, Multiset, Root, Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.model.types import DataType

__all__ = ["hive_type"]

CHAR_MAX, VARCHAR_MAX = 255, 65535

_NAMES: Mapping[Root, str] = {
    Root.TIME: "string",
    Root.BINARY: "binary",
    Root.VARBINARY: "binary",
    Root.TIMESTAMP_LTZ: "timestamp with local time zone",
}


def hive_type(kind: DataType) -> str:
    """The name of the Hive type that shows values of this type."""
    match kind:
        case Array(element=element):
            return f"array<{hive_type(element)}>"
        case Multiset(element=element):
            return f"map<{hive_type(element)},int>"
        case Map(key=key, value=value):
            return f"map<{hive_type(key)},{hive_type(value)}>"
        case Row(fields=fields):
            inner = ",".join(f"{field.name}:{hive_type(field.type)}" for field in fields)
            return f"struct<{inner}>"
        case Atomic():
            return _atomic(kind)


def _atomic(kind: Atomic) -> str:
    match kind:
        case Atomic(root=Root.CHAR, length=int(length)):
            return f"char({length})" if length <= CHAR_MAX else "string"
        case Atomic(root=Root.VARCHAR, length=int(length)):
            return f"varchar({length})" if length <= VARCHAR_MAX else "string"
        case Atomic(root=Root.DECIMAL):
            return f"decimal({kind.precision},{kind.scale})"
        case _:
            return _NAMES.get(kind.root, kind.root.lower())
