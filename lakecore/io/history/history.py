"""Snapshots, schemas, tags and manifests of one table, as read from its store.

Immutable files are cached: schemas by id, manifests and manifest lists by file name (names are
never reused). A snapshot is read each time, because after a rollback another snapshot may have the
same id. The file `snapshot-N` makes rows visible; hints only save a listing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable, LakecoreError, NotFound, StorageError
from lakecore.format import metadata
from lakecore.format.layout import DROPPED_MARK, MAIN_BRANCH
from lakecore.format.manifest_columns import decode_entries
from lakecore.io.dropped_mark import hides
from lakecore.io.history.cache import Cache
from lakecore.io.history.commits import Commits
from lakecore.io.history.numbers import check_number, numbers
from lakecore.io.parallel import read_all
from lakecore.io.stores.guarded import unguarded
from lakecore.model.manifest import fold_onto
from lakecore.suggestions import KEPT_LONGER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl

    from lakecore.format.layout import Layout
    from lakecore.io.stores.store import Store
    from lakecore.model.manifest import IndexEntry, LiveFiles, ManifestEntry, ManifestFile
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot, Tag
    from lakecore.model.statistics import TableStatistics

_ENTRY_BYTES, _LIVE_BYTES, _LISTED_BYTES, _SCHEMA_BYTES = 1_300, 150, 600, 8_000
"""The approximate bytes that the caches hold for an entry of a manifest, a live file (its entry is
shared with the manifest), a manifest in a list, and a schema."""
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
        self._schemas: Cache[int, TableSchema] = Cache(_SCHEMA_BYTES, _SCHEMAS_KEPT)
        self._schema_texts: Cache[int, bytes] = Cache(_SCHEMA_BYTES, _SCHEMAS_KEPT)
        self._manifests: Cache[str, Sequence[ManifestEntry]] = Cache(_ENTRY_BYTES)
        self._lists: Cache[str, Sequence[ManifestFile]] = Cache(_LISTED_BYTES)
        self._live: Cache[tuple[str, str], _Live] = Cache(_LIVE_BYTES, _LIVE_KEPT)
        self._indexes: Cache[str, Sequence[IndexEntry]] = Cache(_LISTED_BYTES)

    def share_files(self, other: History) -> None:
        """Use the cached manifests of another history of the same directory.

        Names of manifests are never reused, so they mean the same even if another table has taken
        the directory. Schemas, snapshots and tags have reusable names and are not shared.
        """
        same_store = unguarded(self.store) is unguarded(other.store)
        if type(self) is type(other) and same_store and self.layout == other.layout:
            self._manifests, self._lists = other._manifests, other._lists
            self._live, self._indexes = other._live, other._indexes

    # --- schemas ---------------------------------------------------------------------------------

    def schema_ids(self) -> tuple[int, ...]:
        """The ids of all schema files, ascending; empty for a table that is being dropped."""
        names = self._names(self.layout.schema_dir)
        hidden = DROPPED_MARK in names and hides(self.store, self.layout.metadata_dir)
        return () if hidden else numbers(names, "schema-")

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
        ids = self._numbers(self.layout.snapshot_dir, "snapshot-")
        earliest = self._hint(self.layout.earliest_hint)
        # After a fast-forward, there may be files of expired snapshots with ids below EARLIEST.
        if earliest is None or earliest not in ids:
            return ids
        return tuple(number for number in ids if number >= earliest)

    def earliest_snapshot_id(self) -> int | None:
        """The smallest live snapshot id, by the EARLIEST hint; None if nothing was committed."""
        hint = self._hint(self.layout.earliest_hint)
        if hint is not None and self.store.exists(self.layout.snapshot(hint)):
            return hint
        return min(self._numbers(self.layout.snapshot_dir, "snapshot-"), default=None)

    def keep_earliest_hint(self, latest: int) -> None:
        """Write the EARLIEST hint if it is missing; snapshot `latest` exists."""
        path = self.layout.earliest_hint
        if not self._earliest_hinted and not self.store.exists(path):
            first = min(self.snapshot_ids(), default=latest)
            # A listing may be incomplete. A hint above the first snapshot would hide that snapshot.
            while first > 1 and self.store.exists(self.layout.snapshot(first - 1)):
                first -= 1
            self.store.put(path, str(first).encode())
        self._earliest_hinted = True

    def write_earliest_hint(self, earliest: int) -> None:
        """Set the EARLIEST hint to a snapshot. Earlier snapshots are deleted, or will be."""
        self.store.put(self.layout.earliest_hint, str(earliest).encode())
        self._earliest_hinted = True

    def latest_snapshot_id(self) -> int | None:
        """The largest snapshot id; None if nothing was committed."""
        hint = self._hint(self.layout.latest_hint)
        if (
            hint is not None
            and not self.store.exists(self.layout.snapshot(hint + 1))
            and self.store.exists(self.layout.snapshot(hint))
        ):
            return hint
        ids = self._numbers(self.layout.snapshot_dir, "snapshot-")
        return ids[-1] if ids else None

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
        # Leave out the directory of success files, whose name also begins with `tag-`.
        files = (
            each.path for each in self.store.list(self.layout.tag_dir) if not each.is_directory
        )
        names = (path.rpartition("/")[2] for path in files)
        return tuple(sorted(name[4:] for name in names if name.startswith("tag-")))

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
        read = dict(zip(names, read_all(self.manifest, fresh), strict=True))
        return [
            entry
            for manifest in manifests
            for entry in read.get(manifest.name) or self.manifest(manifest)
        ]

    def live_entries(self, snapshot: Snapshot) -> Sequence[ManifestEntry]:
        """The live files of a snapshot, as their ADD entries."""
        return self._live_of(snapshot).entries

    def live_if_known(self, snapshot: Snapshot) -> Sequence[ManifestEntry] | None:
        """The live files of a snapshot; None if manifests would have to be read."""
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
        if snapshot is None or snapshot.index_manifest is None:
            return ()
        name = snapshot.index_manifest
        cached = self._indexes.get(name)
        if cached is None:
            path = self.layout.manifest(name)
            cached = metadata.decode_index_manifest(self._must_read(path), path)
            self._indexes.put(name, cached, len(cached) + 1)
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


def _lists_of(snapshot: Snapshot) -> tuple[str, str]:
    return snapshot.base_manifest_list, snapshot.delta_manifest_list
