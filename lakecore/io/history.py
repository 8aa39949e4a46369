"""The versions of a table: its snapshots, schemas and files, read once and kept."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from lakecore.errors import KEPT_LONGER, CorruptTable, LakecoreError, NotFound, StorageError
from lakecore.format import metadata
from lakecore.format.layout import DROPPED_MARK, MAIN_BRANCH, Layout, parse_numbered
from lakecore.format.manifest_files import decode_entries
from lakecore.io.cache import Cache
from lakecore.io.dropped_mark import hides
from lakecore.io.live_files import ENTRY_BYTES, LiveColumns, ManifestCache, facts_of
from lakecore.io.parallel import READERS, read_all
from lakecore.io.stores.guarded import unguarded
from lakecore.io.stores.store import NEAR_AT_ONCE, FileStatus, Store, has_file
from lakecore.model.manifest import (
    IndexEntry,
    LiveFiles,
    ManifestEntry,
    ManifestFile,
    TableStatistics,
    fold_onto,
)
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot, Tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import polars as pl

    from lakecore.format.entry_columns import Wanted
    from lakecore.model.files import IndexFile
    from lakecore.model.schema import TableSchema

    Read = Callable[[int], Snapshot | None]


# --- commits -------------------------------------------------------------------------------------
# A cache of the newest snapshots of a table, to look up who committed under which identifier.
#
# A job that numbers its commits looks up its last one before each commit, and a committer that lost
# a race looks up the snapshots before it. Reading all snapshots each time would make every commit
# slower than the one before, and the loser of a race would lose again. The cache reads only newer
# snapshots, and older ones only for a user that was not looked up before.
#
# INVARIANT: the newest cached snapshot still exists unchanged. After a rollback, other snapshots
# have the same ids; then the cache is rebuilt. A cached snapshot may have expired, and its files
# may be gone.

_AT_ONCE_MAX = 256
_KEPT_MAX = 1_000


class Commits:
    """The newest snapshots, and the newest numbered snapshot of each user. Thread-safe.

    The argument `latest` is always the newest snapshot of the table, just read.
    """

    def __init__(self, read: Read) -> None:
        """`read` returns the snapshot of an id, or None if it does not exist."""
        self._read = read
        self._lock = threading.Lock()
        self._users: dict[str, Snapshot] = {}
        self._newest: Snapshot | None = None
        self._oldest_id = 0
        self._kept: dict[int, Snapshot] = {}  # the newest ones, without gaps

    def last_numbered(self, user: str, latest: Snapshot | None) -> Snapshot | None:
        """The newest snapshot that a user committed with a number (not as a batch job), or None."""
        if latest is None:
            return None
        with self._lock:
            self._catch_up(latest)
            found = self._users.get(user)
            if found is None:
                for snapshot in self._down(self._oldest_id - 1, 0):
                    self._oldest_id = snapshot.id
                    if _is_numbered(snapshot):
                        self._users.setdefault(snapshot.commit_user, snapshot)
                    if user in self._users:
                        break
                else:
                    self._oldest_id = 0
                found = self._users.get(user)
            return found

    def follow(self, before: Snapshot) -> Snapshot | None:
        """The newest snapshot, searched upwards from `before`.

        None if `before` no longer exists.
        """
        known: list[Snapshot] = []  # `before` and what follows it
        found: list[Snapshot | None] = [before]
        while found[-1] is not None:
            first = before.id + len(known)
            found = read_all(self._read, range(first, first + min(len(known) or 2, READERS)))
            known += takewhile(lambda each: each is not None, found)  # type: ignore[arg-type]
            if not known or known[0] != before:
                return None
        with self._lock:
            if self._newest is None or self._newest.id < before.id:
                self._catch_up(before)
            if self._newest == before:
                self._remember(known[:0:-1])
        return known[-1]

    def note(self, before: Snapshot | None, snapshot: Snapshot) -> None:
        """Add a snapshot that was just published after `before`, which was the newest one."""
        with self._lock:
            if before is not None and self._newest == before:
                self._remember([snapshot])

    def after(self, snapshot_id: int, latest: Snapshot) -> list[Snapshot]:
        """The snapshots after `snapshot_id`, newest first, down to one that has expired."""
        with self._lock:
            self._catch_up(latest)
            found = []
            number = latest.id
            while number > snapshot_id and number in self._kept:
                found.append(self._kept[number])
                number -= 1
            rest = list(self._down(number, snapshot_id, at_once=READERS))
            self._keep(rest)
            return found + rest

    def at(self, snapshot_id: int, latest: Snapshot) -> Snapshot | None:
        """The snapshot of that id; None if it does not exist or has expired."""
        with self._lock:
            self._catch_up(latest)
            return self._kept.get(snapshot_id) or self._read(snapshot_id)

    def _catch_up(self, latest: Snapshot) -> None:
        """Read the snapshots that are newer than the cached ones; after a rollback, start again."""
        before = self._newest
        if before == latest:
            return
        newer = [latest]
        if before is not None and before.id < latest.id:
            # Read the previous newest one again too: it must still exist unchanged.
            newer += self._down(latest.id - 1, before.id - 1, at_once=READERS)
        if newer[-1] != before:
            self._users.clear()
            self._kept.clear()
            self._oldest_id = newer[-1].id
        self._remember(newer)

    def _remember(self, newer: list[Snapshot]) -> None:
        """Add the snapshots that follow the cached ones, newest first."""
        for snapshot in reversed(newer):
            if _is_numbered(snapshot):
                self._users[snapshot.commit_user] = snapshot
            self._newest = snapshot
        self._keep(newer)

    def _keep(self, snapshots: list[Snapshot]) -> None:
        """Add snapshots that are adjacent to the cached ones."""
        assert self._newest is not None
        self._kept |= {snapshot.id: snapshot for snapshot in snapshots}
        for number in [n for n in self._kept if n <= self._newest.id - _KEPT_MAX]:
            del self._kept[number]

    def _down(self, first: int, end: int, at_once: int = 1) -> Iterator[Snapshot]:
        """The snapshots from id `first` down to `end` (exclusive), or to the oldest one."""
        while first > end:
            ids = range(first, max(first - at_once, end), -1)
            for snapshot in read_all(self._read, ids):
                if snapshot is None:
                    return
                yield snapshot
            first, at_once = first - at_once, min(2 * at_once, _AT_ONCE_MAX)


def _is_numbered(snapshot: Snapshot) -> bool:
    return snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER


# --- numbers -------------------------------------------------------------------------------------
# The numbers in the names of files: `snapshot-3`, `schema-0`.


def numbers(names: Iterable[str], prefix: str) -> tuple[int, ...]:
    """The numbers of the names with this prefix, ascending."""
    found = (parse_numbered(name, prefix) for name in names)
    return tuple(sorted(number for number in found if number is not None))


def tag_names(listed: Iterable[FileStatus]) -> tuple[str, ...]:
    """The names of the tags in a listing of the directory of tags, sorted."""
    # Leave out the directory of success files, whose name also begins with `tag-`.
    names = (each.path.rpartition("/")[2] for each in listed if not each.is_directory)
    return tuple(sorted(name[4:] for name in names if name.startswith("tag-")))


def check_number(number: int, expected: int, path: str) -> None:
    """Raise CorruptTable if the number in a file differs from the number in its name."""
    if number != expected:
        raise CorruptTable("the file is that of another number", path=path, id=number)


# --- history -------------------------------------------------------------------------------------
# Snapshots, schemas, tags and manifests of one table, as read from its store.
#
# Immutable files are cached: schemas by id, manifests and manifest lists by file name (names are
# never reused). A snapshot is read each time, because after a rollback another snapshot may have
# the same id. The file `snapshot-N` makes rows visible; hints only save a listing.

_LIVE_BYTES, _LISTED_BYTES, _SCHEMA_BYTES = 150, 600, 8_000
"""The approximate bytes that the caches hold for a live file (its entry is shared with the
manifest), a manifest in a list, and a schema."""
_VECTOR_BYTES = 230
"""The approximate bytes of the place of a deletion vector."""
_SMALL_ENTRIES = 4_000
"""Up to this many entries in manifests, a table is small: its live files are kept as objects."""
_LIVE_KEPT = 8
"""The most snapshots whose live files are cached: each takes memory for all files of the table."""
_SCHEMAS_KEPT = 1_000
_HINT_BYTES_MAX, _HINT_DIGITS_MAX = 64, 18
_LISTINGS_MAX = 5
"""How often the newest snapshot may be removed after it was listed."""


class _Live:
    """The live files that result from a sequence of manifests. Never changed."""

    def __init__(self, manifests: tuple[str, ...], files: LiveFiles | None = None) -> None:
        self.manifests = manifests
        self._files: LiveFiles = {} if files is None else files
        self.entries = tuple(self._files.values())

    def followed_by(self, entries: Iterable[ManifestEntry], manifests: tuple[str, ...]) -> _Live:
        return _Live(manifests, fold_onto(dict(self._files), entries))


class History:
    """The contents of a table's metadata directories, read on demand."""

    def __init__(self, store: Store, layout: Layout) -> None:
        self.store = store
        self.layout = layout
        self.commits = Commits(self.snapshot_if_there)
        self._earliest_hinted = False
        self._confirmed: str | None = None
        self.lost_race_ms: int | None = None
        """When a commit through this history last lost a race; None: never."""
        self._schemas: Cache[int, TableSchema] = Cache(_SCHEMA_BYTES, _SCHEMAS_KEPT)
        self._schema_texts: Cache[int, bytes] = Cache(_SCHEMA_BYTES, _SCHEMAS_KEPT)
        self._manifests: Cache[str, Sequence[ManifestEntry]] = Cache(ENTRY_BYTES)
        self._lists: Cache[str, Sequence[ManifestFile]] = Cache(_LISTED_BYTES)
        self._live: Cache[tuple[str, str], _Live] = Cache(_LIVE_BYTES, _LIVE_KEPT)
        self._indexes: Cache[str, _Indexes] = Cache(1)
        self._large = ManifestCache(
            lambda manifest: self._must_read(layout.manifest(manifest.name), manifest.size_bytes),
            layout.manifest,
        )

    def share_files(self, other: History) -> None:
        """Use the cached manifests of another history of the same directory.

        Names of manifests are never reused, so they mean the same even if another table has taken
        the directory. Schemas, snapshots and tags have reusable names and are not shared.
        """
        same_store = unguarded(self.store) is unguarded(other.store)
        if type(self) is type(other) and same_store and self.layout == other.layout:
            self._manifests, self._lists = other._manifests, other._lists
            self._live, self._indexes = other._live, other._indexes
            self._large = other._large

    # --- schemas ---------------------------------------------------------------------------------

    def schema_ids(self) -> tuple[int, ...]:
        """The ids of all schema files, ascending; empty for a table that is being dropped."""
        names = self._names(self.layout.schema_dir)
        hidden = DROPPED_MARK in names and hides(self.store, self.layout.metadata_dir)
        return () if hidden else numbers(names, "schema-")

    def newest_schema_id(self, known: int) -> int | None:
        """The id of the newest schema, searched upwards from an existing one; None: it is dropped.

        Lists no directory: on object stores a listing costs as much as a dozen reads.
        """
        if hides(self.store, self.layout.metadata_dir):
            return None
        newest = known
        while has_file(self.store, self.layout.schema(newest + 1)):
            newest += 1
        return newest

    def schema(self, schema_id: int) -> TableSchema:
        """The schema with that id. Raises CorruptTable if its file is missing."""
        cached = self._schemas.get(schema_id)
        if cached is not None:
            return cached
        path = self.layout.schema(schema_id)
        try:
            text = self.store.read(path)
        except NotFound as error:
            raise CorruptTable("a schema file is missing", path=path) from error
        schema = metadata.decode_schema(text, path)
        check_number(schema.id, schema_id, path)
        self._schemas.put(schema_id, schema, 1)
        self._schema_texts.put(schema_id, text, 1)
        return schema

    def still_holds(self, schema: TableSchema) -> bool:
        """Whether the schema's file still exists with the same content, apart from its time.

        Schema files never change: different content means that another table replaced this one.
        """
        path = self.layout.schema(schema.id)
        try:
            text = self.store.read(path)
        except NotFound:
            return False
        if text == self._schema_texts.get(schema.id):
            return True
        return replace(metadata.decode_schema(text, path), time_ms=schema.time_ms) == schema

    def confirm(self, snapshot: Snapshot) -> None:
        """Note that a snapshot belongs to the table that was opened, not to a later one."""
        self._confirmed = snapshot.uuid

    def is_confirmed(self, snapshot: Snapshot | None) -> bool:
        """Whether a snapshot that was just read proves that the table was not replaced.

        A uuid is never used twice, and the files of a table that was dropped are deleted.
        """
        uuid = None if snapshot is None else snapshot.uuid
        return uuid is not None and uuid == self._confirmed

    def latest_schema(self) -> TableSchema | None:
        """The schema with the largest id; None if the table does not exist."""
        ids = self.schema_ids()
        of_branch = self.layout.branch != MAIN_BRANCH  # the table's mark also hides its branches
        if not ids or (of_branch and hides(self.store, self.layout.root)):
            return None
        return self.schema(ids[-1])

    # --- snapshots and tags ----------------------------------------------------------------------

    def snapshot_ids(self) -> tuple[int, ...]:
        """The ids of all live snapshots, ascending."""
        ids = self.stored_snapshot_ids()
        earliest = self._hint(self.layout.earliest_hint)
        # After a fast-forward, there may be files of expired snapshots with ids below EARLIEST.
        if earliest is None or earliest not in ids:
            return ids
        return tuple(number for number in ids if number >= earliest)

    def stored_snapshot_ids(self) -> tuple[int, ...]:
        """The ids of all snapshot files, ascending, including those below the hint EARLIEST."""
        return self._numbers(self.layout.snapshot_dir, "snapshot-")

    def earliest_snapshot_id(self) -> int | None:
        """The smallest live snapshot id, by the EARLIEST hint; None if nothing was committed."""
        hint = self._hint(self.layout.earliest_hint)
        if hint is not None and has_file(self.store, self.layout.snapshot(hint)):
            return hint
        return min(self.stored_snapshot_ids(), default=None)

    def keep_earliest_hint(self, latest: int) -> None:
        """Write the EARLIEST hint if it is missing; snapshot `latest` exists."""
        path = self.layout.earliest_hint
        if not self._earliest_hinted and not has_file(self.store, path):
            first = min(self.snapshot_ids(), default=latest)
            # A listing may be incomplete. A hint above the first snapshot would hide that snapshot.
            while first > 1 and has_file(self.store, self.layout.snapshot(first - 1)):
                first -= 1
            self.store.put(path, str(first).encode())
        self._earliest_hinted = True

    def write_earliest_hint(self, earliest: int) -> None:
        """Set the EARLIEST hint to a snapshot. Earlier snapshots are deleted, or will be."""
        self.store.put(self.layout.earliest_hint, str(earliest).encode())
        self._earliest_hinted = True

    def earliest_hint(self) -> int | None:
        """The number in the EARLIEST hint; None if it cannot be read."""
        return self._hint(self.layout.earliest_hint)

    def latest_hint(self) -> int | None:
        """The number in the LATEST hint; None if it cannot be read."""
        return self._hint(self.layout.latest_hint)

    def latest_snapshot_id(self) -> int | None:
        """The largest snapshot id; None if nothing was committed."""
        hint = self._hint(self.layout.latest_hint)
        if (
            hint is not None
            and not has_file(self.store, self.layout.snapshot(hint + 1))
            and has_file(self.store, self.layout.snapshot(hint))
        ):
            return hint
        return max(self.stored_snapshot_ids(), default=None)

    def snapshot(self, snapshot_id: int) -> Snapshot:
        """The snapshot of that id. Raises NotFound, naming the range of live ids."""
        try:
            return self._read_snapshot(snapshot_id)
        except NotFound as error:
            ids = self.snapshot_ids()
            live = f"{ids[0]}..{ids[-1]}" if ids else "none"
            raise NotFound(
                f"the snapshot does not exist or has expired; {KEPT_LONGER}",
                snapshot_id=snapshot_id,
                live=live,
            ) from error

    def snapshot_if_there(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot of that id; None if it does not exist or has expired."""
        # One request. Checking first whether the file exists would take two or three.
        try:
            return self._read_snapshot(snapshot_id)
        except NotFound:
            return None

    def listed_snapshot(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot of that id; None if it does not exist, or if its files may be deleted.

        An expiry moves the hint EARLIEST before it deletes a file.
        """
        found = self.snapshot_if_there(snapshot_id)
        return None if found is None or self.has_expired(snapshot_id) else found

    def has_expired(self, snapshot_id: int) -> bool:
        """Whether EARLIEST names a snapshot with a larger id."""
        earliest = self._hint(self.layout.earliest_hint)
        if earliest is None or earliest <= snapshot_id:
            return False
        return self.snapshot_if_there(earliest) is not None

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot; None if nothing was committed."""
        hint = self._hint(self.layout.latest_hint)
        if hint is not None and self.snapshot_if_there(hint + 1) is None:
            hinted = self.snapshot_if_there(hint)
            if hinted is not None:
                return hinted
        for _ in range(_LISTINGS_MAX):
            ids = self._numbers(self.layout.snapshot_dir, "snapshot-")
            found = self.snapshot_if_there(ids[-1]) if ids else None
            if found is not None or not ids:
                return found
            # A rollback has removed it since the listing.
        return self.snapshot(ids[-1])

    def latest_after(self, before: Snapshot | None) -> Snapshot | None:
        """The newest snapshot, searched from `before`, which was the newest one recently."""
        followed = None if before is None else self.commits.follow(before)
        if followed is None:
            return self.latest_snapshot()
        if self.is_confirmed(before):
            self.confirm(followed)
        # During a rollback or a fast-forward, and after its crash, ids are missing between
        # `followed` and the newest snapshot, and there is no hint, or a later one.
        hint = self._hint(self.layout.latest_hint)
        return self.latest_snapshot() if hint is None or hint > followed.id else followed

    def changelog_ids(self, *, also_expired: bool = False) -> tuple[int, ...]:
        """The ids of expired snapshots whose changelog was kept, ascending.

        With `also_expired`, those that an interrupted expiry has left below its hint are included.
        """
        ids = self._numbers(self.layout.changelog_dir, "changelog-")
        earliest = self._hint(self.layout.changelog_earliest_hint) if ids else None
        if also_expired or earliest is None or earliest not in ids:
            return ids
        return tuple(number for number in ids if number >= earliest)

    def changelog(self, snapshot_id: int) -> Snapshot:
        """The long-lived changelog of an expired snapshot. Raises NotFound if there is none."""
        path = self.layout.changelog(snapshot_id)
        changelog = metadata.decode_snapshot(self.store.read(path), path)
        check_number(changelog.id, snapshot_id, path)
        return changelog

    def statistics(self, snapshot: Snapshot) -> TableStatistics | None:
        """The statistics that a snapshot names; None if it names none.

        Raises NotFound if the file is gone, CorruptTable if it is damaged.
        """
        if snapshot.statistics is None:
            return None
        path = self.layout.statistics(snapshot.statistics)
        return metadata.decode_statistics(self.store.read(path), path)

    def tag_names(self) -> tuple[str, ...]:
        """The names of all tags, sorted."""
        return tag_names(self.store.list(self.layout.tag_dir))

    def tag(self, name: str) -> Tag:
        """The tag of that name. Raises NotFound, naming the known ones."""
        path = self.layout.tag(name)
        try:
            return metadata.decode_tag(self.store.read(path), name, path)
        except NotFound as error:
            raise NotFound("no such tag", tag=name, tags=self.tag_names()) from error

    # --- manifests -------------------------------------------------------------------------------

    def manifest_list(
        self, name: str | None, size_bytes: int | None = None
    ) -> Sequence[ManifestFile]:
        """The manifests in a manifest list, in order. If its size is given, it is checked."""
        if name is None:
            return ()
        cached = self._lists.get(name)
        if cached is None:
            path = self.layout.manifest(name)
            cached = metadata.decode_manifest_list(self._must_read(path, size_bytes), path)
            self._lists.put(name, cached, len(cached) + 1)
        return cached

    def remember_list(self, name: str, manifests: Sequence[ManifestFile]) -> None:
        """Cache a manifest list that was just written."""
        self._lists.put(name, manifests, len(manifests) + 1)

    def manifest(self, manifest: ManifestFile) -> Sequence[ManifestEntry]:
        """The entries of a manifest, in order."""
        cached = self._manifests.get(manifest.name)
        if cached is None:
            path = self.layout.manifest(manifest.name)
            cached = metadata.decode_manifest(self._must_read(path, manifest.size_bytes), path)
            self._manifests.put(manifest.name, cached, len(cached) + 1)
        return cached

    def entry_columns(self, manifest: ManifestFile) -> pl.DataFrame:
        """The entries of a manifest as columns, in order; not cached."""
        path = self.layout.manifest(manifest.name)
        return decode_entries(self._must_read(path, manifest.size_bytes), path)

    def remember_manifest(
        self, name: str, data: bytes, entries: Sequence[ManifestEntry] = ()
    ) -> None:
        """Cache a manifest that was just written; `entries` are its entries, if they are few."""
        self._large.remember(name, data)
        if entries:
            self._manifests.put(name, entries, len(entries) + 1)

    def manifests(self, snapshot: Snapshot) -> Sequence[ManifestFile]:
        """The manifests of base and delta, in order."""
        base = self.manifest_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size)
        return (*base, *self.delta_manifests(snapshot))

    def delta_manifests(self, snapshot: Snapshot) -> Sequence[ManifestFile]:
        """The manifests of a snapshot's own changes, in order."""
        return self.manifest_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size)

    def deltas(self, snapshots: Sequence[Snapshot]) -> list[Sequence[ManifestEntry]]:
        """For each snapshot, in order, the entries that its own commit added or deleted."""
        return read_all(lambda snapshot: self.entries(self.delta_manifests(snapshot)), snapshots)

    def entries(self, manifests: Sequence[ManifestFile]) -> list[ManifestEntry]:
        """The entries of these manifests, in order."""
        fresh = [m for m in manifests if self._manifests.get(m.name) is None]
        names = [manifest.name for manifest in fresh]
        # A local disk answers a few reads before their threads would have started.
        few = len(fresh) <= READERS and self.store.at_once == NEAR_AT_ONCE
        found = read_all(self.manifest, fresh, 1 if few else READERS)
        read = dict(zip(names, found, strict=True))
        return [
            entry
            for manifest in manifests
            for entry in read.get(manifest.name) or self.manifest(manifest)
        ]

    def is_small(self, snapshot: Snapshot) -> bool:
        """Whether `live_entries` keeps all live files of a snapshot as objects."""
        entries = sum(each.added_count + each.deleted_count for each in self.manifests(snapshot))
        return entries <= _SMALL_ENTRIES

    def live_entries(self, snapshot: Snapshot) -> Sequence[ManifestEntry]:
        """The live files of a snapshot, as their ADD entries.

        In a large table they take 2 kB each: `live_columns` selects before it makes objects.
        """
        known = self.live_if_known(snapshot)
        if known is not None:
            return known
        if self.is_small(snapshot):
            return self._live_of(snapshot).entries
        return self.live_columns(self.manifests(snapshot)).entries()

    def live_columns(
        self, manifests: Sequence[ManifestFile], wanted: Wanted | None = None
    ) -> LiveColumns:
        """The files that are live after these manifests, in the wanted partitions and buckets.

        The manifests are those of a snapshot; those without a wanted partition may be left out.
        """
        return self._large.live(manifests, wanted)

    def partitions(self, manifests: Sequence[ManifestFile]) -> Sequence[bytes]:
        """The partitions that these manifests have entries of, serialized, in order."""
        return self._large.partitions(manifests)

    def live_partitions(self, snapshot: Snapshot) -> Sequence[bytes]:
        """The partitions that have live files, serialized, in the order of their first files."""
        if self.is_small(snapshot):
            return list(dict.fromkeys(entry.partition for entry in self.live_entries(snapshot)))
        return self.live_columns(self.manifests(snapshot)).partitions()

    def live_facts(self, snapshot: Snapshot) -> tuple[Sequence[bytes], pl.DataFrame]:
        """The partitions that have live files, and facts of each live file (`live_files.FACTS`)."""
        if self.is_small(snapshot):
            return facts_of(self.live_entries(snapshot))
        live = self.live_columns(self.manifests(snapshot))
        return live.partitions(), live.facts()

    def live_if_known(self, snapshot: Snapshot) -> Sequence[ManifestEntry] | None:
        """The live files of a small table at a snapshot; None if manifests are to be read."""
        cached = self._live.get(_lists_of(snapshot))
        return None if cached is None else cached.entries

    def learn(
        self, base: Snapshot | None, snapshot: Snapshot, delta: Iterable[ManifestEntry]
    ) -> None:
        """Cache the live files of a new snapshot: those of `base`, changed by the entries `delta`.

        Does nothing if the live files of `base` are not cached: a plain append does not need them.
        """
        known = None if base is None else self._live.get(_lists_of(base))
        if known is not None:
            with suppress(LakecoreError, OSError):
                names = tuple(manifest.name for manifest in self.manifests(snapshot))
                if self.is_small(snapshot):
                    self._keep(snapshot, known.followed_by(delta, names))

    def _live_of(self, snapshot: Snapshot) -> _Live:
        cached = self._live.get(_lists_of(snapshot))
        if cached is None:
            manifests = self.manifests(snapshot)
            names = tuple(manifest.name for manifest in manifests)
            known = self._live.newest()
            # Names are never reused: if the first manifests are those of `known`, continue from it.
            if known is None or names[: len(known.manifests)] != known.manifests:
                known = _Live(())
            rest = manifests[len(known.manifests) :]
            cached = known.followed_by(self.entries(rest), names)
            self._keep(snapshot, cached)
        return cached

    def _keep(self, snapshot: Snapshot, live: _Live) -> None:
        self._live.put(_lists_of(snapshot), live, len(live.entries) + 1)

    def index_entries(self, snapshot: Snapshot | None) -> Sequence[IndexEntry]:
        """All live index files of a snapshot."""
        return self._index_manifest(snapshot).entries

    def index_files(
        self, snapshot: Snapshot | None
    ) -> Mapping[tuple[bytes, int], Sequence[IndexFile]]:
        """All live index files of a snapshot, by partition and bucket."""
        return self._index_manifest(snapshot).by_bucket

    def remember_index(self, name: str, entries: Sequence[IndexEntry]) -> _Indexes:
        """Cache an index manifest that was just read or written."""
        indexes = _Indexes.of(entries)
        vectors = sum(len(entry.file.vectors or ()) for entry in entries)
        self._indexes.put(name, indexes, _LISTED_BYTES * len(entries) + _VECTOR_BYTES * vectors)
        return indexes

    def _index_manifest(self, snapshot: Snapshot | None) -> _Indexes:
        if snapshot is None or snapshot.index_manifest is None:
            return _Indexes.of(())
        name = snapshot.index_manifest
        cached = self._indexes.get(name)
        if cached is None:
            path = self.layout.manifest(name)
            entries = metadata.decode_index_manifest(self._must_read(path), path)
            cached = self.remember_index(name, entries)
        return cached

    # --- helpers ---------------------------------------------------------------------------------

    def _read_snapshot(self, snapshot_id: int) -> Snapshot:
        path = self.layout.snapshot(snapshot_id)
        snapshot = metadata.decode_snapshot(self.store.read(path), path)
        check_number(snapshot.id, snapshot_id, path)
        return snapshot

    def _must_read(self, path: str, size_bytes: int | None = None) -> bytes:
        """The bytes of a file that another file names.

        The size is checked too, because a truncated file may still decode.
        """
        try:
            data = self.store.read(path)
        except NotFound as error:
            message = "a metadata file is missing; its snapshot may have expired during the read"
            raise CorruptTable(message, path=path) from error
        if size_bytes is not None and len(data) != size_bytes:
            raise CorruptTable(
                "a metadata file does not have the size it should have",
                path=path,
                size_bytes=len(data),
                expected_bytes=size_bytes,
            )
        return data

    def _numbers(self, directory: str, prefix: str) -> tuple[int, ...]:
        return numbers(self._names(directory), prefix)

    def _names(self, directory: str) -> list[str]:
        return [status.path.rpartition("/")[2] for status in self.store.list(directory)]

    def _hint(self, path: str) -> int | None:
        """The number in a hint file; None if it cannot be read. A hint only saves a listing."""
        try:
            if self.store.local_path(path) is not None and self.store.size(path) > _HINT_BYTES_MAX:
                return None
            text = self.store.read(path)[:_HINT_BYTES_MAX].decode("ascii", "replace").strip()
        except (NotFound, StorageError):
            return None
        return int(text) if text.isdecimal() and len(text) <= _HINT_DIGITS_MAX else None


class _Indexes(NamedTuple):
    """An index manifest, and its files by partition and bucket."""

    entries: Sequence[IndexEntry]
    by_bucket: Mapping[tuple[bytes, int], Sequence[IndexFile]]

    @classmethod
    def of(cls, entries: Sequence[IndexEntry]) -> _Indexes:
        by_bucket: dict[tuple[bytes, int], list[IndexFile]] = {}
        for entry in entries:
            by_bucket.setdefault((entry.partition, entry.bucket), []).append(entry.file)
        return cls(entries, by_bucket)


def _lists_of(snapshot: Snapshot) -> tuple[str, str]:
    return snapshot.base_manifest_list, snapshot.delta_manifest_list
