"""Data files, splits and commit messages: the values that cross process borders.

Keys, partitions and statistics are serialized BinaryRows (`format/binary_row.py`), as in manifests:
they are compared and hashed by their bytes, without decoding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from lakecore.model.rows import TRACKING_FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyroaring import BitMap

    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field

EMPTY_ROW = bytes(12)
"""The serialized BinaryRow without fields: the partition of an unpartitioned table."""


class FileSource(IntEnum):
    """The operation that wrote a data file."""

    APPEND = 0
    COMPACT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Minima, maxima and null counts of some columns; null or None means unknown."""

    min_values: bytes = EMPTY_ROW
    max_values: bytes = EMPTY_ROW
    null_counts: tuple[int | None, ...] | None = ()


NO_STATS = Stats()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One immutable file of rows, with everything that a manifest states about it.

    - `sequence_min`, `sequence_max`: the range of its sequence numbers, inclusive;
    - `delete_row_count`: the number of its -U and -D rows (None: unknown);
    - `creation_time_ms`: the writer's local time, stored as if it were UTC;
    - `value_stats`: covers `value_stats_columns`, or all columns of schema `schema_id`.
    """

    name: str
    size_bytes: int
    row_count: int
    key_min: bytes = EMPTY_ROW
    key_max: bytes = EMPTY_ROW
    key_stats: Stats = NO_STATS
    value_stats: Stats = NO_STATS
    sequence_min: int
    sequence_max: int
    schema_id: int
    level: int = 0
    extra_files: tuple[str, ...] = ()
    creation_time_ms: int | None = None
    delete_row_count: int | None = None
    embedded_index: bytes | None = None
    file_source: FileSource | None = None
    value_stats_columns: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: int | None = None
    write_columns: tuple[str, ...] | None = None
    write_columns_sequences: tuple[int, ...] | None = None

    def columns_of(self, schema: TableSchema) -> tuple[Field, ...]:
        """The columns that the file holds; `schema` is the schema of the file."""
        if self.write_columns is None:
            return schema.fields
        return tuple(f for f in (*schema.fields, *TRACKING_FIELDS) if f.name in self.write_columns)

    @property
    def format(self) -> str:
        """The file format, such as parquet, by the last suffix of the name."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRange:
    """The position of the deletion vector of one data file in an index file.

    `length` is as stored: for a 32-bit vector without its length and checksum fields, for a 64-bit
    vector with both (`format/deletion_vector.py`).
    """

    data_file: str
    offset: int
    length: int
    cardinality: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalIndex:
    """The additional facts of a global index file. lakecore copies them unchanged."""

    row_range_start: int
    row_range_end: int
    index_field_id: int
    extra_field_ids: tuple[int, ...] | None = None
    index_meta: bytes | None = None
    source_meta: bytes | None = None


HASH_INDEX = "HASH"
DELETION_VECTORS = "DELETION_VECTORS"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """An index file. `row_count` counts hashes or vectors; `vectors` is None for other indexes."""

    index_type: str
    name: str
    size_bytes: int
    row_count: int
    vectors: tuple[VectorRange, ...] | None = None
    external_path: str | None = None
    global_index: GlobalIndex | None = None


Vectors: TypeAlias = "Mapping[str, tuple[IndexFile, VectorRange]]"
"""For each data file name, the index file and the range of its deletion vector."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommitMessage:
    """The files that the writer of one bucket adds and removes. Picklable; holds no rows.

    - `new_*`: for an APPEND or OVERWRITE snapshot; `compact_*`: for the COMPACT snapshot after it;
    - `deleted_files`: removed by the first snapshot, which is then an OVERWRITE;
    - `total_buckets`: the bucket count that the rows were hashed with; -1 for unaware and dynamic
      buckets;
    - `new_index_files`: a hash index replaces that of its bucket. Files of deletion vectors replace
      those of a table with buckets; in an unaware-bucket table, `deleted_index_files` are removed.
      `compact_index_files` and `compact_deleted_index_files`: the same for the COMPACT snapshot;
    - `vectors_read`: data files, each with the name of the index file that holds its deletion
      vector (None: it has none). The commit fails if one of them has changed. None: no vector was
      read;
    - `base_snapshot_id`: the snapshot that the writer read (None: an empty table);
      `base_snapshot_uuid` distinguishes it from a later one with the same id (None: unknown);
    - `compact_unchanged`: the files above level 0 that a compaction with look-ups left unchanged
      (None: no look-ups); they must still be there at the commit;
    - `compact_schema_id`: the schema that the compaction used (None: nothing was compacted).

        writer = table.new_write()
        writer.write(rows)
        [message] = writer.prepare_commit()
        message.bucket, len(message.new_files)  # (0, 1)
    """

    partition: bytes
    bucket: int
    total_buckets: int
    new_files: tuple[DataFile, ...] = ()
    deleted_files: tuple[DataFile, ...] = ()
    changelog_files: tuple[DataFile, ...] = ()
    new_index_files: tuple[IndexFile, ...] = ()
    deleted_index_files: tuple[str, ...] = ()
    compact_before: tuple[DataFile, ...] = ()
    compact_after: tuple[DataFile, ...] = ()
    compact_changelog_files: tuple[DataFile, ...] = ()
    compact_index_files: tuple[IndexFile, ...] = ()
    compact_deleted_index_files: tuple[str, ...] = ()
    vectors_read: tuple[tuple[str, str | None], ...] | None = None
    compact_unchanged: tuple[str, ...] | None = None
    compact_schema_id: int | None = None
    base_snapshot_id: int | None = None
    base_snapshot_uuid: str | None = None

    def __repr__(self) -> str:
        changed = {
            "new_files": self.new_files,
            "deleted_files": self.deleted_files,
            "changelog_files": self.changelog_files,
            "compact_before": self.compact_before,
            "compact_after": self.compact_after,
        }
        counts = "".join(f", {len(files)} {name}" for name, files in changed.items() if files)
        return f"CommitMessage(bucket={self.bucket}{counts})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The unit of reading: files of one bucket, and how to read them.

    - `raw`: the files form one "run" and are read without a merge, with their deletion vectors.
      Otherwise the files are one section to merge;
    - `runs`: the sorted runs of the section, oldest first;
    - `commit_order`: a number for each file name; for equal sequence numbers, the greater one wins;
    - `vectors`: the deletion vectors of its files;
    - `selected`: for files of a raw split, the rows that may match, where an index says that they
      are few;
    - `partition_path`: the partition's directory, relative to the table.
    """

    partition: bytes
    partition_path: str
    bucket: int
    total_buckets: int
    runs: tuple[tuple[DataFile, ...], ...]
    raw: bool
    commit_order: Mapping[str, int] = field(default_factory=dict)
    vectors: Vectors = field(default_factory=dict)
    selected: Mapping[str, BitMap] = field(default_factory=dict)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files of the split."""
        return tuple(file for run in self.runs for file in run)

    @property
    def row_count(self) -> int:
        """Rows as stored, before merging and without deletion vectors."""
        return sum(file.row_count for file in self.files)

    @property
    def row_bytes(self) -> float:
        """Bytes of a row as stored: the average of the file with the largest rows."""
        return max((file.size_bytes / max(1, file.row_count) for file in self.files), default=0)

    @property
    def size_bytes(self) -> int:
        """Bytes of the files as stored."""
        return sum(file.size_bytes for file in self.files)
