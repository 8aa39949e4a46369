"""Runs a Spark job whose tasks return outcomes, and collects the outcome of every part.

The work of a task is a row of a frame (`map_units`), so that a Python worker receives its own work
only. A closure holds what is the same for all tasks.

INVARIANT: no part is left out without an error. Adaptive execution replaces a shuffle without rows
by an empty relation, and runs no task above it: work without rows is a row itself.
"""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from zstandard import compress, decompress

from lakecore import InvalidRequest
from lakecore.distributed import SYSTEM
from spark_bridge.failures import raised_as_own, raised_in_task
from spark_bridge.settings import context_of, described, settings
from spark_bridge.worker import Batches, acknowledge, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark import StatusTracker
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

    from lakecore.distributed import TableContext

Part = TypeVar("Part")
Outcome = TypeVar("Outcome")
OUTCOME_SCHEMA = "number int, outcome binary, stage int, attempt int"


class Answers(NamedTuple):
    """The outcomes of the parts of a job, in order.

    `lost`: whether another attempt of a task may have left files that no outcome names.
    """

    outcomes: list[object]
    lost: bool


def answers(
    spark: SparkSession,
    name: str,
    rows: Callable[[], DataFrame],
    count: int,
    *,
    or_none: bool = False,
) -> Answers:
    """The outcomes of parts 0 to `count` - 1, in order; `name` describes the job.

    `rows`: makes the frame of outcomes (`answer`). `or_none`: a job without rows may return no
    outcome, because its parts have nothing to do. Raises InvalidRequest if parts are missing, and
    the error of lakecore that made a task fail.
    """
    numbers, answered = _collected(spark, name, rows)
    found = dict(zip(numbers, answered.outcomes, strict=True))
    if or_none and not found:
        return answered
    missing = [number for number in range(count) if number not in found]
    if missing:
        raise InvalidRequest(
            "Spark ended the job without running all of its tasks, and nothing was committed: set "
            "spark.sql.adaptive.enabled to false, and report this",
            job=name,
            parts=count,
            missing=missing[:10],
        )
    return answered._replace(outcomes=[found[number] for number in range(count)])


def all_answers(spark: SparkSession, name: str, rows: Callable[[], DataFrame]) -> Answers:
    """The outcomes of the tasks that had rows, in order of their numbers."""
    return _collected(spark, name, rows)[1]


def _collected(
    spark: SparkSession, name: str, rows: Callable[[], DataFrame]
) -> tuple[list[int], Answers]:
    with raised_as_own(), described(spark, name):
        found = sorted(rows().collect(), key=itemgetter(0))
    outcomes = [decoded(row.outcome) for row in found]
    return [row.number for row in found], Answers(outcomes, attempts_lost(spark, found))


def answer(number: int, outcome: object) -> pa.RecordBatch:
    """The outcome of a part, as a row of `OUTCOME_SCHEMA`."""
    task = TaskContext.get()
    stage, attempt = (task.stageId(), task.attemptNumber()) if task else (0, 0)
    numbers = [pa.array([each], pa.int32()) for each in (number, stage, attempt)]
    content = pa.array([encoded(outcome)], pa.binary())
    return pa.RecordBatch.from_arrays(
        [numbers[0], content, *numbers[1:]], names=["number", "outcome", "stage", "attempt"]
    )


def encoded(outcome: object) -> bytes:
    """The outcome as bytes. Spark limits the results of all tasks together.

    The messages of a task have much in common: compressed, one takes a third of its bytes.
    """
    return compress(pickle.dumps(outcome))


def decoded(content: bytes) -> object:
    """The outcome that a task has encoded."""
    return pickle.loads(decompress(content))  # noqa: S301  of our tasks


