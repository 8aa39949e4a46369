"""`delete` and `update`: rows changed where they are stored, without a shuffle.

The driver checks the condition and the values and plans the files that may match, at one snapshot.
If there are few bytes to change, the driver changes them itself, because starting tasks would take
longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.distributed import (
    BATCH_COMMIT_IDENTIFIER,
    Assignment,
    Changed,
    Condition,
    Split,
    TableContext,
    TableSource,
    Verb,
    assigned,
    assigning,
    author,
    deleted,
    deletion,
)
from spark_bridge.arguments import (
    SPREAD_BYTES,
    check_counts,
    check_no_column,
    check_spread,
    named_arguments,
    opened,
)
from spark_bridge.change_job import ChangeJob, committed_once, groups_of, size_of, statement
from spark_bridge.placement import parallelism
from spark_bridge.settings import require_version
from spark_bridge.task import MEMORY_PER_TASK

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl
    from pyspark.sql import SparkSession

    from lakecore import CommitResult, Table
    from spark_bridge.job_commit import JobFiles


@named_arguments
def delete(  # noqa: PLR0913  the public verb
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
    where: pl.Expr | str,
    *,
    commit_user: str | None = None,
    identifier: int = BATCH_COMMIT_IDENTIFIER,
    attempts: int = 1,
    spread: bool | None = None,
    memory_per_task: int = MEMORY_PER_TASK,
) -> CommitResult:
    """Delete the matching rows in one commit; `rows_deleted` of the result counts them.

    `where`: as for `Table.delete`; times without a zone are in the zone of the session.

    - `attempts`: how often to start again from the new snapshot if another commit has changed one
      of the rows meanwhile; after the last attempt, CommitConflict is raised.
    - `spread`: whether tasks do the work (True) or the driver (False); by default the bytes of the
      files that may match decide.
    - `memory_per_task`: the most bytes of rows and files that a task holds.

    Raises what `Table.delete` raises, before any task runs if the condition is wrong.

        spark_bridge.delete(spark, "/data/shop/orders", "price < 0")
    """
    context = _checked(spark, table, attempts, spread, memory_per_task)
    check_no_column(where=where)
    by = author(context, commit_user, identifier)

    def parts() -> tuple[Sequence[Changed], JobFiles | None]:
        source, condition = deletion(context, where)
        splits = source.plan(condition.predicate).splits
        job = ChangeJob(
            spark=spark, context=context, verb=Verb.DELETE, memory_bytes=memory_per_task
        )
        return _changed(
            job, source, splits, condition, spread, lambda: deleted(context, source, condition)
        )

    return committed_once(context, Verb.DELETE, by, parts, attempts)


@named_arguments
def update(  # noqa: PLR0913  the public verb
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
    values: Mapping[str, object],
    where: pl.Expr | str | None = None,
    *,
    commit_user: str | None = None,
    identifier: int = BATCH_COMMIT_IDENTIFIER,
    attempts: int = 1,
    spread: bool | None = None,
    memory_per_task: int = MEMORY_PER_TASK,
) -> CommitResult:
    """Set columns of the matching rows in one commit; `rows_updated` of the result counts them.

    `values`, `where`: as for `Table.update`; the other arguments: as for `delete`. Raises what
    `Table.update` raises, before any task runs if a value or the condition is wrong.

        dearer = lakecore.sql_expr("price * 2")
        spark_bridge.update(spark, orders, {"price": dearer}, "id = 7")
    """
    context = _checked(spark, table, attempts, spread, memory_per_task)
    check_no_column(where=where, **{str(name): value for name, value in values.items()})
    by = author(context, commit_user, identifier)

    def parts() -> tuple[Sequence[Changed], JobFiles | None]:
        source, assignment = assigning(context, values, where)
        condition = assignment.condition
        splits = source.plan(None if condition is None else condition.predicate).splits
        job = ChangeJob(
            spark=spark, context=context, verb=Verb.UPDATE, memory_bytes=memory_per_task
        )
        return _changed(
            job, source, splits, assignment, spread, lambda: assigned(context, source, assignment)
        )

    return committed_once(context, Verb.UPDATE, by, parts, attempts)


def _checked(
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
    attempts: int,
    spread: bool | None,  # noqa: FBT001  passed through
    memory_per_task: int,
) -> TableContext:
    require_version(spark)
    check_counts(attempts=attempts, memory_per_task=memory_per_task)
    check_spread(spread)
    return statement(spark, opened(table).context)


def _changed(
    job: ChangeJob,
    source: TableSource,
    splits: Sequence[Split],
    change: Condition | Assignment,
    spread: bool | None,  # noqa: FBT001  passed through
    here: Callable[[], Changed],
) -> tuple[Sequence[Changed], JobFiles | None]:
    """The changes of all splits, made by tasks or by this process."""
    groups = groups_of(job.context, splits, parallelism(job.spark))
    by_size = size_of(splits) > SPREAD_BYTES and len(groups) > 1
    if not groups or not (by_size if spread is None else spread):
        return [here()], None
    task = job.task(source, change)
    outcomes, files = job.by_group(task, groups)
    return [outcome.changed for outcome in outcomes if outcome.changed], files
