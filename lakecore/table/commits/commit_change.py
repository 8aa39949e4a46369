"""Computes from commit messages which files each snapshot of a commit adds and deletes.

APPEND (or OVERWRITE) adds the new files; COMPACT applies what compaction replaced. A file that is
written and compacted in one commit is added by the first snapshot and deleted by the second.

A distributed job may hand on its new files as encoded manifests (`EncodedFiles`): no process then
holds an object for each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

from lakecore.errors import CorruptTable, InvalidRequest, LakecoreError, NotFound
from lakecore.format.manifest_files import decode_entries, decode_manifest, encode_manifest
from lakecore.io.ambient import JOB_ID_LENGTH
from lakecore.io.parallel import read_all
from lakecore.model.files import DELETION_VECTORS, NO_STATS, CommitMessage, DataFile, IndexFile
from lakecore.model.manifest import FileKind, IndexEntry, ManifestEntry
from lakecore.model.snapshot import (
    BATCH_COMMIT_IDENTIFIER,
    CommitKind,
    CommitResult,
    Snapshot,
    stated_identifier,
)

if TYPE_CHECKING:
    from lakecore.io.history import History
    from lakecore.table.context import TableContext

RECENT_MS = 1_000
"""How long a verb relies on what it has read of its table."""
_RACED_MS = 60_000

PartitionFilter = Callable[[Sequence[bytes]], Sequence[bool]]
"""Takes serialized partitions; returns for each whether an overwrite clears it."""
_LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a verb has read of its table: the newest snapshot, and the id of the newest schema.

    `at_ms`: the time when the read began. `schema_id`: None if the schemas were not read.
    """

    snapshot: Snapshot | None
    at_ms: int
    schema_id: int | None = None

    def is_recent(self, context: TableContext) -> bool:
        """Whether the facts may be used without another read; if outdated, publication fails.

        After a recently lost race, the answer is False: a lost race costs more than a read.
        """
        now_ms, raced_ms = context.ambient.now_ms(), context.history.lost_race_ms
        alone = raced_ms is None or now_ms - raced_ms > _RACED_MS
        return alone and 0 <= now_ms - self.at_ms <= RECENT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """The messages to commit, with user, identifier and rules.

    - `overwrite`: selects the partitions to clear (None: nothing is cleared);
    - `force`: commits even without changes, so that the identifier is recorded;
    - `replaces_rows`: the rows were computed from rows of the snapshot that the messages name, so
      a concurrent change of those rows is a conflict;
    - `replaces_partitions`: the messages replace all rows of each partition whose files they
      delete. A concurrent commit that adds a file to such a partition is a conflict;
    - `encoded`: more new files to add, as encoded manifests;
    - `from_elsewhere`: the messages come from a caller, so check that their files exist;
    - `statistics`: the new statistics file; the snapshot is then of kind ANALYZE;
    - `merges_manifests`: makes a COMPACT snapshot without changes, for its merged manifests;
    - `seen`: what the verb has read of the table, which is not read again if recent.
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
    seen: Seen | None = None
    encoded: Sequence[EncodedFiles] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The changes of one snapshot, computed from snapshot `base_snapshot_id` or a later one.

    `bases`: the snapshots that the messages name, each with id and uuid. `encoded`: more added
    files. For each of their partitions, `messages` has one message without files.
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
    encoded: Sequence[EncodedFiles] = ()

    @property
    def is_empty(self) -> bool:
        changed = self.delta or self.changelog or self.indexes or self.deleted_indexes
        return not (changed or self.encoded)


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
            "properties are a mapping of strings to strings", properties=type(properties).__name__
        )
    for name, text in properties.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise InvalidRequest("a property of a commit is a string", property=name, value=text)


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
    messages = [*messages, *(part for each in request.encoded for part in each.partitions())]
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
        encoded=request.encoded,
    )
    second = Change(
        kind=CommitKind.COMPACT,
        messages=request.messages,
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
    """The entries, without column statistics where an entry deletes a file."""
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
            "two messages add an index file of the same bucket; let one writer own a bucket",
            buckets=twice,
        )
    return entries


def _parts_of_index(message: CommitMessage, file: IndexFile) -> Sequence[str]:
    """The parts of an index file that no other index file of the bucket may contain.

    Usually the only part is the type of the index. An unaware bucket may have several files of
    deletion vectors, whose parts are the data files that have a vector in the index file.
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


