"""The entry of a table in an Iceberg catalog, which points to the newest document.

With `metadata.iceberg.storage=hive-catalog` or `rest-catalog`, the table has such an entry besides
its metadata, so that readers find it by its name. After each publication the entry is made to point
to the document of the latest snapshot.

INVARIANT: an entry never goes back. Whoever changes it reads which snapshot is the latest, and
whether its document is there, while nobody else can change the entry: under the lock of a
metastore, or before a commit that a server refuses if the entry has changed.

The process allows the address of the catalog by `lakecore.iceberg-uris`, which no table stores. An
entry that points to the metadata of another table, or to none, is neither changed nor removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest
from lakecore.io.http import is_allowed
from lakecore.options.choices import IcebergStorage
from lakecore.table.maintenance.iceberg_entries import Entries, Named

if TYPE_CHECKING:
    from lakecore.table.context import TableContext
    from lakecore.table.maintenance.iceberg_hive import hive_entries
    from lakecore.table.maintenance.iceberg_rest import rest_entries
else:
    hive_entries = deferred("lakecore.table.maintenance.iceberg_hive", "hive_entries")
    rest_entries = deferred("lakecore.table.maintenance.iceberg_rest", "rest_entries")


def entries_of(context: TableContext) -> Entries | None:
    """The entries of the table; None if its options ask for none.

    Raises InvalidRequest if they are not said, or not allowed.
    """
    options = context.options
    match options.metadata_iceberg_storage:
        case IcebergStorage.HIVE_CATALOG:
            uri = options.metadata_iceberg_uri
            _require_allowed(context, "metadata.iceberg.uri", uri)
            return hive_entries(context, uri or "", _named(context))
        case IcebergStorage.REST_CATALOG:
            settings = options.metadata_iceberg_rest
            _require_allowed(context, "metadata.iceberg.rest.uri", settings.get("uri"))
            return rest_entries(context, settings, _named(context))
        case _:
            return None


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


def _require_allowed(context: TableContext, option: str, uri: str | None) -> None:
    """Raise InvalidRequest unless the option has an address that this process allows."""
    if not uri:
        raise InvalidRequest(
            "name the Iceberg catalog that lists the table",
            option=option,
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
