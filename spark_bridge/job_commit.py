"""Outcomes of tasks -> one commit, and removal of leftover files.

1. The failure of a task is raised.
2. A bucket that two tasks wrote is refused: rows of one key would have equal sequence numbers, and
   the bucket would have two hash indexes.
3. `commit` makes one snapshot of all messages; it is idempotent for user and identifier.
4. Lost attempts (retried, run twice, killed) leave files. After the commit, the directories of the
   written buckets are searched for files of this job that are in no message; after a failed job,
   all directories.

INVARIANT: only files of this job are removed, never a committed file, and none if it is not certain
whether the commit happened.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore import InvalidRequest, LakecoreError
from lakecore.distributed.committing import (
    Author,
    commit_append,
    commit_overwrite,
    delete_files,
)
from lakecore.distributed.tables import JOB_ID_LENGTH
from lakecore.distributed.values import BUCKET_PREFIX
from spark_bridge.failures import DATA_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakecore import CommitMessage, CommitResult
    from lakecore.distributed.tables import TableContext
    from spark_bridge.task import TaskOutcome

__all__ = [
    "Publication",
    "publish",
    "refuse_shared_buckets",
    "remove_files_of_job",
    "remove_leftovers",
]

_LISTERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """How to commit the messages: append or overwrite, and the commit user.

    `assigners` is the number of tasks that shared the dynamic buckets of a partition.
    """

    by: Author
    overwrite: bool = False
    partition: Mapping[str, object] = field(default_factory=dict)
    dynamic: bool = False
    assigners: int = 1


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
    if how.overwrite:
        return commit_overwrite(context, messages, how.partition, how.by, dynamic=how.dynamic)
    return commit_append(context, messages, how.by)


def refuse_shared_buckets(
    context: TableContext, outcomes: Sequence[TaskOutcome], assigners: int = 1
) -> None:
    """Raise InvalidRequest if two tasks wrote a bucket that only one task may write.

    A task may write any bucket of the assigners whose keys it has. Two tasks with keys of one
    assigner may both have written the same key.
    """
    schema, options = context.schema, context.options
    if not schema.primary_keys:
        return
    by_bucket = options.bucket > 0
    owners: Counter[tuple[bytes, int]] = Counter()
    for outcome in outcomes:
        owners.update(
            {
                (m.partition, m.bucket if by_bucket else m.bucket % assigners)
                for m in outcome.messages
            }
        )
    shared = [key for key, count in owners.items() if count > 1]
    if shared:
        partition, bucket = shared[0]
        raise InvalidRequest(
            f"several tasks wrote the same {'bucket' if by_bucket else 'partition'}: write "
            "spark_bridge.prepare(df, table) in place of df, or use spark_bridge.write(df, table); "
            "few rows go in by INSERT INTO ... SELECT /*+ COALESCE(1) */ ...",
            table=context.identifier,
            partition=dict(context.partitions.texts(partition)),
            bucket=bucket if by_bucket else "dynamic",
            shared=len(shared),
        )


def remove_leftovers(context: TableContext, job: str, messages: Sequence[CommitMessage]) -> int:
    """Remove the files of lost attempts from the written buckets. Returns their number."""
    kept = {name for message in messages for name in _names(message)}
    layout = context.layout
    directories = {
        layout.bucket_dir(context.partitions.path(message.partition), message.bucket)
        for message in messages
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

    def sweep(directory: str) -> int:
        removed = 0
        # A file that cannot be listed or removed is an orphan, not an error.
        with suppress(LakecoreError, OSError):
            for file in context.store.list(directory):
                name = file.path.rsplit("/", 1)[-1]
                if begin in name and name not in known and not file.is_directory:
                    context.store.delete(file.path)
                    removed += 1
        return removed

    with ThreadPoolExecutor(_LISTERS) as pool:
        return sum(pool.map(sweep, directories))


def _names(message: CommitMessage) -> list[str]:
    data = (*message.new_files, *message.changelog_files)
    extra = [name for file in data for name in file.extra_files]
    indexes = [file.name for file in message.new_index_files]
    return [file.name for file in data] + indexes + extra
