"""Runs a Spark job whose tasks return outcomes, and collects the outcome of every part.

INVARIANT: no part is left out without an error. Adaptive execution replaces a shuffle without rows
by an empty relation, and runs no task above it: a part that has work without rows runs again.
"""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from lakecore import InvalidRequest
from spark_bridge.failures import raised_as_own, raised_in_task
from spark_bridge.settings import described
from spark_bridge.worker import Batches, acknowledge, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakecore.distributed import TableContext

Part = TypeVar("Part")
Outcome = TypeVar("Outcome")
OUTCOME_SCHEMA = "number int, outcome binary"


def answers(
    spark: SparkSession,
    name: str,
    rows: Callable[[], DataFrame],
    count: int,
    *,
    rest: Callable[[Sequence[int]], DataFrame] | None = None,
    or_none: bool = False,
) -> list[object]:
    """The outcomes of parts 0 to `count` - 1, in order; `name` describes the job.

    `rows`: makes the frame of outcomes (`answer`). `rest`: makes the frame of the parts without an
    outcome. `or_none`: a job without rows may return no outcome, because its parts have nothing to
    do. Raises InvalidRequest if parts are missing, and the error of lakecore that made a task fail.
    """
    found = dict(all_answers(spark, name, rows))
    if or_none and not found:
        return []
    missing = [number for number in range(count) if number not in found]
    if missing and rest is not None:
        found |= all_answers(spark, name, lambda: rest(missing))
        missing = [number for number in range(count) if number not in found]
    if missing:
        raise InvalidRequest(
            "Spark ended the job without running all of its tasks, and nothing was committed: set "
            "spark.sql.adaptive.enabled to false, and report this",
            job=name,
            parts=count,
            missing=missing[:10],
        )
    return [found[number] for number in range(count)]


def all_answers(
    spark: SparkSession, name: str, rows: Callable[[], DataFrame]
) -> list[tuple[int, object]]:
    """The numbers and outcomes of the tasks that had rows, in order of the numbers."""
    with raised_as_own(), described(spark, name):
        found = rows().collect()
    outcomes = [(row.number, pickle.loads(bytes(row.outcome))) for row in found]  # noqa: S301  of our tasks
    return sorted(outcomes, key=itemgetter(0))


def answer(number: int, outcome: object) -> pa.RecordBatch:
    """The outcome of a part, as a row of `OUTCOME_SCHEMA`."""
    arrays = [pa.array([number], pa.int32()), pa.array([pickle.dumps(outcome)], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=["number", "outcome"])


def spread(
    spark: SparkSession, name: str, parts: Sequence[Part], work: Callable[[Part], Outcome]
) -> list[Outcome]:
    """Compute the outcome of each part in its own task. `name` describes the job.

    A task may run twice. Raises the error of lakecore that made a task fail.
    """

    def one(number: int, part: Part) -> Iterable[tuple[int, object]]:
        yield number, work(part)

    function, count = unit_function([pickle.dumps(part) for part in parts], one), len(parts)
    return answers(spark, name, lambda: map_units(spark, count, function), count)  # type: ignore[return-value]


def map_units(spark: SparkSession, count: int, function: Callable[[Batches], Batches]) -> DataFrame:
    """The frame of outcomes: each task calls `function` with one number below `count`."""
    return spark.range(0, count, 1, count).mapInArrow(function, OUTCOME_SCHEMA)


def unit_function(
    units: Sequence[bytes],
    work: Callable[[int, Part], Iterable[tuple[int, object]]],
    kind: str = "spread",
) -> Callable[[Batches], Batches]:
    """The function for `mapInArrow` over numbers of pickled units.

    `work` gets the number and the unit, and returns the outcomes with the numbers of their parts.
    `kind` names the work for `set_aside`.
    """

    def run(batches: Batches) -> Batches:
        acknowledge()
        with raised_in_task():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    unit: Part = pickle.loads(units[number])  # noqa: S301  of our driver
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
    sizes: Mapping[tuple[bytes, int], int],
    verb: str,
    *,
    complete: bool = False,
) -> tuple[SkewedBucket, ...]:
    """The buckets that are much larger than the others, the largest first; logs a warning.

    `sizes`: the bytes of each partition and bucket of the job. A bucket without an entry counts as
    empty, unless the entries are `complete`. Only a table with fixed buckets has skewed buckets.
    """
    found = _skewed(context, sizes, complete=complete)
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
    context: TableContext, sizes: Mapping[tuple[bytes, int], int], *, complete: bool
) -> tuple[SkewedBucket, ...]:
    buckets = context.options.bucket
    count = len(sizes) if complete else buckets * len({partition for partition, _ in sizes})
    total = sum(sizes.values())
    if buckets < 1 or count < 2:
        return ()
    found: list[SkewedBucket] = []
    for (partition, bucket), size in sorted(sizes.items(), key=lambda each: -each[1]):
        others = (total - size) / (count - 1)
        times = size / others if others else float("inf")
        if size < BYTES_MIN or times < TIMES_MIN:
            continue
        texts = dict(context.partitions.texts(partition))
        found.append(SkewedBucket(partition=texts, bucket=bucket, bytes=size, times=times))
    return tuple(found)


def _named(found: Sequence[SkewedBucket]) -> str:
    first = found[0]
    keys = "".join(f", {key}={value}" for key, value in first.partition.items())
    name = f"bucket {first.bucket}{keys} ({first.bytes >> 20} MiB)"
    return f"{name} is" if len(found) == 1 else f"{name} and {len(found) - 1} more are"
