"""A catalog whose tables have the verbs of another engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.catalog.catalog import Catalog
    from lakecore.table.handle import Table


@dataclass(frozen=True, slots=True)
class OpeningCatalog:
    """Passes all calls to a catalog; `opened` gives each table the verbs of another engine."""

    catalog: Catalog
    opened: Callable[[Table], Table]

    def get_table(self, identifier: str) -> Table:
        """The table, as the other engine opens it."""
        return self.opened(self.catalog.get_table(identifier))

    def __getattr__(self, name: str) -> object:
        return getattr(self.catalog, name)
