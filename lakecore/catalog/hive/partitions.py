"""Keeps the partitions of a table in a Hive Metastore equal to the partitions that have files.

If `metastore.partitioned-table` is set, the metastore holds each partition with its directory. With
`metastore.tag-to-partition`, a table without partition keys has a Hive partition for each tag
instead: a query that names the partition reads the tag. The directory of such a partition does not
exist.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.catalog.hive.client import types
from lakecore.catalog.hive.table_rows import LOCATION, location_of, tag_partition_key
from lakecore.catalog.partition_statistics import partition_statistics, statistics_of
from lakecore.format.partition_path import directories_of
from lakecore.model.manifest import FileKind
from lakecore.plan.partitions import Partitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pymetastore.hive_metastore.ttypes import Partition, Table

    from lakecore.catalog.hive.client import HiveClient
    from lakecore.catalog.identifier import Identifier
    from lakecore.catalog.partition_statistics import PartitionStatistics, Spec
    from lakecore.io.ambient import Ambient
    from lakecore.io.history.history import History
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.publication import SnapshotProposal

__all__ = ["HivePartitions", "specs_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HivePartitions:
    """The partitions of tables in one metastore."""

    client: HiveClient
    ambient: Ambient

    def follow(
        self, name: Identifier, history: History, schema: TableSchema, proposal: SnapshotProposal
    ) -> None:
        """Add the partitions to which a commit added files, and drop those that it emptied."""
        added = {e.partition for e in proposal.delta if e.kind is FileKind.ADD}
        deleted = {e.partition for e in proposal.delta if e.kind is FileKind.DELETE} - added
        if added:
            self._add(name, history, schema, added)
        if deleted and not _has_branches(history):
            live = {e.partition for e in history.live_entries(proposal.snapshot)}
            emptied = specs_of(schema, deleted - live)
            # Null and blank strings have the same spec: another partition with it may have files.
            for spec in emptied - specs_of(schema, live) if emptied else ():
                self.client.drop_partition(name.database, name.table, [text for _, text in spec])

    def copy(
        self, name: Identifier, history: History, schema: TableSchema, snapshot: Snapshot
    ) -> list[Spec]:
        """Add all partitions that have files in a snapshot, and return them."""
        live = {e.partition for e in history.live_entries(snapshot)}
        return self._add(name, history, schema, live) if live else []

    def report(
        self,
        name: Identifier,
        history: History,
        schema: TableSchema,
        snapshot: Snapshot,
        due: Mapping[Spec, int],
    ) -> None:
        """Write the statistics of partitions to their Hive parameters.

        The statistics are sums over the files of the snapshot: `numRows` counts stored rows, before
        a merge. `due` maps a partition to the time of its last change.
        """
        specs = Partitions(schema, schema.parsed_options())
        found = partition_statistics(history.live_entries(snapshot), specs)
        for spec, changed_ms in due.items():
            values = [value for _, value in spec]
            partition = self.client.partition(name.database, name.table, values)
            if partition is not None:
                partition.lastAccessTime = changed_ms // 1000
                stated = _parameters(found.get(spec) or statistics_of(spec, ()), changed_ms)
                partition.parameters = {**(partition.parameters or {}), **stated}
                self.client.alter_statistics(name.database, name.table, partition)

    def follow_tags(
        self,
        name: Identifier,
        history: History,
        schema: TableSchema,
        made: Iterable[str],
        gone: Iterable[str],
    ) -> None:
        """Add a Hive partition for each new tag (`made`); drop those of deleted tags (`gone`)."""
        key = tag_partition_key(schema)
        assert key is not None, "called for tables whose tags are partitions"
        for tag in gone:
            self.client.drop_partition(name.database, name.table, [tag])
        added = [{key: tag} for tag in made]
        if added:
            self._list(name, history, schema, added)

    def move(self, name: Identifier, path: str) -> None:
        """Move the directories of all partitions below `path`, the table's new directory."""
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
    ) -> list[Spec]:
        specs = sorted(specs_of(schema, partitions))
        self._list(name, history, schema, [dict(spec) for spec in specs])
        return specs

    def _list(
        self,
        name: Identifier,
        history: History,
        schema: TableSchema,
        specs: Sequence[Mapping[str, str]],
    ) -> None:
        table = self.client.table(name.database, name.table)
        if table is None:
            return
        root = location_of(table.parameters, table.sd.location) or history.layout.root
        folder = schema.options.get("data-file.path-directory", "").strip("/")
        base = f"{root}/{folder}" if folder else root
        self.client.add_partitions(
            name.database,
            name.table,
            [
                self._partition(name, table, spec, f"{base}/{directories_of(spec)}")
                for spec in specs
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


def specs_of(schema: TableSchema, partitions: Iterable[bytes]) -> set[Spec]:
    """The specs of partitions: a metastore identifies a partition by its spec."""
    specs = Partitions(schema, schema.parsed_options())
    return {tuple(specs.spec(each).items()) for each in partitions}


def _parameters(sums: PartitionStatistics, changed_ms: int) -> dict[str, str]:
    """The Hive parameters of a partition, under the names that Paimon and Hive use."""
    changed_s = str(changed_ms // 1000)
    return {
        "numFiles": str(sums["fileCount"]),
        "totalSize": str(sums["fileSizeInBytes"]),
        "numRows": str(sums["recordCount"]),
        "totalBuckets": str(sums["totalBuckets"]),
        "lastUpdateTime": changed_s,
        "transient_lastDdlTime": changed_s,
    }


def _set_location(partition: Partition, path: str) -> None:
    if LOCATION in (partition.parameters or {}):
        partition.parameters[LOCATION] = path
    else:
        partition.sd.location = path


def _has_branches(history: History) -> bool:
    return any(child.is_directory for child in history.store.list(history.layout.branches_dir))
