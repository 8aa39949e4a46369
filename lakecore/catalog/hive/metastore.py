"""Names, columns and partitions of tables in a Hive Metastore, stored as by Paimon's Hive catalog.

Names in Hive are in lower case. Views and tables of other engines occupy names, but are neither
read nor changed; `views.py` says which views are Paimon's.
"""

from __future__ import annotations

import copy
import logging
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakecore.catalog.catalog import Catalog
from lakecore.catalog.file_tables import open_lockable_warehouse
from lakecore.catalog.filesystem import DATABASE_SUFFIX
from lakecore.catalog.hive.views import (
    LOCATION,
    HiveTables,
    HiveViews,
    is_external,
    is_paimon,
    is_paimon_view,
    location_of,
    partition_keys,
    tag_partition_key,
)
from lakecore.catalog.metastore import (
    LEFT,
    Entry,
    PartitionStatistics,
    Spec,
    left_text,
    live_statistics,
    lock_name,
    parse_left,
    statistics_of,
)
from lakecore.catalog.metastore_catalog import MetastoreNames
from lakecore.catalog.options import OptionReader, parse_catalog_options
from lakecore.errors import AlreadyExists, InvalidRequest, LakecoreError, NotFound, Unsupported
from lakecore.format.layout import Layout, directories_of
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.history import History
from lakecore.io.hive.client import HiveClient, parse_hosts, types
from lakecore.io.hive.locks import HiveLocks
from lakecore.io.stores.services import timeouts_of
from lakecore.model.manifest import FileKind
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from lakecore.plan.partitions import Partitions
from lakecore.plan.retention import coming_tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pymetastore.hive_metastore.ttypes import Partition, Table

    from lakecore.catalog.identifier import Identifier
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.table.publication import SnapshotProposal


# --- partition reports ---------------------------------------------------------------------------
# Which partitions are due for a report of their statistics to the metastore.
#
# The option `partition.idle-time-to-report-statistic` switches reports on. The rules are Java's:
#
# - a batch commit at once reports the partitions that it changed, and all pending partitions of the
#   table;
# - a commit of a stream adds the changed partitions to the pending list. When a pending partition
#   has not changed for the idle time, the next commit of the table reports the partition.
#
# NOTE: pending partitions are kept in memory. If the process ends, a partition is reported by its
# next commit, or by `repair`.


class PartitionReports:
    """The pending partitions of tables, with the time of their last change. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed: dict[Identifier, dict[Spec, int]] = {}

    def __reduce__(self) -> tuple[type[PartitionReports], tuple[()]]:
        """Pickled empty, because another process reports its own commits."""
        return PartitionReports, ()

    def due(
        self, name: Identifier, changed: Iterable[Spec], now_ms: int, idle_ms: int, *, batch: bool
    ) -> Mapping[Spec, int]:
        """Add the partitions that a commit changed, then remove and return the partitions due.

        Each partition is returned with the time of its last change. After a batch commit, all
        pending partitions of the table are due.
        """
        with self._lock:
            noted = self._changed.setdefault(name, {})
            noted.update((spec, now_ms) for spec in changed)
            due = {s: ms for s, ms in noted.items() if batch or now_ms - ms > idle_ms}
            for spec in due:
                del noted[spec]
            if not noted:
                del self._changed[name]
        return due

    def put_back(self, name: Identifier, failed: Mapping[Spec, int]) -> None:
        """Add partitions again whose report failed. A newer time of a partition is kept."""
        with self._lock:
            noted = self._changed.setdefault(name, {})
            for spec, changed_ms in failed.items():
                noted.setdefault(spec, changed_ms)


# --- partitions ----------------------------------------------------------------------------------
# Keeps the partitions of a table in a Hive Metastore equal to the partitions that have files.
#
# If `metastore.partitioned-table` is set, the metastore holds each partition with its directory.
# With `metastore.tag-to-partition`, a table without partition keys has a Hive partition for each
# tag instead: a query that names the partition reads the tag. Such a partition has no directory.


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
            live = set(history.live_partitions(proposal.snapshot))
            emptied = specs_of(schema, deleted - live)
            # Null and blank strings have the same spec: another partition with it may have files.
            for spec in emptied - specs_of(schema, live) if emptied else ():
                self.client.drop_partition(name.database, name.table, [text for _, text in spec])

    def copy(
        self, name: Identifier, history: History, schema: TableSchema, snapshot: Snapshot
    ) -> list[Spec]:
        """Add all partitions that have files in a snapshot, and return them."""
        live = set(history.live_partitions(snapshot))
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
        a merge. `due`: by partition, the time of its last change.
        """
        specs = Partitions(schema, schema.parsed_options())
        found = live_statistics(history, snapshot, specs)
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
        """Add a Hive partition for each tag in `made`, and drop one for each tag in `gone`."""
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
    """The specs of partitions, by which a metastore identifies them."""
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


