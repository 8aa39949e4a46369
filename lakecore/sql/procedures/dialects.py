"""The procedure `alter_view_dialect`, which sets the query of a stored view for one engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.catalog.views import DIALECT, AddDialect, DropDialect, UpdateDialect
from lakecore.errors import InvalidRequest
from lakecore.sql.procedures.procedure import Procedure, chain_of, text
from lakecore.sql.statements import AlterView
from lakecore.sql.stored_views import alter_view

if TYPE_CHECKING:
    from lakecore.catalog.views import ViewChange
    from lakecore.sql.procedures.procedure import Call

__all__ = ["PROCEDURES"]


def _alter_view_dialect(call: Call) -> list[tuple[object, ...]]:
    dialect = (call.text("engine") or "").strip() or DIALECT
    action, query = call.text("action"), (call.text("query") or "").strip()
    change: ViewChange
    match action:
        case "add" | "update":
            if not query:
                raise InvalidRequest("this action needs a query", action=action)
            change = (AddDialect if action == "add" else UpdateDialect)(dialect, query)
        case "drop":
            change = DropDialect(dialect)
        case _:
            raise InvalidRequest("an action is add, update or drop", action=action)
    chain = chain_of(call.text("view") or "")
    alter_view(call.workspace, AlterView(chain=chain, changes=(change,)), None)
    return [("Success",)]


PROCEDURES = (
    Procedure(
        name="alter_view_dialect",
        arguments=(
            text("view", required=True),
            text("action", required=True),
            text("engine", DIALECT),
            text("query"),
        ),
        run=_alter_view_dialect,
        about="add, update or drop the query of a stored view for one engine",
    ),
)
