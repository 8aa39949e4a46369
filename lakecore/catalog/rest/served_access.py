"""The rows and columns of a table that a user may read, as a REST server states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable
from lakecore.rows.read_rules_json import StatedRules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.catalog.rest.served_table import ServedTable

__all__ = ["ServedAccess"]


@dataclass(frozen=True, slots=True)
class ServedAccess:
    """The row filters and column masks of a table. Each read asks the server for them again."""

    table: ServedTable

    def rules(self, branch: str, columns: Sequence[str]) -> StatedRules:
        """The rules for a read of these columns.

        Raises StorageError if the user may not read the columns, Unsupported if the server states
        no rules.
        """
        table = self.table.on_branch(branch)
        reply = table.ask("POST", "auth", {"select": list(columns)})
        filters, masks = reply.get("filter") or [], reply.get("columnMasking") or {}
        if (
            not isinstance(filters, list)
            or not isinstance(masks, dict)
            or not all(isinstance(each, str | None) for each in (*filters, *masks.values()))
        ):
            raise CorruptTable(
                "the server states who may read the table in a form that is not known",
                table=table.name,
            )
        # As in Java, null and an empty string mean that there is no rule.
        return StatedRules(
            tuple(filter(None, filters)), {name: text for name, text in masks.items() if text}
        )
