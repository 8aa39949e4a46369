"""Reads the rows of a split as Arrow batches of the requested columns, with lakecore's own reader.

- The files of a *raw* split are scanned without a merge; rows in deletion vectors are dropped.
- The files of a split may hold columns of the same rows; these files are joined.
- Any other split is one section of overlapping runs, merged window by window.

At the end, references to BLOB values are followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.table.sections.merge_runs import LEASE_LEAST_BYTES, LEASE_SHARE, merge_runs
from lakecore.table.sections.windows import Windows, batch_size
from lakecore.table.splits.decide import decide
from lakecore.table.splits.joined import joined_rows
from lakecore.table.splits.read_path import JoinedFiles, Reader
from lakecore.table.stored_rows.followed import followed
from lakecore.table.stored_rows.split_files import SplitFiles

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import numpy as np
    import pyarrow as pa

    from lakecore.io.stores.store import Store
    from lakecore.memory import Budget
    from lakecore.model.files import Split
    from lakecore.table.splits.read_path import ReadPath
    from lakecore.table.stored_rows.read_plan import ReadPlan


def read_split(
    split: Split, plan: ReadPlan, store: Store, budget: Budget, path: ReadPath | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a split in batches of the plan's columns. Raw rows come in file order.

    `path` is the decision of `decide`, if lakecore's own reader carries it out.
    """
    yield from followed(_stored(split, plan, store, budget, path), plan, store, budget)


def _stored(
    split: Split, plan: ReadPlan, store: Store, budget: Budget, path: ReadPath | None
) -> Iterator[pa.RecordBatch]:
    """The batches of `read_split`, with references in place of BLOB values."""
    if path is None:
        decision = decide([split], plan, budget, Reader.OWN)
        path = None if decision is None else decision.path
    if isinstance(path, JoinedFiles):
        for _, batch in _joined(split, plan, store, budget):
            yield batch
            del batch
        return
    if not isinstance(path, Windows):
        yield from _scanned(split, plan, store, budget)
        return
    columns = list(plan.columns)
    for table in merge_runs(split, plan, store, budget, path):
        yield from table.select(columns).to_batches()
        del table


def scan_at(
    split: Split, plan: ReadPlan, store: Store, budget: Budget
) -> Generator[tuple[np.ndarray | range, pa.RecordBatch], None, None]:
    """The rows of the files of a raw split, with the position of each row in its file.

    If the files of the split hold columns of the same rows, a row has the same position in each.
    References to BLOB values are not followed.
    The plan must have no predicate and no row filter: they could drop rows, and the positions of
    the remaining rows would be unknown.
    """
    assert plan.predicate is None, "positions of pruned rows are not known"
    assert plan.row_filter is None, "positions of filtered rows are not known"
    if not split.raw:
        yield from _joined(split, plan, store, budget)
        return
    fields = [plan.schema.field(name) for name in plan.columns]
    files = SplitFiles(split, plan, store)
    with budget.acquire_up_to(budget.size_bytes // LEASE_SHARE, LEASE_LEAST_BYTES) as lease:
        size = batch_size(fields, lease.size_bytes // 3)
        for file in split.files:
            yield from files.rows_at(file, fields, size)


def _joined(
    split: Split, plan: ReadPlan, store: Store, budget: Budget
) -> Generator[tuple[np.ndarray | range, pa.RecordBatch], None, None]:
    fields = [plan.schema.field(name) for name in plan.columns]
    with budget.acquire_up_to(budget.size_bytes // LEASE_SHARE, LEASE_LEAST_BYTES) as lease:
        size = batch_size(fields, lease.size_bytes // 3)
        yield from joined_rows(SplitFiles(split, plan, store), fields, size)


def _scanned(
    split: Split, plan: ReadPlan, store: Store, budget: Budget
) -> Iterator[pa.RecordBatch]:
    fields = [plan.schema.field(name) for name in plan.columns]
    files = SplitFiles(split, plan, store)
    with budget.acquire_up_to(budget.size_bytes // LEASE_SHARE, LEASE_LEAST_BYTES) as lease:
        size = batch_size(fields, lease.size_bytes // 3)
        for file in split.files:
            yield from files.rows(file, fields, size)
