"""The manifests, manifest lists and index manifests that one commit writes, under fresh names.

No reader sees such files before a snapshot names them. The files of a certainly failed attempt are
removed, except the lists of the commit's own changes and the merged manifests, which make the next
attempt faster.

INVARIANT: every snapshot names the complete index manifest. Without it, rows that deletion vectors
hide would reappear.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from lakecore.errors import LakecoreError
from lakecore.format import metadata
from lakecore.format.layout import index_manifest_name, manifest_list_name, manifest_name
from lakecore.format.manifest_files import decode_entries, encode_entries, joined_manifests
from lakecore.format.manifest_records import DEFAULT_FORMAT
from lakecore.format.statistics import StatsCollector, StatsKind, StatsMode
from lakecore.model.files import DELETION_VECTORS
from lakecore.model.manifest import IndexEntry, ManifestEntry, ManifestFile
from lakecore.plan.manifests import (
    Deletions,
    cancel,
    full_merge_is_due,
    hull_of,
    in_order_of_partitions,
    may_hold,
    must_change,
    neighbours,
    neighbours_to_merge,
)
from lakecore.table.context import TableContext, has_unaware_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from lakecore.memory import Lease
    from lakecore.model.arrow_arrays import Ints
    from lakecore.model.snapshot import Snapshot
    from lakecore.plan.partitions import Partitions
    from lakecore.table.commits.commit_change import EncodedEntries

    Write = Callable[[pl.DataFrame], list[ManifestFile]]


# --- merge manifests -----------------------------------------------------------------------------
# Computes the base manifest list of the next snapshot, and merges small manifests when due.
#
# `plan/manifests.py` has the rules; this module applies them, in the order of the manifests:
#
# 1. a *minor* merge reads a group of neighbours, cancels ADD with DELETE, and writes the rest;
# 2. a *full* merge first reads all deletions, and then each manifest once. Manifests that need no
#    change are kept. The remaining entries of the others are collected, sorted by partition and
#    written before the next kept manifest. If the entries are too few for a manifest of their own,
#    the next kept manifest is rewritten with them. Otherwise a small manifest would stay between
#    large ones, and each full merge would rewrite it.
#
# INVARIANT: the files of a bucket stay in commit order, because for equal sequence numbers the
# later commit wins. Entries are processed as columns, and at most a share of the budget is held. If
# a table needs more, it is sorted in parts.

_BYTES_IN_MEMORY = 16
"""Bytes of memory for each byte of a manifest: decompressed, decoded, and encoded again."""
_READERS = 8
_REMEMBERED_MAX = 1_000
"""Up to this many entries of a new manifest are kept as objects, for the next checks."""


def merge_manifests(
    context: TableContext, manifests: Sequence[ManifestFile], write: Write
) -> list[ManifestFile]:
    """The manifests after the merge; `write` writes entries as new manifests."""
    target = context.options.manifest_target_file_size_bytes
    threshold = context.options.manifest_full_compaction_threshold_size_bytes
    if full_merge_is_due(manifests, target_bytes=target, threshold_bytes=threshold):
        merge = _FullMerge(context, manifests, write)
        if merge.is_useful:
            return merge.run()
    merged: list[ManifestFile] = []
    for group in neighbours_to_merge(
        manifests, target_bytes=target, count_min=context.options.manifest_merge_min_count
    ):
        merged += group if len(group) == 1 else _merged(context, group, write)
    return merged


def merge_is_useful(context: TableContext, manifests: Sequence[ManifestFile]) -> bool:
    """Whether `merge_manifests` would write a manifest."""
    options = context.options
    target = options.manifest_target_file_size_bytes
    threshold = options.manifest_full_compaction_threshold_size_bytes
    is_due = full_merge_is_due(manifests, target_bytes=target, threshold_bytes=threshold)
    if is_due and _FullMerge(context, manifests, lambda _entries: []).is_useful:
        return True
    groups = neighbours_to_merge(
        manifests, target_bytes=target, count_min=options.manifest_merge_min_count
    )
    return any(len(group) > 1 for group in groups)


def _merged(
    context: TableContext, group: Sequence[ManifestFile], write: Write
) -> list[ManifestFile]:
    with _lease(context, sum(manifest.size_bytes for manifest in group)):
        entries = cancel(pl.concat(list(_frames(context, group))))
        return write(in_order_of_partitions(entries, context.partitions))


class _FullMerge:
    """One full merge, in the order of its manifests."""

    def __init__(
        self, context: TableContext, manifests: Sequence[ManifestFile], write: Write
    ) -> None:
        self._context = context
        self._write = write
        self._target = context.options.manifest_target_file_size_bytes
        deleting = [manifest for manifest in manifests if manifest.deleted_count]
        with _lease(context, sum(manifest.size_bytes for manifest in deleting)):
            self._deletions = Deletions(_frames(context, deleting))
        hit = self._may_be_hit(manifests)
        self._manifests = [
            (manifest, must_change(manifest, self._target) or may_be_hit)
            for manifest, may_be_hit in zip(manifests, hit, strict=True)
        ]
        self._out: list[ManifestFile] = []
        self._gathered: list[pl.DataFrame] = []
        self._size_bytes = 0

    @property
    def is_useful(self) -> bool:
        """Whether more than one manifest must be read."""
        return sum(read for _, read in self._manifests) > 1

    def run(self) -> list[ManifestFile]:
        """The manifests after the merge."""
        lease = _lease(self._context, sum(m.size_bytes for m, read in self._manifests if read))
        with lease:
            # With less room than two target sizes, small manifests would remain.
            room = max(2 * self._target, lease.size_bytes // _BYTES_IN_MEMORY)
            frames = _frames(self._context, [m for m, read in self._manifests if read])
            for manifest, read in self._manifests:
                if read:
                    self._take(manifest, next(frames))
                elif self._is_small:
                    self._take(manifest, self._context.history.entry_columns(manifest))
                else:
                    self._keep(manifest)
                if self._size_bytes >= room:
                    self._flush()
            self._flush()
        self._deletions.check_done()
        return self._out

    def _may_be_hit(self, manifests: Sequence[ManifestFile]) -> Sequence[bool]:
        deleted = self._deletions.partitions
        if not deleted or not self._context.partitions.fields:
            return [bool(deleted)] * len(manifests)
        hull = hull_of(self._context.partitions.values(deleted))
        return [bool(may) for may in may_hold(hull, manifests, self._context.partitions)]

    @property
    def _is_small(self) -> bool:
        return 0 < self._size_bytes < self._target

    def _take(self, manifest: ManifestFile, entries: pl.DataFrame) -> None:
        left = self._deletions.take(entries)
        unchanged = left.height == entries.height and not must_change(manifest, self._target)
        if unchanged and not self._is_small:
            self._keep(manifest)
        elif not left.is_empty():
            self._gathered.append(left)
            self._size_bytes += -(-manifest.size_bytes * left.height // entries.height)

    def _keep(self, manifest: ManifestFile) -> None:
        self._flush()
        self._out.append(manifest)

    def _flush(self) -> None:
        if self._gathered:
            entries = pl.concat(self._gathered)
            self._out += self._write(in_order_of_partitions(entries, self._context.partitions))
        self._gathered, self._size_bytes = [], 0


def _lease(context: TableContext, size_bytes: int) -> Lease:
    least = min(2 * context.options.manifest_target_file_size_bytes, size_bytes)
    return context.budget.acquire_up_to(size_bytes * _BYTES_IN_MEMORY, least * _BYTES_IN_MEMORY)


def _frames(context: TableContext, manifests: Sequence[ManifestFile]) -> Iterator[pl.DataFrame]:
    """The entries of each manifest, in order; small neighbours are read together."""
    target = context.options.manifest_target_file_size_bytes
    read = context.history.entry_columns
    if len(manifests) <= 1:
        yield from map(read, manifests)
        return
    with ThreadPoolExecutor(_READERS) as pool:
        batch: list[ManifestFile] = []
        for manifest in manifests:
            size_bytes = sum(each.size_bytes for each in batch) + manifest.size_bytes
            if batch and (len(batch) == _READERS or size_bytes > target):
                yield from pool.map(read, batch)
                batch = []
            batch.append(manifest)
        yield from pool.map(read, batch)


# --- commit manifests ----------------------------------------------------------------------------


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
        self._merge: _Merge | None = None

    def begin(self) -> None:
        """Begin a snapshot. Files written so far stay, even if the new snapshot is given up."""
        self._paths.clear()
        self._deltas.clear()
        self._merge = None

    def lose(self, *, deltas: bool) -> None:
        """Delete the files of a lost attempt that the next attempt cannot use.

        The next attempt can use merged manifests and, with `deltas`, the lists of the commit's own
        changes.
        """
        if not deltas:
            self._deltas.clear()
        kept = {path for delta in self._deltas for path in delta.paths}
        if self._merge is not None:
            kept.update(self._merge.paths)
        self._remove([path for path in self._paths if path not in kept])

    def remove(self) -> None:
        """Remove all files of the snapshot, which will not be published."""
        self._remove(self._paths)
        self.begin()

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            # A file that cannot be removed is an orphan, not an error.
            with suppress(LakecoreError, OSError):
                self._context.store.delete(path)
        removed = set(paths)
        self._paths = [path for path in self._paths if path not in removed]

    def write_base(self, latest: Snapshot | None) -> tuple[str, int]:
        """Write the base manifest list, merging manifests if due. Returns its name and size."""
        if latest is None:
            return self._write_list([])
        return self._write_list(self.merged(self._context.history.manifests(latest)))

    def merged(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Manifests with the same live files, merged if a merge is due.

        If others have only appended manifests since an earlier attempt, the merge of that attempt
        is used again.
        """
        names = [manifest.name for manifest in manifests]
        last = self._merge
        if last is not None and names[: len(last.names)] == last.names:
            return [*last.merged, *manifests[len(last.names) :]]
        if last is not None:
            self._remove(last.paths)
        first = len(self._paths)
        merged = merge_manifests(self._context, manifests, self._write_columns)
        paths = self._paths[first:]
        self._merge = _Merge(names, merged, paths) if paths else None
        return merged

    def write_delta(
        self, entries: Sequence[ManifestEntry], encoded: Sequence[EncodedEntries] = ()
    ) -> tuple[str, int]:
        """Write these entries as new manifests and their list. Returns the list's name and size.

        A list that an earlier attempt wrote is used again.
        """
        for delta in self._deltas:
            if delta.entries == entries and delta.encoded == encoded:
                return delta.written
        first = len(self._paths)
        manifests = [*self._write_entries(entries), *self._write_encoded(encoded)]
        written = self._write_list(manifests)
        self._deltas.append(_Delta(entries, encoded, tuple(self._paths[first:]), written))
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
        self._context.history.remember_index(name, entries)
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
        known = tuple(entries) if len(entries) <= _REMEMBERED_MAX else ()
        return [self._write_manifest(data, _Contents.of_entries(entries), known)]

    def _write_encoded(self, encoded: Sequence[EncodedEntries]) -> Iterator[ManifestFile]:
        """New manifests with these entries, in order, each of the target size or larger."""
        options = self._context.options
        target, compression = options.manifest_target_file_size_bytes, options.manifest_compression
        frame_bytes = len(joined_manifests([], compression))
        for group in _groups(encoded, target, frame_bytes):
            if options.manifest_format == DEFAULT_FORMAT:
                data = joined_manifests([each.data for each in group], compression)
                facts = pl.concat([each.facts for each in group])
                yield self._write_manifest(data, _Contents.of_columns(facts))
            else:
                parts = [decode_entries(each.data, "a task's manifest") for each in group]
                yield from self._write_columns(pl.concat(parts))

    def _write_manifest(
        self, data: bytes, contents: _Contents, entries: Sequence[ManifestEntry] = ()
    ) -> ManifestFile:
        name = manifest_name(self._name, self._manifest_count)
        self._manifest_count += 1
        self._put(name, data)
        self._context.history.remember_manifest(name, data, entries)
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


def _groups(
    encoded: Sequence[EncodedEntries], target_size_bytes: int, frame_bytes: int
) -> Sequence[Sequence[EncodedEntries]]:
    """The entries in groups of the target size or larger; a smaller one only if it is alone.

    `frame_bytes`: what each manifest has besides its blocks, and a group has once.
    """

    def size_of(each: EncodedEntries) -> int:
        return len(each.data) - frame_bytes

    least = target_size_bytes - frame_bytes
    groups = neighbours(encoded, size_of, least)
    if len(groups) > 1 and sum(map(size_of, groups[-1])) < least:
        last = groups.pop()
        groups[-1] += last
    return groups


@dataclass(frozen=True, slots=True, eq=False)
class _Delta:
    """Written entries: the paths of their files, and the name and size of their list."""

    entries: Sequence[ManifestEntry]
    encoded: Sequence[EncodedEntries]
    paths: tuple[str, ...]
    written: tuple[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Merge:
    """The names of the manifests before a merge, the manifests after it, and its new files."""

    names: list[str]
    merged: list[ManifestFile]
    paths: list[str]


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
