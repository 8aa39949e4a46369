"""Writes a batch of messages: one Spark job, then one commit for each target, exactly once.

1. The job decodes the messages and writes files under the schemas that the driver knows.
2. If messages need a new table or a new schema, nothing of the job is kept: the driver makes the
   changes, and runs the job again. The first batch after a start also needs two jobs.
3. Each target is committed with the query as its user and the batch as its identifier. A repeated
   batch leaves out the targets that it was committed to.

INVARIANT: a table gets all rows of a batch exactly once, or none. After a crash, some tables may be
one batch ahead of others until the query is started again.
"""

from __future__ import annotations

import json
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as s

from lakecore import AlreadyExists, CommitConflict, CommitResult, InvalidRequest, Unsupported
from lakecore.distributed import (
    COMMON_FLAGS,
    DATABASE_FLAGS,
    SYSTEM,
    TABLE_FLAGS,
    Arguments,
    Author,
    Catalog,
    SourceSchema,
    SourceTable,
    StateFiles,
    TableContext,
    TableDescriptor,
    TargetRules,
    decoder_for,
    describe,
    needed_changes,
    open_catalog,
    option_texts,
    reload_context,
    state_store,
)
from spark_bridge.arguments import check_counts, check_every, named_arguments
from spark_bridge.cdc_decode import (
    CHUNK_SCHEMA,
    MESSAGE_COLUMNS,
    ORDER,
    CdcTask,
    DecodingReport,
    WrittenTargets,
    decode_function,
    rules_for,
    write_function,
)
from spark_bridge.job_commit import Publication, publish, remove_files_of_job, remove_leftovers
from spark_bridge.placement import parallelism
from spark_bridge.settings import require_version, settings, transfer
from spark_bridge.spread import OUTCOME_SCHEMA, answers
from spark_bridge.stream_commit import (
    NotSent,
    author_of_batch,
    batch_and_last,
    compact_in_loop,
    loop_of,
    query_of,
)
from spark_bridge.task import MEMORY_PER_TASK, WRITE_ONLY, TaskOutcome

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter


# --- cdc job -------------------------------------------------------------------------------------
# The Spark job of a batch of messages: decode, bring the rows of a bucket together, write.


def run_job(df: DataFrame, task: CdcTask) -> list[WrittenTargets]:
    """Run the tasks of a batch. Returns the outcome of each writing task; none without messages."""
    spark = df.sparkSession
    name = f"lakecore: changes into {task.arguments.database}"

    def rows() -> DataFrame:
        chunks = df.mapInArrow(decode_function(task), CHUNK_SCHEMA)
        owned = chunks.repartitionById(task.writers, "owner").sortWithinPartitions(*ORDER)
        return owned.mapInArrow(write_function(task), OUTCOME_SCHEMA)

    with settings(spark, transfer(spark, df.schema)):
        found = answers(spark, name, rows, task.writers, or_none=True)
    return cast("list[WrittenTargets]", found.outcomes)


# --- cdc targets ---------------------------------------------------------------------------------
# The target tables of a stream of changes, on the driver: opens, creates, changes, commits them.
#
# INVARIANT: a table is created or changed before any task writes a row that needs the change, and
# before any row of the batch is committed.

_OPENERS = 16
_TRIES = 3
log = logging.getLogger("lakecore.cdc")


@dataclass(slots=True)
class _Open:
    """A target under its newest schema.

    `commits`: the number of commits since its last compaction; `looked`: the last batch that was
    committed to the table, or searched for in its snapshots.
    """

    context: TableContext
    commits: int = 0
    looked: int | None = None


