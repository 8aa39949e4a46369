"""Manifest entries and how they fold to the live files of a snapshot.

INVARIANT: an ADD comes before the DELETE of the same file. Any grouping of entries into manifests
that keeps this order means the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from lakecore.errors import CorruptTable
from lakecore.model.files import NO_STATS, DataFile, IndexFile, Stats

if TYPE_CHECKING:
    from collections.abc import Iterable


class FileKind(IntEnum):
    """Whether an entry adds a file to the table or deletes it."""

    ADD = 0
    DELETE = 1


class EntryIdentity(NamedTuple):
    """The identity of a file in manifests. It includes the level, because files change levels."""

    partition: bytes
    bucket: int
    level: int
    name: str
    extra_files: tuple[str, ...]
    embedded_index: bytes | None
    external_path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One file added to, or deleted from, a bucket."""

    kind: FileKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFile

    @property
    def identity(self) -> EntryIdentity:
        """The identity, which is equal for an ADD and its DELETE."""
        file = self.file
        return EntryIdentity(
            self.partition,
            self.bucket,
            file.level,
            file.name,
            file.extra_files,
            file.embedded_index,
            file.external_path,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """One line of a manifest list: a manifest and its statistics."""

    name: str
    size_bytes: int
    added_count: int
    deleted_count: int
    schema_id: int
    partition_stats: Stats = NO_STATS
    bucket_min: int | None = None
    bucket_max: int | None = None
    level_min: int | None = None
    level_max: int | None = None
    row_id_min: int | None = None
    row_id_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One live index file of a bucket; an index manifest lists them all."""

    partition: bytes
    bucket: int
    file: IndexFile


LiveFiles = dict[EntryIdentity, ManifestEntry]
"""The ADD entries of the files that are live, in the order they were added."""


def fold(entries: Iterable[ManifestEntry]) -> tuple[ManifestEntry, ...]:
    """The live ADD entries, in the order they were added.

    Raises CorruptTable if a file is added twice, or deleted without having been added.
    """
    return tuple(fold_onto({}, entries).values())


def fold_onto(live: LiveFiles, entries: Iterable[ManifestEntry]) -> LiveFiles:
    """The live files after applying these entries; changes `live` in place.

    Raises CorruptTable if a file is added twice, or deleted without having been added.
    """
    for entry in entries:
        identity = entry.identity
        if entry.kind is FileKind.ADD:
            if identity in live:
                raise CorruptTable("a file is added twice", file=entry.file.name)
            live[identity] = entry
        elif live.pop(identity, None) is None:
            raise CorruptTable("a file is deleted that was not added", file=entry.file.name)
    return live
