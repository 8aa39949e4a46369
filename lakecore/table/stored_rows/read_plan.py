"""The value that says how the files of a split are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.io.files.checks import Checks
from lakecore.options import TableOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.format.layout import Layout
    from lakecore.merge.spec import MergeSpec
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate
    from lakecore.rows.read_rules import Condition
    from lakecore.table.stored_rows.record_expiry import RecordExpiry

__all__ = ["ReadPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """Everything that reading a split needs, except the store and the budget. Picklable.

    - `schema`: the schema of the returned rows; `schemas`: those of the files, by id;
    - `columns`: the names of the returned columns, in order;
    - `predicate`: may prune row groups;
    - `system_columns`: sections also return the sequence number and the kind of each row;
    - `checks`: how often the bytes of a file are compared with their checksums;
    - `expiry`: the rows that a merge of runs leaves out; None in a read;
    - `options`: those of the table;
    - `row_filter`: the rows for which it is not true may be left out, or lack values; None: none;
    - `follows`: the columns of the table whose stored references to BLOB values are followed.
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
    expiry: RecordExpiry | None = None
    options: TableOptions = field(default_factory=TableOptions)
    row_filter: Condition | None = None
    follows: frozenset[str] = frozenset()

    @property
    def followed(self) -> tuple[str, ...]:
        """The returned columns whose references to BLOB values are replaced by the values."""
        return tuple(name for name in self.columns if name in self.follows)

    @property
    def output(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        return pa.schema([self.schema.arrow.field(name) for name in self.columns])
