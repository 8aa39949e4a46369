"""Snapshots and schemas of a table that a REST server owns.

https://paimon.apache.org/docs/master/concepts/rest/overview/

The server decides which snapshot is next; the client writes manifests and data files, and sends the
snapshot. The newest snapshot and schema are read from the server; older ones from the files of the
table, or else from the server.

INVARIANT: a commit whose reply is lost is looked up by the uuid of its snapshot, never sent again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.catalog.partition_statistics import partition_statistics
from lakecore.catalog.rest.http_client import Refusal, ReplyLost
from lakecore.catalog.rest.served_access import ServedAccess
from lakecore.errors import CorruptTable, LakecoreError, NotFound
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.history.history import History
from lakecore.table.publication import (
    LostRace,
    Outcome,
    Published,
    Refused,
    SchemaProposal,
    SnapshotProposal,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.catalog.rest.served_references import ServedReferences
    from lakecore.catalog.rest.served_table import Described, ServedTable
    from lakecore.format.layout import Layout
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.plan.partitions import Partitions

__all__ = ["ServedHistory", "ServedPublication"]

_BUSY = (409, 429, 503)
"""The status codes of a server that did not commit: another commit is running, a lease is held, or
the server is busy."""


class ServedHistory(History):
    """The history of a table. A server provides its newest snapshot and schema."""

    def __init__(self, store: Store, layout: Layout, table: ServedTable, table_id: str) -> None:
        super().__init__(store, layout)
        self._table = table
        self._table_id = table_id

    def _describe(self) -> Described | None:
        described = self._table.describe()
        # Another id means that the table was dropped, and another one created under its name.
        return described if described is not None and described.id == self._table_id else None

    def schema_ids(self) -> tuple[int, ...]:
        """The numbers of all schemas, ascending; empty if the table is gone."""
        described = self._describe()
        if described is None:
            return ()
        newest = described.schema.id
        return (*(found for found in super().schema_ids() if found < newest), newest)

    def latest_schema(self) -> TableSchema | None:
        """The schema that the server states; None if the table is gone."""
        described = self._describe()
        return None if described is None else self._as_stored(described.schema)

    def still_holds(self, schema: TableSchema) -> bool:
        """Whether the table is still the one that was opened."""
        del schema
        return self._describe() is not None

    def _as_stored(self, stated: TableSchema) -> TableSchema:
        """The schema that the server stated, completed from its schema file if the two agree.

        Only the file has the highest field id, the time and the version.
        """
        with suppress(CorruptTable):
            stored = self.schema(stated.id)
            same = replace(
                stated,
                highest_field_id=stored.highest_field_id,
                time_ms=stored.time_ms,
                version=stored.version,
            )
            if replace(stored, options=stated.options) == same:
                return same
        return stated

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot, read from the server."""
        return self._table.latest_snapshot()

    def latest_snapshot_id(self) -> int | None:
        """The number of the newest snapshot; None if nothing was committed."""
        latest = self.latest_snapshot()
        return None if latest is None else latest.id

    def latest_after(self, before: Snapshot | None) -> Snapshot | None:
        """The newest snapshot. `before` is unused: the server is always asked."""
        del before
        return self.latest_snapshot()

    def snapshot_ids(self) -> tuple[int, ...]:
        """The numbers of all live snapshots, ascending.

        They come from the snapshot files; if the newest one has no file, from the server.
        """
        latest = self.latest_snapshot_id()
        if latest is None:
            return ()
        stored = tuple(found for found in super().snapshot_ids() if found <= latest)
        return stored if latest in stored else self._table.snapshot_ids()

    def earliest_snapshot_id(self) -> int | None:
        """The smallest live snapshot id; None if nothing was committed."""
        return min(self.snapshot_ids(), default=None)

    def _read_snapshot(self, snapshot_id: int) -> Snapshot:
        try:
            return super()._read_snapshot(snapshot_id)
        except NotFound:
            found = self._table.snapshot(str(snapshot_id))
            if found is None or found.id != snapshot_id:
                raise
            return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPublication:
    """Makes snapshots and schemas visible by requests to the server."""

    table: ServedTable
    table_id: str
    partitions: Partitions
    references: ServedReferences
    ambient: Ambient = SYSTEM

    @property
    def access(self) -> ServedAccess:
        """The row filters and column masks that the server states."""
        return ServedAccess(self.table)

    def history(self, store: Store, layout: Layout) -> History:
        """A history that reads the newest snapshot and schema from the server."""
        return ServedHistory(store, layout, self.table.on_branch(layout.branch), self.table_id)

    def publish_snapshot(self, store: Store, layout: Layout, proposal: SnapshotProposal) -> Outcome:
        """Commit by one request.

        If its reply is lost or unclear, look for the snapshot at the server.
        """
        del store
        table = self.table.on_branch(layout.branch)
        base_uuid = None if proposal.base is None else proposal.base.uuid
        statistics = partition_statistics(proposal.delta, self.partitions).values()
        try:
            done = table.commit(self.table_id, base_uuid, proposal.snapshot, statistics)
        except Refusal as refusal:
            error = refusal.as_error(table=table.name, snapshot_id=proposal.snapshot.id)
            if refusal.code in _BUSY:
                self.ambient.sleep(refusal.retry_after or 0)
                return self._looked_up(table, proposal.snapshot, error) or LostRace()
            if refusal.code < 500 or refusal.code == 501:
                return Refused(error)
            return self._looked_up(table, proposal.snapshot, error) or Unknown(error)
        except ReplyLost as lost:
            return self._looked_up(table, proposal.snapshot, lost) or Unknown(lost)
        except LakecoreError as error:
            return Refused(error)
        return Published() if done else LostRace()

    def _looked_up(
        self, table: ServedTable, snapshot: Snapshot, error: LakecoreError
    ) -> Outcome | None:
        """The outcome of a commit, according to the snapshots that the server has now.

        None if it has no snapshot of that number.
        """
        try:
            latest = table.latest_snapshot()
            if latest is None or latest.id < snapshot.id:
                return None
            found = latest if latest.id == snapshot.id else table.snapshot(str(snapshot.id))
        except (LakecoreError, OSError):
            return Unknown(error)
        if found is None:
            return Unknown(error)
        return Published() if found.uuid == snapshot.uuid else LostRace()

    def publish_schema(self, store: Store, layout: Layout, proposal: SchemaProposal) -> bool:
        """Change the schema by one request.

        False if the number of the new schema belongs to another writer's schema, or if the server
        has no schema of that number after the request.
        """
        table = self.table.on_branch(layout.branch)
        history = self.history(store, layout)
        before = history.latest_schema()
        if before is not None and before.id >= proposal.schema.id:
            return False
        try:
            table.alter(proposal.changes)
        except Refusal as refusal:
            raise refusal.as_error(table=table.name) from None
        now = history.latest_schema()
        return now is not None and now.id >= proposal.schema.id

    def write_hints(self, history: History, snapshot: Snapshot) -> None:
        """Does nothing: the server states the newest snapshot."""

    def note_tags(
        self, history: History, *, made: Sequence[str] = (), gone: Sequence[str] = ()
    ) -> None:
        """Does nothing: the server owns the tags."""
