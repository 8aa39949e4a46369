"""How a snapshot or a schema of a table becomes visible: one frozen value in the table's context.

A committer prepares everything else, and then makes one call: `publish_snapshot`. The call has four
outcomes, and a committer must handle each:

- `Published`: readers see the snapshot;
- `LostRace`: another snapshot has taken the number, or had it and has expired. Begin again from the
  newest snapshot;
- `Refused`: the snapshot is not visible and never will be. Clean up, and raise the error;
- `Unknown`: the reply was lost, and the outcome cannot be determined. Delete nothing.

Three kinds of `Publication` exist; no caller has to know which one it has:

- `ExclusiveCreate` creates the file of the snapshot, unless it exists;
- a catalog with locks does the same while it holds the lock of the table;
- a catalog whose server owns the snapshots sends the proposal to the server.

A `Publication` also opens the `History`, by which readers see what was published. It lists the
files in a directory, or asks the server for the newest snapshot and schema.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lakecore.errors import CommitUnknown, CorruptTable, InvalidRequest, LakecoreError, NotFound
from lakecore.format import metadata
from lakecore.io.history import History

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.format.layout import Layout
    from lakecore.io.stores.store import Store
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.schema import TableSchema
    from lakecore.model.schema_change import Change
    from lakecore.model.snapshot import Snapshot
    from lakecore.rows.read_rules_json import StatedRules


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotProposal:
    """A snapshot to make visible: its bytes, the snapshot before it, and its file changes."""

    snapshot: Snapshot
    data: bytes
    base: Snapshot | None
    delta: Iterable[ManifestEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaProposal:
    """A schema to make the newest one, and its changes to the schema before it."""

    schema: TableSchema
    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class Published:
    """An outcome: the snapshot is published, so readers see it."""


@dataclass(frozen=True, slots=True)
class LostRace:
    """An outcome: another snapshot already has the number, or had it and has expired.

    `was_stored`: the snapshot existed for a moment below EARLIEST. An expiry may have found it, and
    delete the metadata files that it names.
    """

    was_stored: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The snapshot is certainly not visible, and never will be."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Unknown:
    """It cannot be determined now whether the snapshot is visible."""

    error: Exception


Outcome: TypeAlias = Published | LostRace | Refused | Unknown


class References(Protocol):
    """Changes tags, branches and the newest snapshot where a server owns them.

    Each method raises the errors of the verb that calls it.
    """

    def create_tag(self, branch: str, name: str, snapshot_id: int, retained: str | None) -> None:
        """Create a tag; `retained` is its time to live (`"1000 ms"`), None means for ever."""

    def delete_tag(self, branch: str, name: str) -> None:
        """Delete a tag."""

    def create_branch(self, name: str, tag: str | None) -> None:
        """Create a branch from a tag; without a tag, the branch has no rows."""

    def delete_branch(self, name: str) -> None:
        """Delete a branch."""

    def fast_forward(self, name: str) -> None:
        """Give `main` the state of the branch."""

    def rollback(self, branch: str, snapshot_id: int, tag: str | None) -> None:
        """Make an earlier snapshot the newest one again; `tag` is the tag that keeps it, if any."""


class ReadAccess(Protocol):
    """Knows which rows and values of a table the reader may see."""

    def rules(self, branch: str, columns: Sequence[str]) -> StatedRules:
        """The row filters and column masks for a read of these columns, as they are now.

        Raises the catalog's error if the reader may not read one of the columns.
        """


class Publication(Protocol):
    """Makes snapshots and schemas of one table, or of one of its branches, visible."""

    @property
    def access(self) -> ReadAccess | None:
        """The row filters and column masks of the catalog; None if it states none."""

    @property
    def references(self) -> References | None:
        """The server's calls for tags and branches; None if these are files of the table."""

    def history(self, store: Store, layout: Layout) -> History:
        """The snapshots and schemas that readers see, with empty caches."""

    def publish_snapshot(self, store: Store, layout: Layout, proposal: SnapshotProposal) -> Outcome:
        """Make the snapshot visible if its number is free. A failure is returned, not raised."""

    def publish_schema(self, store: Store, layout: Layout, proposal: SchemaProposal) -> bool:
        """Make the schema the newest; False if another writer was first."""

    def write_hints(self, history: History, snapshot: Snapshot) -> None:
        """Write the hints by which readers find a published snapshot. Never fails."""

    def note_tags(
        self, history: History, *, made: Sequence[str] = (), gone: Sequence[str] = ()
    ) -> None:
        """Copy new and deleted tags to a catalog that lists tags. Never fails."""