# --- metastore -----------------------------------------------------------------------------------

_log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9_]{1,128}")
_TABLES_AT_ONCE = 300
_TAG_TO_PARTITION = "metastore.tag-to-partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveMetastore:
    """The databases and tables of one metastore (`catalog/metastore.py`)."""

    client: HiveClient
    warehouse: str
    rows: HiveTables
    locks: HiveLocks | None
    cascades: bool
    skips_statistics: bool
    ambient: Ambient
    reports: PartitionReports = field(default_factory=PartitionReports)

    @property
    def case_sensitive(self) -> bool:
        """Always False: Hive stores names in lower case."""
        return False

    @property
    def views(self) -> HiveViews:
        return HiveViews(metastore=self, owner=self.rows.owner)

    # --- databases --------------------------------------------------------------------------------

    def databases(self) -> tuple[str, ...]:
        return tuple(sorted(self.client.databases()))

    def has_database(self, name: str) -> bool:
        return _is_lower(name) and self.client.database(name) is not None

    def check_database_name(self, name: str) -> None:
        _check_name("database", name)

    def check_table_name(self, name: Identifier) -> None:
        _check_name("database", name.database)
        _check_name("table", name.table)

    def check_schema(self, name: Identifier, schema: TableSchema) -> None:
        _check_tag_key(name, schema)

    def add_database(self, name: str) -> bool:
        path = self._default_path(name)
        database = types().Database(name=name, parameters={})
        if self.rows.location_in_properties:
            database.parameters[LOCATION] = path
        else:
            database.locationUri = path
        try:
            self.client.create_database(database)
        except AlreadyExists:
            return False
        return True

    def remove_database(self, name: str) -> None:
        for table in self.all_tables(name):
            if is_paimon_view(table):
                self.client.drop_table(name, table.tableName)
        self.client.drop_database(name)

    def database_path(self, name: str) -> str:
        database = self.client.database(name)
        if database is None:
            return self._default_path(name)
        return location_of(database.parameters, database.locationUri) or self._default_path(name)

    def _default_path(self, name: str) -> str:
        return f"{self.warehouse.rstrip('/')}/{name}{DATABASE_SUFFIX}"

    # --- tables -----------------------------------------------------------------------------------

    def tables(self, database: str) -> tuple[str, ...]:
        return tuple(table.tableName for table in self.all_tables(database) if is_paimon(table))

    def others(self, database: str) -> tuple[str, ...]:
        return tuple(table.tableName for table in self.all_tables(database) if not is_paimon(table))

    def foreign(self, database: str) -> tuple[str, ...]:
        found = self.all_tables(database)
        return tuple(t.tableName for t in found if not is_paimon(t) and not is_paimon_view(t))

    def find(self, name: Identifier) -> Entry | None:
        table = self.any_table(name)
        if table is None or not is_paimon(table):
            return None
        path = location_of(table.parameters, table.sd.location)
        if path is None:
            return None
        left = parse_left((table.parameters or {}).get(LEFT))
        return Entry(path=path, external=is_external(table), left=left)

    def is_taken(self, name: Identifier) -> bool:
        return self.any_table(name) is not None

    def new_path(self, name: Identifier) -> str:
        return f"{self.database_path(name.database)}/{name.table}"

    def add(self, name: Identifier, path: str, schema: TableSchema) -> bool:
        table = self.rows.new_table(name, path, schema, now_ms=self.ambient.now_ms())
        try:
            self.client.create_table(table)
        except AlreadyExists:
            return False
        return True

    def update(self, name: Identifier, schema: TableSchema, before: TableSchema | None) -> None:
        table = self._paimon_table(name)
        self.rows.set_schema(table, schema, before)
        context = {"DO_NOT_UPDATE_STATS": str(self.skips_statistics).lower()}
        if self.cascades:
            context["CASCADE"] = "true"
        self.client.alter_table(name.database, name.table, table, context)

    def remove(self, name: Identifier) -> bool:
        return self.client.drop_table(name.database, name.table)

    def rename(self, old: Identifier, new: Identifier, path: str, *, moves: bool) -> bool:
        table = self._paimon_table(old)
        table.dbName, table.tableName = new.database, new.table
        table.parameters.pop(LEFT, None)
        if moves:
            table.parameters[LEFT] = left_text(old)
        if location_of(table.parameters, table.sd.location) != path:
            # The metastore does not move the directory of a table with a stated location.
            self.rows.set_location(table, path)
        try:
            self.client.alter_table(old.database, old.table, table, {"DO_NOT_UPDATE_STATS": "true"})
        except InvalidRequest:
            if self.is_taken(new):
                return False
            raise
        return True

    def moved(self, name: Identifier) -> None:
        table = self._paimon_table(name)
        path = location_of(table.parameters, table.sd.location)
        if table.partitionKeys and path is not None:
            self._partitions.move(name, path)
        if table.parameters.pop(LEFT, None) is not None:
            context = {"DO_NOT_UPDATE_STATS": "true"}
            self.client.alter_table(name.database, name.table, table, context)

    def after_commit(
        self, name: Identifier, store: Store, layout: Layout, proposal: SnapshotProposal
    ) -> None:
        try:
            history = History(store, layout)
            schema = history.schema(proposal.snapshot.schema_id)
            if partition_keys(schema):
                self._partitions.follow(name, history, schema, proposal)
                self._report(name, history, schema, proposal)
            watermark = proposal.snapshot.watermark
            tag = coming_tag(schema.parsed_options(), self.ambient.now_ms(), watermark)
            if tag_partition_key(schema) is not None and tag is not None:
                self._partitions.follow_tags(name, history, schema, made=[tag], gone=())
        except (LakecoreError, OSError) as error:
            _log.warning("partitions not copied table=%s error=%s", name, error)

    def after_tags(
        self, name: Identifier, history: History, made: Sequence[str], gone: Sequence[str]
    ) -> None:
        try:
            schema = history.latest_schema()
            if schema is not None and tag_partition_key(schema) is not None:
                self._partitions.follow_tags(name, history, schema, made, gone)
        except (LakecoreError, OSError) as error:
            _log.warning("tags not copied table=%s error=%s", name, error)

    def repair_partitions(self, name: Identifier, store: Store, path: str) -> None:
        history = History(store, Layout(root=path))
        schema, snapshot = history.latest_schema(), history.latest_snapshot()
        if schema is None:
            return
        if snapshot is not None and partition_keys(schema):
            specs = self._partitions.copy(name, history, schema, snapshot)
            if _idle_ms(schema) > 0:
                due = dict.fromkeys(specs, self.ambient.now_ms())
                self._partitions.report(name, history, schema, snapshot, due)
        if tag_partition_key(schema) is not None:
            self._partitions.follow_tags(name, history, schema, history.tag_names(), gone=())

    def _report(
        self, name: Identifier, history: History, schema: TableSchema, proposal: SnapshotProposal
    ) -> None:
        """Report the statistics of the partitions that are due after a commit."""
        idle_ms = _idle_ms(schema)
        if idle_ms <= 0:
            return
        changed = specs_of(schema, {each.partition for each in proposal.delta})
        batch = proposal.snapshot.commit_identifier == BATCH_COMMIT_IDENTIFIER
        due = self.reports.due(name, changed, self.ambient.now_ms(), idle_ms, batch=batch)
        if not due:
            return
        try:
            self._partitions.report(name, history, schema, proposal.snapshot, due)
        except (LakecoreError, OSError):
            self.reports.put_back(name, due)
            raise

    # --- locks ------------------------------------------------------------------------------------

    @contextmanager
    def lock(self, name: Identifier) -> Iterator[None]:
        if self.locks is None:
            yield
            return
        with self.locks.held(self.client, name.database, lock_name(name)):
            yield

    # --- finding ----------------------------------------------------------------------------------

    @property
    def _partitions(self) -> HivePartitions:
        return HivePartitions(client=self.client, ambient=self.ambient)

    def all_tables(self, database: str) -> list[Table]:
        """All tables and views of a database, sorted by name."""
        names = sorted(self.client.table_names(database))
        return sorted(
            (
                table
                for first in range(0, len(names), _TABLES_AT_ONCE)
                for table in self.client.tables(database, names[first : first + _TABLES_AT_ONCE])
            ),
            key=lambda table: str(table.tableName),
        )

    def any_table(self, name: Identifier) -> Table | None:
        """The metastore's form of a table or view; None if there is none."""
        if not _is_lower(name.database) or not _is_lower(name.table):
            return None
        return self.client.table(name.database, name.table)

    def _paimon_table(self, name: Identifier) -> Table:
        table = self.any_table(name)
        if table is None or not is_paimon(table):
            raise NotFound("the metastore lists no Paimon table of that name", table=name)
        return table


