"""Names, columns and partitions of tables in a Hive Metastore, stored as by Paimon's Hive catalog.

Names in Hive are in lower case. Views and tables of other engines occupy names, but are neither
read nor changed; `views.py` says which views are Paimon's.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore.catalog.filesystem import DATABASE_SUFFIX
from lakecore.catalog.hive.client import types
from lakecore.catalog.hive.partition_reports import PartitionReports
from lakecore.catalog.hive.partitions import HivePartitions, specs_of
from lakecore.catalog.hive.table_rows import (
    LOCATION,
    is_external,
    is_paimon,
    location_of,
    partition_keys,
    tag_partition_key,
)
from lakecore.catalog.hive.views import HiveViews, is_paimon_view
from lakecore.catalog.metastore import Entry
from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    InvalidRequest,
    LakecoreError,
    NotFound,
)
from lakecore.format.layout import MAIN_BRANCH, Layout
from lakecore.io.history.history import History
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER
from lakecore.plan.tag_periods import coming_tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pymetastore.hive_metastore.ttypes import Table

    from lakecore.catalog.hive.client import HiveClient
    from lakecore.catalog.hive.table_rows import HiveTables
    from lakecore.catalog.identifier import Identifier
    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.table.publication import SnapshotProposal

__all__ = ["HiveLocks", "HiveMetastore"]

_log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9_]{1,128}")
_TABLES_AT_ONCE = 300
_FIRST_WAIT_MS = 50
_TAG_TO_PARTITION = "metastore.tag-to-partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveLocks:
    """How long to wait for a lock (in milliseconds), and the user and host that request it."""

    wait_ms_max: int
    timeout_ms: int
    user: str
    host: str


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
        """The views of the metastore."""
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
        return None if path is None else Entry(path=path, external=is_external(table))

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

    def rename(self, old: Identifier, new: Identifier, path: str) -> bool:
        table = self._paimon_table(old)
        moved = location_of(table.parameters, table.sd.location) != path
        table.dbName, table.tableName = new.database, new.table
        if moved:
            # The metastore does not move the directory of a table with a stated location.
            self.rows.set_location(table, path)
        try:
            self.client.alter_table(old.database, old.table, table, {"DO_NOT_UPDATE_STATS": "true"})
        except InvalidRequest:
            if self.is_taken(new):
                return False
            raise
        if moved and table.partitionKeys:
            self._partitions.move(new, path)
        return True

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
        branch = "" if name.branch == MAIN_BRANCH else f"$branch_{name.branch}"
        lock = self._acquire(self.locks, name.database, f"{name.table}{branch}")
        try:
            yield
        finally:
            try:
                self.client.unlock(lock)
            except LakecoreError as error:
                # Not an error, because the work under the lock is done. The lock will expire.
                _log.warning("lock not released table=%s lock=%d error=%s", name, lock, error)

    def _acquire(self, how: HiveLocks, database: str, table: str) -> int:
        began, wait_ms = self.ambient.now_ms(), _FIRST_WAIT_MS
        lock, held = self.client.lock(database, table, how.user, how.host)
        try:
            while not held:
                waited_ms = self.ambient.now_ms() - began
                if waited_ms > how.timeout_ms:
                    break
                wait_ms = min(wait_ms * 2, how.wait_ms_max)
                self.ambient.sleep(wait_ms / 1000 * (0.5 + self.ambient.random() / 2))
                held = self.client.check_lock(lock)
        finally:
            if not held:
                with suppress(LakecoreError):
                    self.client.unlock(lock)
        if not held:
            raise CommitConflict(
                "other processes hold the lock of the table; try again later",
                table=f"{database}.{table}",
                lock=lock,
                waited_seconds=(self.ambient.now_ms() - began) // 1000,
            )
        return lock

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