class CdcTargets:
    """The targets that a query has used since it started."""

    def __init__(
        self,
        catalog: Catalog,
        rules: TargetRules,
        *,
        query: str | None,
        prefix: str | None,
        compact_every: int | None,
    ) -> None:
        self._catalog = catalog
        self._rules = rules
        self._query = query
        self._prefix = prefix
        self._every = compact_every
        self._open: dict[str, _Open] = {}

    def refresh(self) -> None:
        """Read the newest schemas and options, because others may have changed them."""
        with ThreadPoolExecutor(_OPENERS) as pool:
            for each, context in zip(
                self._open.values(),
                pool.map(lambda each: reload_context(each.context), self._open.values()),
                strict=True,
            ):
                each.context = context

    def descriptors(self) -> Mapping[str, TableDescriptor]:
        """The open targets in the form that tasks need, by name."""
        return {name: describe(each.context, WRITE_ONLY) for name, each in self._open.items()}

    def done(self, batch: int) -> frozenset[str]:
        """The targets that have this batch already.

        Raises InvalidRequest if a target has a later batch: the checkpoint is older than the table.
        """
        return frozenset(name for name, each in self._open.items() if self._is_done(each, batch))

    def prepare(self, wanted: Iterable[tuple[SourceTable, SourceSchema]], batch: int) -> int:
        """Create and change the targets so that rows of these source tables fit.

        Returns the number of tables that were created or changed.
        """
        count = 0
        for source, schema in wanted:
            name = self._rules.target(source)
            assert name is not None, "a task wanted a table that is left out"
            if name not in self._open:
                there = self._catalog.table_exists(name)
                shape = self._rules.shape(source, schema)
                self._rules.create(self._catalog, source, name, shape, first=batch == 0)
                self._open[name] = _Open(self._catalog.get_table(name).context)
                count += not there
                if not there:
                    log.info("table created. table=%s source=%s", name, source)
            count += self._evolve(name, source, schema)
        return count

    def publish(
        self, outcomes: Mapping[str, Sequence[TaskOutcome]], batch: int, job: str
    ) -> Mapping[str, CommitResult]:
        """Commit the rows of each target. Returns the result of each.

        If a target cannot be committed, the files of the targets after it are removed.
        """
        results = {}
        waiting = dict(sorted(outcomes.items()))
        try:
            authors = {
                name: author_of_batch(self._open[name].context, self._query, batch, self._prefix)
                for name in waiting
            }
            for name, by in authors.items():
                results[name] = self._published(name, waiting.pop(name), by, batch, job)
        except BaseException:
            self.discard(waiting, job)
            raise
        return results

    def _published(
        self, name: str, own: Sequence[TaskOutcome], by: Author, batch: int, job: str
    ) -> CommitResult:
        target = self._open[name]
        result = publish(target.context, own, Publication(by=by, skip_empty=True))
        again = bool(result.facts.get("already_committed"))
        messages = [message for outcome in own for message in outcome.messages]
        buckets = [(message.partition, message.bucket) for message in messages]
        remove_leftovers(target.context, job, () if again else messages, buckets)
        target.commits += 1
        target.looked = batch
        return result

    def compact(self) -> None:
        """Compact the targets that are due for a compaction."""
        for name, target in self._open.items():
            every = loop_of(target.context, self._every)
            if every is not None and target.commits >= every:
                compact_in_loop(self._catalog.get_table(name))
                target.commits = 0

    def discard(self, outcomes: Mapping[str, Sequence[TaskOutcome]], job: str) -> None:
        """Remove the files of a job that is not committed."""
        for name, own in outcomes.items():
            messages = [message for outcome in own for message in outcome.messages]
            buckets = {(message.partition, message.bucket) for message in messages}
            remove_leftovers(self._open[name].context, job, (), buckets)

    def discard_job(self, job: str) -> None:
        """Remove all files of a job that failed, in all targets."""
        for target in self._open.values():
            remove_files_of_job(target.context, job)

    def _is_done(self, target: _Open, batch: int) -> bool:
        if target.looked is not None and batch > target.looked:
            return False
        target.looked = batch
        _, last = batch_and_last(target.context, self._query, batch, self._prefix)
        return last == batch

    def _evolve(self, name: str, source: SourceTable, given: SourceSchema) -> int:
        """Make the schema changes that rows need; others may change the table at the same time."""
        target = self._open[name]
        for attempt in range(_TRIES):
            schema = target.context.schema
            changes = needed_changes(self._rules, name, schema, source, given)
            if not changes:
                return 0
            try:
                self._catalog.alter_table(name, list(changes))
            except (AlreadyExists, CommitConflict, InvalidRequest):
                target.context = reload_context(target.context)
                if target.context.schema.id == schema.id or attempt == _TRIES - 1:
                    raise
                continue
            target.context = self._catalog.get_table(name).context
            log.info("schema changed. table=%s changes=%s", name, len(changes))
            return 1
        return 0


# --- cdc batches ---------------------------------------------------------------------------------

