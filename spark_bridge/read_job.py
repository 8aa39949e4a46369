"""Reads of tasks: how splits are cut into tasks, what executors receive, and how they read it.

Executors receive values that hold no table: one job, and tasks of pieces.

A *piece* is a split, the part of a split between two keys, or some of its row groups. A *task* is a
list of pieces that one reader reads in turn. The values are pickled by the names of lakecore's
classes, so driver and executors must run the same version of lakecore: another version refuses to
open them.
"""

from __future__ import annotations

import pickle
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

import lakecore
from lakecore import InvalidRequest, LakecoreError
from lakecore.distributed import (
    INTEGERS,
    KIND_TEXTS,
    RETRACTS,
    ROW_KIND,
    TIMESTAMPS,
    VALUE_KIND,
    Atomic,
    BatchSource,
    Budget,
    Condition,
    DataFile,
    FilteredSource,
    Key,
    Layout,
    PlannedRows,
    Predicate,
    ReadPlan,
    Root,
    RowKind,
    Share,
    Split,
    SplitFiles,
    Store,
    TableSchema,
    all_of,
    batch_size,
    common_ranks,
    condition_on,
    decode_rows,
    followed,
    keys_between,
    map_fields,
    missing_is_corrupt,
    read_split,
    reader,
    retype,
    row_group_bounds,
    to_polars,
    without_statistics,
)
from spark_bridge.worker import set_aside

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence


MEMORY_PER_TASK = 512 << 20
"""The budget of a task, of which a merge takes a quarter: many Python workers share a machine."""


_BATCHES = 3
"""Copies of a batch in memory: as read, in the types for Spark, and in Spark's own buffer."""


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


# --- tasks of a read ------------------------------------------------------------------------------
# Cuts splits into pieces, and packs the pieces into tasks.
#
# 1. A split larger than the target is cut between keys, so that one big bucket is not one task. Any
#    key can be the cut; the first keys of files are chosen and, in large files, the smallest keys
#    of row groups. A cut is made when the bytes since the last cut exceed the target.
# 2. Each piece keeps the files whose key range overlaps the piece.
# 3. A large raw file without a key to cut it by is cut between row groups.
# 4. Pieces are packed into tasks in order; each file counts at least as its open cost. The target
#    is `source.split.target-size`, or less, so that a small table still makes enough tasks.
#
# INVARIANT: the pieces of a split hold each row once. Where rows are merged, the pieces cover every
# key once, and all rows of a key are in one piece.

