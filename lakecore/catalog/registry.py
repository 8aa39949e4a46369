"""Which catalog the option `metastore` names, and how it is opened.

To add a catalog, enter its opener in `CATALOGS`. The opener gets all options of the user as
strings, and checks them, because each catalog has its own options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakecore.catalog.filesystem import open_filesystem
from lakecore.catalog.options import FILESYSTEM, METASTORE
from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.catalog.catalog import Catalog
    from lakecore.catalog.hive.metastore import open_hive
    from lakecore.catalog.jdbc.metastore import open_jdbc
    from lakecore.catalog.rest.rest_catalog import open_rest
    from lakecore.table.handle import Table
else:
    open_hive = deferred("lakecore.catalog.hive.metastore", "open_hive")
    open_jdbc = deferred("lakecore.catalog.jdbc.metastore", "open_jdbc")
    open_rest = deferred("lakecore.catalog.rest.rest_catalog", "open_rest")


class Opener(Protocol):
    """A function that opens a catalog by its options."""

    def __call__(self, given: Mapping[str, str], *, create: bool) -> Catalog:
        """Open the catalog. Raises NotFound for a missing warehouse, unless `create` is set."""


CATALOGS: Mapping[str, Opener] = {
    FILESYSTEM: open_filesystem,
    "jdbc": open_jdbc,
    "hive": open_hive,
    "rest": open_rest,
}
"""The openers of catalogs, by the value of `metastore`."""


def open_catalog(given: Mapping[str, str], *, create: bool) -> Catalog:
    """The catalog that the options name.

    Raises InvalidRequest for an unknown metastore.
    """
    name = given.get(METASTORE, FILESYSTEM)
    if name not in CATALOGS:
        raise InvalidRequest("unknown metastore", metastore=name, known=tuple(CATALOGS))
    return CATALOGS[name](given, create=create)


# --- opening -------------------------------------------------------------------------------------
# A catalog that opens its tables with the operations of another engine, such as Spark.


@dataclass(frozen=True, slots=True)
class OpeningCatalog:
    """Forwards all calls to a catalog. `opened`: wraps each table for another engine."""

    catalog: Catalog
    opened: Callable[[Table], Table]

    def get_table(self, identifier: str) -> Table:
        """The table, as the other engine opens it."""
        return self.opened(self.catalog.get_table(identifier))

    def __getattr__(self, name: str) -> object:
        return getattr(self.catalog, name)
