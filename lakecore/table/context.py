"""A table as its verbs see it: schema, options, and where its bytes are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakecore.format.layout import Layout
    from lakecore.io.ambient import Ambient
    from lakecore.io.history import History
    from lakecore.io.store import Store
    from lakecore.memory import Budget
    from lakecore.model.schema import TableSchema
    from lakecore.options import TableOptions
    from lakecore.plan.partitions import Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class TableContext:
    """What every verb of a table is given. `identifier` is for people: `db.table`, or a path."""

    identifier: str
    schema: TableSchema
    options: TableOptions
    layout: Layout
    store: Store
    history: History
    partitions: Partitions
    ambient: Ambient
    budget: Budget
