"""Paimon's column types as the interop suite sees them.

It decides nothing for lakecore: this is a second, independent reading of Paimon's type text, so
that a mistake in lakecore's own types cannot hide itself. Types come in as SQL text
(`MAP<STRING, INT NOT NULL>`) or as the JSON of a schema file, and go out as either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

_MAX_LENGTH = 2147483647
_WORDS = re.compile(r"[A-Za-z_][\w$]*|\d+|[<>(),]|`[^`]*`")
_LENGTH_DEFAULTS = {"CHAR": 1, "VARCHAR": 1, "BINARY": 1, "VARBINARY": 1}
_PRECISION_DEFAULTS = {"TIME": 0, "TIMESTAMP": 6, "TIMESTAMP_LTZ": 6}
_ALIASES = {"INTEGER": "INT", "DEC": "DECIMAL", "NUMERIC": "DECIMAL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """One type. `children` are the element, the key and value, or the fields of a row."""

    root: str
    nullable: bool = True
    length: int = 0
    precision: int = 0
    scale: int = 0
    children: tuple[Column, ...] = field(default=())

    @property
    def text(self) -> str:
        """The type as SQL text, with NOT NULL where it holds."""
        return self.bare_text + ("" if self.nullable else " NOT NULL")

    @property
    def bare_text(self) -> str:
        """The type as SQL text without its own nullability."""
        inner = ", ".join(
            f"{child.name} {child.type.text}" if self.root == "ROW" else child.type.text
            for child in self.children
        )
        match self.root:
            case "CHAR" | "VARCHAR" | "BINARY" | "VARBINARY":
                return f"{self.root}({self.length})"
            case "DECIMAL":
                return f"DECIMAL({self.precision}, {self.scale})"
            case "TIME" | "TIMESTAMP":
                return f"{self.root}({self.precision})"
            case "TIMESTAMP_LTZ":
                return f"TIMESTAMP({self.precision}) WITH LOCAL TIME ZONE"
            case "ARRAY" | "MULTISET" | "MAP" | "ROW":
                return f"{self.root}<{inner}>"
            case _:
                return self.root

    def to_json(self, ids: Iterator[int]) -> Json:
        """The type as in a schema file; fields of rows take their ids from `ids`."""
        null = "" if self.nullable else " NOT NULL"
        match self.root:
            case "ARRAY" | "MULTISET":
                return {"type": self.root + null, "element": self.children[0].type.to_json(ids)}
            case "MAP":
                key, value = (child.type.to_json(ids) for child in self.children)
                return {"type": "MAP" + null, "key": key, "value": value}
            case "ROW":
                fields: list[Json] = [
                    {"id": next(ids), "name": child.name, "type": child.type.to_json(ids)}
                    for child in self.children
                ]
                return {"type": "ROW" + null, "fields": fields}
            case _:
                return self.text


@dataclass(frozen=True, slots=True)
class Column:
    """A named type."""

    name: str
    type: Type


def columns(**types: str) -> tuple[Column, ...]:
    """Columns from type texts, by keyword."""
    return tuple(Column(name, parse_type(text)) for name, text in types.items())


def columns_to_json(fields: Sequence[Column]) -> list[Json]:
    """Columns as in a schema file, ids numbered depth first."""
    ids = count()
    return [
        {"id": next(ids), "name": column.name, "type": column.type.to_json(ids)}
        for column in fields
    ]


def columns_from_json(fields: Sequence[Mapping[str, Json]]) -> tuple[Column, ...]:
    """The columns of a schema file or of a scenario."""
    return tuple(Column(str(entry["name"]), type_from_json(entry["type"])) for entry in fields)


def type_from_json(value: Json) -> Type:
    """The type that a schema file describes."""
    if isinstance(value, str):
        return parse_type(value)
    assert isinstance(value, dict)
    root = str(value["type"]).removesuffix(" NOT NULL")
    nullable = not str(value["type"]).endswith(" NOT NULL")
    match root:
        case "ROW":
            fields = value["fields"]
            assert isinstance(fields, list)
            children = tuple(
                Column(str(entry["name"]), type_from_json(entry["type"]))
                for entry in fields
                if isinstance(entry, dict)
            )
        case "MAP":
            children = (
                Column("key", type_from_json(value["key"])),
                Column("value", type_from_json(value["value"])),
            )
        case _:
            children = (Column("element", type_from_json(value["element"])),)
    return Type(root=root, nullable=nullable, children=children)


def parse_type(text: str) -> Type:
    """The type that SQL text describes."""
    words = _WORDS.findall(text)
    parsed = _parse(words)
    assert not words, f"left over in {text!r}: {words}"
    return parsed


def _parse(words: list[str]) -> Type:
    root = words.pop(0).upper()
    root = _ALIASES.get(root, root)
    match root:
        case "STRING":
            parsed = Type(root="STRING")
        case "BYTES":
            parsed = Type(root="BYTES")
        case "CHAR" | "VARCHAR" | "BINARY" | "VARBINARY":
            (length,) = _arguments(words, _LENGTH_DEFAULTS[root])
            parsed = Type(root=root, length=length)
            if length == _MAX_LENGTH and root.startswith("VAR"):
                parsed = Type(root="STRING" if root == "VARCHAR" else "BYTES")
        case "DECIMAL":
            precision, scale = _arguments(words, 10, 0)
            parsed = Type(root="DECIMAL", precision=precision, scale=scale)
        case "TIME" | "TIMESTAMP" | "TIMESTAMP_LTZ":
            (precision,) = _arguments(words, _PRECISION_DEFAULTS[root])
            if _take(words, "WITH", "LOCAL", "TIME", "ZONE"):
                root = "TIMESTAMP_LTZ"
            parsed = Type(root=root, precision=precision)
        case "ARRAY" | "MULTISET" | "MAP":
            names = ("key", "value") if root == "MAP" else ("element",)
            parsed = Type(root=root, children=_children(words, names))
        case "ROW":
            parsed = Type(root=root, children=_children(words, None))
        case _:
            parsed = Type(root=root)
    return replace(parsed, nullable=not _take(words, "NOT", "NULL"))


def _arguments(words: list[str], *defaults: int) -> tuple[int, ...]:
    if not _take(words, "("):
        return defaults
    given: list[int] = []
    while not _take(words, ")"):
        given.append(int(words.pop(0)))
        _take(words, ",")
    return (*given, *defaults[len(given) :])


def _children(words: list[str], names: tuple[str, ...] | None) -> tuple[Column, ...]:
    assert _take(words, "<"), words
    children: list[Column] = []
    while not _take(words, ">"):
        name = names[len(children)] if names else words.pop(0).strip("`")
        children.append(Column(name, _parse(words)))
        _take(words, ",")
    return tuple(children)


def _take(words: list[str], *expected: str) -> bool:
    if tuple(word.upper() for word in words[: len(expected)]) != expected:
        return False
    del words[: len(expected)]
    return True
