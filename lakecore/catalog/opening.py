"""A catalog whose tables are opened by another engine: it gives them its own verbs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.catalog.catalog import Catalog
    from lakecore.table.handle import Table


@dataclass(frozen=True, slots=True)
class OpeningCatalog:
    """The calls of a catalog; `opened` makes a table of another engine of each of its tables."""

    catalog: Catalog
    opened: Callable[[Table], Table]

    def get_table(self, identifier: str) -> Table:
        """The table, as the other engine opens it."""
        return self.opened(self.catalog.get_table(identifier))

    def __getattr__(self, name: str) -> object:
        return getattr(self.catalog, name)
