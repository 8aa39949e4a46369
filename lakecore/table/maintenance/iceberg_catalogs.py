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

from typing import TYPE_CHECKING

from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest
from lakecore.io.http import is_allowed
from lakecore.options.choices import IcebergStorage
from lakecore.table.maintenance.iceberg_entries import Named

if TYPE_CHECKING:
    from lakecore.table.context import TableContext
    from lakecore.table.maintenance.iceberg_entries import Entries
    from lakecore.table.maintenance.iceberg_hive import hive_entries
else:
    hive_entries = deferred("lakecore.table.maintenance.iceberg_hive", "hive_entries")


def entries_of(context: TableContext) -> Entries | None:
    """The entries of the table; None if its options ask for none.

    Raises InvalidRequest if they are not said, or not allowed.
    """
    if context.options.metadata_iceberg_storage is not IcebergStorage.HIVE_CATALOG:
        return None
    return hive_entries(context, _allowed(context, "metadata.iceberg.uri"), _named(context))


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
