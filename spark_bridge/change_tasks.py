"""One task of a DELETE, UPDATE or MERGE: changes the rows of its splits.

1. The task gets the pinned snapshot, its own splits, and what to change, as frozen values.
2. The task reads and writes with lakecore's code for the verb, within the memory of the task. All
   parts are computed from the same snapshot, at the same statement time and time zone.
3. The outcome is one row of bytes. An error of the data or the table is an outcome, too, because
   another attempt of the task would fail in the same way.

INVARIANT: nothing becomes visible here, and no two tasks write one bucket of a table with a key.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from lakecore import LakecoreError
from lakecore.distributed import (
    Assignment,
    Changed,
    Condition,
    MergeRequest,
    Snapshot,
    Split,
    TableDescriptor,
    TableSource,
    WriteStart,
    as_verbs_read,
    assigned,
    deleted,
    merged,
    of_job,
)
from spark_bridge.failures import portable, raised_in_task
from spark_bridge.spread import answer, unit_function
from spark_bridge.worker import Batches, acknowledge, joined, partition_number, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np
    import pyarrow as pa


Change: TypeAlias = Condition | Assignment | MergeRequest
"""The rows to delete, the values to set, or the clauses to apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTask:
    """The input that is the same for every task of a job.

    `inserts`: whether a merge inserts the task's source rows that match nothing. `schema`: the
    columns of the source, for a task without source rows.
    """

    table: TableDescriptor
    base: WriteStart
    snapshot: Snapshot | None
    job: str
    memory_bytes: int
    zone: str
    statement_ms: int
    change: Change
    inserts: bool = False
    schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOutcome:
    """The result of a task, or its failure. `found` flags the source rows that matched."""

    changed: Changed | None = None
    found: np.ndarray | None = None
    failure: LakecoreError | None = None


def group_function(
    task: ChangeTask, source: pa.Table | None = None
) -> Callable[[Batches], Batches]:
    """The function for `map_units` over groups of splits; `source` is for a merge."""

    def change(number: int, splits: tuple[Split, ...]) -> Iterable[tuple[int, object]]:
        yield number, _outcome(task, number, [splits], source)

    return unit_function(change, "change")


def owner_function(task: ChangeTask) -> Callable[[Batches], Batches]:
    """The function for `mapInArrow` over source rows, whose last column is the unit.

    One row of each task has a unit, the group of splits that the task changes, and is no source
    row.
    """

    def change(batches: Batches) -> Batches:
        acknowledge()
        number, units = partition_number(), list[tuple[Split, ...]]()
        source = _rows(task, batches, units)
        with raised_in_task():
            yield answer(number, _outcome(task, number, units, source))
        set_aside("change")

    return change


def _rows(task: ChangeTask, batches: Batches, units: list[tuple[Split, ...]]) -> Batches:
    """The source rows of a task under their own names; the unit among them goes to `units`."""
    assert task.schema is not None, "a merge has a source"
    columns = range(len(task.schema))
    for batch in joined(batches):
        unit = batch.column(-1)
        rows = batch.select(columns).rename_columns(task.schema.names)
        if unit.null_count < len(unit):
            units += [pickle.loads(each) for each in unit.drop_null().to_pylist()]  # noqa: S301  of our driver
            rows = rows.filter(unit.is_null())
        yield rows


def _outcome(
    task: ChangeTask,
    number: int,
    units: Sequence[tuple[Split, ...]],
    source: pa.Table | Iterable[pa.RecordBatch] | None,
) -> ChangeOutcome:
    """The outcome of the one unit, which may be known only once the source is read."""

    def target() -> TableSource:
        (splits,) = units
        return as_verbs_read(context, task.snapshot, splits)

    try:
        context = task.table.context(task.memory_bytes, of_job(task.job))
        context = replace(context, zone=task.zone, statement_ms=task.statement_ms)
        match task.change:
            case Condition() as condition:
                changed = deleted(context, target(), condition, task.base)
            case Assignment() as assignment:
                changed = assigned(context, target(), assignment, task.base)
            case MergeRequest() as request:
                done = merged(
                    context, target, source, request, base=task.base, inserts=task.inserts
                )
                return ChangeOutcome(changed=done.changed, found=done.found)
    except LakecoreError as error:
        return ChangeOutcome(failure=portable(error, task=number))
    return ChangeOutcome(changed=changed)
