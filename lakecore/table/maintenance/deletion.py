"""A plan of files to delete, and its execution in an order that is safe after a crash.

1. data and changelog files, with their extra files;
2. the files that manifest lists and index manifests name, and statistics files;
3. the manifest lists and index manifests.

Afterwards, the caller deletes the snapshot file, which names the lists. Therefore a run after a
crash still finds every remaining file. Files that are already absent are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from lakecore.errors import CorruptTable
from lakecore.io.parallel import delete_all
from lakecore.model.manifest import FileKind
from lakecore.model.retention import FilesDeleted
from lakecore.table.maintenance.reachable import KEY, Metadata, data_paths, lists_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deletion:
    """The files to delete: frames of data files and of changelog files, and metadata files."""

    data: pl.DataFrame
    changelog: pl.DataFrame
    metadata: Metadata
    unreadable: tuple[int, ...] = field(default=())

    @property
    def counts(self) -> FilesDeleted:
        """The number of files of each kind."""
        metadata = self.metadata
        return FilesDeleted(
            data_files=len(self.data),
            data_bytes=int(self.data["_FILE_SIZE"].sum()),
            changelog_files=len(self.changelog),
            manifests=len(metadata.lists) + len(metadata.manifests),
            index_files=len(metadata.index_files),
            statistics=len(metadata.statistics),
        )


def delete_files_of(context: TableContext, plan: Deletion) -> None:
    """Delete the files of a plan, in parallel. Raises the first error of the storage."""
    store, bulk = context.store, context.bulk
    bulk.delete_all(store, data_paths(context, plan.data))
    bulk.delete_all(store, data_paths(context, plan.changelog))
    if context.options.snapshot_clean_empty_directories:
        _remove_empty_directories(context, [plan.data, plan.changelog])
    metadata = plan.metadata
    bulk.delete_all(store, sorted(metadata.manifests | metadata.index_files | metadata.statistics))
    bulk.delete_all(store, sorted(metadata.lists))


def changes_in(frame: pl.DataFrame) -> pl.DataFrame:
    """One row for each file, with a flag: true if the file is added, false if it is deleted."""
    added = (pl.col("_KIND") == FileKind.ADD).any().alias("added")
    others = [name for name in frame.columns if name not in {*KEY, "_KIND"}]
    return frame.group_by(KEY, maintain_order=True).agg(added, pl.col(others).last())


def metadata_left(
    context: TableContext, snapshots: Sequence[Snapshot], *, data: bool, changelog: bool
) -> Metadata:
    """The metadata of expiring snapshots that still exists: a crashed run may have deleted some.

    A damaged list is deleted; the files that it names stay, because they are unknown. Without
    `data`, base and delta lists are omitted; without `changelog`, changelog lists.
    """
    history, layout = context.history, context.layout
    lists: dict[str, int | None] = {}
    indexes: dict[str, Snapshot] = {}
    manifests: set[str] = set()
    index_files: set[str] = set()
    for snapshot in snapshots:
        lists |= dict(_chosen(snapshot, data=data, changelog=changelog))
        if snapshot.index_manifest is not None:
            indexes[snapshot.index_manifest] = snapshot
    for name, size in lists.items():
        try:
            manifests.update(
                layout.manifest(each.name) for each in history.manifest_list(name, size)
            )
        except CorruptTable:
            continue
    for snapshot in indexes.values():
        try:
            entries = history.index_entries(snapshot)
        except CorruptTable:
            continue
        index_files.update(
            layout.live_index_file(context.partitions.path(e.partition), e.bucket, e.file)
            for e in entries
        )
    return Metadata(
        lists=frozenset(map(layout.manifest, (*lists, *indexes))),
        manifests=frozenset(manifests),
        index_files=frozenset(index_files),
        statistics=frozenset(
            layout.statistics(each.statistics) for each in snapshots if each.statistics is not None
        ),
    )


def _chosen(snapshot: Snapshot, *, data: bool, changelog: bool) -> list[tuple[str, int | None]]:
    base, delta, *of_changelog = lists_of(snapshot)
    return [*((base, delta) if data else ()), *(of_changelog if changelog else ())]


def _remove_empty_directories(context: TableContext, frames: Sequence[pl.DataFrame]) -> None:
    """Remove the directories of buckets that lost files, then of partitions, if they are empty."""
    layout, remove = context.layout, context.store.remove_empty_directory
    touched = pl.concat([frame.select(KEY[:2]) for frame in frames]).unique().rows()
    places = {(context.partitions.path(partition), bucket) for partition, bucket in touched}
    delete_all(remove, sorted(layout.bucket_dir(path, bucket) for path, bucket in places))
    level = {path for path, _ in places if path}
    while level:
        delete_all(remove, sorted(map(layout.partition_dir, level)))
        level = {path.rpartition("/")[0] for path in level} - {""}
