"""Computes from commit messages which files each snapshot of a commit adds and deletes.

APPEND (or OVERWRITE) adds the new files; COMPACT applies what compaction replaced. A file that is
written and compacted in one commit is added by the first snapshot and deleted by the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.model.files import DELETION_VECTORS, NO_STATS, CommitMessage
from lakecore.model.manifest import FileKind, IndexEntry, ManifestEntry
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind

if TYPE_CHECKING:
    from lakecore.model.files import DataFile, IndexFile
    from lakecore.table.commits.base_snapshot import Base

PartitionFilter = Callable[[Sequence[bytes]], Sequence[bool]]
"""Takes serialized partitions; returns for each whether an overwrite clears it."""
_LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """The messages to commit, with user, identifier and rules.

    - `overwrite`: clears the partitions it selects (None: nothing is cleared);
    - `force`: commits even without changes, so that the identifier is recorded;
    - `replaces_rows`: the rows were computed from rows of the snapshot that the messages name, so
      a concurrent change of those rows is a conflict;
    - `replaces_partitions`: the messages replace all rows of each partition whose files they
      delete. A file that another commit added there after the snapshot that the messages name is a
      conflict;
    - `from_elsewhere`: the messages come from a caller, so check that their files exist;
    - `statistics`: the new statistics file; the snapshot is then of kind ANALYZE;
    - `merges_manifests`: makes a COMPACT snapshot without changes, for its merged manifests.
    """

    messages: Sequence[CommitMessage]
    user: str
    identifier: int = BATCH_COMMIT_IDENTIFIER
    overwrite: PartitionFilter | None = None
    force: bool = False
    replaces_rows: bool = False
    replaces_partitions: bool = False
    watermark: int | None = None
    properties: Mapping[str, str] | None = None
    operation: str | None = None
    from_elsewhere: bool = False
    statistics: str | None = None
    merges_manifests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The changes of one snapshot, computed from snapshot `base_snapshot_id` or a later one.

    `bases` are the snapshots that the messages name, each with id and uuid.
    """

    kind: CommitKind
    messages: Sequence[CommitMessage]
    delta: Sequence[ManifestEntry]
    changelog: Sequence[ManifestEntry]
    indexes: Sequence[IndexEntry]
    deleted_indexes: frozenset[str]
    base_snapshot_id: int | None
    bases: frozenset[Base] = frozenset()
    replaces_rows: bool = False
    replaces_partitions: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to change."""
        return not (self.delta or self.changelog or self.indexes or self.deleted_indexes)


def check_messages(messages: object, verb: str) -> None:
    """Raise InvalidRequest if `messages` is not a list of commit messages."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise InvalidRequest(
            f"{verb} takes a list of commit messages", messages=type(messages).__name__
        )
    for message in messages:
        if not isinstance(message, CommitMessage):
            raise InvalidRequest(
                f"{verb} takes the messages that prepare_commit gives",
                given=type(message).__name__,
            )


def check_commit(messages: object, watermark: object, properties: object) -> None:
    """Raise InvalidRequest for wrong messages, and for values that a snapshot cannot hold."""
    check_messages(messages, "commit")
    check_watermark(watermark)
    if properties is None:
        return
    if not isinstance(properties, Mapping):
        raise InvalidRequest(
            "properties are a mapping of texts to texts", properties=type(properties).__name__
        )
    for name, text in properties.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise InvalidRequest("a property of a commit is a text", property=name, value=text)