@dataclass(frozen=True, slots=True)
class ExclusiveCreate:
    """A snapshot or schema is visible as soon as its file exists; only one writer can create it."""

    access: ReadAccess | None = None

    @property
    def references(self) -> References | None:
        """Always None: tags and branches are files."""
        return None

    def history(self, store: Store, layout: Layout) -> History:
        """The history that lists files."""
        return History(store, layout)

    def publish_snapshot(self, store: Store, layout: Layout, proposal: SnapshotProposal) -> Outcome:
        """Create the snapshot file by one call.

        If that fails, a second call reads what was stored. If it succeeds, a second call checks
        that the snapshot follows its base: the base was not rolled back meanwhile, and the number
        was free because nobody had used it, not because its snapshot has expired.
        """
        path = layout.snapshot(proposal.snapshot.id)
        try:
            made = store.put_if_absent(path, proposal.data)
        except (LakecoreError, OSError) as error:
            # The reply was lost, or the store refused. The stored file, if readable, decides.
            try:
                there = metadata.decode_snapshot(store.read(path), path)
            except (LakecoreError, OSError) as unread:
                said_no = isinstance(error, LakecoreError) and not isinstance(error, CommitUnknown)
                if said_no and isinstance(unread, NotFound):
                    return Refused(error)
                return Unknown(error)
            made = there.uuid == proposal.snapshot.uuid
        if not made:
            return LostRace()
        try:
            if _follows_its_base(self.history(store, layout), proposal):
                return Published()
            store.delete(path)
        except (LakecoreError, OSError) as error:
            return Unknown(error)
        return LostRace(was_stored=True)

    def publish_schema(self, store: Store, layout: Layout, proposal: SchemaProposal) -> bool:
        """Create the schema file by one call to the store."""
        return write_schema(store, layout, proposal.schema)

    def write_hints(self, history: History, snapshot: Snapshot) -> None:
        """Write the hint LATEST, and EARLIEST if it is missing.

        Hints only save readers a listing.
        """
        # A hint that cannot be written must not fail a commit that everybody can see.
        with suppress(LakecoreError, OSError):
            history.store.put(history.layout.latest_hint, str(snapshot.id).encode())
            history.keep_earliest_hint(snapshot.id)

    def note_tags(
        self, history: History, *, made: Sequence[str] = (), gone: Sequence[str] = ()
    ) -> None:
        """Does nothing: tags are listed by their files."""


EXCLUSIVE_CREATE = ExclusiveCreate()


def _follows_its_base(history: History, proposal: SnapshotProposal) -> bool:
    """Whether a snapshot that was just stored follows the newest one, as its writer took it to be.

    Usually one look says so: the base is still there. Snapshots expire in their order, so the
    number after it was not used and deleted meanwhile.
    """
    base = proposal.base
    there = None if base is None else history.snapshot_if_there(base.id)
    if base is not None and there is not None:
        return base.is_same(there)  # if not: a rollback, and then another commit
    # An expiry moves EARLIEST before it deletes a snapshot, so this look cannot miss it.
    if history.has_expired(proposal.snapshot.id):
        return False
    if base is None:
        return True
    # Has the base expired? Then LATEST names it, or a later one. A rollback moves LATEST below it,
    # and a dropped table has no hints. If in doubt, the snapshot stays: it may be the only one.
    latest = history.latest_hint()
    if latest is not None and latest >= base.id:
        return True
    is_first = history.snapshot_ids()[:1] == (proposal.snapshot.id,)
    return is_first and history.earliest_hint() is not None


def write_schema(store: Store, layout: Layout, schema: TableSchema) -> bool:
    """Create a schema file where none exists; False if another writer was first."""
    path, data = layout.schema(schema.id), metadata.encode_schema(schema)
    try:
        metadata.decode_schema(data, path)
    except CorruptTable as error:
        # For example, a comment is a number. Once stored, the table could never be opened.
        raise InvalidRequest("the schema holds a value of the wrong type", why=error) from error
    return store.put_if_absent(path, data)
