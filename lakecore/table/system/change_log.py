"""`$audit_log` and `$binlog`: the rows of a table with their kinds, as a table.

https://paimon.apache.org/docs/master/concepts/system-tables/#audit-log-table

- `$audit_log` has the column `rowkind` (+I, -U, +U, -D) before the columns of the table.
- `$binlog` packs these rows into lists.

A batch read returns the state of a snapshot: the merged row of each key with its stored kind, so a
deleted key may have a row of kind -D. With the options `incremental-between...` it returns the
changes between two points. A stream returns the changes of each snapshot.

With `table-read.sequence-number.enabled`, the column `_SEQUENCE_NUMBER` follows `rowkind`.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import Unsupported
from lakecore.frames.source import CheckedSource, limited, reading
from lakecore.model.rows import (
    KEY_PREFIX,
    KIND_TEXTS,
    SEQUENCE_FIELD,
    SEQUENCE_NUMBER,
    VALUE_KIND,
    VALUE_KIND_ID,
    RowKind,
)
from lakecore.model.types import Array, Field, parse_type, string_array, with_nullable
from lakecore.plan.predicate import condition_on
from lakecore.table.changes.between import Difference, changes_of_options
from lakecore.table.changes.changes import State
from lakecore.table.changes.stream import StreamRequest, open_stream
from lakecore.table.changes.wanted import Wanted, column_to_count
from lakecore.table.reads.guarded import guarded
from lakecore.table.reads.source import side_by_side
from lakecore.table.reads.travel import Travel, as_of, resolve, schema_read
from lakecore.table.system.system_columns import SystemTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import timedelta

    import polars as pl

    from lakecore.frames.source import RowSource
    from lakecore.model.schema import TableSchema
    from lakecore.model.times import Time
    from lakecore.plan.predicate import Predicate
    from lakecore.rows.read_rules import Condition
    from lakecore.table.changes.change_stream import ChangeStream
    from lakecore.table.changes.changes import Change, ChangesSource
    from lakecore.table.context import TableContext


# --- binlog --------------------------------------------------------------------------------------
# `$binlog`: the rows of `$audit_log` with each column as a list.
#
# https://paimon.apache.org/docs/master/concepts/system-tables/#binlog-table
#
# Each list has one value. Where the table shows changes, an update is one row of kind +U whose
# lists have two values: before and after. Its sequence number is that of the old row.
#
# A catalog may filter and mask the rows of `$audit_log`, which are packed here. If it hides one row
# of an update, the other one is refused: alone, it would look like a row that is no update.

KIND = "rowkind"
UPDATE = f"{KEY_PREFIX}UPDATE"
"""The column that numbers the updates of a batch: -1 for a row that is not part of one."""
UPDATE_ID = 2_147_483_600


@dataclass(frozen=True, kw_only=True)
class BinlogSource:
    """The rows of `images` as lists. `images` has the columns of `$audit_log`, and `UPDATE`."""

    images: RowSource
    table: str

    @cached_property
    def table_schema(self) -> TableSchema:
        """The columns, as a schema."""
        schema = self.images.table_schema
        fields = tuple(
            field
            if field.name in (KIND, SEQUENCE_NUMBER)
            else replace(field, type=Array(element=with_nullable(field.type, nullable=True)))
            for field in schema.fields
            if field.name != UPDATE
        )
        return replace(schema, fields=fields)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of all columns."""
        return self.table_schema.arrow

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in batches of the requested columns, in the order of the changes.

        The predicate prunes nothing. `limit` is exact without a predicate. Raises Unsupported if
        one row of an update is hidden.
        """
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        wanted = list(dict.fromkeys((UPDATE, KIND, *names)))
        with reading(self.images.batches(wanted)) as found:
            packed = (self._packed(batch, schema) for batch in found)
            yield from limited(packed, limit if predicate is None else None)

    def check_files(self) -> None:
        """Raise Unsupported for a rule of the catalog that is not known."""
        if isinstance(self.images, CheckedSource):
            self.images.check_files()

    def engine_files(self, columns: Sequence[str], predicate: Predicate | None = None) -> None:
        """Always None: files store no lists."""
        del columns, predicate

    def _packed(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        numbers = batch.column(UPDATE).to_numpy(zero_copy_only=False)
        second = np.append([False], (numbers[1:] == numbers[:-1]) & (numbers[1:] >= 0))
        starts = np.flatnonzero(~second[: len(numbers)])
        ends = np.append(starts[1:], len(numbers)) - 1 if len(starts) else starts
        if ((numbers[starts] >= 0) & (starts == ends)).any():
            raise Unsupported(
                "the catalog hides one row of an update, and a row of $binlog holds both; read "
                "$audit_log, which has a row for each",
                table=self.table,
            )
        columns = []
        for field in schema:
            column = batch.column(field.name)
            if field.name == KIND:
                columns.append(column.take(pa.array(ends)))
            elif field.name == SEQUENCE_NUMBER:
                columns.append(column.take(pa.array(starts)))
            else:
                offsets = pa.array(np.append(starts, len(numbers)), pa.int32())
                columns.append(pa.ListArray.from_arrays(offsets, column, type=field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


# --- change log ----------------------------------------------------------------------------------

AUDIT_LOG, BINLOG = "audit_log", "binlog"
_KIND_COLUMN = Field(id=VALUE_KIND_ID, name=KIND, type=parse_type("STRING"))
_UPDATE_COLUMN = Field(id=UPDATE_ID, name=UPDATE, type=parse_type("INT"))
_TEXTS = string_array(KIND_TEXTS)


@dataclass(frozen=True, kw_only=True)
class ChangeLogSource:
    """The rows of changes in the form of `$audit_log`.

    With `numbered`, the column `UPDATE` says which rows are one update, for `$binlog`: the -U and
    the +U of an update have the same number, in the same batch; other rows have -1. Without
    `pairs`, all rows do.
    """

    context: TableContext
    changes: tuple[Change, ...]
    numbered: bool = False
    pairs: bool = False
    row_filter: Condition | None = None

    def __post_init__(self) -> None:
        if not self._sequence:
            return
        if not self.context.schema.primary_keys:
            raise Unsupported(
                "rows of a table without a primary key have no sequence numbers",
                option="table-read.sequence-number.enabled",
                table=self.context.identifier,
            )
        if any(isinstance(change, Difference) for change in self.changes):
            raise Unsupported(
                "the difference of two states has no sequence numbers",
                option="table-read.sequence-number.enabled",
                table=self.context.identifier,
            )

    @property
    def _sequence(self) -> bool:
        return self.context.options.table_read_sequence_number_enabled

    @cached_property
    def table_schema(self) -> TableSchema:
        """The columns, as a schema."""
        schema = self.context.schema
        numbers = (_UPDATE_COLUMN,) if self.numbered else ()
        special = (_KIND_COLUMN, SEQUENCE_FIELD) if self._sequence else (_KIND_COLUMN,)
        return replace(schema, fields=(*numbers, *special, *schema.fields), primary_keys=())

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of all columns."""
        return self.table_schema.arrow

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in batches of the requested columns, in the order of the changes.

        The predicate is only used for pruning: the batches may still hold rows that do not match.
        `limit` is exact without a predicate.
        """
        names = self.schema.names if columns is None else list(columns)
        own = self.context.schema
        keys = own.primary_keys if self.pairs else ()
        asked = [name for name in names if name in own.by_name]
        wanted = Wanted(
            context=self.context,
            columns=tuple(dict.fromkeys([*asked, *keys])) or column_to_count(own),
            predicate=condition_on(predicate, own.names),
            keeps_deletions=True,
            sequence=self._sequence,
            row_filter=self.row_filter,
        )
        streams = (stream for change in self.changes for stream in change.streams(wanted))
        with closing(side_by_side(streams)) as found:
            images = _whole_updates(found, keys) if self.pairs else found
            shown = (self._shown(batch, names) for batch in images)
            yield from limited(shown, limit if predicate is None else None)

    def filtered(self, row_filter: Condition) -> ChangeLogSource:
        """The changes for a reader who drops the rows for which the filter is not true.

        Rows that may not hold all columns of the filter are left out.
        """
        return replace(self, row_filter=row_filter)

    def engine_files(
        self,
        columns: Sequence[str],
        predicate: Predicate | None = None,
    ) -> None:
        """Always None: files do not store row kinds as strings."""
        del columns, predicate

    def _shown(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        kinds = batch.column(VALUE_KIND)
        schema = pa.schema([self.schema.field(name) for name in names])
        columns = []
        for name in names:
            if name == KIND:
                columns.append(_TEXTS.take(kinds))
            elif name == UPDATE:
                columns.append(pa.array(self._updates(kinds.to_numpy(zero_copy_only=False))))
            else:
                columns.append(batch.column(name))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _updates(self, kinds: np.ndarray) -> np.ndarray:
        numbers = np.full(len(kinds), -1, np.int32)
        if self.pairs:
            follows = np.append(kinds[1:] == RowKind.UPDATE_AFTER, [False])[: len(kinds)]
            starts = np.flatnonzero((kinds == RowKind.UPDATE_BEFORE) & follows)
            numbers[starts] = numbers[starts + 1] = starts
        return numbers


def _whole_updates(
    batches: Iterator[pa.RecordBatch], keys: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows, in batches that never separate the -U and the +U of an update."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        rows = batch
        if not rows.num_rows:
            continue
        if held is not None:
            if _same_key(held, rows, keys):
                rows = _joined(held, rows)
            else:
                yield held
            held = None
        if rows.column(VALUE_KIND)[-1].as_py() == RowKind.UPDATE_BEFORE:
            held = rows.slice(rows.num_rows - 1)
            rows = rows.slice(0, rows.num_rows - 1)
        if rows.num_rows:
            yield rows
    if held is not None:
        yield held


def _same_key(held: pa.RecordBatch, rows: pa.RecordBatch, keys: Sequence[str]) -> bool:
    return all(pc.equal(held.column(key)[0], rows.column(key)[0]).as_py() for key in keys)


def _joined(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    (batch,) = pa.Table.from_batches([first, second]).combine_chunks().to_batches()
    return batch


class ChangeLog(SystemTable):
    """`$audit_log` or `$binlog` of a table: it is read like a table, and as a stream."""

    def __init__(self, context: TableContext, name: str) -> None:
        self.identifier = f"{context.identifier}${name}"
        self._of = context
        self._lists = name == BINLOG

    @property
    def schema(self) -> TableSchema:
        """The columns, as a schema."""
        context = as_of(self._of, schema_read(self._of))
        return self._packed(self._in_form(context, ())).table_schema

    def stream(  # noqa: PLR0913 - the public verb
        self,
        from_snapshot: int | None = None,
        until: int | Literal["latest"] | None = None,
        columns: Sequence[str] | str | None = None,
        where: pl.Expr | str | None = None,
        *,
        from_timestamp: Time | None = None,
        scan_mode: str | None = None,
        consumer_id: str | None = None,
        poll: str | float | timedelta | None = None,
    ) -> ChangeStream[pl.LazyFrame]:
        """The changes that `Table.stream` returns for each snapshot, with this table's columns."""
        self._require_readable()
        request = StreamRequest(
            from_snapshot=from_snapshot,
            from_timestamp=from_timestamp,
            scan_mode=scan_mode,
            until=until,
            consumer_id=consumer_id,
            poll=poll,
            columns=columns,
            where=where,
        )
        return open_stream(self._of, request, self._of_changes, self._packed)

    def _rows(self, at: Travel) -> RowSource:
        return self._packed(guarded(self._log(at), self._of))

    def _log(self, at: Travel) -> ChangeLogSource:
        context = self._of
        self._require_readable()
        between = changes_of_options(context) if at == Travel() else None
        if between is not None:
            return self._of_changes(between)
        if context.falls_back:
            raise Unsupported(
                "rows with their kinds are not read with a fallback branch; take the option away",
                option="scan.fallback-branch",
                table=self.identifier,
            )
        snapshot, schema = resolve(context, at)
        state = () if snapshot is None else (State(snapshot=snapshot, as_batch=True),)
        return self._in_form(as_of(context, schema), state)

    def _require_readable(self) -> None:
        self._of.options.require_readable(filters_rows=True)

    def _of_changes(self, source: ChangesSource) -> ChangeLogSource:
        return self._in_form(source.context, source.changes, pairs=self._lists)

    def _in_form(
        self, context: TableContext, changes: tuple[Change, ...], *, pairs: bool = False
    ) -> ChangeLogSource:
        numbered = self._lists
        return ChangeLogSource(context=context, changes=changes, numbered=numbered, pairs=pairs)

    def _packed(self, rows: RowSource) -> RowSource:
        return BinlogSource(images=rows, table=self.identifier) if self._lists else rows
