"""The procedure `repair`: a catalog lists again the tables that its warehouse holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.sql.procedures.procedure import Procedure, text

if TYPE_CHECKING:
    from lakecore.sql.procedures.procedure import Call

__all__ = ["PROCEDURES"]


def _repair(call: Call) -> list[tuple[object, ...]]:
    names = [each.strip() for each in (call.text("identifier") or "").split(",") if each.strip()]
    for name in names or (None,):
        call.workspace.catalog.repair(name)
    return [("Success",)]


PROCEDURES = (
    Procedure(
        name="repair",
        arguments=(text("identifier"),),
        run=_repair,
        about="list again the tables of a warehouse, of databases or by name, parted by commas",
    ),
)
