"""Datasets of Ray over tables: tasks read splits, or write files that one commit makes visible.

A read is planned once, at one snapshot; each task gets some splits. A write is a Datasink: tasks
return the commit messages of their files, and the program commits them. All rows of one bucket of a
table with a primary key must come to one task: `_placed` shuffles them.

Files of a job that failed are in no snapshot; `Table.remove_orphan_files` removes them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.descriptor import TableDescriptor, describe
from lakecore.errors import InvalidRequest, LakecoreError, Unsupported
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitResult, Snapshot
from lakecore.options import POSTPONE_BUCKET
from lakecore.plan.bucketing import bucket_ids
from lakecore.plan.partitions import bucket_key_fields
from lakecore.rows.conform import KindRule, conform
from lakecore.table.commits.commit_change import delete_files
from lakecore.table.context import TableContext, crosses_partitions
from lakecore.table.reads.readable import batch_reader
from lakecore.table.reads.row_values import parse_condition, setting_of
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.time_travel import Travel
from lakecore.table.writes.batch_write import (
    author,
    batch_writer,
    commit_append,
    commit_overwrite,
)
from lakecore.table.writes.write_start import WriteStart, read_base

try:
    import ray
    import ray.data
    from ray.data import Datasink, Datasource, ReadTask
    from ray.data.block import BlockAccessor, BlockMetadata
except ImportError as error:
    raise Unsupported(
        "datasets of Ray need a package that is not installed",
        package="ray",
        install="pip install 'lakecore[ray]'",
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import polars as pl
    from ray.data.datasource import WriteResult

    from lakecore.model.data_types import Field
    from lakecore.model.files import CommitMessage, Split
    from lakecore.model.schema import TableSchema
    from lakecore.model.times import Time
    from lakecore.options.choices import BucketFunction
    from lakecore.table.handle import Table

__all__ = ["read", "write"]

MEMORY_PER_TASK = 512 << 20
_OWNER = "_lakecore_owner"


def read(
    table: Table,
    columns: Sequence[str] | None = None,
    where: pl.Expr | str | None = None,
    *,
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp: Time | None = None,
) -> ray.data.Dataset:
    """The rows of one state of a table as a dataset of Arrow blocks. Arguments as `Table.scan`.

    The state is chosen now; each task reads some splits of it, within 512 MiB. The row order is
    undefined. Raises what `Table.scan` raises, and Unsupported for a table in memory, one with a
    fallback branch or with access rules, and for a read of changes between two states.

        names = lakecore.ray.read(table, ["id", "name"], "id > 10")
    """
    rows = table._rows(Travel(snapshot_id=snapshot_id, tag=tag, timestamp=timestamp))  # noqa: SLF001
    if not isinstance(rows, TableSource):
        raise Unsupported(
            "Ray reads one state of a table, without a fallback branch and access rules",
            table=rows.context.identifier,
        )
    schema = rows.table_schema
    condition = None if where is None else parse_condition(where, schema, setting_of(rows.context))
    with batch_reader(replace(rows, own=()), columns, where) as none:
        shape = none.schema
    splits = rows.plan(None if condition is None else condition.predicate).splits
    task = _Read(describe(rows.context), rows.snapshot, schema, columns, where)
    return ray.data.read_datasource(_Source(task, tuple(splits), shape))


def write(
    dataset: ray.data.Dataset,
    table: Table,
    *,
    overwrite: bool = False,
    commit_user: str | None = None,
    identifier: int = BATCH_COMMIT_IDENTIFIER,
) -> CommitResult:
    """Add the rows of a dataset in one commit, or with `overwrite` replace all rows by them.

    Rows are written as `Table.write` does, by the tasks; `commit_user` and `identifier` make the
    commit idempotent as there. If a key has several rows in the dataset, any of them may win.

    Raises InvalidRequest, naming column and value, if a row does not fit; CommitConflict and
    CommitUnknown as `Table.write`. An error means that no row is visible.

        lakecore.ray.write(dataset, table, commit_user="nightly", identifier=17)
    """
    context = table.context
    by = author(context, commit_user, identifier)
    placed, numbered = _placed(dataset, context)
    table_of_tasks = describe(context, {"write-only": "true"})
    sink = _Sink(_Write(table_of_tasks, read_base(context), overwrite, numbered))
    placed.write_datasink(sink)
    messages = [message for outcome in sink.outcomes for message in outcome.messages]
    try:
        for outcome in sink.outcomes:
            if outcome.failure is not None:
                raise outcome.failure
        _check_owners(sink.outcomes, context)
    except LakecoreError:
        delete_files(context, messages)
        raise
    if overwrite:
        return commit_overwrite(context, messages, {}, by, dynamic=False)
    return commit_append(context, messages, by)


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Read:
    table: TableDescriptor
    snapshot: Snapshot | None
    schema: TableSchema
    columns: Sequence[str] | None
    where: pl.Expr | str | None

    def blocks(self, splits: tuple[Split, ...]) -> Iterator[pa.Table]:
        """The rows of some splits; one block at least, so that the columns are known."""
        source = TableSource(
            context=self.table.context(MEMORY_PER_TASK),
            snapshot=self.snapshot,
            table_schema=self.schema,
            own=splits,
        )
        with batch_reader(source, self.columns, self.where) as batches:
            yield batches.schema.empty_table()
            for batch in batches:
                yield pa.Table.from_batches([batch])


class _Source(Datasource):
    def __init__(self, read: _Read, splits: tuple[Split, ...], shape: pa.Schema) -> None:
        super().__init__()
        self._read, self._splits, self._shape = read, splits, shape

    def get_name(self) -> str:
        return f"Paimon({self._read.table.identifier})"

    def estimate_inmemory_data_size(self) -> int | None:
        return _size(self._splits)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: object = None
    ) -> list[ReadTask]:
        del data_context
        count = max(1, min(parallelism, len(self._splits)))
        by_size = sorted(self._splits, key=lambda split: -_size([split]))
        tasks = []
        for part in (tuple(by_size[start::count]) for start in range(count)):
            about = BlockMetadata(None, _size(part), input_files=None, exec_stats=None)
            blocks = partial(self._read.blocks, part)
            tasks.append(ReadTask(blocks, about, self._shape, per_task_row_limit))
        return tasks


def _size(splits: Sequence[Split]) -> int:
    return sum(file.size_bytes for split in splits for file in split.files)


# --- writing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Write:
    table: TableDescriptor
    base: WriteStart
    overwrite: bool
    numbered: bool
    """Whether rows have the column `_OWNER`, which is not written."""


@dataclass(frozen=True)
class _Outcome:
    """What a task wrote, or why it failed: Ray would only pass the text of the error."""

    messages: tuple[CommitMessage, ...]
    failure: LakecoreError | None = None


@dataclass
class _Sink(Datasink[_Outcome]):
    task: _Write
    outcomes: list[_Outcome] = field(default_factory=list)

    def get_name(self) -> str:
        return f"Paimon({self.task.table.identifier})"

    def write(self, blocks: Iterable[object], ctx: object) -> _Outcome:
        del ctx
        task = self.task
        context = task.table.context(MEMORY_PER_TASK)
        try:
            with batch_writer(context, overwrite=task.overwrite, base=task.base) as writer:
                for block in blocks:
                    rows = BlockAccessor.for_block(block).to_arrow()
                    if rows.num_rows:
                        writer.write(rows.drop_columns([_OWNER]) if task.numbered else rows)
                return _Outcome(tuple(writer.prepare_commit()))
        except LakecoreError as error:
            return _Outcome((), error)

    def on_write_complete(self, write_result: WriteResult[_Outcome]) -> None:
        self.outcomes = list(write_result.write_returns)


def _check_owners(outcomes: Sequence[_Outcome], context: TableContext) -> None:
    """INVARIANT: no two tasks write one bucket, whose rows would have equal sequence numbers."""
    owners = Counter(
        owner
        for outcome in outcomes
        for owner in {(each.partition, each.bucket) for each in outcome.messages}
        if owner[1] != POSTPONE_BUCKET
    )
    if context.schema.primary_keys and owners and max(owners.values()) > 1:
        raise InvalidRequest("several tasks of Ray wrote one bucket", table=context.identifier)


def _placed(dataset: ray.data.Dataset, context: TableContext) -> tuple[ray.data.Dataset, bool]:
    """The dataset with all rows of a bucket in one task, and whether it has the column `_OWNER`."""
    schema, options = context.schema, context.options
    if not schema.primary_keys:
        return dataset, False
    numbered = options.bucket > 0
    keys = [] if crosses_partitions(context) else list(schema.partition_keys)
    if numbered:
        owners = _Owners(
            schema, bucket_key_fields(schema, options), options.bucket, options.bucket_function_type
        )
        dataset = dataset.map_batches(owners, batch_format="pyarrow")
        keys.append(_OWNER)
    if not keys:
        return dataset.repartition(1), numbered
    cores = int(ray.cluster_resources().get("CPU", 1))
    return dataset.repartition(cores, keys=keys), numbered


@dataclass(frozen=True)
class _Owners:
    """Adds the number of its bucket to each row, as a column."""

    schema: TableSchema
    key: tuple[Field, ...]
    buckets: int
    function: BucketFunction

    def __call__(self, rows: pa.Table) -> pa.Table:
        if _OWNER in rows.column_names:
            raise InvalidRequest("the name of a column is reserved for its bucket", column=_OWNER)
        kinds = KindRule(
            rowkind_field=None, keyed=True, ignore_delete=False, ignore_update_before=False
        )
        try:
            parts = [
                conform(batch, self.schema, first_row=0, kinds=kinds).rows
                for batch in rows.to_batches()
            ]
        except LakecoreError:  # the task that gets the rows says so
            return rows.append_column(_OWNER, pa.array(np.zeros(rows.num_rows, np.int32)))
        own = pa.Table.from_batches(parts, self.schema.arrow)
        columns = [pa.concat_arrays(own.column(field.name).chunks) for field in self.key]
        types = [field.type for field in self.key]
        return rows.append_column(
            _OWNER, pa.array(bucket_ids(columns, types, self.buckets, self.function))
        )