def spread(
    spark: SparkSession, name: str, parts: Sequence[Part], work: Callable[[Part], Outcome]
) -> tuple[list[Outcome], bool]:
    """Compute the outcome of each part in its own task. `name` describes the job.

    A task may run twice; the second result is `Answers.lost`. Raises the error of lakecore that
    made a task fail.
    """

    def one(number: int, part: Part) -> Iterable[tuple[int, object]]:
        yield number, work(part)

    units, function = [pickle.dumps(part) for part in parts], unit_function(one)
    return answers(spark, name, lambda: map_units(spark, units, function), len(units))  # type: ignore[return-value]


# --- attempts -------------------------------------------------------------------------------------
# Whether an attempt of a task may have been lost, after it has written files.
#
# A task that runs again has a number above 0. But if shuffled rows could not be fetched, Spark runs
# the rest of the stage again, in which the tasks count from 0: only Spark's own record of the stage
# shows that. The record may be a moment behind; until it has all tasks, it proves nothing.

_LOOKS = 40
_SECONDS_BETWEEN = 0.025


def attempts_lost(spark: SparkSession, answered: Sequence[Row]) -> bool:
    """Whether tasks other than those that answered may have run; True if that is unknown."""
    context = context_of(spark)
    if context is None or spark.conf.get("spark.speculation", "false") == "true":
        return True
    if any(row.attempt for row in answered):
        return True
    tracker = context.statusTracker()
    return not all(_ran_once(tracker, stage) for stage in {row.stage for row in answered})


def _ran_once(tracker: StatusTracker, stage: int) -> bool:
    for _ in range(_LOOKS):
        info = tracker.getStageInfo(stage)
        if info is not None and (info.currentAttemptId or info.numFailedTasks):
            return False
        if info is not None and info.numCompletedTasks == info.numTasks:
            return True
        SYSTEM.sleep(_SECONDS_BETWEEN)
    return False


# --- units ----------------------------------------------------------------------------------------
# The frame of the work of all tasks: each row, in a partition of its own, is a unit of work as
# bytes, with its number.
#
# Spark slices the rows of a local relation into at most as many partitions as there are cores. A
# classic session can also make an RDD, with a partition for each Arrow batch; Spark does not know
# its size, and never broadcasts it. Under Connect, a shuffle distributes the rows.

UNIT_SCHEMA = pa.schema([("number", pa.int32()), ("unit", pa.binary())])
_AS_BATCHES = {"spark.sql.execution.arrow.localRelationThreshold": "0"}
_SMALL_BYTES = 1 << 20
"""Any setting broadcasts a frame that is smaller than this."""
_PADDING_MAX = 1 << 25
"""Spark broadcasts no frame of 1.7 GiB, which this many rows of padding amount to."""
_PADDING_BYTES = 56
"""What a row of padding adds to Spark's estimate."""


def map_units(
    spark: SparkSession,
    units: Sequence[bytes],
    function: Callable[[Batches], Batches],
    schema: StructType | str = OUTCOME_SCHEMA,
    size_bytes: int | None = None,
) -> DataFrame:
    """The frame that `function` makes of the units, each in its own task, in order.

    `size_bytes`: the size of the frame, for Spark's plans of queries over it.
    """
    return _apart(spark, units, size_bytes).mapInArrow(function, schema)


