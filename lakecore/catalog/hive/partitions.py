"""Lists a table's partitions in a Hive Metastore when they get files; removes them when emptied.

A table has them if `metastore.partitioned-table` is set. Each is listed with its directory.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.catalog.hive.client import types
from lakecore.catalog.hive.table_rows import LOCATION, location_of
from lakecore.model.manifest import FileKind
from lakecore.plan.partitions import Partitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pymetastore.hive_metastore.ttypes import Partition, Table

    from lakecore.catalog.hive.client import HiveClient
    from lakecore.catalog.identifier import Identifier
    from lakecore.io.ambient import Ambient
    from lakecore.io.history.history import History
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.publication import SnapshotProposal

__all__ = ["HivePartitions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HivePartitions:
    """The partitions of tables in one metastore."""

    client: HiveClient
    ambient: Ambient

    def follow(
        self, name: Identifier, history: History, schema: TableSchema, proposal: SnapshotProposal
    ) -> None:
        """List the partitions that a commit added files to; remove those that it emptied."""
        added = {e.partition for e in proposal.delta if e.kind is FileKind.ADD}
        deleted = {e.partition for e in proposal.delta if e.kind is FileKind.DELETE} - added
        if added:
            self._add(name, history, schema, added)
        if deleted and not _has_branches(history):
            live = {e.partition for e in history.live_entries(proposal.snapshot)}
            specs = Partitions(schema, schema.parsed_options())
            for partition in deleted - live:
                values = list(specs.spec(partition).values())
                self.client.drop_partition(name.database, name.table, values)

    def copy(
        self, name: Identifier, history: History, schema: TableSchema, snapshot: Snapshot
    ) -> None:
        """List all partitions that have files in a snapshot."""
        live = {e.partition for e in history.live_entries(snapshot)}
        if live:
            self._add(name, history, schema, live)

    def move(self, name: Identifier, path: str) -> None:
        """Give all partitions their directories below the new one of their table."""
        partitions = self.client.partitions(name.database, name.table)
        for partition in partitions:
            old = location_of(partition.parameters, partition.sd.location)
            if old is not None:
                tail = old.rstrip("/").split("/")[-len(partition.values) :]
                _set_location(partition, "/".join([path, *tail]))
        if partitions:
            self.client.alter_partitions(name.database, name.table, partitions)

    def _add(
        self,
        name: Identifier,
        history: History,
        schema: TableSchema,
        partitions: Iterable[bytes],
    ) -> None:
        table = self.client.table(name.database, name.table)
        if table is None:
            return
        specs = Partitions(schema, schema.parsed_options())
        root = location_of(table.parameters, table.sd.location) or history.layout.root
        folder = schema.options.get("data-file.path-directory", "").strip("/")
        base = f"{root}/{folder}" if folder else root
        self.client.add_partitions(
            name.database,
            name.table,
            [
                self._partition(name, table, specs.spec(each), f"{base}/{specs.path(each)}")
                for each in sorted(partitions)
            ],
        )

    def _partition(
        self, name: Identifier, table: Table, spec: Mapping[str, str], path: str
    ) -> Partition:
        now = self.ambient.now_ms() // 1000
        partition = types().Partition(
            values=list(spec.values()),
            dbName=name.database,
            tableName=name.table,
            createTime=now,
            lastAccessTime=now,
            sd=copy.deepcopy(table.sd),
            parameters={LOCATION: ""} if LOCATION in table.parameters else {},
        )
        _set_location(partition, path)
        return partition


def _set_location(partition: Partition, path: str) -> None:
    if LOCATION in (partition.parameters or {}):
        partition.parameters[LOCATION] = path
    else:
        partition.sd.location = path


def _has_branches(history: History) -> bool:
    return any(child.is_directory for child in history.store.list(history.layout.branches_dir))
