"""Splits a new type of a nested column into changes of the parts that differ.

ALTER TABLE ... MODIFY states the whole type. Fields of a ROW are found by name: those that the new
type lacks are dropped, new ones are added last, and types of the others change, at any depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.model.data_types import Array, Map, Row
from lakecore.model.schema_change import SchemaChange, UpdateColumnType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.data_types import DataType
    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change

__all__ = ["in_parts"]


def in_parts(changes: Sequence[Change], schema: TableSchema) -> list[Change]:
    """The changes, where each new type of a nested column is replaced by changes of its parts."""
    types = {field.name: field.type for field in schema.fields}
    found: list[Change] = []
    for change in changes:
        old = types.get(change.path[0]) if isinstance(change, UpdateColumnType) else None
        if isinstance(change, UpdateColumnType) and len(change.path) == 1 and old is not None:
            found += _parts(change, change.path, old, change.type)
        else:
            found.append(change)
    return found


def _parts(
    whole: UpdateColumnType, path: tuple[str, ...], old: DataType, new: DataType
) -> list[Change]:
    match old, new:
        case Row(), Row():
            return _fields(whole, path, old, new)
        case Array(), Array():
            return _parts(whole, (*path, "element"), old.element, new.element)
        case Map(), Map():
            if old.key != new.key:
                raise InvalidRequest(
                    "the key type of a MAP does not change", column=".".join(path), type=str(new)
                )
            return _parts(whole, (*path, "value"), old.value, new.value)
    if path == whole.path:
        return [whole]
    if str(old) == str(new):
        return []
    return [SchemaChange.update_column_type(path, new)]


def _fields(whole: UpdateColumnType, path: tuple[str, ...], old: Row, new: Row) -> list[Change]:
    before = {field.name: field for field in old.fields}
    after = {field.name: field for field in new.fields}
    kept = [name for name in before if name in after]
    if not kept:
        raise InvalidRequest(
            "the new ROW has no field of the old one", column=".".join(path), type=str(new)
        )
    if list(after)[: len(kept)] != kept:
        raise InvalidRequest(
            "fields of a ROW keep their order; new fields come last",
            column=".".join(path),
            type=str(new),
        )
    found: list[Change] = [
        SchemaChange.drop_column((*path, name)) for name in before if name not in after
    ]
    for name in kept:
        found += _parts(whole, (*path, name), before[name].type, after[name].type)
    found += [
        SchemaChange.add_column((*path, name), field.type, comment=field.description)
        for name, field in after.items()
        if name not in before
    ]
    return found
