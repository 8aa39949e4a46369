"""The values that executors receive for a read: one job, and tasks of pieces. They hold no table.

A *piece* is a split, the part of a split between two keys, or some of its row groups. A *task* is
the pieces that one reader reads one after another. The values are pickled by the names of
lakecore's classes, so driver and executors must run the same version of lakecore: another version
refuses to open them.
"""

from __future__ import annotations

import pickle
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

import lakecore
from lakecore import InvalidRequest
from lakecore.distributed import (
    Budget,
    FilteredSource,
    Predicate,
    ReadPlan,
    Share,
    SplitFiles,
    all_of,
    batch_size,
    followed,
    missing_is_corrupt,
    read_split,
    reader,
    retype,
    to_polars,
)
from spark_bridge.worker import set_aside

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from lakecore.distributed import BatchSource, Condition, Split, Store

MEMORY_PER_TASK = 512 << 20
"""The budget of a task, of which a merge takes a quarter: many Python workers share a machine."""


_BATCHES = 3
"""The copies of a batch in memory: as read, in the types for Spark, and in Spark's own buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A split or a part of it: rows that match a condition on their key, or some row groups.

    `row_groups` is a range (first, last + 1) of row groups. The split is then raw, and has one file
    and no deletion vector.
    """

    split: Split
    keys: Predicate | None = None
    row_groups: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadJob:
    """How to read all pieces: the columns of `plan`, and the rows that match `where` (None: all).

    The rows are returned in the schema `exchange`, whose fields are the columns of the plan in
    their order. `limit` is the largest number of rows that a task returns.
    """

    plan: ReadPlan
    store: Store
    where: Condition | None
    exchange: pa.Schema
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _PieceSource:
    """The rows of a piece as a source of batches."""

    job: ReadJob
    piece: Piece
    budget: Budget

    @property
    def schema(self) -> pa.Schema:
        return self.job.plan.schema.arrow

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        del limit  # more rows may be returned
        job, piece = self.job, self.piece
        conditions = [each for each in (predicate, piece.keys) if each is not None]
        plan = replace(
            job.plan,
            columns=job.plan.schema.names if columns is None else tuple(columns),
            predicate=all_of(conditions) if conditions else None,
        )
        if piece.row_groups is not None:
            return self._of_row_groups(plan, range(*piece.row_groups))
        return read_split(piece.split, plan, job.store, self.budget)

    def _of_row_groups(self, plan: ReadPlan, own: range) -> Iterator[pa.RecordBatch]:
        files = SplitFiles(self.piece.split, plan, self.job.store)
        (file,) = self.piece.split.files
        fields = [plan.schema.field(name) for name in plan.columns]
        with missing_is_corrupt(files.path(file)):
            wanted = files.wanted_row_groups(file)
        groups = own if wanted is None else [group for group in wanted if group in own]
        with self.budget.acquire_up_to(Share.BATCHES.of(self.budget.size_bytes), 0) as lease:
            size = batch_size(fields, lease.size_bytes // _BATCHES)
            rows = (batch for _, batch in files.stored_rows(file, fields, size, row_groups=groups))
            yield from followed(rows, plan, self.job.store, self.budget)


def read_task(job: ReadJob, task: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """The rows of the pieces, as batches in the types that Spark accepts."""
    if job.limit is None:
        yield from _rows(job, task)
    else:
        left = job.limit
        with closing(_rows(job, task)) as batches:
            while left and (batch := next(batches, None)) is not None:
                yield batch.slice(0, left)
                left -= min(left, batch.num_rows)
    set_aside("read")


def _rows(job: ReadJob, task: Sequence[Piece]) -> Generator[pa.RecordBatch]:
    budget = Budget(MEMORY_PER_TASK)
    for piece in task:
        # The source may return keys outside the bounds, but either all rows of a key or none.
        bounds = None if piece.keys is None else to_polars(piece.keys)
        source: BatchSource = _PieceSource(job=job, piece=piece, budget=budget)
        source, where = filtered(source, job.where)
        if bounds is not None:
            where = bounds if where is None else where & bounds
        for batch in reader(source, job.plan.columns, where):
            yield to_exchange(batch, job.exchange)


def filtered(source: BatchSource, where: Condition | None) -> tuple[BatchSource, pl.Expr | None]:
    """The source and the expression that together keep the rows that match a condition."""
    if where is None:
        return source, None
    if isinstance(where.expression, pl.Expr):
        return source, where.expression
    return FilteredSource(source, where), None


def to_exchange(batch: pa.RecordBatch, exchange: pa.Schema) -> pa.RecordBatch:
    """The batch in the types of `exchange`. Raises InvalidRequest for a value that does not fit."""
    if batch.schema == exchange:
        return batch
    columns: list[pa.Array] = []
    for column, field in zip(batch.columns, exchange, strict=True):
        try:
            columns.append(retype(column, field.type))
        except pa.ArrowInvalid as error:
            raise InvalidRequest(
                "a value does not fit Spark's type, which counts microseconds; leave the column "
                "out, or change its precision to 6",
                column=field.name,
                type=column.type,
                cause=error,
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=exchange)


def seal(value: object) -> bytes:
    """The value as bytes, which only the same version of lakecore can open."""
    return pickle.dumps((lakecore.__version__, pickle.dumps(value)))


def open_sealed(sealed: bytes) -> object:
    """The sealed value. Raises InvalidRequest if another version of lakecore sealed it."""
    version, inner = pickle.loads(sealed)  # noqa: S301  what this package sealed, sent by Spark
    if version != lakecore.__version__:
        raise InvalidRequest(
            "the driver and an executor run different versions of lakecore; install the same one",
            driver=version,
            executor=lakecore.__version__,
        )
    return pickle.loads(inner)  # noqa: S301  as above
