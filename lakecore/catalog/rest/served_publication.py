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

from lakecore.catalog.identifier import BRANCH_MARK, MAIN_BRANCH, SPLITTER, Identifier
from lakecore.catalog.metastore import PartitionStatistics, partition_statistics
from lakecore.catalog.rest.http_client import Refusal, ReplyLost, RestClient, encoded
from lakecore.catalog.rest.wire import (
    Json,
    change_to_json,
    schema_from_json,
    snapshot_from_json,
    snapshot_to_json,
)
from lakecore.errors import CorruptTable, LakecoreError, NotFound
from lakecore.format.layout import Layout, canonical
from lakecore.io.ambient import SYSTEM, Ambient
from lakecore.io.history import History
from lakecore.rows.read_rules_json import StatedRules
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
    from collections.abc import Iterable, Sequence

    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change
    from lakecore.model.snapshot import Snapshot
    from lakecore.plan.partitions import Partitions


# --- served access -------------------------------------------------------------------------------
# The rows and columns of a table that a user may read, as a REST server states them.


@dataclass(frozen=True, slots=True)
class ServedAccess:
    """The row filters and column masks of a table, which each read requests from the server."""

    table: ServedTable

    def rules(self, branch: str, columns: Sequence[str]) -> StatedRules:
        """The rules for a read of these columns.

        Raises StorageError if the user may not read the columns, Unsupported if the server states
        no rules.
        """
        table = self.table.on_branch(branch)
        reply = table.ask("POST", "auth", {"select": list(columns)})
        filters, masks = reply.get("filter") or [], reply.get("columnMasking") or {}
        if (
            not isinstance(filters, list)
            or not isinstance(masks, dict)
            or not all(isinstance(each, str | None) for each in (*filters, *masks.values()))
        ):
            raise CorruptTable(
                "the server states who may read the table in a form that is not known",
                table=table.name,
            )
        # As in Java, null and an empty string mean that there is no rule.
        return StatedRules(
            tuple(filter(None, filters)), {name: text for name, text in masks.items() if text}
        )


# --- served references ---------------------------------------------------------------------------
# Tags, branches and rollbacks of a table on a REST server. Each method sends one request.


@dataclass(frozen=True, slots=True)
class ServedReferences:
    """Asks the server for changes of tags, branches and the newest snapshot."""

    table: ServedTable

    def create_tag(self, branch: str, name: str, snapshot_id: int, retained: str | None) -> None:
        body = {"tagName": name, "snapshotId": snapshot_id, "timeRetained": retained}
        self.table.on_branch(branch).ask("POST", "tags", body)

    def delete_tag(self, branch: str, name: str) -> None:
        self.table.on_branch(branch).ask("DELETE", f"tags/{encoded(name)}")

    def create_branch(self, name: str, tag: str | None) -> None:
        """Create a branch from a tag, or without rows."""
        self.table.ask("POST", "branches", {"branch": name, "fromTag": tag})

    def delete_branch(self, name: str) -> None:
        self.table.ask("DELETE", f"branches/{encoded(name)}")

    def fast_forward(self, name: str) -> None:
        """Replace `main` by the branch."""
        self.table.ask("POST", f"branches/{encoded(name)}/forward", {})

    def rollback(self, branch: str, snapshot_id: int, tag: str | None) -> None:
        """Make an earlier snapshot the newest one again. `tag`: the tag that keeps it, if any."""
        instant: dict[str, object] = {"type": "snapshot", "snapshotId": snapshot_id}
        if tag is not None:
            # If the snapshot has expired, only the tag names it.
            instant = {"type": "tag", "tagName": tag}
        self.table.on_branch(branch).ask("POST", "rollback", {"instant": instant})


# --- served table --------------------------------------------------------------------------------
# One table of a REST server: its address, and the requests about it.
#
# A branch has its own address: `t$branch_b1`.

