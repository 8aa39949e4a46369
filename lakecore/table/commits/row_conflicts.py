"""Conflicts of DELETE, UPDATE and MERGE with concurrent commits, by key.

These verbs read a row and write a new row of the same key. If another commit wrote this key after
the read, one of the two changes would be lost without an error. Therefore each later snapshot is
checked:

1. a compaction is no conflict: it changes no row;
2. an overwrite is a conflict if it removed files from a bucket that this commit writes;
3. files added to such a bucket are a conflict if they hold a key that this commit writes. The keys
   are read and compared only if the key ranges overlap.

New rows that would have matched the condition are not a conflict: a verb changes the rows that
existed when it began. Paimon's own row-level commands on primary-key tables have no such check
(https://paimon.apache.org/docs/master/concepts/concurrency-control/).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.errors import CommitConflict, NotFound
from lakecore.format.layout import POSTPONE_BUCKET
from lakecore.io.files.data_files import BatchSize
from lakecore.merge.keys import order_columns, shared_codes
from lakecore.model.files import Split
from lakecore.model.manifest import FileKind
from lakecore.model.snapshot import CommitKind
from lakecore.rows.fit import show
from lakecore.table.commits.base_snapshot import committed_since
from lakecore.table.reads.scan import key_ranks
from lakecore.table.reads.source import TableSource
from lakecore.table.stored_rows.split_files import SplitFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.model.files import DataFile
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.commits.commit_change import Change
    from lakecore.table.context import TableContext

_BATCH_ROWS = 131_072


def check_rows_untouched(context: TableContext, change: Change, latest: Snapshot) -> None:
    """Raise CommitConflict if another commit wrote a key that this one writes."""
    # Postponed rows have no order among writers before a compaction gives them one.
    messages = [message for message in change.messages if message.bucket != POSTPONE_BUCKET]
    buckets = [(message.partition, message.bucket) for message in messages]
    theirs = _added_since(context, change, latest, frozenset(buckets))
    for message, bucket in zip(messages, buckets, strict=True):
        added = theirs.get(bucket, [])
        if added:
            split = Split(
                partition=message.partition,
                partition_path=context.partitions.path(message.partition),
                bucket=message.bucket,
                total_buckets=message.total_buckets,
                runs=((*message.new_files, *added),),
                raw=True,
            )
            _check_keys(context, split, message.new_files, added)


def _added_since(
    context: TableContext,
    change: Change,
    latest: Snapshot,
    buckets: frozenset[tuple[bytes, int]],
) -> dict[tuple[bytes, int], list[DataFile]]:
    """The files that other commits added to these buckets since the rows were read.

    Raises CommitConflict if another commit removed rows of these buckets, or if snapshots expired.
    """
    added: dict[tuple[bytes, int], list[DataFile]] = defaultdict(list)
    for theirs, entry in changes_since(context, change.base_snapshot_id or 0, latest):
        bucket = (entry.partition, entry.bucket)
        if bucket not in buckets:
            continue
        if entry.kind is FileKind.DELETE:
            raise CommitConflict(
                "another commit has replaced rows that this one changes; do it again",
                table=context.identifier,
                snapshot_id=theirs.id,
                bucket=entry.bucket,
            )
        added[bucket].append(entry.file)
    return added


def changes_since(
    context: TableContext, base: int, latest: Snapshot
) -> Iterator[tuple[Snapshot, ManifestEntry]]:
    """The added and removed files of the snapshots that changed rows, newest first.

    Raises CommitConflict if snapshots since `base` have expired.
    """
    try:
        for theirs, entries in committed_since(context.history, base, latest):
            if theirs.commit_kind not in (CommitKind.COMPACT, CommitKind.ANALYZE):
                yield from ((theirs, entry) for entry in entries)
    except NotFound as error:
        raise CommitConflict(
            "a snapshot committed since the rows were read is gone already; do it again",
            table=context.identifier,
            **error.facts,
        ) from error


def _check_keys(
    context: TableContext, split: Split, mine: Sequence[DataFile], theirs: Sequence[DataFile]
) -> None:
    """Raise CommitConflict if a key of `mine` is in a file of `theirs`."""
    lows, highs = key_ranks([*mine, *theirs], context.schema)
    for index, file in enumerate(mine):
        at = len(mine) + np.flatnonzero(
            (lows[len(mine) :] <= highs[index]) & (highs[len(mine) :] >= lows[index])
        )
        if not len(at):
            continue
        own = pa.concat_tables(_keys(context, split, file))
        for other in at.tolist():
            for rows in _keys(context, split, theirs[other - len(mine)]):
                _check_disjoint(context, own, rows)


def _check_disjoint(context: TableContext, own: pa.Table, others: pa.Table) -> None:
    mine, theirs = shared_codes([order_columns(own.columns), order_columns(others.columns)])
    shared = np.flatnonzero(np.isin(mine, theirs))
    if len(shared):
        raise CommitConflict(
            "another commit has changed a row that this one changes; do it again",
            table=context.identifier,
            key=tuple(show(column[shared[0].item()]) for column in own.columns),
            rows=len(shared),
        )


def _keys(context: TableContext, split: Split, file: DataFile) -> Iterator[pa.Table]:
    """The keys of a file, without partition columns."""
    names = context.schema.trimmed_primary_keys
    source = TableSource(context=context, snapshot=None, table_schema=context.schema)
    plan = source.read_plan([split], names)
    fields = context.schema.key_fields
    files = SplitFiles(split, plan, context.store)
    for batch in files.rows(file, fields, BatchSize(_BATCH_ROWS)):
        yield pa.Table.from_batches([batch])
