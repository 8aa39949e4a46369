"""A plan of files to delete, and its execution in an order that a crash cannot spoil.

1. data and changelog files, with their extra files;
2. what manifest lists and index manifests name, and statistics;
3. the manifest lists and index manifests.

A later run finds what an earlier one left: lists are deleted last, and only after them what names
the lists (the snapshot file, which the caller deletes). A file that is absent already is fine.
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
    """The files to delete: frames of data and changelog files, and metadata."""

    data: pl.DataFrame
    changelog: pl.DataFrame
    metadata: Metadata
    unreadable: tuple[int, ...] = field(default=())

    @property
    def counts(self) -> FilesDeleted:
        """How many there are of each kind."""
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
    """Delete the files of a plan, several at a time. Raises the first error of the storage."""
    delete = context.store.delete
    delete_all(delete, data_paths(context, plan.data))
    delete_all(delete, data_paths(context, plan.changelog))
    if context.options.snapshot_clean_empty_directories:
        _remove_empty_directories(context, [plan.data, plan.changelog])
    metadata = plan.metadata
    delete_all(delete, sorted(metadata.manifests | metadata.index_files | metadata.statistics))
    delete_all(delete, sorted(metadata.lists))


def changes_in(frame: pl.DataFrame) -> pl.DataFrame:
    """One row a file: whether it is added, else it is deleted."""
    added = (pl.col("_KIND") == FileKind.ADD).any().alias("added")
    others = [name for name in frame.columns if name not in {*KEY, "_KIND"}]
    return frame.group_by(KEY, maintain_order=True).agg(added, pl.col(others).last())


def metadata_left(
    context: TableContext, snapshots: Sequence[Snapshot], *, data: bool, changelog: bool
) -> Metadata:
    """The metadata of expiring snapshots. What is missing was deleted by a run that crashed.

    A list that is damaged is deleted, and what it names is left: nobody can say what that is.
    Without `data`, the base and delta lists are left out; without `changelog`, the changelog's.
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
    """Remove the buckets that lost files, and then their partitions, where nothing is left."""
    layout, remove = context.layout, context.store.remove_empty_directory
    touched = pl.concat([frame.select(KEY[:2]) for frame in frames]).unique().rows()
    places = {(context.partitions.path(partition), bucket) for partition, bucket in touched}
    delete_all(remove, sorted(layout.bucket_dir(path, bucket) for path, bucket in places))
    level = {path for path, _ in places if path}
    while level:
        delete_all(remove, sorted(map(layout.partition_dir, level)))
        level = {path.rpartition("/")[0] for path in level} - {""}
