"""The columns of a table through its changes of schema, each known by what it was at first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.interop.columns import Column, parse_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.interop.columns import Json, Type
    from tests.interop.engines import SchemaStep
    from tests.interop.values import Row


_LAST = ("last",)


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns in order, and beside each its identity, which no change of a name alters."""

    identities: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def name_of(self, identity: str) -> str:
        return self.columns[self.identities.index(identity)].name

    def identity_of(self, name: str) -> str | None:
        names = self.names
        return self.identities[names.index(name)] if name in names else None

    def chosen(self, indices: Sequence[int]) -> Shape:
        """Some of the columns."""
        return Shape(
            tuple(self.identities[index] for index in indices),
            tuple(self.columns[index] for index in indices),
        )

    def after(self, change: SchemaStep, identity: str) -> Shape:
        """The shape after a change; `identity` is that of a column that it adds."""
        columns, at = changed(self.columns, change)
        identities = [identity if index is None else self.identities[index] for index in at]
        return Shape(tuple(identities), tuple(columns))

    def row(self, row: Row, target: Shape) -> Row:
        """A row of this shape as one of another: null where this one has no value."""
        held = dict(zip(self.identities, row, strict=True))
        return [held.get(identity) for identity in target.identities]


def first_shape(columns: Sequence[Column]) -> Shape:
    """The shape of a new table."""
    return Shape(tuple(column.name for column in columns), tuple(columns))


def changed(columns: Sequence[Column], change: SchemaStep) -> tuple[list[Column], list[int | None]]:
    """The columns after a change, and where each was before; None for one that is new."""
    verb, name, *given = change
    place: Json
    found = list(columns)
    at: list[int | None] = list(range(len(found)))
    if verb == "set":
        return found, at
    if isinstance(name, tuple):
        top, *below = name
        return [
            Column(each.name, _inside(each.type, (verb, tuple(below), *given)))
            if each.name == top
            else each
            for each in columns
        ], at
    index = next((i for i, column in enumerate(found) if column.name == name), len(found))
    match verb:
        case "add":
            found.append(Column(str(name), parse_type(str(given[0]))))
            at.append(None)
            place = given[1] or _LAST
        case "drop":
            del found[index], at[index]
            return found, at
        case "rename":
            found[index] = Column(str(given[0]), found[index].type)
            return found, at
        case "retype":
            found[index] = Column(str(name), parse_type(str(given[0])))
            return found, at
        case "nullable":
            bare = found[index].type.bare_text
            found[index] = Column(str(name), parse_type(bare if given[0] else f"{bare} NOT NULL"))
            return found, at
        case _:
            place = given[0]
    moved, was = found.pop(index), at.pop(index)
    assert isinstance(place, tuple)
    to = _index(place, [column.name for column in found])
    found.insert(to, moved)
    at.insert(to, was)
    return found, at


def _inside(kind: Type, change: SchemaStep) -> Type:
    """The type after a change of a field somewhere in it."""
    verb, path, *given = change
    assert isinstance(path, tuple)
    if len(path) == 1 and kind.root == "ROW":
        fields, _ = changed(kind.children, (verb, path[0], *given))
        return replace(kind, children=tuple(fields))
    names = {"ARRAY": ("element",), "MAP": ("key", "value")}
    parts = names.get(kind.root) or tuple(child.name for child in kind.children)
    return replace(
        kind,
        children=tuple(
            replace(child, type=_inside(child.type, (verb, path[1:], *given)))
            if part == path[0]
            else child
            for part, child in zip(parts, kind.children, strict=True)
        ),
    )


def _index(place: tuple[str, ...], names: list[str]) -> int:
    match place:
        case ("after", beside):
            return names.index(beside) + 1
        case ("before", beside):
            return names.index(beside)
        case _:
            return 0 if place == ("first",) else len(names)
