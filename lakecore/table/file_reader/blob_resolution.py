"""Replaces references to BLOB values by the values, in the rows that a read returns.

INVARIANT: references are followed last, once it is known which rows a read returns. Rows that are
written again keep their references.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from lakecore.errors import Unsupported
from lakecore.format.blob_file import blobs_of, with_each_blob
from lakecore.format.blob_references import is_view
from lakecore.frames.source import reading
from lakecore.io.referenced_blobs import ReferencedBlobs
from lakecore.memory import Budget, Share
from lakecore.model.types import arrow_type
from lakecore.rows.read_rules import judged

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from lakecore.io.stores.store import Store
    from lakecore.table.file_reader.read_plan import ReadPlan

_LEAST_BYTES = 8 << 20
ARRAY_BYTES_MAX = 1 << 30
"""An Arrow array of binaries holds less than 2 GiB."""
_HUGE_BYTES = 1 << 40


def followed(
    batches: Iterator[pa.RecordBatch], plan: ReadPlan, store: Store, budget: Budget
) -> Generator[pa.RecordBatch, None, None]:
    """The batches, with the BLOB values of the columns `followed` of the plan.

    Large values make smaller batches. References in rows that the plan's row filter hides are not
    followed: the rows are left out.
    """
    names = plan.followed
    if not names:
        yield from batches
        return
    storage = plan.options.blob_descriptor_storage
    with (
        reading(batches) as rows,
        budget.acquire_up_to(Share.BLOBS.of(budget.size_bytes), _LEAST_BYTES) as lease,
        ReferencedBlobs(store, plan.layout, storage) as blobs,
    ):
        for batch in rows:
            if plan.row_filter is not None:
                batch = batch.filter(judged(plan.row_filter, batch))  # noqa: PLW2901
            most = min(lease.size_bytes, ARRAY_BYTES_MAX)
            for piece in _pieces(batch, names, blobs, most):
                yield _with_values(piece, plan, blobs)
                del piece
            del batch


def _pieces(
    batch: pa.RecordBatch, names: Sequence[str], blobs: ReferencedBlobs, size_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Slices of a batch whose values take at most `size_bytes`, or a single row."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for name in names:
        for row, value in enumerate(batch.column(name).to_pylist()):
            if value is not None:
                _refuse_views(value, name)
                # A descriptor may state any length.
                sizes[row] += min(sum(map(blobs.size, blobs_of(value))), _HUGE_BYTES)
    ends = np.cumsum(sizes)
    begin = 0
    while begin < batch.num_rows:
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + size_bytes, "right")))
        yield batch.slice(begin, end - begin)
        begin = end


def _with_values(batch: pa.RecordBatch, plan: ReadPlan, blobs: ReferencedBlobs) -> pa.RecordBatch:
    for name in plan.followed:
        at, kind = batch.schema.get_field_index(name), plan.schema.field(name).type
        values = [
            None if value is None else with_each_blob(value, blobs.read)
            for value in batch.column(at).to_pylist()
        ]
        batch = batch.set_column(at, batch.schema.field(at), pa.array(values, arrow_type(kind)))
    return cast("pa.RecordBatch", batch)


def _refuse_views(value: object, column: str) -> None:
    if any(map(is_view, blobs_of(value))):
        raise Unsupported(
            "values that views of BLOB values name are not read; read the views by "
            "blob-view.resolve.enabled=false",
            column=column,
        )
