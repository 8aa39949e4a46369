"""The manifests, manifest lists and index manifests that one commit writes, under fresh names.

No reader sees them before a snapshot names them. If an attempt certainly failed, its files are
removed, except the lists of the commit's own changes: the next attempt uses them again and so
publishes earlier.

INVARIANT: every snapshot names the complete index manifest. Without it, rows that deletion vectors
hide would reappear.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakecore.errors import LakecoreError
from lakecore.format import metadata
from lakecore.format.layout import index_manifest_name, manifest_list_name, manifest_name
from lakecore.format.manifest_columns import decode_entries, encode_entries
from lakecore.format.statistics import StatsCollector, StatsKind, StatsMode
from lakecore.model.files import DELETION_VECTORS
from lakecore.model.manifest import ManifestFile
from lakecore.table.commits.merge_manifests import merge_manifests
from lakecore.table.context import has_unaware_bucket

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    import polars as pl

    from lakecore.format.arrow_buffers import Ints
    from lakecore.model.manifest import IndexEntry, ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.plan.partitions import Partitions
    from lakecore.table.context import TableContext


class ManifestWriter:
    """Writes the manifests of one commit; the counter of file names continues over attempts."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._name = context.ambient.new_uuid()
        self._manifest_count = 0
        self._list_count = 0
        self._index_count = 0
        self._paths: list[str] = []
        self._deltas: list[_Delta] = []

    def begin(self) -> None:
        """Begin a snapshot. Files written so far stay, even if the new snapshot is given up."""
        self._paths.clear()
        self._deltas.clear()

    def lose(self, *, whole: bool) -> None:
        """Delete the files of a lost attempt.

        Unless `whole`, the manifests and lists of the commit's own changes are kept for the next
        attempt.
        """
        kept = set() if whole else {path for delta in self._deltas for path in delta.paths}
        self._remove([path for path in self._paths if path not in kept])
        self._paths = [path for path in self._paths if path in kept]
        if whole:
            self._deltas.clear()

    def remove(self) -> None:
        """Remove all files of the snapshot, which will not be published."""
        self._remove(self._paths)
        self.begin()

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            # A file that cannot be removed is an orphan, not an error.
            with suppress(LakecoreError, OSError):
                self._context.store.delete(path)

    def write_base(self, latest: Snapshot | None) -> tuple[str, int]:
        """Write the base manifest list, merging manifests if due. Returns its name and size."""
        if latest is None:
            return self._write_list([])
        return self._write_list(self.merged(self._context.history.manifests(latest)))

    def merged(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Manifests with the same live files, merged if a merge is due."""
        return merge_manifests(self._context, manifests, self._write_columns)

    def write_delta(self, entries: Sequence[ManifestEntry]) -> tuple[str, int]:
        """Write these entries as new manifests and their list. Returns the list's name and size.

        A list that an earlier attempt wrote is used again.
        """
        for delta in self._deltas:
            if delta.entries == entries:
                return delta.written
        first = len(self._paths)
        written = self._write_list(self._write_entries(entries))
        self._deltas.append(_Delta(entries, tuple(self._paths[first:]), written))
        return written

    def write_indexes(
        self,
        latest: Snapshot | None,
        indexes: Sequence[IndexEntry],
        deleted: AbstractSet[str],
        cleared: AbstractSet[bytes],
    ) -> str | None:
        """The name of the index manifest after a change; the previous name if nothing changed.

        A new index file replaces the old index file of its bucket and type. (An unaware bucket may
        have several files of deletion vectors: there, none is replaced.) The files `deleted`, and
        the files of `cleared` partitions, are left out.
        """
        before = self._context.history.index_entries(latest)
        replaced = {
            (e.partition, e.bucket, e.file.index_type)
            for e in indexes
            if e.file.index_type != DELETION_VECTORS or not has_unaware_bucket(self._context)
        }
        kept = [
            entry
            for entry in before
            if entry.partition not in cleared
            and entry.file.name not in deleted
            and (entry.partition, entry.bucket, entry.file.index_type) not in replaced
        ]
        if len(kept) == len(before) and not indexes:
            return None if latest is None else latest.index_manifest
        entries = [*kept, *indexes]
        if not entries:
            return None
        name = index_manifest_name(self._name, self._index_count)
        self._index_count += 1
        options = self._context.options
        self._put(
            name,
            metadata.encode_index_manifest(
                entries, options.manifest_compression, options.manifest_format
            ),
        )
        return name

    def _write_columns(self, entries: pl.DataFrame) -> list[ManifestFile]:
        """New manifests with these entries, in order."""
        options = self._context.options
        target = options.manifest_target_file_size_bytes
        return [
            self._write_manifest(
                part.data, _Contents.of_columns(entries[part.first : part.first + part.count])
            )
            for part in encode_entries(
                entries, options.manifest_compression, target, options.manifest_format
            )
        ]

    def _write_entries(self, entries: Sequence[ManifestEntry]) -> list[ManifestFile]:
        """New manifests with these entries, in order; if several, each has the target size."""
        if not entries:
            return []
        options = self._context.options
        data = metadata.encode_manifest(
            entries, options.manifest_compression, options.manifest_format
        )
        if len(data) >= 2 * options.manifest_target_file_size_bytes:
            return self._write_columns(decode_entries(data, "a manifest of this commit"))
        return [self._write_manifest(data, _Contents.of_entries(entries))]

    def _write_manifest(self, data: bytes, contents: _Contents) -> ManifestFile:
        name = manifest_name(self._name, self._manifest_count)
        self._manifest_count += 1
        self._put(name, data)
        return contents.described(name, len(data), self._context.partitions)

    def _write_list(self, manifests: Sequence[ManifestFile]) -> tuple[str, int]:
        name = manifest_list_name(self._name, self._list_count)
        self._list_count += 1
        options = self._context.options
        data = metadata.encode_manifest_list(
            manifests, options.manifest_compression, options.manifest_format
        )
        self._put(name, data)
        self._context.history.remember_list(name, manifests)
        return name, len(data)

    def _put(self, name: str, data: bytes) -> None:
        path = self._context.layout.manifest(name)
        self._paths.append(path)
        self._context.store.put(path, data)


@dataclass(frozen=True, slots=True, eq=False)
class _Delta:
    """Written entries: the paths of their files, and the name and size of their list."""

    entries: Sequence[ManifestEntry]
    paths: tuple[str, ...]
    written: tuple[str, int]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Contents:
    """The facts about a manifest's entries that a manifest list records."""

    kinds: Ints
    partitions: Sequence[bytes]
    buckets: Ints
    levels: Ints
    schema_ids: Ints
    row_id_min: int | None
    row_id_max: int | None

    @staticmethod
    def of_entries(entries: Sequence[ManifestEntry]) -> _Contents:
        files = [entry.file for entry in entries]
        ranges = [(f.first_row_id, f.row_count) for f in files if f.first_row_id is not None]
        known = len(ranges) == len(files)
        return _Contents(
            kinds=np.array([entry.kind for entry in entries]),
            partitions=[entry.partition for entry in entries],
            buckets=np.array([entry.bucket for entry in entries]),
            levels=np.array([file.level for file in files]),
            schema_ids=np.array([file.schema_id for file in files]),
            row_id_min=min(first for first, _ in ranges) if known else None,
            row_id_max=max(first + rows for first, rows in ranges) - 1 if known else None,
        )

    @staticmethod
    def of_columns(entries: pl.DataFrame) -> _Contents:
        first = entries["_FIRST_ROW_ID"]
        known = not first.null_count()
        low = first.to_numpy() if known else None
        high = None if low is None else low + entries["_ROW_COUNT"].to_numpy() - 1
        return _Contents(
            kinds=entries["_KIND"].to_numpy(),
            partitions=entries["_PARTITION"].to_list(),
            buckets=entries["_BUCKET"].to_numpy(),
            levels=entries["_LEVEL"].to_numpy(),
            schema_ids=entries["_SCHEMA_ID"].to_numpy(),
            row_id_min=None if low is None else int(low.min()),
            row_id_max=None if high is None else int(high.max()),
        )

    def described(self, name: str, size_bytes: int, partitions: Partitions) -> ManifestFile:
        """The manifest as an entry of a manifest list."""
        stats = StatsCollector(
            partitions.fields, [StatsMode(StatsKind.FULL)] * len(partitions.fields)
        )
        stats.update(partitions.values(self.partitions))
        deleted = int(np.count_nonzero(self.kinds))
        return ManifestFile(
            name=name,
            size_bytes=size_bytes,
            added_count=len(self.kinds) - deleted,
            deleted_count=deleted,
            # The newest schema of the files, as in Java since 1.0.
            schema_id=int(self.schema_ids.max()),
            partition_stats=stats.finish(),
            bucket_min=int(self.buckets.min()),
            bucket_max=int(self.buckets.max()),
            level_min=int(self.levels.min()),
            level_max=int(self.levels.max()),
            row_id_min=self.row_id_min,
            row_id_max=self.row_id_max,
        )
