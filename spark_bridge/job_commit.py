"""Commits the outcomes of all tasks at once, and removes leftover files.

1. If a task failed, its error is raised.
2. If two tasks wrote the same bucket, an error is raised: rows of one key would have equal sequence
   numbers, and the bucket would have two hash indexes.
3. The new schema of the write, if any, is stored.
4. `commit` makes one snapshot of all messages; it is idempotent for user and identifier.

Files of lost attempts are removed by `job_files.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore import InvalidRequest
from lakecore.distributed.committing import (
    Author,
    commit_append,
    commit_overwrite,
    delete_files,
)
from lakecore.distributed.placing import crosses_partitions
from lakecore.distributed.values import POSTPONE_BUCKET
from spark_bridge.failures import DATA_ERRORS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore import CommitMessage, CommitResult
    from lakecore.distributed.tables import TableContext
    from lakecore.distributed.writing import Evolution
    from spark_bridge.task import TaskOutcome

__all__ = ["Publication", "publish", "refuse_shared_buckets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """How to commit the messages: append or overwrite, and the commit user.

    `assigners` is the number of tasks that shared the dynamic buckets of a partition. With
    `skip_empty`, an append without rows makes no snapshot. `evolution` is the schema of the rows,
    if it is not stored yet.
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