_ROUNDS_MAX = 5
"""The most jobs of one batch. Two are enough, unless others change the schemas at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcBatch:
    """The result of one batch of a stream of changes.

    - `tables`: the rows written to each target, by `database.table`;
    - `snapshot_ids`: the snapshots committed in each target;
    - `already_committed`: targets that had the batch already, because it was repeated after a
      restart;
    - `schemas_changed`: the number of tables created or changed;
    - `left_out`: messages and rows that became dead letters.

        writer = spark_bridge.cdc(
            df, "/data/warehouse", "shop", format="debezium-json", reports=print
        )
        query = writer.option("checkpointLocation", path).start()
    """

    batch: int
    messages: int
    tables: Mapping[str, int] = field(default_factory=dict)
    snapshot_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    already_committed: tuple[str, ...] = ()
    schemas_changed: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcSettings:
    """The fixed settings of a query. `options`: the options of the catalog."""

    options: Mapping[str, str] = field(repr=False)
    arguments: Arguments
    registry_url: str | None
    given: frozenset[str]
    keeps_letters: bool
    state: str | None
    commit_user: str | None
    compact_every: int | None
    tasks: int | None
    memory_per_task: int


class CdcSink:
    """The function for `foreachBatch`. Its tables stay open from one batch to the next."""

    def __init__(self, given: CdcSettings, reports: Callable[[CdcBatch], object] | None) -> None:
        self._settings = given
        self._reports = reports
        self._query: str | None = None
        self._targets: CdcTargets | None = None
        self._letters: StateFiles | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Raises Unsupported: only Spark Connect pickles the function, to run it on the server."""
        raise NotSent("cdc", "run cdc in a classic session")

    def __call__(self, df: DataFrame, batch: int) -> None:
        """Write one batch."""
        targets = self._opened(df)
        targets.refresh()
        changed = 0
        for _ in range(_ROUNDS_MAX):
            task = self._task(df, targets, targets.done(batch))
            found = self._run(df, task, targets)
            reports = _in_order([report for each in found for report in each.reports])
            outcomes: dict[str, list[TaskOutcome]] = defaultdict(list)
            for each in found:
                for name, outcome in each.outcomes.items():
                    outcomes[name].append(outcome)
            wanted = dict.fromkeys(pair for report in reports for pair in report.wanted)
            try:
                _check(reports, task)
                if not wanted:
                    _check_written(outcomes)
                    left_out = self._store_letters(batch, reports, task.done)
            except BaseException:
                targets.discard(outcomes, task.job)
                raise
            if not wanted:
                break
            targets.discard(outcomes, task.job)
            changed += targets.prepare(wanted, batch)
        else:
            raise InvalidRequest(
                "the schemas of the targets keep changing while the batch is written",
                batch=batch,
                tables=[str(table) for table, _ in wanted],
            )
        results = targets.publish(outcomes, batch, task.job)
        rows = {name: sum(each.rows for each in own) for name, own in outcomes.items()}
        written = CdcBatch(
            batch=batch,
            messages=sum(report.messages for report in reports),
            tables={name: count for name, count in rows.items() if count},
            snapshot_ids={name: each.snapshot_ids for name, each in results.items()},
            already_committed=tuple(sorted(task.done)),
            schemas_changed=changed,
            left_out=left_out,
        )
        log.info(
            "changes committed. batch=%s messages=%s rows=%s tables=%s left_out=%s",
            batch,
            written.messages,
            sum(rows.values()),
            len(written.tables),
            written.left_out,
        )
        targets.compact()
        if self._reports is not None:
            self._reports(written)

    def _opened(self, df: DataFrame) -> CdcTargets:
        """The targets of the query, kept for all of its batches."""
        query, _ = query_of(df.sparkSession)
        if self._targets is None or self._query != query:
            given = self._settings
            catalog = open_catalog(given.options, create=True)
            catalog.create_database(given.arguments.database, ignore_if_exists=True)
            self._targets = CdcTargets(
                catalog,
                rules_for(given.arguments, given.given),
                query=query,
                prefix=given.commit_user,
                compact_every=given.compact_every,
            )
            self._query = query
            if given.keeps_letters:
                store, root = state_store(catalog, given.state)
                self._letters = StateFiles(store, f"{root}/spark-{query}", SYSTEM)
        return self._targets

    def _task(self, df: DataFrame, targets: CdcTargets, done: frozenset[str]) -> CdcTask:
        given = self._settings
        return CdcTask(
            arguments=given.arguments,
            registry_url=given.registry_url,
            given=given.given,
            keeps_letters=given.keeps_letters,
            targets=targets.descriptors(),
            done=done,
            job=SYSTEM.new_uuid(),
            writers=given.tasks or parallelism(df.sparkSession),
            memory_bytes=given.memory_per_task,
        )

    def _run(self, df: DataFrame, task: CdcTask, targets: CdcTargets) -> list[WrittenTargets]:
        """Run the Spark job. Returns the report of each writing task."""
        try:
            return run_job(df, task)
        except BaseException:
            # No message has reached the driver, so no snapshot can contain files of this job.
            targets.discard_job(task.job)
            raise

    def _store_letters(
        self, batch: int, reports: Iterable[DecodingReport], done: frozenset[str]
    ) -> int:
        """Store the dead letters before any commit, and return their number.

        A repeated batch replaces the file of its first attempt. Letters of a target that already
        has the batch are kept, because the target's rows are not written again, even if they fit
        now.
        """
        lines = [line for report in reports for line in report.letters]
        if self._letters is not None:
            before = self._letters.letters(batch)
            lines += [line for line in before if json.loads(line).get("target") in done]
            if lines != before:
                self._letters.put_letters(batch, lines)
        return len(lines)