_PATH = "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The server's description of a table. Another table of the same name has another `id`."""

    id: str
    path: str
    is_external: bool
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class ServedTable:
    """A table or branch of a server."""

    client: RestClient
    root: str
    name: Identifier

    @property
    def address(self) -> str:
        """The path of the table's own resource."""
        database = database_path(self.root, self.name.database)
        return f"{database}/tables/{encoded(object_name(self.name))}"

    def on_branch(self, branch: str) -> ServedTable:
        """The same table on a branch, or on `main`."""
        name = Identifier(database=self.name.database, table=self.name.table, branch=branch)
        return ServedTable(self.client, self.root, name)

    def describe(self) -> Described | None:
        """Id, path and newest schema; None if the server has no such table."""
        reply = self.client.answer("GET", self.address, absent=(404,), table=self.name)
        return None if reply is None else described(reply, str(self.name))

    def alter(self, changes: Sequence[Change]) -> None:
        """Apply schema changes. Raises `Refusal`."""
        body = {"changes": [change_to_json(change) for change in changes]}
        self.client.post(self.address, body, retries=False)

    def commit(
        self,
        table_id: str,
        base_uuid: str | None,
        snapshot: Snapshot,
        statistics: Iterable[PartitionStatistics],
    ) -> bool:
        """Ask the server to commit a snapshot.

        Returns False if another commit was first. Raises `Refusal`.
        """
        body = {
            "tableId": table_id,
            "baseSnapshotUuid": base_uuid,
            "snapshot": snapshot_to_json(snapshot),
            "statistics": list(statistics),
        }
        # INVARIANT: a commit is sent once. If the outcome is unknown, the snapshot is looked up.
        reply = self.client.post(f"{self.address}/commit", body, retries=False)
        return reply.get("success") is True

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot; None if nothing was committed.

        Raises NotFound if the table is gone.
        """
        reply = self._snapshot("snapshot")
        if reply is None:
            return None
        table_snapshot = reply.get("snapshot")
        inner = table_snapshot.get("snapshot") if isinstance(table_snapshot, dict) else None
        return snapshot_from_json(inner, f"{self.address}/snapshot")

    def snapshot(self, version: str) -> Snapshot | None:
        """The snapshot of a number or tag; None if there is none.

        Raises NotFound if the table is gone.
        """
        place = f"snapshots/{encoded(version)}"
        reply = self._snapshot(place)
        if reply is None:
            return None
        return snapshot_from_json(reply.get("snapshot"), f"{self.address}/{place}")

    def _snapshot(self, place: str) -> Json | None:
        try:
            return self.client.get(f"{self.address}/{place}")
        except Refusal as refusal:
            if refusal.code == 404 and refusal.resource == "SNAPSHOT":
                return None
            raise refusal.as_error(table=self.name) from None

    def snapshot_ids(self) -> tuple[int, ...]:
        """The numbers of all live snapshots, ascending."""
        where = f"{self.address}/snapshots"
        try:
            found = list(self.client.pages(where, "snapshots"))
        except Refusal as refusal:
            raise refusal.as_error(table=self.name) from None
        return tuple(sorted(snapshot_from_json(each, where).id for each in found))

    def ask(self, method: str, place: str, body: object = None) -> Json:
        """The reply to a request below the table's address. Raises only errors of lakecore."""
        reply = self.client.answer(method, f"{self.address}/{place}", body, table=self.name)
        assert reply is not None, "no code stands for an absent reply"
        return reply

    def __repr__(self) -> str:
        return f"ServedTable({self.name})"


def described(reply: Json, name: str) -> Described:
    """Parse the server's description of a table. Raises CorruptTable if parts are missing."""
    try:
        schema_id, path = reply["schemaId"], reply["path"]
        schema = schema_from_json(reply["schema"], schema_id, reply.get("updatedAt") or 0)
        table_id, external = reply["id"], bool(reply.get("isExternal", False))
    except (KeyError, TypeError) as error:
        raise CorruptTable(
            "the server's description of a table is incomplete", table=name, part=error
        ) from error
    if not isinstance(path, str) or not isinstance(table_id, str):
        raise CorruptTable("the server gives the table no path or id", table=name)
    # The server adds the path of the table as an option; the schema file does not have it.
    options = {key: text for key, text in schema.options.items() if key != _PATH}
    return Described(
        id=table_id,
        path=canonical(path).rstrip("/"),
        is_external=external,
        schema=replace(schema, options=options),
    )


def database_path(root: str, database: str) -> str:
    """The path of a database's resource."""
    return f"{root}/databases/{encoded(database)}"


def object_name(name: Identifier) -> str:
    """The name of a table or branch within its database."""
    if name.branch == MAIN_BRANCH:
        return name.table
    return f"{name.table}{SPLITTER}{BRANCH_MARK}{name.branch}"


# --- served publication --------------------------------------------------------------------------

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
        # Another id means that the table was dropped, and a new table got its name.
        return described if described is not None and described.id == self._table_id else None

    def schema_ids(self) -> tuple[int, ...]:
        """The numbers of all schemas, ascending; empty if the table is gone."""
        described = self._describe()
        if described is None:
            return ()
        newest = described.schema.id
        return (*(found for found in super().schema_ids() if found < newest), newest)

    def newest_schema_id(self, known: int) -> int | None:
        """The id of the schema that the server states; None if the table is gone."""
        del known
        described = self._describe()
        return None if described is None else described.schema.id

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
        return self._table.latest_snapshot()

    def latest_snapshot_id(self) -> int | None:
        """The number of the newest snapshot; None if nothing was committed."""
        latest = self.latest_snapshot()
        return None if latest is None else latest.id

    def latest_after(self, before: Snapshot | None) -> Snapshot | None:
        """The newest snapshot, always from the server; `before` is unused."""
        del before
        return self.latest_snapshot()

    def snapshot_ids(self) -> tuple[int, ...]:
        """The numbers of all live snapshots, ascending.

        The source is the snapshot files, or the server if the newest snapshot has no file.
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

        If the reply is lost or unclear, look for the snapshot at the server.
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

        None if the server has no snapshot of that number.
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