def _idle_ms(schema: TableSchema) -> int:
    """How long a partition must be idle until its statistics are reported; 0 for never."""
    return schema.parsed_options().partition_idle_time_to_report_statistic_ms


def _is_lower(name: str) -> bool:
    """Whether the name is in lower case. For another name, Hive would find the lower-case one."""
    return name == name.lower()


def _check_tag_key(name: Identifier, schema: TableSchema) -> None:
    """Raise InvalidRequest if tags cannot be partitions of the table."""
    key = tag_partition_key(schema)
    if key is None:
        return
    if schema.partition_keys:
        raise InvalidRequest(
            "a table with partition keys cannot list its tags as partitions",
            table=name,
            option=_TAG_TO_PARTITION,
            partition_keys=schema.partition_keys,
        )
    if not key.strip() or key.lower() in {each.lower() for each in schema.names}:
        raise InvalidRequest(
            "the partition key of tags is a name that no column has",
            table=name,
            option=_TAG_TO_PARTITION,
            value=key,
        )


def _check_name(what: str, name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"the name of a {what} in a Hive Metastore has lower-case letters, digits and `_`",
            name=name,
        )


# --- open ----------------------------------------------------------------------------------------
# Opens a Hive catalog by its options.

_KEYS = (
    "uri",
    "alter-table-cascade",
    "case-sensitive",
    "client-pool-size",
    "hive.metastore.client.socket.timeout",
    "hive.skip-update-stats",
    "location-in-properties",
    "lock.enabled",
    "lock-check-max-sleep",
    "lock-acquire-timeout",
    "sync-all-properties",
    "table.type",
)


