"""What reading a split needs to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.io.files.checks import Checks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.format.layout import Layout
    from lakecore.merge.spec import MergeSpec
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate

__all__ = ["ReadPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """Everything that reading a split needs, except the store and the budget. Picklable.

    - `schema`: the schema of the returned rows; `schemas`: those of the files, by id;
    - `columns`: the names of the returned columns, in order;
    - `predicate`: may prune row groups;
    - `system_columns`: sections also return the sequence number and the kind of each row;
    - `checks`: how often the bytes of a file are compared with their checksums.
    """

    layout: Layout
    schema: TableSchema
    schemas: Mapping[int, TableSchema]
    columns: tuple[str, ...]
    engine: str
    merge: MergeSpec
    predicate: Predicate | None = None
    system_columns: bool = False
    checks: Checks = Checks.ONCE

    @property
    def output(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        return pa.schema([self.schema.arrow.field(name) for name in self.columns])