TASKS_WANTED = 16
"""A small read gets smaller tasks than the target size, up to this many tasks."""
FOOTERS_MAX = 256
"""The most footers that planning reads; further files are cut only at their first keys."""
_CUT_TYPES = frozenset({*INTEGERS, *TIMESTAMPS, Root.VARCHAR, Root.DATE, Root.DECIMAL})
"""CHAR is missing: in ORC, the first key of a file ends in blanks that reads remove."""
_FINE = 4
"""Row groups are examined in files larger than the target size divided by this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting:
    """The values that cutting needs: sizes, schemas, and the locations of the files."""

    target_bytes: int
    open_cost_bytes: int
    schema: TableSchema
    schemas: Mapping[int, TableSchema]
    layout: Layout
    store: Store


@dataclass(frozen=True, slots=True)
class _Part:
    """A file, or one of its row groups: its smallest key and its size in bytes."""

    low: Key
    size_bytes: int


def make_tasks(splits: Sequence[Split], cutting: Cutting) -> list[tuple[Piece, ...]]:
    """Tasks of about equal weight that together read each row of the splits once."""
    weights = [_weight(split, cutting) for split in splits]
    fair = sum(weights) // TASKS_WANTED
    target = max(1, min(cutting.target_bytes, max(cutting.open_cost_bytes, fair)))
    weighed: list[tuple[Piece, int]] = []
    footers = FOOTERS_MAX
    for split, weight in zip(splits, weights, strict=True):
        pieces = [Piece(split=without_statistics(split))]
        if weight > 2 * target:
            parts, read = _parts(split, cutting, target, footers)
            footers -= read
            if cuts := _cuts(parts, target):
                pieces = _cut(split, cuts, cutting.schema)
            elif split.raw and not split.vectors:
                pieces, read = _cut_files(split, cutting, target, footers)
                footers -= read
        weighed += [(piece, weight // len(pieces)) for piece in pieces]
    return _pack(weighed, target)


def between_keys(split: Split, cutting: Cutting) -> list[Piece]:
    """The split in pieces of about the target size, in key order; empty if it cannot be cut."""
    parts, _ = _parts(split, cutting, cutting.target_bytes, FOOTERS_MAX)
    cuts = _cuts(parts, cutting.target_bytes)
    return _cut(split, cuts, cutting.schema) if cuts else []


def _pack(pieces: Sequence[tuple[Piece, int]], target: int) -> list[tuple[Piece, ...]]:
    tasks: list[list[Piece]] = []
    room = 0
    for piece, weight in pieces:
        if not tasks or weight > room:
            tasks.append([])
            room = target
        tasks[-1].append(piece)
        room -= weight
    return [tuple(task) for task in tasks]


def _weight(split: Split, cutting: Cutting) -> int:
    return sum(max(file.size_bytes, cutting.open_cost_bytes) for file in split.files)


# --- cutting --------------------------------------------------------------------------------------


def _parts(split: Split, cutting: Cutting, target: int, footers: int) -> tuple[list[_Part], int]:
    """The parts of the files between which to cut, and the number of footers that were read."""
    fields = cutting.schema.key_fields
    types = [field.type for field in fields]
    if not fields or not all(isinstance(t, Atomic) and t.root in _CUT_TYPES for t in types):
        return [], 0
    files = split.files
    lows = decode_rows([file.key_min for file in files], fields)
    parts: list[_Part] = []
    read = 0
    for index, file in enumerate(files):
        inside: list[_Part] = []
        if file.size_bytes * _FINE > target and read < footers:
            inside = _row_groups(split, file, cutting)
            read += 1
        low = tuple(column[index] for column in lows.columns)
        parts += inside or [_Part(low, file.size_bytes)]
    return parts, read


def _row_groups(split: Split, file: DataFile, cutting: Cutting) -> list[_Part]:
    """The row groups of a file; empty if the file does not store the smallest key of each."""
    fields = cutting.schema.key_fields
    mappings = map_fields(fields, cutting.schemas[file.schema_id].fields)
    stored = [m.stored.name for m in mappings if m.stored is not None and not m.changed]
    if len(stored) < len(fields):
        return []
    path = cutting.layout.data_file(split.partition_path, split.bucket, file)
    try:
        groups = row_group_bounds(cutting.store, path, stored)
    except LakecoreError:
        return []  # the task that reads the file reports the error
    if not groups:
        return []
    columns: list[pa.Array] = []
    arrow = cutting.schema.arrow
    for field, name in zip(fields, stored, strict=True):
        bounds = [group.bounds[name] for group in groups]
        if any(bound is None for bound in bounds):
            return []
        try:
            values = pa.array([b[0] for b in bounds if b is not None], arrow.field(field.name).type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return []
        columns.append(values)
    return [
        _Part(tuple(column[index] for column in columns), group.size_bytes)
        for index, group in enumerate(groups)
    ]


def _cuts(parts: Sequence[_Part], target: int) -> list[Key]:
    """Keys, in order, that cut the parts into ranges of about `target` bytes."""
    if len(parts) < 2:
        return []
    ranks = _ranks([part.low for part in parts])
    order = np.argsort(ranks, kind="stable")
    sizes = np.array([part.size_bytes for part in parts], np.int64)[order]
    pieces = -(-int(sizes.sum()) // target)
    wanted = np.arange(1, pieces) * (sizes.sum() / pieces)
    at = np.searchsorted(np.cumsum(sizes) - sizes, wanted)
    cuts: list[Key] = []
    last = ranks[order[0]]
    for index in order[np.unique(at[at < len(order)])]:
        if ranks[index] > last:
            cuts.append(parts[index].low)
            last = ranks[index]
    return cuts


def _cut(split: Split, cuts: Sequence[Key], schema: TableSchema) -> list[Piece]:
    """The pieces between the cuts; a cut is the first key of the piece after it."""
    fields = schema.key_fields
    files = split.files
    lows = decode_rows([file.key_min for file in files], fields)
    highs = decode_rows([file.key_max for file in files], fields)
    bounds = [
        pa.array([cut[place] for cut in cuts], column.type)
        for place, column in enumerate(lows.columns)
    ]
    low_ranks, high_ranks, cut_ranks = common_ranks([lows.columns, highs.columns, bounds])
    names = [field.name for field in fields]
    place_of = {file.name: place for place, file in enumerate(files)}
    pieces: list[Piece] = []
    for number in range(len(cuts) + 1):
        first = cuts[number - 1] if number else None
        end = cuts[number] if number < len(cuts) else None
        inside = np.ones(len(files), bool)
        if number:
            inside &= high_ranks >= cut_ranks[number - 1]
        if number < len(cuts):
            inside &= low_ranks < cut_ranks[number]
        runs = tuple(
            kept
            for run in split.runs
            if (kept := tuple(file for file in run if inside[place_of[file.name]]))
        )
        if not runs:
            continue
        part = without_statistics(replace(split, runs=runs))
        pieces.append(Piece(split=part, keys=keys_between(names, first, end)))
    return pieces


def _cut_files(
    split: Split, cutting: Cutting, target: int, footers: int
) -> tuple[list[Piece], int]:
    """The pieces of large files, one piece for all other files, and the number of footers read."""
    pieces: list[Piece] = []
    whole: list[DataFile] = []
    read = 0
    for file in split.files:
        bounds: list[int] = []
        if file.size_bytes > target and read < footers:
            bounds = _row_group_bounds(split, file, cutting, target)
            read += 1
        if len(bounds) < 3:
            whole.append(file)
            continue
        own = without_statistics(replace(split, runs=((file,),)))
        pieces += [Piece(split=own, row_groups=(a, b)) for a, b in pairwise(bounds)]
    if whole:
        pieces.append(Piece(split=without_statistics(replace(split, runs=(tuple(whole),)))))
    return pieces, read


def _row_group_bounds(split: Split, file: DataFile, cutting: Cutting, target: int) -> list[int]:
    """The row groups at which to cut, from 0 to the number of row groups; empty if unknown."""
    path = cutting.layout.data_file(split.partition_path, split.bucket, file)
    try:
        groups = row_group_bounds(cutting.store, path, [])
    except LakecoreError:
        return []  # the task that reads the file reports the error
    if not groups:
        return []
    ends = np.cumsum([group.size_bytes for group in groups])
    pieces = -(-int(ends[-1]) // target)
    at = np.searchsorted(ends, ends[-1] / pieces * np.arange(1, pieces)) + 1
    return [0, *(int(each) for each in np.unique(at) if each < len(groups)), len(groups)]


def _ranks(keys: Sequence[Key]) -> np.ndarray:
    columns = [
        pa.array([key[place] for key in keys], keys[0][place].type) for place in range(len(keys[0]))
    ]
    return common_ranks([columns])[0]


# --- changes --------------------------------------------------------------------------------------
# The values that executors receive to read changes, without a table: one job, and units.
#
# A *unit* is a set of rows that one task reads in order: all changes of a bucket in one snapshot,
# or a split of a state. A task is a list of units, in the order of their snapshots.
#
# INVARIANT: all rows of a key in one snapshot are in one unit, in the order of the changes.

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
