"""The changes of a table as a streaming DataFrame.

The arguments are passed as options of `format("lakecore")`, because Spark plans a stream in
processes that get only options.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pyspark.sql.types import StructType

from lakecore import InvalidRequest, Table, Unsupported, open_table
from lakecore.distributed import (
    MAIN_BRANCH,
    ROW_KIND,
    MemoryStore,
    Time,
    anchored,
    is_access_option,
    parse_condition,
    unguarded,
)
from spark_bridge.arguments import check_every, named_arguments
from spark_bridge.attach_tables import register
from spark_bridge.read_frame import in_zone_of_session, resolved
from spark_bridge.read_job import SNAPSHOT_ID
from spark_bridge.stream_commit import (
    NotSent,
    author_of_batch,
    compact_in_loop,
    is_due,
    loop_of,
    query_of,
)
from spark_bridge.stream_source import stream_columns, stream_schema
from spark_bridge.task import MEMORY_PER_TASK
from spark_bridge.write_frame import WriteResult, publication, write_as

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


@named_arguments
def read_stream(  # noqa: PLR0913  the public verb
    spark: SparkSession,
    table: Table | str | os.PathLike[str],
    *,
    columns: Sequence[str] | str | None = None,
    where: str | None = None,
    changelog: bool = True,
    from_snapshot: int | None = None,
    from_timestamp: Time | None = None,
    scan_mode: str | None = None,
    consumer_id: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The changes of a table as a streaming frame, with the columns `_row_kind` and `_snapshot_id`.

    - `columns`: the columns of the table to read; by default all.
    - `where`: an SQL condition, which may name `_row_kind`; only matching rows are returned.
    - `changelog`: False returns the rows +I and +U, without the two columns. Deletions are lost.
    - `from_snapshot`, `from_timestamp`, `scan_mode`, `consumer_id`: where the stream begins, as for
      `Table.stream`. By default, the stream first returns all rows of the latest snapshot as +I. A
      time without a zone is in the session's time zone.
    - `options`: other options of `format("lakecore")`, such as `maxSnapshotsPerTrigger`, and of the
      table or its storage.

    A batch of a table with a primary key has the changes of one snapshot, unless a limit is given.

    Raises InvalidRequest for wrong arguments, Unsupported for a type that Spark lacks. If the start
    has expired, the query fails, and the error names the earliest snapshot that still exists.

        changes = spark_bridge.read_stream(spark, "/data/shop/orders")
    """
    register(spark)
    given = dict(options or {})
    if isinstance(table, str | os.PathLike):
        branch = given.get("branch", MAIN_BRANCH)
        storage = {key: text for key, text in given.items() if is_access_option(key)}
        opened = open_table(table, branch=branch, options=storage)
    else:
        opened = table
        given = {**_own_options(table), **given}
    context = opened.context
    if isinstance(unguarded(context.store), MemoryStore):
        raise Unsupported(
            "Spark cannot read a table in the memory of one process", table=context.identifier
        )
    named = {
        "startingVersion": from_snapshot,
        "startingTimestamp": in_zone_of_session(spark, from_timestamp),
        "scan.mode": scan_mode,
        "consumer-id": consumer_id,
        "where": where,
    }
    if where is not None:
        if not isinstance(where, str):
            raise InvalidRequest("the condition of a stream is SQL, as a string", where=where)
        schema = stream_columns(context.schema) if changelog else context.schema
        parse_condition(where, schema)
    given |= {key: str(value) for key, value in named.items() if value is not None}
    given["read.changelog"] = str(changelog).lower()
    reader = spark.readStream.format("lakecore").options(**given)
    everything = stream_schema(context.schema, changelog=changelog)
    if columns is not None:
        names = resolved(spark, context.schema, columns) or []
        for name in names:
            context.schema.field(name)
        added = [ROW_KIND, SNAPSHOT_ID] if changelog else []
        fields = {field.name: field for field in everything.fields}
        reader = reader.schema(StructType([fields[name] for name in [*added, *names]]))
    return reader.load(anchored(context.layout, context.store).root)


def _own_options(table: Table) -> dict[str, str]:
    """The options of this table object that are not in the stored schema, and its branch."""
    context = table.context
    stored = context.schema.options
    own = {key: text for key, text in context.options.texts.items() if stored.get(key) != text}
    if context.layout.branch != MAIN_BRANCH:
        own["branch"] = context.layout.branch
    return own


# --- stream batches ------------------------------------------------------------------------------
# The function for `writeStream.foreachBatch`: each batch is a commit, exactly once.
#
# Every output mode of Spark works: in `update` mode, a running aggregate is upserted into a table
# with a primary key; in `complete` mode, each batch replaces the table (`mode="overwrite"`).
#
# INVARIANT: a second write of the same batch to the same table is never mistaken for a retry of the
# first, which would lose rows. The second write raises InvalidRequest, unless the sinks have
# different names.

