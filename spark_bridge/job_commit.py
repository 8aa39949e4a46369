"""Outcomes of tasks -> one commit, and removal of leftover files.

1. The failure of a task is raised.
2. A bucket that two tasks wrote is refused: rows of one key would have equal sequence numbers, and
   the bucket would have two hash indexes.
3. `commit` makes one snapshot of all messages; it is idempotent for user and identifier.

Files of lost attempts are removed by `job_files.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore import InvalidRequest
from lakecore.distributed.committing import (
    Author,
    commit_append,
    commit_overwrite,
    delete_files,
)
from spark_bridge.failures import DATA_ERRORS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore import CommitResult
    from lakecore.distributed.tables import TableContext
    from spark_bridge.task import TaskOutcome

__all__ = ["Publication", "publish", "refuse_shared_buckets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """How to commit the messages: append or overwrite, and the commit user.

    `assigners` is the number of tasks that shared the dynamic buckets of a partition. With
    `skip_empty`, an append of no rows makes no snapshot.
    """

    by: Author
    overwrite: bool = False
    partition: Mapping[str, object] = field(default_factory=dict)
    dynamic: bool = False
    assigners: int = 1
    skip_empty: bool = False


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
    return commit_append(context, messages, how.by, skip_empty=how.skip_empty)


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
