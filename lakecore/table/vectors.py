"""The deletion vectors of a bucket: read, changed, and written as index files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lakecore.format.index_files import (
    Positions,
    decode_vectors,
    distinct,
    encode_rolling,
    encode_vectors,
)
from lakecore.format.layout import index_file_name
from lakecore.io.stores.store import discard
from lakecore.model.files import DELETION_VECTORS, IndexFile, Vectors
from lakecore.table.context import TableContext, has_unaware_bucket
from lakecore.table.file_reader.split_files import missing_is_corrupt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakecore.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorFiles:
    """The change to the index files of a bucket: new files, and the names of replaced ones."""

    added: tuple[IndexFile, ...] = ()
    deleted: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class BucketVectors:
    """The deletion vectors of a bucket; see the module."""

    context: TableContext
    partition: bytes
    bucket: int
    files: tuple[IndexFile, ...]
    _new: dict[str, list[Positions]] = field(default_factory=dict)
    _dropped: set[str] = field(default_factory=set)
    _written: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, context: TableContext, snapshot: Snapshot | None, partition: bytes, bucket: int
    ) -> BucketVectors:
        """The vectors of a bucket in a snapshot; none without a snapshot."""
        own = context.history.index_files(snapshot).get((partition, bucket), ())
        files = tuple(file for file in own if file.index_type == DELETION_VECTORS)
        return cls(context=context, partition=partition, bucket=bucket, files=files)

    @classmethod
    def with_vectors(
        cls, context: TableContext, partition: bytes, bucket: int, vectors: Vectors
    ) -> BucketVectors:
        """The vectors of a bucket, given all of its vectors."""
        files = {file.name: file for file, _ in vectors.values()}
        return cls(context=context, partition=partition, bucket=bucket, files=tuple(files.values()))

    @property
    def ranges(self) -> Vectors:
        """For each data file with a vector in the snapshot, where the vector is stored."""
        return {
            vector.data_file: (file, vector) for file in self.files for vector in file.vectors or ()
        }

    def index_of(self, data_files: Iterable[str]) -> tuple[tuple[str, str | None], ...]:
        """Each data file with the index file of its vector, as in `CommitMessage.vectors_read`."""
        held = {name: file.name for name, (file, _) in self.ranges.items()}
        return tuple((name, held.get(name)) for name in data_files)

    def positions(self, data_file: str) -> np.ndarray:
        """The marked rows of a data file in the snapshot."""
        if data_file not in self.ranges:
            return np.zeros(0, np.int64)
        file, _ = self.ranges[data_file]
        return np.asarray(self._read(file)[data_file], np.int64)

    def mark(self, data_file: str, positions: Positions) -> None:
        """Mark rows of a data file as deleted."""
        if len(positions):
            self._new.setdefault(data_file, []).append(np.asarray(positions, np.int64))

    def drop(self, data_files: Iterable[str]) -> None:
        """Remove the vectors of data files that a commit removes."""
        self._dropped.update(data_files)

    def write(self) -> VectorFiles:
        """Write the new index files. Writes nothing if no vector has changed.

        Raises CorruptTable if an index file to change is missing or damaged.
        """
        changed = {*self._new, *self._dropped}
        whole = not has_unaware_bucket(self.context)
        touched = [
            file
            for file in self.files
            if any(vector.data_file in changed for vector in file.vectors or ())
        ]
        if not touched and not self._new:
            return VectorFiles()
        if whole:
            touched = list(self.files)
        vectors: dict[str, Positions] = {}
        for file in touched:
            vectors |= self._read(file)
        for name, parts in self._new.items():
            before = [vectors.pop(name)] if name in vectors else []
            vectors[name] = distinct(np.concatenate([*before, *parts]))
        vectors = {name: each for name, each in vectors.items() if name not in self._dropped}
        return VectorFiles(
            added=tuple(self._put_all(vectors, whole=whole)),
            deleted=tuple(file.name for file in touched),
        )

    def abort(self) -> None:
        """Delete the files that `write` has written; one that cannot be deleted is an orphan."""
        for path in self._written:
            discard(self.context.store, path)
        self._written.clear()

    def _read(self, file: IndexFile) -> dict[str, Positions]:
        path = self._path(file)
        with missing_is_corrupt(path):
            data = self.context.store.read(path)
        return decode_vectors(data, file.vectors or (), path)

    def _put_all(self, vectors: Mapping[str, Positions], *, whole: bool) -> Sequence[IndexFile]:
        options = self.context.options
        wide = options.deletion_vectors_bitmap64
        if not vectors:
            return ()
        if whole:
            parts = [encode_vectors(vectors, bitmap64=wide)]
        else:
            target = options.deletion_vector_index_file_target_size_bytes
            parts = encode_rolling(vectors, bitmap64=wide, target_bytes=target)
        writer = self.context.ambient.new_uuid()
        files: list[IndexFile] = []
        for number, (data, ranges) in enumerate(parts):
            file = IndexFile(
                index_type=DELETION_VECTORS,
                name=index_file_name(writer, number),
                size_bytes=len(data),
                row_count=len(ranges),
                vectors=ranges,
            )
            path = self._path(file)
            self._written.append(path)
            self.context.store.put(path, data)
            files.append(file)
        return files

    def _path(self, file: IndexFile) -> str:
        folder = self.context.partitions.path(self.partition)
        return self.context.layout.live_index_file(folder, self.bucket, file)
