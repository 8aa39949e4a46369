"""Runs independent parts of a verb as the tasks of one Spark job; each maps a value to a value."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from spark_bridge.failures import raised_as_own, raised_in_task
from spark_bridge.settings import described
from spark_bridge.worker import acknowledge, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from spark_bridge.worker import Batches

__all__ = ["spread"]

Part = TypeVar("Part")
Outcome = TypeVar("Outcome")
_SCHEMA = "number int, outcome binary"


def spread(
    spark: SparkSession, name: str, parts: Sequence[Part], work: Callable[[Part], Outcome]
) -> list[Outcome]:
    """Compute the outcome of each part in its own task. `name` describes the job.

    A task may run twice. Raises the error of lakecore that made a task fail.
    """
    sealed = [pickle.dumps(part) for part in parts]
    count = len(sealed)
    with raised_as_own(), described(spark, name):
        numbers = spark.range(0, count, 1, count)
        rows = numbers.mapInArrow(_function(sealed, work), _SCHEMA).collect()
    found = {row.number: pickle.loads(bytes(row.outcome)) for row in rows}  # noqa: S301  of our tasks
    return [found[number] for number in range(count)]


def _function(
    sealed: Sequence[bytes], work: Callable[[Part], Outcome]
) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        acknowledge()
        with raised_in_task():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    part: Part = pickle.loads(sealed[number])  # noqa: S301  of our driver
                    yield _row(number, pickle.dumps(work(part)))
        set_aside("spread")

    return run


def _row(number: int, outcome: bytes) -> pa.RecordBatch:
    arrays = [pa.array([number], pa.int32()), pa.array([outcome], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=["number", "outcome"])