# --- encoded files -------------------------------------------------------------------------------
# The new files of many messages as manifests, made by the task that wrote the files.
#
# A message as objects takes 4 kB and 140 microseconds of the committing process. A million of them
# would outgrow the driver of a job. Encoded, a message takes 200 bytes, and the blocks of a task's
# manifest are written as they are.

_FACTS = (
    *("_KIND", "_PARTITION", "_BUCKET", "_TOTAL_BUCKETS", "_LEVEL", "_SCHEMA_ID"),
    *("_ROW_COUNT", "_FILE_SIZE", "_FIRST_ROW_ID"),
)
_OF_TASK = "files of a task"
"""What errors name in place of a path."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EncodedEntries:
    """ADD entries as a manifest (`data`), and the columns `_FACTS` of the manifest."""

    data: bytes
    facts: pl.DataFrame

    @staticmethod
    def of(entries: Sequence[ManifestEntry], compression: str, file_format: str) -> EncodedEntries:
        return EncodedEntries.read(encode_manifest(entries, compression, file_format))

    @staticmethod
    def read(data: bytes) -> EncodedEntries:
        return EncodedEntries(data=data, facts=decode_entries(data, _OF_TASK).select(_FACTS))

    @property
    def file_count(self) -> int:
        return self.facts.height

    @property
    def row_count(self) -> int:
        return int(self.facts["_ROW_COUNT"].sum())

    @property
    def size_bytes(self) -> int:
        return int(self.facts["_FILE_SIZE"].sum())

    def entries(self) -> list[ManifestEntry]:
        return decode_manifest(self.data, _OF_TASK)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EncodedFiles:
    """The new files of one task of a job. Picklable; stands for messages that add nothing else.

    `job`: the beginning of the job's id, which is in the names of all files of the job.
    `schema_id`: the schema of the files. `new`: files of rows; `changelog`: changelog files. For
    the base snapshot, see `CommitMessage`.
    """

    job: str
    schema_id: int
    new: EncodedEntries
    changelog: EncodedEntries | None = None
    base_snapshot_id: int | None = None
    base_snapshot_uuid: str | None = None

    @property
    def parts(self) -> Sequence[EncodedEntries]:
        return [self.new] if self.changelog is None else [self.new, self.changelog]

    def partitions(self) -> Iterator[CommitMessage]:
        """A message without files for each partition and number of buckets, for the checks."""
        postponed = pl.col("_BUCKET").clip(upper_bound=0)
        facts = self.new.facts.select("_PARTITION", postponed, "_TOTAL_BUCKETS")
        for partition, bucket, total_buckets in facts.unique(maintain_order=True).iter_rows():
            yield self._message(partition, bucket, total_buckets)

    def messages(self) -> Iterator[CommitMessage]:
        """The messages, decoded: one for each file."""
        for entry in self.new.entries():
            message = self._message(entry.partition, entry.bucket, entry.total_buckets)
            yield replace(message, new_files=(entry.file,))
        for entry in self.changelog.entries() if self.changelog is not None else ():
            message = self._message(entry.partition, entry.bucket, entry.total_buckets)
            yield replace(message, changelog_files=(entry.file,))

    def file_names(self) -> Iterator[str]:
        """The names of all files, with those that belong to them."""
        for part in self.parts:
            columns = decode_entries(part.data, _OF_TASK)
            yield from columns["_FILE_NAME"]
            yield from columns["_EXTRA_FILES"].explode().drop_nulls()

    def _message(self, partition: bytes, bucket: int, total_buckets: int) -> CommitMessage:
        return CommitMessage(
            partition=partition,
            bucket=bucket,
            total_buckets=total_buckets,
            base_snapshot_id=self.base_snapshot_id,
            base_snapshot_uuid=self.base_snapshot_uuid,
        )


@dataclass(frozen=True, slots=True, eq=False)
class AllEntries:
    """Entries, followed by encoded ones, which are decoded again each time."""

    entries: Sequence[ManifestEntry]
    encoded: Sequence[EncodedFiles]

    def __iter__(self) -> Iterator[ManifestEntry]:
        yield from self.entries
        for each in self.encoded:
            yield from each.new.entries()


def encode_files(
    context: TableContext, messages: Sequence[CommitMessage], job: str
) -> EncodedFiles | None:
    """The messages of a task of `job` as encoded files.

    None if the messages do more than add files, or if the entries depend on the snapshot to come.
    """
    options = context.options
    if options.row_tracking_enabled or options.sequence_snapshot_ordering:
        return None
    bare = {
        replace(message, partition=b"", bucket=0, total_buckets=0, new_files=(), changelog_files=())
        for message in messages
    }
    schema_ids = {file.schema_id for message in messages for file in message.new_files}
    if len(bare) != 1 or len(schema_ids) != 1:
        return None
    (left,), (schema_id,) = bare, schema_ids
    only_new = replace(left, base_snapshot_id=None, base_snapshot_uuid=None)
    if only_new != CommitMessage(partition=b"", bucket=0, total_buckets=0):
        return None
    form = options.manifest_compression, options.manifest_format
    changelog = _entries(messages, FileKind.ADD, lambda m: m.changelog_files)
    return EncodedFiles(
        job=job[:JOB_ID_LENGTH],
        schema_id=schema_id,
        new=EncodedEntries.of(_entries(messages, FileKind.ADD, lambda m: m.new_files), *form),
        changelog=EncodedEntries.of(changelog, *form) if changelog else None,
        base_snapshot_id=left.base_snapshot_id,
        base_snapshot_uuid=left.base_snapshot_uuid,
    )


# --- message files -------------------------------------------------------------------------------
# The files that commit messages name, and their removal when the messages will not be committed.
#
# A file that cannot be removed is an orphan, not an error.

_SHOWN_MAX = 3


def delete_files(
    context: TableContext,
    messages: Iterable[CommitMessage],
    encoded: Iterable[EncodedFiles] = (),
) -> None:
    """Remove all new files of messages, and encoded files, that will never be committed."""
    decoded = (message for each in encoded for message in each.messages())
    for message in chain(messages, decoded):
        _delete(context, _brought(context, message))


def delete_compaction_files(context: TableContext, messages: Sequence[CommitMessage]) -> None:
    """Remove the files that the compactions of messages wrote; the other files are committed."""
    for message in messages:
        made = _made_by_compaction(message)
        _delete(context, _paths(context, message, made, message.compact_index_files))


def delete_left_out(
    context: TableContext, messages: Sequence[CommitMessage], kept: Sequence[CommitMessage]
) -> None:
    """Remove the new files of each message that its counterpart in `kept` does not name."""
    for before, after in zip(messages, kept, strict=True):
        named = {file.name for file in after.new_files}
        gone = tuple(file for file in before.new_files if file.name not in named)
        _delete(context, _paths(context, before, gone, ()))


def delete_other_indexes(
    context: TableContext, messages: Sequence[CommitMessage], later: Sequence[CommitMessage]
) -> None:
    """Remove the index files that each replacement message in `later` added to its original."""
    for before, after in zip(messages, later, strict=False):
        if after is not before:
            _delete(context, _paths(context, after, (), after.compact_index_files))


def check_files_are_there(context: TableContext, messages: Iterable[CommitMessage]) -> None:
    """Raise InvalidRequest if a data file of the messages does not exist."""
    paths = [
        path for message in messages for path in _paths(context, message, _data_files(message), ())
    ]
    there = read_all(context.store.exists, paths)
    missing = [path for path, is_there in zip(paths, there, strict=True) if not is_there]
    if missing:
        raise InvalidRequest(
            "files of the messages are not there: they are another table's, or were aborted or "
            "rolled back",
            table=context.identifier,
            files=missing[:_SHOWN_MAX],
        )


def check_not_committed(context: TableContext, messages: Sequence[CommitMessage]) -> None:
    """Raise InvalidRequest if messages were committed: their files belong to the table."""
    mine = {file.name for message in messages for file in _data_files(message)}
    snapshot = context.history.latest_snapshot() if mine else None
    bases = {message.base_snapshot_id for message in messages}
    oldest = 0 if None in bases else min((base for base in bases if base is not None), default=0)
    if snapshot is not None and snapshot.id < oldest:
        oldest = 0
    while snapshot is not None and snapshot.id > oldest:
        entries = context.history.entries(context.history.delta_manifests(snapshot))
        used = next((entry.file.name for entry in entries if entry.file.name in mine), None)
        if used is not None:
            raise InvalidRequest(
                "the messages were committed: their files are the table's, and stay",
                table=context.identifier,
                file=used,
                snapshot_id=snapshot.id,
            )
        snapshot = context.history.snapshot_if_there(snapshot.id - 1) if snapshot.id > 1 else None


def compaction_is_there(context: TableContext, messages: Sequence[CommitMessage]) -> bool:
    """Whether all files that the compactions of messages wrote still exist."""
    return all(
        context.store.exists(path)
        for message in messages
        for path in _paths(
            context, message, _made_by_compaction(message), message.compact_index_files
        )
    )


def _made_by_compaction(message: CommitMessage) -> tuple[DataFile, ...]:
    # INVARIANT: a file that only changed its level is still in the table, under the same name.
    there = {file.name for file in (*message.new_files, *message.compact_before)}
    made = (*message.compact_after, *message.compact_changelog_files)
    return tuple(file for file in made if file.name not in there)


def _delete(context: TableContext, paths: Sequence[str]) -> None:
    for path in paths:
        with suppress(LakecoreError, OSError):
            context.store.delete(path)


def _brought(context: TableContext, message: CommitMessage) -> list[str]:
    """The paths of all files that a message adds."""
    indexes = (*message.new_index_files, *message.compact_index_files)
    return _paths(context, message, _data_files(message), indexes)


def _data_files(message: CommitMessage) -> tuple[DataFile, ...]:
    """The data and changelog files that the message adds."""
    return (*message.new_files, *message.changelog_files, *_made_by_compaction(message))


def _paths(
    context: TableContext,
    message: CommitMessage,
    files: Sequence[DataFile],
    indexes: Sequence[IndexFile],
) -> list[str]:
    layout, partition = context.layout, context.partitions.path(message.partition)
    paths = [layout.data_file(partition, message.bucket, file) for file in files]
    paths += [
        layout.extra_file(partition, message.bucket, file, name)
        for file in files
        for name in file.extra_files
    ]
    paths += [layout.live_index_file(partition, message.bucket, index) for index in indexes]
    return paths


# --- base snapshot -------------------------------------------------------------------------------
# The history since an earlier snapshot: whether it still exists, and which commits followed.
#
# A rollback removes snapshots, and later commits reuse their ids. The uuid distinguishes two
# snapshots with the same id. (Paimon before 1.2 writes no uuid.)

_AT_ONCE = 64

Base: TypeAlias = tuple[int, str | None]
"""The id and the uuid of a snapshot."""


def was_rolled_back(history: History, base: Base, latest: Snapshot) -> bool:
    """Whether a rollback has removed the snapshot `base`. False if it has only expired."""
    snapshot_id, uuid = base
    if snapshot_id > latest.id:
        return True
    there = None if uuid is None else history.commits.at(snapshot_id, latest)
    return there is not None and there.uuid is not None and there.uuid != uuid


def is_there(history: History, snapshot: Snapshot, latest: Snapshot) -> bool:
    """Whether the snapshot still exists: it has not expired, and no rollback has removed it."""
    if was_rolled_back(history, (snapshot.id, snapshot.uuid), latest):
        return False
    return snapshot.id == latest.id or snapshot.id in history.snapshot_ids()


def committed_since(
    history: History, snapshot_id: int, latest: Snapshot
) -> Iterator[tuple[Snapshot, Sequence[ManifestEntry]]]:
    """The snapshots after `snapshot_id`, newest first, each with its own changes.

    Raises NotFound on reaching a snapshot that has expired.
    """
    snapshots = history.commits.after(snapshot_id, latest)
    for first in range(0, len(snapshots), _AT_ONCE):
        some = snapshots[first : first + _AT_ONCE]
        try:
            deltas = history.deltas(some)
        except CorruptTable as error:
            if history.snapshot_if_there(some[-1].id) is not None:
                raise
            raise _expired(some[-1].id) from error
        yield from zip(some, deltas, strict=True)
    if len(snapshots) < latest.id - snapshot_id:
        raise _expired(latest.id - len(snapshots))


def _expired(snapshot_id: int) -> NotFound:
    return NotFound("the snapshot has expired", snapshot_id=snapshot_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """The fields that a snapshot inherits from the previous snapshot."""

    total_record_count: int | None = None
    schema_id: int = 0
    watermark: int | None = None
    next_row_id: int = 0

    @staticmethod
    def of(latest: Snapshot | None) -> Inherited:
        """The fields that the next snapshot inherits from a snapshot; empty if there is none."""
        if latest is None:
            return Inherited()
        return Inherited(
            total_record_count=latest.total_record_count,
            schema_id=latest.schema_id,
            watermark=latest.watermark,
            next_row_id=latest.next_row_id or 0,
        )


# --- committed -----------------------------------------------------------------------------------
# Finds the commits of a user by searching the snapshots, newest first.
#
# A job that numbers its commits keeps its commit user over restarts. If a snapshot of that user has
# the number of a commit or a larger one, that commit was made
# (https://paimon.apache.org/docs/master/concepts/snapshot/).
#
# If the process died between the two snapshots of a commit, the second is missing, and can still be
# made from the same messages.


def last_committed(context: TableContext, user: str) -> Snapshot | None:
    """The newest snapshot that a user committed under an identifier; None if there is none.

    Batch commits have no identifier of their own and are ignored: otherwise a job with both kinds
    of commits would treat each of its later numbered commits as done.
    """
    return _last_numbered(context, user, context.history.latest_snapshot())


def committed(
    context: TableContext, request: CommitRequest, latest: Snapshot | None
) -> CommitResult | None:
    """The result of an earlier commit under the same user and identifier, if there was one.

    Snapshots after `latest` are ignored.
    """
    last = _last_numbered(context, request.user, latest)
    if last is None or last.commit_identifier < request.identifier:
        return None
    found: list[int] = []
    for snapshot in _newest_first(context, last):
        if snapshot.commit_user != request.user:
            continue
        if snapshot.commit_identifier == request.identifier:
            found.append(snapshot.id)
        # If a commit has two snapshots, the first one is not of kind COMPACT.
        if snapshot.commit_identifier < request.identifier or (
            found and snapshot.commit_kind is not CommitKind.COMPACT
        ):
            break
    return CommitResult(
        snapshot_ids=tuple(sorted(found)),
        commit_user=request.user,
        identifier=stated_identifier(request.identifier),
        facts={"already_committed": 1},
    )


def may_go_on(context: TableContext, request: CommitRequest, done: CommitResult) -> bool:
    """Whether these messages can still make the missing COMPACT snapshot of an earlier commit.

    True if that commit added exactly the files of the messages, and the files that compaction wrote
    exist.
    """
    messages = [message for message in request.messages if message.compact_before]
    if not messages or len(done.snapshot_ids) != 1:
        return False
    history = context.history
    try:
        snapshot = history.snapshot(done.snapshot_ids[0])
    except NotFound:
        return False
    if snapshot.commit_kind is CommitKind.COMPACT:
        return False
    added = {entry.file.name for entry in history.entries(history.delta_manifests(snapshot))}
    mine = {file.name for message in request.messages for file in message.new_files}
    return bool(mine) and mine <= added and compaction_is_there(context, messages)


def _last_numbered(context: TableContext, user: str, latest: Snapshot | None) -> Snapshot | None:
    return context.history.commits.last_numbered(user, latest)


def _newest_first(context: TableContext, newest: Snapshot | None) -> Iterator[Snapshot]:
    """The live snapshots up to `newest`, newest first."""
    while newest is not None:
        yield newest
        newest = context.history.snapshot_if_there(newest.id - 1) if newest.id > 1 else None
