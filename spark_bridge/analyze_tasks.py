"""Reads the columns of a table once, in tasks of a Spark job, for the statistics of `analyze`.

Each task adds the rows of its part to its own sketches; the driver merges them. The merged sketches
equal one sketch of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from lakecore.distributed.verb_tasks import ColumnSketch
from lakecore.distributed.verbs import measured
from spark_bridge.arguments import SPREAD_BYTES
from spark_bridge.plan_read import plan_parts
from spark_bridge.read_job import open_sealed, read_task, seal
from spark_bridge.spread import spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from lakecore.distributed.planning import TableSource
    from spark_bridge.read_job import Piece, ReadJob

__all__ = ["SparkMeasure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkMeasure:
    """A `Measure` of `analyze` that reads in Spark tasks. `spread` overrides the choice by size."""

    spark: SparkSession
    spread: bool | None

    def __call__(self, source: TableSource, sketches: Sequence[ColumnSketch]) -> int:
        """Add all values to the sketch of their column. Returns the number of rows."""
        splits = source.plan().splits
        by_size = sum(split.size_bytes for split in splits) > SPREAD_BYTES
        if not splits or not (by_size if self.spread is None else self.spread):
            return measured(source, sketches)
        fields = [each.field for each in sketches]
        job, tasks = plan_parts(source, [each.name for each in fields])
        name = f"lakecore: analyze {source.context.identifier}, {len(tasks)} parts"
        parts = [(seal(task), [ColumnSketch(each) for each in fields]) for task in tasks]
        rows = 0
        for count, found in spread(self.spark, name, parts, partial(_measured, seal(job))):
            rows += count
            for sketch, other in zip(sketches, found, strict=True):
                sketch.merge(other)
        return rows


def _measured(
    sealed: bytes, part: tuple[bytes, list[ColumnSketch]]
) -> tuple[int, list[ColumnSketch]]:
    """The number of rows of a part, and its sketches."""
    job = cast("ReadJob", open_sealed(sealed))
    task = cast("tuple[Piece, ...]", open_sealed(part[0]))
    rows = 0
    for batch in read_task(job, task):
        rows += batch.num_rows
        for sketch in part[1]:
            sketch.add(batch.column(sketch.field.name))
    return rows, part[1]
