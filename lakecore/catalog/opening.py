"""A catalog that opens its tables with the operations of another engine, such as Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.catalog.catalog import Catalog
    from lakecore.table.handle import Table


@dataclass(frozen=True, slots=True)
class OpeningCatalog:
    """Forwards all calls to a catalog. `opened` wraps each table for another engine."""

    catalog: Catalog
    opened: Callable[[Table], Table]

    def get_table(self, identifier: str) -> Table:
        """The table, as the other engine opens it."""
        return self.opened(self.catalog.get_table(identifier))

    def __getattr__(self, name: str) -> object:
        return getattr(self.catalog, name)