def _in_order(reports: Sequence[DecodingReport]) -> list[DecodingReport]:
    return sorted(reports, key=lambda report: report.began)


def _check_written(outcomes: Mapping[str, Sequence[TaskOutcome]]) -> None:
    """Raise the first failure of a writing task, before any target is committed."""
    for own in outcomes.values():
        for outcome in own:
            if outcome.failure is not None:
                raise outcome.failure


def _check(reports: Sequence[DecodingReport], task: CdcTask) -> None:
    """Raise the first failure of a task, or InvalidRequest if the order of messages is unclear."""
    for report in reports:
        if report.failure is not None:
            raise report.failure
    if "offset" not in task.given:
        busy = [report for report in reports if report.ordered]
        if len(busy) > 1:
            raise InvalidRequest(
                "messages of a batch are in several partitions of Spark, and nothing tells their "
                "order: give the frame the columns partition and offset, or bring each batch into "
                "one partition, as by maxFilesPerTrigger=1",
                partitions=len(busy),
                tables=sorted(busy[0].ordered),
            )
    ends: dict[tuple[str, int], int] = {}
    for report in reports:
        for place, (first, last) in report.ranges.items():
            if first <= ends.get(place, -1):
                raise InvalidRequest(
                    "the messages of a partition are in several tasks, and not in order: pass the "
                    "frame of the source as it is, without a shuffle",
                    topic=place[0],
                    partition=place[1],
                    offset=first,
                )
            ends[place] = last


# --- cdc frame ------------------------------------------------------------------------------------
# `cdc`: writes a stream of CDC messages to tables, which follow schema changes.
#
# The arguments are those of Paimon's actions for Kafka. The driver keeps the tables in step with
# the schemas; tasks decode and write (`cdc_decode.py`).
#
# See https://paimon.apache.org/docs/master/cdc-ingestion/kafka-cdc/


_EAGER = "eager_init"
_TEXTS = (s.BinaryType, s.StringType)
_NUMBERS = (s.ByteType, s.ShortType, s.IntegerType, s.LongType)
_TYPES: Mapping[str, tuple[type[s.DataType], ...]] = {
    "key": _TEXTS,
    "value": _TEXTS,
    "topic": (s.StringType,),
    "partition": _NUMBERS,
    "offset": _NUMBERS,
    "timestamp": (s.TimestampType,),
    "timestampType": _NUMBERS,
}


