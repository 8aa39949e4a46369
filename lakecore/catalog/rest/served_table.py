"""One table of a REST server: its address, and the requests about it.

A branch has its own address: `t$branch_b1`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.catalog.identifier import BRANCH_MARK, MAIN_BRANCH, SPLITTER, Identifier
from lakecore.catalog.rest.http_client import Refusal, RestClient, encoded
from lakecore.catalog.rest.wire import (
    Json,
    change_to_json,
    schema_from_json,
    snapshot_from_json,
    snapshot_to_json,
)
from lakecore.errors import CorruptTable
from lakecore.format.locations import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.catalog.partition_statistics import PartitionStatistics
    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change
    from lakecore.model.snapshot import Snapshot

__all__ = ["Described", "ServedTable", "database_path", "object_name"]

_PATH = "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The server's description of a table. A table that is created again has another `id`."""

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
        try:
            reply = self.client.get(self.address)
        except Refusal as refusal:
            if refusal.code == 404:
                return None
            raise refusal.as_error(table=self.name) from None
        return described(reply, str(self.name))

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

        False if another commit was first. Raises `Refusal`.
        """
        body = {
            "tableId": table_id,
            "baseSnapshotUuid": base_uuid,
            "snapshot": snapshot_to_json(snapshot),
            "statistics": list(statistics),
        }
        # INVARIANT: a commit is sent once. If its outcome is unknown, its snapshot is looked up.
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
        try:
            return self.client.send(method, f"{self.address}/{place}", body=body)
        except Refusal as refusal:
            raise refusal.as_error(table=self.name) from None

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
            "the server describes a table by half", table=name, part=error
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
