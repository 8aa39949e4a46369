"""The value that says how the files of a split are read."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.format.statistics import stats_frame
from lakecore.io.files.file_format import Checks
from lakecore.model.types import INTEGERS, TIMESTAMPS, Atomic, DataType
from lakecore.options import TableOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakecore.format.layout import Layout
    from lakecore.merge.spec import MergeSpec
    from lakecore.model.files import DataFile
    from lakecore.model.schema import TableSchema
    from lakecore.plan.predicate import Predicate
    from lakecore.rows.read_rules import Condition


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
    - `follows`: the columns of the table whose stored references to BLOB values are followed;
    - `first_rows`: the reader stops after that many rows; None: it reads all.
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
    first_rows: int | None = None

    @property
    def followed(self) -> tuple[str, ...]:
        """The returned columns whose references to BLOB values are replaced by the values."""
        return tuple(name for name in self.columns if name in self.follows)

    @property
    def output(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        return pa.schema([self.schema.arrow.field(name) for name in self.columns])


# --- record expiry -------------------------------------------------------------------------------
# Record-level expiry: which rows a compaction drops because they are too old.
#
# The rules are Paimon's
# (https://paimon.apache.org/docs/master/primary-key-table/compaction/#record-level-expire): a time
# is an INT of seconds, a BIGINT of seconds or (from 10^12 on) milliseconds, or a TIMESTAMP, which
# counts as UTC. A row whose time is null never expires. A row expires when more whole seconds than
# `record-level.expire-time` have passed since its time.
#
# INVARIANT: only a compaction into the last level drops rows, and drops them before the merge. In
# any other compaction, an older row of the same key could be below the output, and would reappear.

_FIRST_MILLISECOND = 1_000_000_000_000
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordExpiry:
    """Rows whose `column` holds a time before `cutoff_s` (seconds since 1970) have expired."""

    column: str
    cutoff_s: int

    def kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the batch that have not expired."""
        expired = self._expired(rows.column(self.column))
        return rows.filter(pa.array(~expired)) if expired.any() else rows

    def expired_files(
        self, files: Sequence[DataFile], schema: TableSchema, schemas: Mapping[int, TableSchema]
    ) -> frozenset[str]:
        """The names of the files that hold an expired row according to their statistics.

        The result omits files without a minimum of the column, and files that were written when the
        column was not yet a time. `schema` is the table's schema; `schemas` are the files' schemas.
        """
        field = schema.field(self.column)
        groups: dict[int, list[DataFile]] = defaultdict(list)
        for file in files:
            groups[file.schema_id].append(file)
        found: set[str] = set()
        for schema_id, inside in groups.items():
            own = schemas[schema_id].by_id.get(field.id)
            if own is None or not _same_times(own.type, field.type):
                continue
            low, _, _ = stats_frame(inside, schemas[schema_id], [own.name])
            expired = self._expired(low.column(own.name))
            found |= {file.name for file, old in zip(inside, expired, strict=True) if old}
        return frozenset(found)

    def _expired(self, times: pa.Array) -> np.ndarray:
        seconds = _seconds(times)
        older = pc.fill_null(pc.less(seconds, self.cutoff_s), fill_value=False)
        return np.asarray(older)


def record_expiry(options: TableOptions, now_ms: int) -> RecordExpiry:
    """The expiry of a table's rows at a time; `record-level.expire-time` must be set.

    Raises InvalidRequest if the options do not name the column with the time.
    """
    column, age_ms = options.record_level_time_field, options.record_level_expire_time_ms
    assert age_ms is not None, "rows expire"
    if column is None:
        raise InvalidRequest(
            "record-level.expire-time needs record-level.time-field", table=options.table
        )
    return RecordExpiry(column=column, cutoff_s=now_ms // 1000 - age_ms // 1000)


def unexpired(expiry: RecordExpiry, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows that have not expired, without empty batches."""
    for batch in batches:
        kept = expiry.kept(batch)
        if kept.num_rows:
            yield kept


def _same_times(old: DataType, new: DataType) -> bool:
    """Whether values of both types mean the same times. Bit width and precision may differ."""
    if not isinstance(old, Atomic) or not isinstance(new, Atomic):
        return False
    if old.root in INTEGERS:
        return new.root in INTEGERS
    return old.root in TIMESTAMPS and old.root is new.root


def _seconds(times: pa.Array) -> pa.Array:
    """Seconds since 1970, or null. Fractions are cut off toward zero, as in Java."""
    if pa.types.is_timestamp(times.type):
        # Java stores milliseconds rounded down, and then rounds seconds toward zero.
        per_second = _UNITS[times.type.unit]
        count = times.cast(pa.int64())
        if per_second > 10**3:
            least = per_second // 10**3
            floor = pc.divide(pc.subtract(count, _remainder(count, least)), least)
            return pc.divide(floor, 1000)
        return pc.divide(count, per_second)
    count = times.cast(pa.int64())
    if times.type == pa.int64():
        millis = pc.greater_equal(count, _FIRST_MILLISECOND)
        return pc.if_else(millis, pc.divide(count, 1000), count)
    return count


def _remainder(count: pa.Array, divisor: int) -> pa.Array:
    """The non-negative remainder, smaller than the divisor."""
    values = pc.fill_null(count, 0).to_numpy()
    return pa.array(np.mod(values, divisor))
