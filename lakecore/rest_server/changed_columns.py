"""Checks the columns of schema changes, to give clients the status code that they expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.model.schema_change import (
    AddColumn,
    RemoveOption,
    RenameColumn,
    SetOption,
    UpdateColumnPosition,
    UpdateComment,
)
from lakecore.rest_server.replies import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.schema_change import Change
    from lakecore.table.handle import Table

__all__ = ["check_columns"]


def check_columns(table: Table, changes: Sequence[Change]) -> None:
    """Raise Problem for a column that is missing (404) or exists already (409)."""
    names = set(table.schema.names)
    for change in changes:
        match change:
            case AddColumn(path=(name,)):
                _check_new(names, name)
                names.add(name)
            case RenameColumn(path=(old,), name=new):
                _check_known(names, old)
                _check_new(names, new)
                names = (names - {old}) | {new}
            case SetOption() | RemoveOption() | UpdateComment():
                pass
            case UpdateColumnPosition(name=name):
                _check_known(names, name)
            case _:
                _check_known(names, change.path[0])


def _check_new(names: set[str], name: str) -> None:
    if name in names:
        raise Problem(409, f"the column exists: {name}", "COLUMN", name)


def _check_known(names: set[str], name: str) -> None:
    if name not in names:
        raise Problem(404, f"no such column: {name}", "COLUMN", name)