def open_hive(given: Mapping[str, str], *, create: bool, ambient: Ambient = SYSTEM) -> Catalog:
    """Open the catalog. Raises NotFound for a missing warehouse, unless `create` is set."""
    stated = parse_catalog_options(given, own=_KEYS)
    read = OptionReader(given)
    if read.flag("case-sensitive", default=False):
        raise Unsupported("a Hive Metastore ignores the case of names", option="case-sensitive")
    kind = read.text("table.type", "managed").lower()
    if kind not in {"managed", "external"}:
        raise InvalidRequest("a table is managed or external", option="table.type", value=kind)
    client = HiveClient(
        parse_hosts(given.get("uri", "")),
        read.integer("client-pool-size", 2, least=1),
        read.duration_ms("hive.metastore.client.socket.timeout", "10 min"),
        timeouts_of(given).connect,
    )
    client.check()
    warehouse, store, locked = open_lockable_warehouse(
        stated.warehouse, stated.texts, create=create
    )
    locks = HiveLocks(
        wait_ms_max=read.duration_ms("lock-check-max-sleep", "8 s"),
        timeout_ms=read.duration_ms("lock-acquire-timeout", "8 min"),
        ambient=ambient,
    )
    metastore = HiveMetastore(
        client=client,
        warehouse=warehouse,
        rows=HiveTables(
            copies_properties=read.flag("sync-all-properties", default=True),
            location_in_properties=read.flag("location-in-properties", default=False),
            external=kind == "external",
            owner=locks.user,
        ),
        locks=locks if locked else None,
        cascades=read.flag("alter-table-cascade", default=True),
        skips_statistics=read.flag("hive.skip-update-stats", default=False),
        ambient=ambient,
    )
    client.databases()  # raises an error now if the address is wrong
    options = replace(stated, warehouse=warehouse)
    return Catalog(MetastoreNames(warehouse, store, options, metastore, ambient))
