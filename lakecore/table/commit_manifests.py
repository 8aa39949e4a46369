"""The manifests, manifest lists and index manifests that one commit writes, under fresh names.

Nobody knows them before a snapshot names them; those of an attempt that certainly failed are
removed again, and never those that other snapshots name too.

INVARIANT: every snapshot carries the complete index manifest. Leaving it out would bring rows back
that deletion vectors hide.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakecore.errors import LakecoreError
from lakecore.format import metadata
from lakecore.format.layout import index_manifest_name, manifest_list_name, manifest_name
from lakecore.format.statistics import StatsCollector, StatsKind, StatsMode
from lakecore.model.manifest import FileKind, ManifestFile, fold
from lakecore.plan.manifests import cancel, full_merge_is_due, neighbours_to_merge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from lakecore.model.manifest import IndexEntry, ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext


class ManifestWriter:
    """Writes the manifests of one commit; file names count on from an attempt to the next."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._name = context.ambient.new_uuid()
        self._manifest_count = 0
        self._list_count = 0
        self._index_count = 0
        self._paths: list[str] = []

    def begin(self) -> None:
        """Begin an attempt: what was written so far stays."""
        self._paths.clear()

    def remove(self) -> None:
        """Remove what the attempt wrote; what cannot be removed is an orphan, not a fault."""
        for path in self._paths:
            with suppress(LakecoreError, OSError):
                self._context.store.delete(path)
        self._paths.clear()

    def write_base(self, latest: Snapshot | None) -> tuple[str, int]:
        """The list of the manifests of the table so far, small ones merged when it is time."""
        return self._write_list([] if latest is None else self._merged(latest))

    def write_delta(self, entries: Sequence[ManifestEntry]) -> tuple[str, int]:
        """A list of new manifests with these entries: its name and size."""
        return self._write_list(self._write_manifests(entries))

    def write_indexes(
        self, latest: Snapshot | None, indexes: Sequence[IndexEntry], cleared: AbstractSet[bytes]
    ) -> str | None:
        """The name of the index manifest after a change; the one before if nothing changed.

        A new index file replaces the one of its bucket and type; cleared partitions keep none.
        """
        before = self._context.history.index_entries(latest)
        replaced = {(e.partition, e.bucket, e.file.index_type) for e in indexes}
        kept = [
            entry
            for entry in before
            if entry.partition not in cleared
            and (entry.partition, entry.bucket, entry.file.index_type) not in replaced
        ]
        if len(kept) == len(before) and not indexes:
            return None if latest is None else latest.index_manifest
        entries = [*kept, *indexes]
        if not entries:
            return None
        name = index_manifest_name(self._name, self._index_count)
        self._index_count += 1
        compression = self._context.options.manifest_compression
        self._put(name, metadata.encode_index_manifest(entries, compression))
        return name

    def _merged(self, latest: Snapshot) -> list[ManifestFile]:
        history, options = self._context.history, self._context.options
        manifests = list(history.manifests(latest))
        target = options.manifest_target_file_size_bytes
        if full_merge_is_due(
            manifests,
            target_bytes=target,
            threshold_bytes=options.manifest_full_compaction_threshold_size_bytes,
        ):
            return self._write_manifests(fold(history.entries(manifests)))
        merged: list[ManifestFile] = []
        for group in neighbours_to_merge(
            manifests, target_bytes=target, count_min=options.manifest_merge_min_count
        ):
            if len(group) == 1:
                merged += group
            else:
                merged += self._write_manifests(cancel(history.entries(group)))
        return merged

    def _write_manifests(self, entries: Sequence[ManifestEntry]) -> list[ManifestFile]:
        """New manifests with these entries, in order; several have the target size at least."""
        if not entries:
            return []
        options = self._context.options
        data = metadata.encode_manifest(entries, options.manifest_compression)
        # NOTE: parts are larger than the target. Smaller ones would count as small, and be merged
        # and written anew by each commit.
        parts = min(4 * len(data) // (5 * options.manifest_target_file_size_bytes), len(entries))
        if parts > 1:
            step = -(-len(entries) // parts)
            runs = [entries[at : at + step] for at in range(0, len(entries), step)]
            return [file for run in runs for file in self._write_manifests(run)]
        name = manifest_name(self._name, self._manifest_count)
        self._manifest_count += 1
        self._put(name, data)
        return [self._manifest_file(name, len(data), entries)]

    def _manifest_file(
        self, name: str, size_bytes: int, entries: Sequence[ManifestEntry]
    ) -> ManifestFile:
        fields = self._context.schema.partition_fields
        stats = StatsCollector(fields, [StatsMode(StatsKind.FULL)] * len(fields))
        stats.update(self._context.partitions.values(list({e.partition: None for e in entries})))
        added = sum(entry.kind is FileKind.ADD for entry in entries)
        buckets = [entry.bucket for entry in entries]
        levels = [entry.file.level for entry in entries]
        return ManifestFile(
            name=name,
            size_bytes=size_bytes,
            added_count=added,
            deleted_count=len(entries) - added,
            schema_id=self._context.schema.id,
            partition_stats=stats.finish(),
            bucket_min=min(buckets),
            bucket_max=max(buckets),
            level_min=min(levels),
            level_max=max(levels),
        )

    def _write_list(self, manifests: Sequence[ManifestFile]) -> tuple[str, int]:
        name = manifest_list_name(self._name, self._list_count)
        self._list_count += 1
        compression = self._context.options.manifest_compression
        data = metadata.encode_manifest_list(manifests, compression)
        self._put(name, data)
        return name, len(data)

    def _put(self, name: str, data: bytes) -> None:
        path = self._context.layout.manifest(name)
        self._paths.append(path)
        self._context.store.put(path, data)