def changes(request: CommitRequest) -> tuple[Change, Change]:
    """The changes of the first and of the second snapshot of a commit.

    Raises InvalidRequest if the messages contain a file, or the index of a bucket, twice: a table
    that lists a file twice cannot be read.
    """
    messages = request.messages
    new = _entries(messages, FileKind.ADD, lambda m: m.new_files)
    gone = _entries(messages, FileKind.DELETE, lambda m: m.deleted_files)
    before = _entries(messages, FileKind.DELETE, lambda m: m.compact_before)
    after = _entries(messages, FileKind.ADD, lambda m: m.compact_after)
    added = Counter(entry.identity for entry in (*new, *after))
    twice = [identity.name for identity, count in added.items() if count > 1]
    if twice:
        raise InvalidRequest("the messages bring a data file twice", files=twice)
    unmarked = frozenset(name for message in messages for name in message.deleted_index_files)
    if (gone or unmarked) and request.overwrite is None:
        raise InvalidRequest(
            "only an overwrite takes files away",
            files=[*(e.file.name for e in gone), *sorted(unmarked)],
        )
    bases = [message.base_snapshot_id for message in messages]
    base = None if None in bases else min((b for b in bases if b is not None), default=None)
    named = frozenset(
        (message.base_snapshot_id, message.base_snapshot_uuid)
        for message in messages
        if message.base_snapshot_id is not None
    )
    first = Change(
        kind=_first_kind(request),
        messages=messages,
        delta=[*gone, *new],
        changelog=_entries(messages, FileKind.ADD, lambda m: m.changelog_files),
        indexes=_index_entries(messages, lambda m: m.new_index_files),
        deleted_indexes=unmarked,
        base_snapshot_id=base,
        bases=named,
        replaces_rows=request.replaces_rows,
        replaces_partitions=request.replaces_partitions,
    )
    second = Change(
        kind=CommitKind.COMPACT,
        messages=messages,
        delta=[*before, *after],
        changelog=_entries(messages, FileKind.ADD, lambda m: m.compact_changelog_files),
        indexes=_index_entries(messages, lambda m: m.compact_index_files),
        deleted_indexes=frozenset(
            name for message in messages for name in message.compact_deleted_index_files
        ),
        base_snapshot_id=base,
        bases=named,
    )
    return first, second


def _first_kind(request: CommitRequest) -> CommitKind:
    if request.statistics is not None:
        return CommitKind.ANALYZE
    return CommitKind.APPEND if request.overwrite is None else CommitKind.OVERWRITE


def without_deleted_stats(delta: Sequence[ManifestEntry]) -> list[ManifestEntry]:
    """The entries; those that delete a file have no column statistics."""
    return [
        replace(entry, file=replace(entry.file, value_stats=NO_STATS, value_stats_columns=()))
        if entry.kind is FileKind.DELETE
        else entry
        for entry in delta
    ]


def _entries(
    messages: Sequence[CommitMessage],
    kind: FileKind,
    files: Callable[[CommitMessage], Sequence[DataFile]],
) -> list[ManifestEntry]:
    return [
        ManifestEntry(
            kind=kind,
            partition=message.partition,
            bucket=message.bucket,
            total_buckets=message.total_buckets,
            file=file,
        )
        for message in messages
        for file in files(message)
    ]


def _index_entries(
    messages: Sequence[CommitMessage], files: Callable[[CommitMessage], Sequence[IndexFile]]
) -> list[IndexEntry]:
    entries = [
        IndexEntry(partition=message.partition, bucket=message.bucket, file=file)
        for message in messages
        for file in files(message)
    ]
    seen = Counter(
        (message.partition, message.bucket, part)
        for message in messages
        for file in files(message)
        for part in _parts_of_index(message, file)
    )
    twice = sorted({bucket for (_, bucket, _), count in seen.items() if count > 1})
    if twice:
        raise InvalidRequest(
            "two messages bring an index file of the same bucket; let one writer own a bucket",
            buckets=twice,
        )
    return entries


def _parts_of_index(message: CommitMessage, file: IndexFile) -> Sequence[str]:
    """The parts of an index file that no other index file of the bucket may contain.

    Usually this is the type of the index. An unaware bucket may have several files of deletion
    vectors; there it is the data files whose vectors the file holds.
    """
    if file.index_type == DELETION_VECTORS and message.total_buckets < 0:
        return [vector.data_file for vector in file.vectors or ()]
    return [file.index_type]


def check_watermark(watermark: object) -> None:
    """Raise InvalidRequest for a watermark that a snapshot file cannot hold."""
    if watermark is not None and (not isinstance(watermark, int) or isinstance(watermark, bool)):
        raise InvalidRequest("a watermark is a whole number", watermark=watermark)
    if watermark is not None and not -_LONG_MAX - 1 <= watermark <= _LONG_MAX:
        raise InvalidRequest("a watermark has 64 bits", watermark=watermark)
