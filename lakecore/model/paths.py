"""Changes at a path into nested columns: ROW fields by name, array elements, map values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from lakecore.errors import InvalidRequest, NotFound
from lakecore.model.types import Array, Atomic, DataType, Field, Map, Multiset, Row, Variant
from lakecore.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Path: TypeAlias = tuple[str, ...]
Fields: TypeAlias = tuple[Field, ...]


def find_path(fields: Sequence[Field], given: Path, *, adding: bool = False) -> Path:
    """Resolve a path: `a.b` means field `b` of column `a`, unless a column is named `a.b`.

    When `adding` a column, this is so only if the column `a` exists.
    """
    names = {column.name for column in fields}
    if len(given) > 1 or given[0] in names or "." not in given[0]:
        return given
    steps = tuple(given[0].split("."))
    return given if adding and steps[0] not in names else steps


def index_of(fields: Sequence[Field], name: str) -> int:
    """The position of the column of that name. Raises NotFound, listing the known names."""
    for index, column in enumerate(fields):
        if column.name == name:
            return index
    columns = [column.name for column in fields]
    raise NotFound("no such column", column=name, **did_you_mean(name, columns), columns=columns)


def change_fields(fields: Fields, path: Path, change: Callable[[Fields, str], Fields]) -> Fields:
    """The fields, with `change` applied to the list of fields that contains the end of the path."""
    name, *rest = path
    if not rest:
        return change(fields, name)
    at = index_of(fields, name)

    def inside(data_type: DataType, steps: Path) -> DataType:
        if isinstance(data_type, Row) and not isinstance(data_type, Variant):
            return replace(data_type, fields=change_fields(data_type.fields, steps, change))
        step, *further = steps
        if not further:
            raise InvalidRequest(
                "only a field of a ROW has a name of its own", column=".".join(path), type=data_type
            )
        return _within(data_type, step, path, lambda part: inside(part, tuple(further)))

    changed = replace(fields[at], type=inside(fields[at].type, tuple(rest)))
    return (*fields[:at], changed, *fields[at + 1 :])


def change_type(fields: Fields, path: Path, change: Callable[[DataType], DataType]) -> Fields:
    """The fields, with `change` applied to the type at the path (a field, element or value)."""
    at = index_of(fields, path[0])

    def inside(data_type: DataType, steps: Path) -> DataType:
        if not steps:
            return change(data_type)
        if isinstance(data_type, Row) and not isinstance(data_type, Variant):
            return replace(data_type, fields=change_type(data_type.fields, steps, change))
        return _within(data_type, steps[0], path, lambda part: inside(part, steps[1:]))

    changed = replace(fields[at], type=inside(fields[at].type, path[1:]))
    return (*fields[:at], changed, *fields[at + 1 :])


def _within(
    data_type: DataType, step: str, path: Path, change: Callable[[DataType], DataType]
) -> DataType:
    match data_type:
        case Array() | Multiset() if step == "element":
            return replace(data_type, element=change(data_type.element))
        case Map() if step == "value":
            return replace(data_type, value=change(data_type.value))
        case Map() if step == "key":
            raise InvalidRequest("the key type of a MAP cannot change", column=".".join(path))
        case Atomic() | Array() | Multiset() | Map() | Row():
            raise NotFound(
                "the path does not lead into this type",
                column=".".join(path),
                step=step,
                type=data_type,
            )
