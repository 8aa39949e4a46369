"""Rows of changes as a value: splits, how to read them, and the kind of the rows.

A process that planned the changes of a snapshot sends such values to other processes, which read
the rows without the table's metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.frames.source import reading
from lakecore.model.rows import VALUE_KIND
from lakecore.table.splits.read import read_split

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from lakecore.io.stores.store import Store
    from lakecore.memory import Budget
    from lakecore.model.files import Split
    from lakecore.model.rows import RowKind
    from lakecore.table.stored_rows.read_plan import ReadPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRows:
    """Splits to read one after another, and the row kind of all their rows.

    With `kind` None, the rows have their stored kinds, in the last column of the plan.
    """

    plan: ReadPlan
    splits: tuple[Split, ...]
    kind: RowKind | None

    def streams(self, store: Store, budget: Budget) -> Iterator[Iterator[pa.RecordBatch]]:
        """The rows of each split, with the columns of the plan and `_VALUE_KIND`."""
        for split in self.splits:
            rows = read_split(split, self.plan, store, budget)
            yield rows if self.kind is None else of_kind(rows, self.kind)


def of_kind(
    batches: Iterable[pa.RecordBatch], kind: RowKind
) -> Generator[pa.RecordBatch, None, None]:
    """The batches, with this kind in the column `_VALUE_KIND` of each row."""
    with reading(iter(batches)) as rows:
        for batch in rows:
            kinds = pa.array(np.full(batch.num_rows, kind, np.int8))
            if VALUE_KIND in batch.schema.names:
                batch = batch.drop_columns([VALUE_KIND])  # noqa: PLW2901 - the same rows
            yield batch.append_column(VALUE_KIND, kinds)