_RESULTS_MAX = 100
_WRITTEN: dict[tuple[str, str], tuple[str | None, int, int]] = {}
"""Table and commit user -> the last run, batch and sink that wrote in this process."""


@named_arguments
def foreach_batch(  # noqa: PLR0913  the public verb
    table: Table | str | os.PathLike[str],
    mode: Literal["append", "overwrite"] = "append",
    *,
    name: str = "",
    commit_user: str | None = None,
    compact_every: int | None = None,
    tasks: int | None = None,
    memory_per_task: int = MEMORY_PER_TASK,
) -> BatchSink:
    """A function for `writeStream.foreachBatch` that writes each batch to a table, exactly once.

    The function can also be called within another function, once for each table that a batch goes
    to.

    - `mode`: `overwrite` replaces the table by each batch, as the output mode `complete` needs.
    - `name`: distinguishes several sinks of one query that write to the same table; keep the name
      over restarts.
    - `commit_user`: replaces `spark` in the user of the commits. The user is `spark-QUERYID`, or
      `spark-QUERYID-NAME` with a `name`; the identifier is the number of the batch.
    - `compact_every`: the number of batches between two compactions, at most the stop trigger; 0
      means never. Default: `num-sorted-run.compaction-trigger`; for a `write-only` table, never.
      The next batch waits for the compaction.
    - `tasks`, `memory_per_task`: as for `write`.

    A batch without rows makes no snapshot. The results of the last batches are in `results`.

    Calls of the function raise InvalidRequest outside of a streaming query, for a batch of a
    checkpoint that is older than the table, and for a second write of a batch by another sink with
    the same name.

        sink = spark_bridge.foreach_batch("/data/shop/orders")
        stream = df.writeStream.foreachBatch(sink)
        query = stream.option("checkpointLocation", path).start()
    """
    check_every(compact_every)
    if mode not in {"append", "overwrite"}:
        raise InvalidRequest("unknown mode", mode=mode, known=["append", "overwrite"])
    if isinstance(table, str | os.PathLike):
        table = os.fspath(table)
        open_table(table)
    return BatchSink(
        table,
        mode,
        name=name,
        commit_user=commit_user,
        compact_every=compact_every,
        tasks=tasks,
        memory_per_task=memory_per_task,
    )


class BatchSink:
    """Writes the batches of a query to a table; see `foreach_batch`, which makes it.

    `results` holds the last 100 batches: pairs of the number of a batch and its result.

        sink = spark_bridge.foreach_batch("/data/shop/orders")
        stream = df.writeStream.foreachBatch(sink).option("checkpointLocation", path)
        stream.start().processAllAvailable()
        [(number, result.rows) for number, result in sink.results]
    """

    def __init__(  # noqa: PLR0913  what `foreach_batch` takes
        self,
        table: Table | str,
        mode: Literal["append", "overwrite"],
        *,
        name: str,
        commit_user: str | None,
        compact_every: int | None,
        tasks: int | None,
        memory_per_task: int,
    ) -> None:
        self._table = table
        self._mode = mode
        self._name = name
        self._prefix = commit_user
        self._compact_every = compact_every
        self._tasks = tasks
        self._memory = memory_per_task
        self.results: deque[tuple[int, WriteResult]] = deque(maxlen=_RESULTS_MAX)

    def __reduce__(self) -> tuple[object, ...]:
        """Raises Unsupported: only Spark Connect pickles the function, to run it on its server."""
        raise NotSent("foreach_batch", 'use writeStream.format("lakecore")')

    def __call__(self, df: DataFrame, batch_id: int) -> WriteResult:
        """Write one batch. Returns the result; `already_committed` for a repeated batch."""
        # Opened for each batch: the table may have a new schema.
        table = open_table(self._table) if isinstance(self._table, str) else self._table
        context = table.context
        query, run = query_of(df.sparkSession)
        by = author_of_batch(context, query, batch_id, self._prefix, self._name)
        key = context.layout.root, by.user
        self._refuse_second(key, run, batch_id)
        how = publication(table, self._mode, None, self._dynamic, by)
        result = write_as(
            df,
            table,
            replace(how, skip_empty=True),
            tasks=self._tasks,
            memory_per_task=self._memory,
        )
        _WRITTEN[key] = run, batch_id, id(self)
        self.results.append((batch_id, result))
        if is_due(batch_id, loop_of(context, self._compact_every)):
            compact_in_loop(table)
        return result

    @property
    def _dynamic(self) -> bool | None:
        return False if self._mode == "overwrite" else None

    def _refuse_second(self, key: tuple[str, str], run: str | None, batch_id: int) -> None:
        last = _WRITTEN.get(key)
        if run is not None and last is not None and last[:2] == (run, batch_id):
            raise InvalidRequest(
                "this batch was written to this table already, by another sink or another call: "
                "its rows would be taken for a repetition. Unite the frames, or give each sink a "
                "name: foreach_batch(table, name=...)",
                batch=batch_id,
                path=key[0],
                commit_user=key[1],
            )
