"""A writing task: writes chunks of rows of several targets to data files, and returns the outcomes.

Chunks are in order of their target; those of one target are in the order of the messages. The task
writes one target after another, each within the task's memory.
"""

from __future__ import annotations

import pickle
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from lakecore import InvalidRequest, LakecoreError
from lakecore.distributed.cdc import does_not_fit
from lakecore.distributed.tables import SYSTEM, of_job
from lakecore.distributed.writing import TableWrite
from spark_bridge.cdc_values import NO_TARGET, WrittenTargets
from spark_bridge.failures import DATA_ERRORS, portable, raised_in_task
from spark_bridge.spread import answer
from spark_bridge.task import TaskOutcome
from spark_bridge.worker import acknowledge, partition_number, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakecore import CommitMessage
    from lakecore.distributed.descriptor import TableDescriptor
    from spark_bridge.cdc_values import CdcTask, DecodingReport
    from spark_bridge.worker import Batches

__all__ = ["write_function"]


def write_function(task: CdcTask) -> Callable[[Batches], Batches]:
    """The function for `mapInArrow`: maps chunks to the outcomes of the targets."""

    def write(batches: Batches) -> Batches:
        acknowledge()
        with raised_in_task():
            yield answer(partition_number(), _written(task, batches))
        set_aside("write changes")

    return write


def _written(task: CdcTask, batches: Batches) -> WrittenTargets:
    names = sorted(task.targets)
    outcomes: dict[str, TaskOutcome] = {}
    reports: list[DecodingReport] = []
    for target, chunks in groupby(_chunks(batches), key=lambda chunk: chunk[0]):
        if target == NO_TARGET:
            reports += [pickle.loads(content) for _, _, content in chunks]  # noqa: S301  of our tasks
        else:
            name = names[target]
            outcomes[name] = _outcome(task, name, task.targets[name], chunks)
    return WrittenTargets(outcomes=outcomes, reports=tuple(reports))


def _chunks(batches: Batches) -> Iterator[tuple[int, str, pa.Buffer]]:
    """The target, the source and the content of each chunk."""
    for batch in batches:
        targets = batch.column("target").to_pylist()
        sources = batch.column("source").to_pylist()
        contents = batch.column("content")
        for at, (target, source) in enumerate(zip(targets, sources, strict=True)):
            yield target, source, contents[at].as_buffer()


def _outcome(
    task: CdcTask,
    name: str,
    table: TableDescriptor,
    chunks: Iterable[tuple[int, str, pa.Buffer]],
) -> TaskOutcome:
    """Write the rows of one target. Returns the outcome."""
    spark = TaskContext.get()
    partition = partition_number()
    began_ms = SYSTEM.now_ms()
    messages: tuple[CommitMessage, ...] = ()
    rows, failure, source = 0, None, ""
    try:
        context = table.context(task.memory_bytes, of_job(task.job))
        with TableWrite(context) as writer:
            for _, source, content in chunks:  # noqa: B007  an error names the source
                writer.write(pa.ipc.open_stream(content).read_all())
            messages = tuple(writer.prepare_commit())
            rows = writer.row_count
    except InvalidRequest as error:
        failure = portable(does_not_fit(source, name, error), task=partition)
    except DATA_ERRORS as error:
        failure = portable(error, task=partition)
    except LakecoreError as error:
        raise portable(error, task=partition) from error
    return TaskOutcome(
        partition=partition,
        attempt=spark.attemptNumber() if spark else 0,
        rows=rows,
        began_ms=began_ms,
        ended_ms=SYSTEM.now_ms(),
        messages=messages,
        failure=failure,
    )
