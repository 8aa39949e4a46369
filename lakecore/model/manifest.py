"""Manifest entries and how they fold to the live files of a snapshot.

INVARIANT: an ADD comes before the DELETE of the same file. Any grouping of entries into manifests
that keeps this order means the same table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from lakecore.display import ShownFacts, pairs_html, pairs_text, short_repr
from lakecore.errors import CorruptTable
from lakecore.model.files import NO_STATS, DataFile, IndexFile, Stats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class FileKind(IntEnum):
    """Whether an entry adds a file to the table or deletes it."""

    ADD = 0
    DELETE = 1


class EntryIdentity(NamedTuple):
    """The identity of a file in manifests, with the level, because files change levels."""

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


# --- statistics ----------------------------------------------------------------------------------
# Statistics of a whole table, which ANALYZE computes and a snapshot names.


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """Statistics of a column; None means unknown.

    - `column_id`: the id of the column in the schema;
    - `distinct_count`: the number of different values that are not null;
    - `min`, `max`: bounds as Paimon writes them as text: a DATE is its day number, a TIME its
      milliseconds;
    - `null_count`: the number of nulls;
    - `average_length`, `max_length`: sizes in bytes; of the type itself for numbers and times.

        column = table.analyze(["price"]).statistics.columns["price"]
        column.distinct_count, column.null_count  # (1, 0)
    """

    column_id: int
    distinct_count: int | None = None
    min: str | None = None
    max: str | None = None
    null_count: int | None = None
    average_length: int | None = None
    max_length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatistics:
    """Statistics of the table at a snapshot, as `Table.analyze` computes them.

    - `snapshot_id`, `schema_id`: the snapshot that was read, and the schema of the columns;
    - `merged_record_count`: the number of rows that a read of the snapshot returns;
    - `merged_record_size_bytes`: the bytes of its files, less the share of rows that merging drops;
    - `columns`: the statistics of each analyzed column, by name.

        found = table.analyze(["n"]).statistics
        found.columns["n"].max, found.shown()[1]  # ('12', ('rows', '12'))
    """

    snapshot_id: int
    schema_id: int
    merged_record_count: int | None = None
    merged_record_size_bytes: int | None = None
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)

    def __repr__(self) -> str:
        return short_repr(self)

    def __str__(self) -> str:
        return pairs_text(self.shown())

    def _repr_html_(self) -> str:
        return pairs_html("Statistics", self.shown())

    def shown(self) -> list[tuple[str, object]]:
        """Names and values for people."""
        lines: list[tuple[str, object]] = [("snapshot", self.snapshot_id)]
        if self.merged_record_count is not None:
            lines.append(("rows", f"{self.merged_record_count:,}"))
        if self.merged_record_size_bytes is not None:
            lines.append(("bytes", f"{self.merged_record_size_bytes:,}"))
        return [*lines, *((name, _column_text(each)) for name, each in self.columns.items())]


def _column_text(column: ColumnStatistics) -> str:
    facts = {
        "distinct": column.distinct_count,
        "nulls": column.null_count,
        "min": column.min,
        "max": column.max,
        "average length": column.average_length,
        "max length": column.max_length,
    }
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AnalyzeResult(ShownFacts):
    """What `Table.analyze` did.

    `snapshot_ids` names the ANALYZE snapshot; it is empty, and `statistics` None, for a table
    without snapshots.

        table.analyze(["n"]).statistics.merged_record_count  # 12
    """

    _title: ClassVar[str] = "Analyze"

    snapshot_ids: tuple[int, ...] = ()
    statistics: TableStatistics | None = None

    def _shown(self) -> list[tuple[str, object]]:
        if self.statistics is None:
            return [("snapshots", "none: there was nothing to analyze")]
        return [("snapshots", ", ".join(map(str, self.snapshot_ids))), *self.statistics.shown()]
