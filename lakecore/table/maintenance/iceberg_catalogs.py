"""The entry of a table in an Iceberg catalog, which points to the newest document.

With `metadata.iceberg.storage=hive-catalog`, the table has such an entry besides its metadata, so
that readers find it by its name. After each publication the entry is made to point to the document
of the latest snapshot.

INVARIANT: an entry never goes back. Whoever changes it holds the catalog's lock, and reads under
the lock which snapshot is the latest, and whether its document is there.

The process allows the address of the catalog by `lakecore.iceberg-uris`, which no table stores. An
entry that points to the metadata of another table, or to none, is neither changed nor removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest
from lakecore.format.iceberg.documents import warehouse_place
from lakecore.format.layout import canonical
from lakecore.io.http import is_allowed
from lakecore.options.choices import IcebergStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.table.context import TableContext
    from lakecore.table.maintenance.iceberg_hive import hive_entries
else:
    hive_entries = deferred("lakecore.table.maintenance.iceberg_hive", "hive_entries")


class Entries(Protocol):
    """The entries of one table in a catalog, which may list it in several databases."""

    def point(self, newest: Callable[[], str | None]) -> bool:
        """Make the entries point to the newest document; create those that are missing.

        `newest` is the path of the document of the latest snapshot. It is None while a publisher is
        at work; then the answer is False.
        """

    def forget(self) -> None:
        """Remove the entries that point to the table's metadata."""


def entries_of(context: TableContext) -> Entries | None:
    """The entries of the table; None if its options ask for none.

    Raises InvalidRequest if they are not said, or not allowed.
    """
    if context.options.metadata_iceberg_storage is not IcebergStorage.HIVE_CATALOG:
        return None
    return hive_entries(context, _allowed(context, "metadata.iceberg.uri"), _named(context))


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The databases and the name by which a catalog lists a table, and the table's directory."""

    databases: tuple[str, ...]
    table: str
    root: str

    def has_metadata(self, location: str | None) -> bool:
        """Whether a document is one of this table."""
        if location is None:
            return False
        places = (self.root, warehouse_place(self.root) or self.root)
        return canonical(location).rpartition("/")[0] in {f"{each}/metadata" for each in places}


def _named(context: TableContext) -> Named:
    options = context.options
    stated, table = options.metadata_iceberg_database, options.metadata_iceberg_table
    databases = [each.strip() for each in (stated or "").split(";")]
    if not (stated and table) and "/" in context.identifier:
        raise InvalidRequest(
            "the table was opened by its path, so its name in an Iceberg catalog is not known; "
            "open it by a catalog, or set metadata.iceberg.database and metadata.iceberg.table",
            path=context.layout.root,
        )
    if not all(databases) and stated:
        raise InvalidRequest(
            "a database has no name", option="metadata.iceberg.database", value=stated
        )
    quoted = context.identifier.startswith("`")
    own_database, _, own_table = context.identifier.partition("`." if quoted else ".")
    return Named(
        databases=tuple(dict.fromkeys(databases)) if stated else (own_database.strip("`"),),
        table=table or own_table,
        root=context.layout.root.rstrip("/"),
    )


def _allowed(context: TableContext, option: str) -> str:
    """The address in an option. Raises InvalidRequest unless this process allows it."""
    uri = context.options.metadata_iceberg_uri
    if uri is None:
        raise InvalidRequest(
            "name the Iceberg catalog that lists the table",
            option=option,
            example="thrift://localhost:9083",
            table=context.identifier,
        )
    for each in map(str.strip, uri.split(",")):
        if not is_allowed(each, context.options.lakecore_iceberg_uris):
            raise InvalidRequest(
                "this process does not allow calls to that address; if it may call it, give the "
                "address by the dynamic option lakecore.iceberg-uris",
                option=option,
                value=each,
                table=context.identifier,
            )
    return uri
