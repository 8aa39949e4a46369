"""The columns of a table as a Hive Metastore shows them, with Hive's names of Paimon's types.

The names are those of Paimon's Hive catalog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.io.hive.client import types
from lakecore.model.types import (
    Array,
    Atomic,
    DataType,
    Field,
    Map,
    Multiset,
    Root,
    Row,
    parse_type,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pymetastore.hive_metastore.ttypes import FieldSchema


CHAR_MAX, VARCHAR_MAX = 255, 65535
COMMENT_CHARACTERS_MAX = 255

_NAMES: Mapping[Root, str] = {
    Root.TIME: "string",
    Root.BINARY: "binary",
    Root.VARBINARY: "binary",
    Root.BLOB: "binary",
    Root.TIMESTAMP_LTZ: "timestamp with local time zone",
}
_OTHER_TEXTS: Mapping[str, str] = {
    "binary": "BYTES",
    "decimal": "DECIMAL(10, 0)",
    "timestamp": "TIMESTAMP(6)",
    "timestamp with local time zone": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
}
"""Hive's type names that Paimon does not have, or that mean something else in Paimon."""


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


def paimon_type(name: str) -> DataType:
    """The Paimon type for the name of a Hive type, as in Java. It is nullable.

    Raises InvalidRequest for a type that Paimon does not have.
    """
    return parse_type(_text(name), context=name)


def _text(name: str) -> str:
    """The name in Paimon's spelling."""
    name = name.strip()
    root, opened, rest = name.partition("<")
    if not opened:
        return _OTHER_TEXTS.get(name.lower(), name)
    parts = list(_split(rest.rstrip().removesuffix(">")))
    if root.strip().lower() != "struct":
        return f"{root}<{', '.join(map(_text, parts))}>"
    fields = []
    for part in parts:
        field, _, inner = part.partition(":")
        quoted = field.strip().replace("`", "``")
        fields.append(f"`{quoted}` {_text(inner)}")
    return f"ROW<{', '.join(fields)}>"


def _split(text: str) -> Iterator[str]:
    """The parts between commas that are not within brackets."""
    depth = start = 0
    for at, sign in enumerate(text):
        if sign in "<(":
            depth += 1
        elif sign in ">)":
            depth -= 1
        elif sign == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def column_of(field: Field) -> FieldSchema:
    """A column in the metastore's form.

    Its comment is reduced to one line and the maximum length.
    """
    comment = field.description
    if comment is not None:
        comment = comment.replace("\n", " ").replace("\r", " ")
        if len(comment) > COMMENT_CHARACTERS_MAX:
            comment = comment[: COMMENT_CHARACTERS_MAX - 3] + "..."
    return types().FieldSchema(name=field.name, type=hive_type(field.type), comment=comment)
