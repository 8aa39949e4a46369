"""Commits the outcomes of all tasks at once, and removes leftover files.

1. If a task failed, its error is raised.
2. If two tasks wrote the same bucket, an error is raised: rows of one key would have equal sequence
   numbers, and the bucket would have two hash indexes.
3. The new schema of the write, if any, is stored.
4. `commit` makes one snapshot of all messages; it is idempotent for user and identifier.

Files of lost attempts are removed after the commit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore import CommitMessage, CommitResult, InvalidRequest, LakecoreError
from lakecore.distributed import (
    BUCKET_PREFIX,
    JOB_ID_LENGTH,
    MANAGED_BLOB_SUFFIX,
    POSTPONE_BUCKET,
    Author,
    Evolution,
    TableContext,
    commit_append,
    commit_overwrite,
    crosses_partitions,
    delete_files,
)
from spark_bridge.failures import DATA_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spark_bridge.task import TaskOutcome


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The files of a Spark job, by the id of the job; `lost`: see `Answers`."""

    job: str
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """How to commit the messages: append or overwrite, and the commit user.

    `assigners`: the number of tasks that shared the dynamic buckets of a partition. `skip_empty`:
    an append without rows makes no snapshot. `evolution`: the schema of the rows, if not yet
    stored.
    """

    by: Author
    overwrite: bool = False
    partition: Mapping[str, object] = field(default_factory=dict)
    dynamic: bool = False
    assigners: int = 1
    skip_empty: bool = False
    evolution: Evolution | None = None


def publish(
    context: TableContext, outcomes: Sequence[TaskOutcome], how: Publication
) -> CommitResult:
    """Commit the files of the tasks once. If the commit certainly failed, remove the files."""
    messages = [message for outcome in outcomes for message in outcome.messages]
    try:
        for outcome in outcomes:
            if outcome.failure is not None:
                raise outcome.failure
        refuse_shared_buckets(context, outcomes, how.assigners)
    except DATA_ERRORS:
        delete_files(context, messages)
        raise
    if how.evolution is not None:
        how.evolution.publish(context)
    if how.overwrite:
        return commit_overwrite(context, messages, how.partition, how.by, dynamic=how.dynamic)
    return commit_append(context, messages, how.by, skip_empty=how.skip_empty)


def refuse_shared_buckets(
    context: TableContext, outcomes: Sequence[TaskOutcome], assigners: int = 1
) -> None:
    """Raise InvalidRequest if two tasks wrote a bucket that only one task may write.

    A task may write any bucket of the assigners whose keys it has. If two tasks have keys of the
    same assigner, both may have written the same key.
    """
    schema, options = context.schema, context.options
    if not schema.primary_keys:
        return
    owners: Counter[tuple[bytes, int]] = Counter()
    counts: defaultdict[bytes, set[int]] = defaultdict(set)
    for outcome in outcomes:
        owned = set()
        for message in outcome.messages:
            if message.bucket == POSTPONE_BUCKET:
                continue
            counts[message.partition].add(message.total_buckets)
            owned.add(_owned(context, message, assigners))
        owners.update(owned)
    shared = [key for key, count in owners.items() if count > 1]
    # If tasks decided on different numbers of buckets for a new partition, none had all its rows.
    shared += [(partition, 0) for partition, found in counts.items() if len(found) > 1]
    if shared:
        partition, bucket = shared[0]
        by_bucket = options.bucket > 0
        raise InvalidRequest(
            f"several tasks wrote the same {'bucket' if by_bucket else 'partition'}: write "
            "spark_bridge.prepare(df, table) in place of df, or use spark_bridge.write(df, table); "
            "few rows go in by INSERT INTO ... SELECT /*+ COALESCE(1) */ ...",
            table=context.identifier,
            partition=dict(context.partitions.texts(partition)) if partition else {},
            bucket=bucket if by_bucket else "dynamic",
            shared=len(shared),
        )


def _owned(context: TableContext, message: CommitMessage, assigners: int) -> tuple[bytes, int]:
    """The unit of a message that only one task may write: a bucket, an assigner, or the table."""
    if crosses_partitions(context):
        return b"", 0
    bucket = message.bucket
    return message.partition, bucket % assigners if context.options.bucket == -1 else bucket


# --- job files -----------------------------------------------------------------------------------
# Removal of the files that lost attempts of a job (retried, run twice, killed) have left.
#
# After a commit, if an attempt may have been lost (`spread.attempts_lost`), the directories of the
# written buckets are searched for files of the job that are in no message; after a failed job, all
# directories.
#
# INVARIANT: only files of this job are removed, never a committed file, and none if it is not
# certain whether the commit happened. No message names the managed files of BLOB values, to which
# committed rows refer: after a commit, all of them stay.

_LISTERS = 16


def remove_leftovers(
    context: TableContext,
    job: str,
    messages: Sequence[CommitMessage],
    buckets: Iterable[tuple[bytes, int]] = (),
    *,
    lost: bool = True,
) -> int:
    """Remove the files of lost attempts from the written buckets. Returns their number.

    `buckets`: more buckets that lost attempts may have written, by partition and number. `lost`: if
    False, no attempt was lost, and nothing is listed.
    """
    if not lost:
        return 0
    kept = {name for message in messages for name in _names(message)}
    layout = context.layout
    written = {(message.partition, message.bucket) for message in messages}
    directories = {
        layout.bucket_dir(context.partitions.path(partition), bucket)
        for partition, bucket in {*written, *buckets}
    }
    if any(message.new_index_files for message in messages):
        directories.add(layout.index_dir)
    return _remove(context, job, sorted(directories), kept)


def remove_files_of_job(context: TableContext, job: str) -> int:
    """Remove every file of a job that did not commit. Returns their number."""
    layout = context.layout
    directories = [layout.data_dir]
    for _ in context.schema.partition_keys:
        with ThreadPoolExecutor(_LISTERS) as pool:
            below = pool.map(lambda each: _directories(context, each, "="), directories)
            directories = [child for children in below for child in children]
    with ThreadPoolExecutor(_LISTERS) as pool:
        below = pool.map(lambda each: _directories(context, each, BUCKET_PREFIX), directories)
        buckets = [child for children in below for child in children]
    return _remove(context, job, [*buckets, layout.index_dir], frozenset())


def _directories(context: TableContext, directory: str, mark: str) -> list[str]:
    return [
        child.path
        for child in context.store.list(directory)
        if child.is_directory and mark in child.path.rsplit("/", 1)[-1]
    ]


def _remove(
    context: TableContext, job: str, directories: Sequence[str], kept: Iterable[str]
) -> int:
    begin, known = job[:JOB_ID_LENGTH], frozenset(kept)
    staying = (MANAGED_BLOB_SUFFIX,) if known else ()

    def sweep(directory: str) -> int:
        removed = 0
        # A file that cannot be listed or removed is an orphan, not an error.
        with suppress(LakecoreError, OSError):
            for file in context.store.list(directory):
                name = file.path.rsplit("/", 1)[-1]
                is_kept = name in known or name.endswith(staying)
                if begin in name and not is_kept and not file.is_directory:
                    context.store.delete(file.path)
                    removed += 1
        return removed

    with ThreadPoolExecutor(_LISTERS) as pool:
        return sum(pool.map(sweep, directories))


def _names(message: CommitMessage) -> list[str]:
    data = (
        *message.new_files,
        *message.changelog_files,
        *message.compact_after,
        *message.compact_changelog_files,
    )
    extra = [name for file in data for name in file.extra_files]
    indexes = [file.name for file in message.new_index_files]
    return [file.name for file in data] + indexes + extra