def _apart(spark: SparkSession, units: Sequence[bytes], size_bytes: int | None) -> DataFrame:
    count, context = len(units), context_of(spark)
    if context is not None and (size_bytes is None or count > context.defaultParallelism):
        with settings(spark, _AS_BATCHES):
            return unit_rows(spark, units)
    frame = unit_rows(spark, units)
    if context is None and count > 1:
        frame = frame.repartitionById(count, "number")
    if size_bytes is None or size_bytes < _SMALL_BYTES:
        return frame
    # Spark estimates the size of a frame by that of its sources, and ignores filters. The padding
    # is above the shuffle, because adaptive execution would measure what is below.
    missing = spark.range(0, min(size_bytes // _PADDING_BYTES, _PADDING_MAX), 1, 1).where("id < 0")
    padding = missing.selectExpr("cast(id AS int) AS number", "cast(NULL AS binary) AS unit")
    return frame.unionAll(padding).coalesce(count)


def unit_rows(spark: SparkSession, units: Sequence[bytes]) -> DataFrame:
    """The rows (number, unit), each in its own Arrow batch."""
    batches = [
        pa.record_batch(
            [pa.array([number], pa.int32()), pa.array([unit], pa.binary())], schema=UNIT_SCHEMA
        )
        for number, unit in enumerate(units)
    ]
    return spark.createDataFrame(pa.Table.from_batches(batches, UNIT_SCHEMA))


def unit_function(
    work: Callable[[int, Part], Iterable[tuple[int, object]]], kind: str = "spread"
) -> Callable[[Batches], Batches]:
    """The function for `map_units` over pickled units.

    `work` gets the number and the unit, and returns the outcomes with the numbers of their parts.
    `kind` names the work for `set_aside`.
    """

    def run(batches: Batches) -> Batches:
        acknowledge()
        with raised_in_task():
            for batch in batches:
                for number, sealed in zip(
                    *(each.to_pylist() for each in batch.columns), strict=True
                ):
                    unit: Part = pickle.loads(sealed)  # noqa: S301  of our driver
                    for part, outcome in work(number, unit):
                        yield answer(part, outcome)
        set_aside(kind)

    return run


# --- skew -----------------------------------------------------------------------------------------
# Finds buckets that are much larger than the others: a job waits for its largest bucket.


log = logging.getLogger("lakecore.spark")

BYTES_MIN = 64 << 20
"""A bucket smaller than this is never reported."""
TIMES_MIN = 4.0
"""A bucket is reported from this many times the average size of the others on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewedBucket:
    """A bucket that is much larger than the other buckets of a job.

    `times`: the size, divided by the average size of the others; infinite if these are empty.

        [(each.bucket, each.times) for each in spark_bridge.write(df, orders).skewed]
    """

    partition: Mapping[str, str]
    bucket: int
    bytes: int
    times: float


def report_skew(
    context: TableContext,
    files: pl.DataFrame,
    verb: str,
    *,
    complete: bool = False,
) -> tuple[SkewedBucket, ...]:
    """The buckets that are much larger than the others, the largest first; logs a warning.

    `files`: `partition`, `bucket` and `size_bytes` of the files of the job. A bucket without files
    counts as empty, unless the buckets are `complete`. Only a table with fixed buckets has skewed
    buckets.
    """
    found = _skewed(context, files, complete=complete)
    if found:
        log.warning(
            "%s of %s: %s much larger than the others, and one task does the work of a bucket. "
            "If few values of the bucket key have most rows, choose another bucket-key; otherwise "
            "give the table more buckets",
            verb,
            context.identifier,
            _named(found),
        )
    return found


def _skewed(
    context: TableContext, files: pl.DataFrame, *, complete: bool
) -> tuple[SkewedBucket, ...]:
    buckets = context.options.bucket
    if buckets < 1:
        return ()
    sizes = files.group_by("partition", "bucket").agg(pl.col("size_bytes").sum())
    count = sizes.height if complete else buckets * sizes["partition"].n_unique()
    total = sizes["size_bytes"].sum()
    if count < 2:
        return ()
    found: list[SkewedBucket] = []
    large = sizes.filter(pl.col("size_bytes") >= BYTES_MIN)
    for partition, bucket, size in large.sort("size_bytes", descending=True).iter_rows():
        others = (total - size) / (count - 1)
        times = size / others if others else float("inf")
        if times < TIMES_MIN:
            continue
        texts = dict(context.partitions.texts(partition))
        found.append(SkewedBucket(partition=texts, bucket=bucket, bytes=size, times=times))
    return tuple(found)


def _named(found: Sequence[SkewedBucket]) -> str:
    first = found[0]
    keys = "".join(f", {key}={value}" for key, value in first.partition.items())
    name = f"bucket {first.bucket}{keys} ({first.bytes >> 20} MiB)"
    return f"{name} is" if len(found) == 1 else f"{name} and {len(found) - 1} more are"
