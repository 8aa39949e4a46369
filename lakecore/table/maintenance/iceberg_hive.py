"""The entry of a table in a Hive Metastore, as Iceberg's Hive catalogs read it.

The parameter `metadata_location` names the document, and `table_type` says ICEBERG. If Paimon's
Hive catalog has the entry of this very table under the same name, the entry gets both parameters
and stays, as in Java: Hive's readers of Paimon find what they need elsewhere in it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import AlreadyExists
from lakecore.format.layout import canonical
from lakecore.io.hive.client import HiveClient, parse_hosts, types
from lakecore.io.hive.columns import column_of
from lakecore.io.hive.locks import HiveLocks
from lakecore.io.stores.open import locate

if TYPE_CHECKING:
    from pymetastore.hive_metastore.ttypes import Table

    from lakecore.table.context import TableContext
    from lakecore.table.maintenance.iceberg_entries import Named, Newest

LOCATION = "metadata_location"
_BEFORE = "previous_metadata_location"
_TYPE, _ICEBERG = "table_type", "ICEBERG"
_PAIMON = {_TYPE: "PAIMON"}
_CONNECTIONS = 2
_TIMEOUT_MS = 60_000
_LOCK_POLL_MS_MAX = 200
_LOCK_WAIT_MS_MAX = 5_000
"""The lock is held for milliseconds; a process that holds it for seconds was killed."""
_NEVER = 2_147_483_647


def hive_entries(context: TableContext, uri: str, named: Named) -> HiveEntries:
    """The entries of a table in the metastore at `uri`. Raises Unsupported without its client."""
    client = HiveClient(parse_hosts(uri, "metadata.iceberg.uri"), _CONNECTIONS, _TIMEOUT_MS)
    locks = HiveLocks(
        ambient=context.ambient,
        wait_ms_max=_LOCK_POLL_MS_MAX,
        timeout_ms=_LOCK_WAIT_MS_MAX,
        breaks=True,
    )
    return HiveEntries(context=context, client=client, locks=locks, named=named)


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveEntries:
    """`Entries` in a Hive Metastore (`iceberg_entries.py`)."""

    context: TableContext
    client: HiveClient
    locks: HiveLocks
    named: Named

    def point(self, newest: Newest) -> bool:
        found = newest()
        return found is not None and all(
            self._is_at(database, found[0]) or self._point(database, newest)
            for database in self.named.databases
        )

    def forget(self) -> None:
        name = self.named.table
        for database in self.named.databases:
            table = self.client.table(database, name)
            if table is None or not self.named.has_metadata(table.parameters.get(LOCATION)):
                continue
            if not self._is_paimons(table):
                self.client.drop_table(database, name)
                continue
            for key in (LOCATION, _BEFORE):
                table.parameters.pop(key, None)
            table.parameters.update(_PAIMON)
            self._alter(database, table)

    def _is_at(self, database: str, path: str) -> bool:
        table = self.client.table(database, self.named.table)
        return (
            table is not None
            and table.parameters.get(LOCATION) == path
            and table.parameters.get(_TYPE) == _ICEBERG
        )

    def _point(self, database: str, newest: Newest) -> bool:
        name = self.named.table
        # A lock of its own: that of the table's name is held by commits of Paimon's Hive catalog.
        with self.locks.held(self.client, database, f"{name}$iceberg"):
            found = newest()
            if found is None:
                return False
            path, _ = found
            table = self.client.table(database, name)
            if table is None:
                return self._create(database, path)
            self._require_own(table)
            before = table.parameters.get(LOCATION)
            if before not in {None, path}:
                table.parameters[_BEFORE] = before
            table.parameters.update({LOCATION: path, _TYPE: _ICEBERG})
            if not self._is_paimons(table):
                table.sd.cols = [column_of(field) for field in self.context.schema.fields]
            self._alter(database, table)
            # Not so if another process took this one for dead, and went on.
            return newest() == found

    def _create(self, database: str, path: str) -> bool:
        place = path.rsplit("/", 2)[0]
        if self.client.database(database) is None:
            above = types().Database(
                name=database, locationUri=place.rpartition("/")[0], parameters={}
            )
            with suppress(AlreadyExists):
                self.client.create_database(above)
        now_s = self.context.ambient.now_ms() // 1000
        kinds = types()
        table = kinds.Table(
            tableName=self.named.table,
            dbName=database,
            owner=self.locks.user,
            createTime=now_s,
            lastAccessTime=now_s,
            retention=_NEVER,
            sd=kinds.StorageDescriptor(
                location=place,
                cols=[column_of(field) for field in self.context.schema.fields],
                inputFormat="org.apache.hadoop.mapred.FileInputFormat",
                outputFormat="org.apache.hadoop.mapred.FileOutputFormat",
                serdeInfo=kinds.SerDeInfo(
                    serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
                    parameters={},
                ),
                parameters={},
            ),
            partitionKeys=[],
            parameters={
                "EXTERNAL": "TRUE",
                _TYPE: _ICEBERG,
                LOCATION: path,
                **self._statistics(),
            },
            tableType="EXTERNAL_TABLE",
        )
        try:
            self.client.create_table(table)
        except AlreadyExists:
            return False
        return True

    def _alter(self, database: str, table: Table) -> None:
        settings = {"CASCADE": "true", **self._statistics()}
        self.client.alter_table(database, self.named.table, table, settings)

    def _statistics(self) -> dict[str, str]:
        skips = self.context.options.metadata_iceberg_hive_skip_update_stats
        return {"DO_NOT_UPDATE_STATS": str(skips).lower()}

    def _is_paimons(self, table: Table) -> bool:
        """Whether Paimon's Hive catalog has made the entry, for this table."""
        paimons = str(table.sd.inputFormat or "").startswith("org.apache.paimon.")
        stated = table.parameters.get("paimon_location") or table.sd.location
        return paimons and bool(stated) and canonical(locate(stated)) == self.named.root

    def _require_own(self, table: Table) -> None:
        location = table.parameters.get(LOCATION)
        if not self.named.has_metadata(location) and not self._is_paimons(table):
            raise AlreadyExists(
                "the Hive Metastore has another table of that name; drop it there, or set "
                "metadata.iceberg.table",
                table=f"{table.dbName}.{table.tableName}",
                metadata=location,
            )
