"""Rules for conflicts between a commit and concurrent commits; a conflict raises CommitConflict.

The changes of a commit were computed from some snapshot; the table may have changed since.
(https://paimon.apache.org/docs/master/concepts/concurrency-control/)

1. A deleted file must still be live; otherwise another commit compacted or overwrote it.
2. An added file must not exist yet.
3. On a primary-key table, files of one bucket and level above 0 must not overlap by key.
4. A partition keeps its number of buckets, unless it is overwritten.
5. If compaction looks up rows, the levels above 0 must not have changed since the look-up. Another
   compaction may have written a row of the same key into a level that was not searched, and the row
   of the lower level would win, even if it is older.
6. If files of level 0 are compacted, no older file may stay in level 0. Such a file would be above
   the output: its rows would win over newer rows, and deleted rows would reappear. A conflict
   arises if a write compacts files that are not committed yet, and another commit adds files before
   them. A file of level 0 that only gets a new entry (another file index) moves behind all others,
   and must not pass a file whose rows are newer only because they were committed later.
7. Dynamic buckets assign keys by an index of the whole partition. If the index has changed, a key
   could be in two buckets.
8. The deletion vector of a data file that was read, marked or compacted must not have changed, and
   the file must still be live. Otherwise rows that another commit deleted would reappear.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from lakecore.errors import AlreadyExists, CommitConflict
from lakecore.format.binary_row import decode_rows
from lakecore.merge.keys import order_columns, shared_codes
from lakecore.model.files import DELETION_VECTORS, HASH_INDEX, CommitMessage, DataFile
from lakecore.model.manifest import EntryIdentity, FileKind, IndexEntry, ManifestEntry
from lakecore.options import POSTPONE_BUCKET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakecore.model.types import Field


def check_files(
    live: Iterable[ManifestEntry], delta: Sequence[ManifestEntry], key_fields: Sequence[Field]
) -> None:
    """Check rules 1 to 3: `delta` must apply to the live files of the partitions it touches."""
    after: dict[EntryIdentity, ManifestEntry] = {entry.identity: entry for entry in live}
    for entry in delta:
        identity = entry.identity
        if entry.kind is FileKind.DELETE:
            if after.pop(identity, None) is None:
                raise CommitConflict(
                    "a file to be replaced is gone: another commit compacted or overwrote it; "
                    "read the table again and redo",
                    file=entry.file.name,
                    bucket=entry.bucket,
                    level=entry.file.level,
                )
        elif identity in after:
            raise CommitConflict("a file to be added is there already", file=entry.file.name)
        else:
            after[identity] = entry
    if key_fields:
        touched = {(entry.partition, entry.bucket) for entry in delta}
        inside = [e for e in after.values() if (e.partition, e.bucket) in touched]
        _check_overlap(inside, key_fields)


def _check_overlap(entries: Sequence[ManifestEntry], key_fields: Sequence[Field]) -> None:
    levels: dict[tuple[bytes, int, int], list[int]] = defaultdict(list)
    for index, entry in enumerate(entries):
        if entry.file.level > 0:
            levels[entry.partition, entry.bucket, entry.file.level].append(index)
    if not levels:
        return
    low = decode_rows([entry.file.key_min for entry in entries], key_fields)
    high = decode_rows([entry.file.key_max for entry in entries], key_fields)
    lows, highs = shared_codes([order_columns(low.columns), order_columns(high.columns)])
    for (_, bucket, level), inside in levels.items():
        at = np.array(inside)[np.argsort(lows[inside], kind="stable")]
        clash = np.flatnonzero(highs[at[:-1]] >= lows[at[1:]])
        if len(clash):
            first, second = (entries[at[clash[0] + step]].file.name for step in (0, 1))
            raise CommitConflict(
                "files of one level would overlap: another commit compacted the bucket; "
                "read the table again and redo",
                bucket=bucket,
                level=level,
                files=[first, second],
            )


def check_levels(live: Iterable[ManifestEntry], messages: Sequence[CommitMessage]) -> None:
    """Check rule 5 against the live files of the partitions that the messages touch."""
    looked = {(m.partition, m.bucket): m for m in messages if m.compact_unchanged is not None}
    if not looked:
        return
    there: dict[tuple[bytes, int], set[str]] = defaultdict(set)
    for entry in live:
        if entry.file.level > 0:
            there[entry.partition, entry.bucket].add(entry.file.name)
    for bucket, message in looked.items():
        left = there[bucket] - {file.name for file in message.compact_before}
        changed = left ^ set(message.compact_unchanged or ())
        if changed:
            raise CommitConflict(
                "another commit compacted a bucket whose rows were looked up; read the table again "
                "and redo",
                bucket=message.bucket,
                files=sorted(changed),
            )


def check_newest(
    live: Sequence[ManifestEntry], messages: Sequence[CommitMessage], key_fields: Sequence[Field]
) -> None:
    """Check rule 6 against the live files of the touched partitions, which are in commit order."""
    compacting = {
        (message.partition, message.bucket): message
        for message in messages
        if key_fields and any(file.level == 0 for file in message.compact_before)
    }
    if not compacting:
        return
    inside: dict[tuple[bytes, int], list[DataFile]] = defaultdict(list)
    for entry in live:
        if (entry.partition, entry.bucket) in compacting:
            inside[entry.partition, entry.bucket].append(entry.file)
    for bucket, message in compacting.items():
        clash = _came_before(inside[bucket], message, key_fields)
        if clash is not None:
            raise CommitConflict(
                "another commit added rows to a bucket before the write that compacts it; compact "
                "again",
                bucket=message.bucket,
                file=clash.name,
            )
        clash = _passed(inside[bucket], message)
        if clash is not None:
            raise CommitConflict(
                "another commit added rows to a bucket whose entries this commit replaces; plan "
                "the commit again",
                bucket=message.bucket,
                file=clash.name,
            )


def _came_before(
    files: Sequence[DataFile], message: CommitMessage, key_fields: Sequence[Field]
) -> DataFile | None:
    """A file of the bucket that violates rule 6; None if there is none.

    Files are in commit order.
    """
    compacted = {file.name for file in message.compact_before}
    new = _new_compacted(message)
    last = max((at for at, file in enumerate(files) if file.name in new), default=0)
    newest = max(file.sequence_max for file in message.compact_before)
    between = [
        file
        for file in files[:last]
        if file.level == 0 and file.name not in compacted and file.sequence_min <= newest
    ]
    return _first_overlap(message.compact_before, between, key_fields)


def _passed(files: Sequence[DataFile], message: CommitMessage) -> DataFile | None:
    """A file that a file with a new entry must not pass; None if there is none.

    Files are in commit order.
    """
    moving = _entries_changed(message)
    passing: list[DataFile] = []
    for file in files:
        if file.name in moving:
            passing.append(file)
        elif file.level == 0 and any(may_tie(each, file) for each in passing):
            return file
    return None


def may_tie(file: DataFile, other: DataFile) -> bool:
    """Whether rows of two files may have equal sequence numbers: concurrent writers do.

    If two such rows have the same key, the row in the file that is listed last is newer.
    """
    return file.sequence_min <= other.sequence_max and other.sequence_min <= file.sequence_max


def _new_compacted(message: CommitMessage) -> set[str]:
    """The files of level 0 that are compacted; some may have been committed just before."""
    level_0 = {file.name for file in message.compact_before if file.level == 0}
    return level_0 - _entries_changed(message)


def _entries_changed(message: CommitMessage) -> set[str]:
    """The files of level 0 that stay and only get another entry."""
    before = {file.name for file in message.compact_before}
    return {file.name for file in message.compact_after if file.level == 0} & before


def _first_overlap(
    files: Sequence[DataFile], others: Sequence[DataFile], key_fields: Sequence[Field]
) -> DataFile | None:
    """The first of `others` whose key range overlaps that of one of the files, or None."""
    if not others:
        return None
    every = [*files, *others]
    low = decode_rows([file.key_min for file in every], key_fields)
    high = decode_rows([file.key_max for file in every], key_fields)
    lows, highs = shared_codes([order_columns(low.columns), order_columns(high.columns)])
    count = len(files)
    for at, other in enumerate(others, count):
        if np.any((lows[:count] <= highs[at]) & (highs[:count] >= lows[at])):
            return other
    return None


def check_bucket_counts(known: Mapping[bytes, int], messages: Sequence[CommitMessage]) -> None:
    """Check rule 4 against the known bucket count of each partition."""
    for message in messages:
        if message.bucket == POSTPONE_BUCKET:
            continue
        count = known.get(message.partition, message.total_buckets)
        if count != message.total_buckets:
            raise CommitConflict(
                "another commit changed the number of buckets of a partition; write again",
                buckets=count,
                written_with=message.total_buckets,
            )


def check_vectors(
    live: Iterable[ManifestEntry], now: Iterable[IndexEntry], messages: Sequence[CommitMessage]
) -> None:
    """Check rule 8 against the live files and index files (`now`) of the touched partitions."""
    reading = [message for message in messages if message.vectors_read is not None]
    if not reading:
        return
    files = {(entry.partition, entry.bucket, entry.file.name) for entry in live}
    held: dict[tuple[bytes, int], dict[str, str]] = defaultdict(dict)
    names: set[str] = set()
    for entry in now:
        if entry.file.index_type == DELETION_VECTORS:
            names.add(entry.file.name)
            for vector in entry.file.vectors or ():
                held[entry.partition, entry.bucket][vector.data_file] = entry.file.name
    for message in reading:
        mine = {file.name for file in (*message.new_index_files, *message.compact_index_files)}
        if mine & names:
            raise AlreadyExists(
                "the messages were committed before: an index file they bring is in the table",
                file=min(mine & names),
                bucket=message.bucket,
            )
        bucket = (message.partition, message.bucket)
        changed = [
            file
            for file, index in message.vectors_read or ()
            if held[bucket].get(file) != index or (*bucket, file) not in files
        ]
        replaced = {*message.deleted_index_files, *message.compact_deleted_index_files}
        if changed or not replaced <= names:
            raise CommitConflict(
                "another commit deleted or compacted rows of a data file that this one changes; "
                "read the table again and redo",
                bucket=message.bucket,
                files=changed or sorted(replaced - names),
            )


def check_hash_indexes(
    before: Iterable[IndexEntry], now: Iterable[IndexEntry], messages: Sequence[CommitMessage]
) -> None:
    """Check rule 7: no other commit changed the key index of a partition that messages write."""
    touched = {message.partition for message in messages}
    seen, latest = (
        {
            (entry.partition, entry.bucket, entry.file.name)
            for entry in entries
            if entry.partition in touched and entry.file.index_type == HASH_INDEX
        }
        for entries in (before, now)
    )
    if seen != latest:
        raise CommitConflict(
            "another commit added keys to the dynamic buckets of a partition that this one writes; "
            "write again, or let one writer do it",
            buckets=sorted({bucket for _, bucket, _ in seen ^ latest}),
        )
