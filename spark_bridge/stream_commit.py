"""The identity of a batch of a streaming query: the commit user and identifier of its commit.

The commit user of a query is `spark-QUERYID`, and the identifier of a batch is its number. Spark
keeps the id of a query in its checkpoint, and repeats at most the last batch after a restart.

INVARIANT: a batch is never left out without an error. The id of the query is always in the commit
user, so the batches of a new checkpoint are not mistaken for those of an old one. A batch before
the last committed one raises an error: Spark never repeats such a batch, so the checkpoint is older
than the table.
"""

from __future__ import annotations

import logging
from pickle import PickleError
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from lakecore import CompactionResult, InvalidRequest, LakecoreError, Table, Unsupported
from lakecore.distributed import Author, TableContext, author, last_committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


QUERY_ID = "sql.streaming.queryId"
"""The local property in which Spark tells tasks the id of their query."""
PREFIX = "spark"
log = logging.getLogger("lakecore.compaction")


def author_of_batch(
    context: TableContext, query: str | None, batch: int, prefix: str | None = None, name: str = ""
) -> Author:
    """The author of a batch. Raises InvalidRequest if later batches of the query are committed."""
    by, _ = batch_and_last(context, query, batch, prefix, name)
    return by


def batch_and_last(
    context: TableContext, query: str | None, batch: int, prefix: str | None = None, name: str = ""
) -> tuple[Author, int | None]:
    """The author of a batch, and the last batch of the query that is committed, or None.

    Raises InvalidRequest if a later batch is committed.
    """
    if query is None:
        raise InvalidRequest(
            "this is not a batch of a streaming query that has an id: pass the function to "
            "writeStream.foreachBatch, or write a frame by spark_bridge.write; through Spark "
            'Connect, use writeStream.format("lakecore")',
            table=context.identifier,
        )
    user = "-".join(part for part in (prefix or PREFIX, query, name) if part)
    by = author(context, user, batch)
    last = last_committed(context, user)
    if last is not None and last.commit_identifier > batch:
        raise InvalidRequest(
            "later batches of this query are committed: its checkpoint is older than the table. "
            "Restore the newest checkpoint, or start with a new one, which reads from its start",
            batch=batch,
            committed=last.commit_identifier,
            snapshot_id=last.id,
            commit_user=user,
            table=context.identifier,
        )
    return by, None if last is None else last.commit_identifier


def loop_of(context: TableContext, every: int | None) -> int | None:
    """The number of batches between two compactions by a stream; None: never. `every` 0: never.

    Without `every`, the stream does not compact a `write-only` table, because another job does. For
    other tables, the number is the option `num-sorted-run.compaction-trigger`, because a bucket
    gets one run in each batch. The number is never above the stop trigger.
    """
    options = context.options
    if every == 0 or (every is None and options.write_only):
        return None
    wanted = every or options.num_sorted_run_compaction_trigger
    return max(1, min(wanted, options.stop_trigger))


def is_due(batch: int, every: int | None) -> bool:
    """Whether the table is compacted after this batch."""
    return every is not None and (batch + 1) % every == 0


def compact_in_loop(table: Table) -> CompactionResult | None:
    """Compact what is due.

    A failure returns None and is not an error, because the rows are committed.

    The next batch waits for the compaction: a stream never outruns the compaction of its table.
    """
    try:
        return table.compact()
    except (LakecoreError, OSError) as error:
        log.warning("compaction failed. table=%s error=%s", table.context.identifier, error)
        return None


# --- stream query --------------------------------------------------------------------------------
# Finds the query whose batch a function of `foreachBatch` processes.

_RUN = "spark.jobGroup.id"
"""While a query runs, this local property is the id of the run, which is new after a restart."""


class NotSent(Unsupported, PickleError):
    """A function for `foreachBatch` that Spark Connect was to send to its server.

    On the server, the function would not know the id of its query, and could not tell a repeated
    batch from a new one. `foreachBatch` lets this error through because it is a PickleError.
    """

    def __init__(self, verb: str, instead: str) -> None:
        super().__init__(
            "through Spark Connect, a function of foreachBatch does not learn which query it "
            f"belongs to, so a repeated batch could be written twice: {instead}",
            verb=verb,
        )

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Unsupported, (self.message,)


def query_of(spark: SparkSession) -> tuple[str | None, str | None]:
    """The ids of the query and of its run in which this thread runs a batch.

    None outside of a query, and through Spark Connect, which hides the ids.
    """
    try:
        context = spark.sparkContext
    except PySparkException:
        return None, None
    query: str | None = context.getLocalProperty(QUERY_ID)
    run: str | None = context.getLocalProperty(_RUN)
    return query, run