@named_arguments
def cdc(  # noqa: PLR0913  the public verb
    df: DataFrame,
    warehouse: str | os.PathLike[str] | Mapping[str, str],
    database: str,
    table: str | None = None,
    *,
    format: str,  # noqa: A002  Spark's own word
    table_conf: Mapping[str, str] | None = None,
    schema_registry_url: str | None = None,
    case_sensitive: bool = True,
    dead_letters: bool = False,
    state: str | None = None,
    commit_user: str | None = None,
    compact_every: int | None = None,
    tasks: int | None = None,
    memory_per_task: int = MEMORY_PER_TASK,
    reports: Callable[[CdcBatch], object] | None = None,
    **flags: object,
) -> DataStreamWriter:
    """A writer for a stream of messages: its batches change the tables of a database, exactly once.

    `df` has the columns of Spark's Kafka source: `value`, and if known `key`, `topic`, `partition`,
    `offset`, `timestamp`, `timestampType`. Other columns are ignored. Without `offset`, all
    messages of a batch must be in one partition of Spark.

    - `warehouse`: the path, or the catalog options, as for `lakecore.connect`;
    - `database`, `table`: the target of every message; without `table`, each message names its
      table in the database. Missing tables are created;
    - `format`: `debezium-json`, `debezium-avro` (needs `schema_registry_url`), `debezium-bson`,
      `canal-json`, `maxwell-json`, `ogg-json`, `aws-dms-json`, `aliyun-json` or `json`;
    - `table_conf`: options of the tables;
    - `dead_letters`: keep messages and rows that do not fit in files `dead-letters-BATCH.jsonl`
      below `WAREHOUSE/.cdc/spark-QUERYID` (`state` replaces `WAREHOUSE/.cdc`); without
      `dead_letters`, such messages end the query;
    - `commit_user`, `compact_every`, `tasks`, `memory_per_task`: as for `foreach_batch`;
      `compact_every` counts the commits of each table;
    - `reports`: called after each batch;
    - `flags`: the other arguments of `kafka_sync_table` and `kafka_sync_database`: `primary_keys`,
      `partition_keys`, `computed_column`, `metadata_column`, `type_mapping`, `including_tables`,
      `table_mapping`, ... A flag that may be repeated takes a list; a flag with `key=value`, such
      as `table_mapping`, takes a mapping.

    If a schema changes, a batch runs several jobs: the tables are changed before any row is
    written. Raises InvalidRequest or Unsupported for arguments that do not fit together.

        writer = spark_bridge.cdc(df, "/data/warehouse", "shop", format="debezium-json")
        query = writer.option("checkpointLocation", path).start()
    """
    require_version(df.sparkSession)
    check_counts(tasks=tasks, memory_per_task=memory_per_task)
    check_every(compact_every)
    if not df.isStreaming:
        raise InvalidRequest("cdc takes a streaming frame: read it by spark.readStream")
    if (schema_registry_url is not None) != (format == "debezium-avro"):
        raise InvalidRequest(
            "schema_registry_url and the format debezium-avro belong together", format=format
        )
    if state is not None and not dead_letters:
        raise InvalidRequest(
            "state says where dead letters are kept: pass dead_letters=True as well", state=state
        )
    options = (
        option_texts(warehouse)
        if isinstance(warehouse, Mapping)
        else {"warehouse": os.fspath(warehouse)}
    )
    arguments = Arguments(
        database=database,
        table=table,
        conf={"value.format": format},
        table_conf=option_texts(table_conf),
        flags=_flags(flags, COMMON_FLAGS + (DATABASE_FLAGS if table is None else TABLE_FLAGS)),
        case_sensitive=case_sensitive,
    )
    given = _given(df)
    decoder_for(format, arguments.mapping, schema_registry_url)
    rules_for(arguments, given)
    sink = CdcSink(
        CdcSettings(
            options=options,
            arguments=arguments,
            registry_url=schema_registry_url,
            given=given,
            keeps_letters=dead_letters,
            state=state,
            commit_user=commit_user,
            compact_every=compact_every,
            tasks=tasks,
            memory_per_task=memory_per_task,
        ),
        reports,
    )
    columns = [
        (f.col(name) if name in given else f.lit(None)).cast(kind).alias(name)
        for name, kind in MESSAGE_COLUMNS.items()
    ]
    return df.select(*columns).writeStream.foreachBatch(sink)


def _given(df: DataFrame) -> frozenset[str]:
    """The message columns that the frame has.

    Raises InvalidRequest for a column of another type.
    """
    types = {each.name: each.dataType for each in df.schema.fields}
    if "value" not in types:
        raise InvalidRequest(
            "a frame of messages has a column value, of type BINARY or STRING", columns=list(types)
        )
    for name, allowed in _TYPES.items():
        if name in types and not isinstance(types[name], allowed):
            raise InvalidRequest(
                "a column of the messages has a type that a Kafka source does not give it: rename "
                "or cast it",
                column=name,
                type=types[name].simpleString(),
                allowed=[each().simpleString() for each in allowed],
            )
    return frozenset(name for name in _TYPES if name in types)


def _flags(given: Mapping[str, object], known: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The flags as strings. Raises InvalidRequest for an unknown flag."""
    if _EAGER in given:
        raise Unsupported(
            "tables are opened when their first message arrives; leave the argument out",
            argument=_EAGER,
        )
    flags: dict[str, tuple[str, ...]] = {}
    for name, value in given.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise InvalidRequest(
                "unknown argument of cdc",
                argument=name,
                **({"nearest": near[0]} if near else {"known": list(known)}),
            )
        match value:
            case None:
                continue
            case bool():
                flags[name] = (str(value).lower(),)
            case str():
                flags[name] = (value,)
            case Mapping():
                flags[name] = tuple(f"{key}={each}" for key, each in value.items())
            case list() | tuple():
                flags[name] = tuple(map(str, value))
            case _:
                raise InvalidRequest(
                    "an argument of cdc is a string, a list of strings or a mapping",
                    argument=name,
                    value=value,
                )
    return flags
