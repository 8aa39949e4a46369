"""The values that executors receive to read changes: one job, and units. They hold no table.

A *unit* is rows that one task reads in order: all changes of a bucket in one snapshot, or a split
of a state. A task is a list of units, in the order of their snapshots.

INVARIANT: all rows of a key in one snapshot are in one unit, in the order of the changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.distributed import (
    KIND_TEXTS,
    RETRACTS,
    ROW_KIND,
    VALUE_KIND,
    Budget,
    PlannedRows,
    RowKind,
    condition_on,
    reader,
)
from spark_bridge.read_job import MEMORY_PER_TASK, filtered, to_exchange
from spark_bridge.worker import set_aside

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.distributed import BatchSource, Condition, Predicate, Store

SNAPSHOT_ID = "_snapshot_id"
_TEXTS = pa.array(KIND_TEXTS, pa.string())
_ADDING = np.array([kind not in RETRACTS for kind in RowKind])


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeUnit:
    """Rows of one snapshot to read in order."""

    snapshot_id: int
    rows: tuple[PlannedRows, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeJob:
    """How to read all units.

    - `schema`: all columns that a condition may name, with `_row_kind` and `_snapshot_id`;
    - `own`: the columns of the table; `columns`: the columns to return;
    - `kinds`: whether rows of all kinds are returned; False: only +I and +U;
    - `where`: the rows to return; None: all;
    - `exchange`: the Arrow types in which Spark takes the rows.
    """

    schema: pa.Schema
    own: tuple[str, ...]
    columns: tuple[str, ...]
    kinds: bool
    store: Store
    where: Condition | None
    exchange: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnitSource:
    """A unit as a source of batches."""

    job: ChangeJob
    unit: ChangeUnit
    budget: Budget

    @property
    def schema(self) -> pa.Schema:
        return self.job.schema

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        del limit  # more rows may be returned
        job = self.job
        names = job.schema.names if columns is None else list(columns)
        stored = tuple(name for name in names if name in job.own) or job.own[:1]
        condition = condition_on(predicate, job.own)
        for rows in self.unit.rows:
            extra = (VALUE_KIND,) if rows.kind is None else ()
            plan = replace(rows.plan, columns=(*stored, *extra), predicate=condition)
            for batches in replace(rows, plan=plan).streams(job.store, self.budget):
                for batch in batches:
                    yield self._shown(batch, names)

    def _shown(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        kinds = batch.column(VALUE_KIND).to_numpy(zero_copy_only=False)
        if not self.job.kinds:
            adding = _ADDING[kinds]
            if not adding.all():
                batch, kinds = batch.filter(pa.array(adding)), kinds[adding]
        columns = []
        for name in names:
            if name == ROW_KIND and name not in self.job.own:
                columns.append(_TEXTS.take(pa.array(kinds)))
            elif name == SNAPSHOT_ID and name not in self.job.own:
                columns.append(pa.array(np.full(len(kinds), self.unit.snapshot_id, np.int64)))
            else:
                columns.append(batch.column(name))
        schema = pa.schema([self.job.schema.field(name) for name in names])
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def read_changes(job: ChangeJob, units: Sequence[ChangeUnit]) -> Iterator[pa.RecordBatch]:
    """The rows of the units, one after another, as batches in the types that Spark accepts.

    The rows keep their order, which a scan by a query engine does not guarantee.
    """
    budget = Budget(MEMORY_PER_TASK)
    for unit in units:
        source: BatchSource = _UnitSource(job=job, unit=unit, budget=budget)
        source, where = filtered(source, job.where)
        for batch in reader(source, job.columns, where):
            yield to_exchange(batch, job.exchange)
    set_aside("read")
