"""Runs the parts of a rescale as Spark tasks, and returns their commit messages to the driver.

A part is the old buckets of a partition whose rows go to the same new buckets: from 8 to 16 buckets
there are eight for each partition. A task reads its old buckets where they are stored and writes
the new ones, so that no row is shuffled. Nothing becomes visible here: the driver commits the
messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakecore.distributed.descriptor import describe
from lakecore.distributed.tables import SYSTEM, of_job
from lakecore.distributed.verb_tasks import RescalePart, rescale_part
from lakecore.distributed.verbs import one_by_one
from spark_bridge.arguments import SPREAD_BYTES
from spark_bridge.job_files import remove_files_of_job, remove_leftovers
from spark_bridge.packing import packed
from spark_bridge.spread import spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from lakecore import CommitMessage
    from lakecore.distributed.descriptor import TableDescriptor
    from lakecore.distributed.tables import TableContext

__all__ = ["SparkRescale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRescale:
    """A `RescaleRunner` that uses tasks of Spark. `spread` overrides the choice by size."""

    spark: SparkSession
    cores: int
    memory_bytes: int
    spread: bool | None

    def __call__(
        self, context: TableContext, parts: Sequence[RescalePart]
    ) -> Sequence[CommitMessage]:
        """The messages of all parts."""
        sizes = [part.size_bytes for part in parts]
        by_size = sum(sizes) > SPREAD_BYTES and len(parts) > 1
        if not parts or not (by_size if self.spread is None else self.spread):
            return one_by_one(context, parts)
        job = SYSTEM.new_uuid()
        groups = [[parts[place] for place in group] for group in packed(sizes, self.cores)]
        name = f"lakecore: rescale {context.identifier}, {len(parts)} parts, {sum(sizes) >> 20} MiB"
        work = partial(_rescaled, describe(context), job, self.memory_bytes)
        try:
            found = spread(self.spark, name, groups, work)
        except BaseException:
            remove_files_of_job(context, job)
            raise
        messages = [message for group in found for message in group]
        remove_leftovers(context, job, messages)
        return messages


def _rescaled(
    table: TableDescriptor, job: str, memory_bytes: int, parts: Sequence[RescalePart]
) -> list[CommitMessage]:
    # The ambient gives each file of this attempt a name of its own.
    context = table.context(memory_bytes, of_job(job))
    return [message for part in parts for message in rescale_part(context, part)]
