"""The metadata of a table as rows: Paimon's system tables (`$` tables).

Each method of `Inspect` returns one system table, with the rows that Java Paimon shows, except that

- bytes are shown in hex (Java prints the address of an object);
- rows have a fixed order;
- partitions with timestamps do not fail;
- `buckets` supports time travel.

`files`, `manifests`, `partitions`, `buckets`, `file_key_ranges`, `table_indexes` and `statistics`
show one snapshot: the newest, or the one that the table's `scan.*` options select. Row counts are
those of stored rows, before a merge.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from inspect import cleandoc
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.display import public_names
from lakecore.errors import InvalidRequest, Unsupported, did_you_mean
from lakecore.frames.source import CheckedSource, RowSource, limited, reading
from lakecore.model.rows import (
    KEY_PREFIX,
    KIND_TEXTS,
    SEQUENCE_FIELD,
    SEQUENCE_NUMBER,
    TRACKING_FIELDS,
    VALUE_KIND,
    VALUE_KIND_ID,
    RowKind,
)
from lakecore.model.types import Array, Field, parse_type, string_array, with_nullable
from lakecore.plan.predicate import Predicate, condition_on
from lakecore.table.changes.between import Difference, changes_of_options
from lakecore.table.changes.changes import Change, ChangesSource, State
from lakecore.table.changes.stream import StreamRequest, open_stream
from lakecore.table.changes.wanted import Wanted, column_to_count
from lakecore.table.reads.access_policy import GuardedSource, guarded
from lakecore.table.reads.fallback import FallbackSource, with_fallback
from lakecore.table.reads.source import TableSource, side_by_side
from lakecore.table.reads.time_travel import Travel, as_of, resolve, schema_read
from lakecore.table.system.system_columns import (
    SYSTEM_TABLES,
    UNSUPPORTED_SYSTEM_TABLES,
    SystemSource,
    SystemTable,
    system_schema,
)
from lakecore.table.system.system_rows import check_shown, system_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import timedelta

    from lakecore.model.schema import TableSchema
    from lakecore.model.times import Time
    from lakecore.rows.read_rules import Condition
    from lakecore.table.changes.change_stream import ChangeStream
    from lakecore.table.context import TableContext

# --- read optimized ------------------------------------------------------------------------------
# `$ro`: the rows of a table that need no merge.
#
# https://paimon.apache.org/docs/master/concepts/system-tables/#read-optimized-table
#
# In a table with a primary key, only the files of the last level are read, which full compaction
# has written; newer rows are not included. For a table without a primary key, all rows are read.

RO = "ro"


class ReadOptimized(SystemTable):
    """The system table `$ro` of a table, which can be read at any state of the table."""

    def __init__(self, context: TableContext) -> None:
        self.identifier = f"{context.identifier}${RO}"
        self._of = context

    @property
    def schema(self) -> TableSchema:
        return schema_read(self._of)

    def _rows(self, at: Travel) -> TableSource | FallbackSource | GuardedSource:
        self._of.options.require_readable(filters_rows=True)
        snapshot, schema = resolve(self._of, at)
        context = as_of(self._of, schema)
        own = _last_level(TableSource(context=context, snapshot=snapshot, table_schema=schema))
        if not self._of.falls_back:
            return guarded(own, self._of)
        found = with_fallback(own, self._of, at)
        return guarded(replace(found, rest=_last_level(found.rest)), self._of)


def _last_level(source: TableSource) -> TableSource:
    """The source. For a table with a primary key, it reads only the files of the last level."""
    return replace(source, last_level_only=bool(source.table_schema.primary_keys))


# --- row tracking --------------------------------------------------------------------------------
# `$row_tracking`: the rows of a table with their ids.
#
# https://paimon.apache.org/docs/master/append-table/row-tracking/
#
# The system table has the columns of the table, then `_ROW_ID` and `_SEQUENCE_NUMBER`: the id of
# the row, and the snapshot that wrote its newest values.

ROW_TRACKING = "row_tracking"


class RowTracking(SystemTable):
    """The system table `$row_tracking` of a table, which can be read at any state of the table."""

    def __init__(self, context: TableContext) -> None:
        self.identifier = f"{context.identifier}${ROW_TRACKING}"
        self._of = context
        if not context.options.row_tracking_enabled:
            raise InvalidRequest(
                "rows have no ids; a table is created with row-tracking.enabled=true for that",
                table=context.identifier,
            )

    @property
    def schema(self) -> TableSchema:
        return _tracked(schema_read(self._of))

    def _rows(self, at: Travel) -> TableSource | GuardedSource:
        self._of.options.require_readable(filters_rows=True)
        if self._of.falls_back:
            raise Unsupported(
                "row ids are not read with a fallback branch; take the option away",
                option="scan.fallback-branch",
                table=self.identifier,
            )
        snapshot, schema = resolve(self._of, at)
        context = as_of(self._of, schema)
        rows = TableSource(context=context, snapshot=snapshot, table_schema=_tracked(schema))
        return guarded(rows, self._of)


def _tracked(schema: TableSchema) -> TableSchema:
    return replace(schema, fields=(*schema.fields, *TRACKING_FIELDS))


# --- inspect -------------------------------------------------------------------------------------


def _listing_columns(
    method: Callable[[Inspect], pl.DataFrame],
) -> Callable[[Inspect], pl.DataFrame]:
    """The method; its docstring also lists the columns of the system table of its name."""
    columns = SYSTEM_TABLES[method.__name__]
    lines = (f"- {each.name} {each.type}: {each.meaning}" for each in columns)
    method.__doc__ = "\n".join((cleandoc(method.__doc__ or ""), "", *lines))
    return method


class Inspect:
    """The metadata of a table as Polars frames, read at each call; returned by `table.inspect`."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    def __dir__(self) -> list[str]:
        return public_names(self)

    @_listing_columns
    def snapshots(self) -> pl.DataFrame:
        """The live snapshots, oldest first."""
        return self._frame("snapshots")

    @_listing_columns
    def schemas(self) -> pl.DataFrame:
        """All schemas of the table, oldest first."""
        return self._frame("schemas")

    @_listing_columns
    def options(self) -> pl.DataFrame:
        """The options that were set, in the order of the schema file."""
        return self._frame("options")

    @_listing_columns
    def files(self) -> pl.DataFrame:
        """The live data files, by partition and bucket.

        Bounds show a DATE as the number of days since 1970, a TIME as the milliseconds of the day,
        and a binary value as hex.
        """
        return self._frame("files")

    @_listing_columns
    def manifests(self) -> pl.DataFrame:
        """The manifests of the snapshot: of earlier files, of its changes, of its changelog."""
        return self._frame("manifests")

    @_listing_columns
    def partitions(self) -> pl.DataFrame:
        """The partitions that have data files, sorted by their text."""
        return self._frame("partitions")

    @_listing_columns
    def buckets(self) -> pl.DataFrame:
        """The buckets that have data files, sorted by partition and number."""
        return self._frame("buckets")

    @_listing_columns
    def tags(self) -> pl.DataFrame:
        """The tags, sorted by name."""
        return self._frame("tags")

    def audit_log(self) -> pl.LazyFrame:
        """The rows of the table with their kinds, in the column `rowkind`: +I, -U, +U or -D.

        A deleted key may have a row of kind -D. With the options `incremental-between...`, the rows
        are the changes between two points. `system_table("audit_log")` can also be read as a
        stream.

            table.inspect.audit_log().collect()
        """
        return ChangeLog(self._context, AUDIT_LOG).scan()

    def binlog(self) -> pl.LazyFrame:
        """The rows of `audit_log`, each value in a list.

        Between two points, and in a stream of `system_table("binlog")`, an update is one row of
        kind +U with lists of two values: before and after.

            table.inspect.binlog().collect()
        """
        return ChangeLog(self._context, BINLOG).scan()

    def ro(self) -> pl.LazyFrame:
        """The rows of the last level, which full compaction has written: they need no merge.

        Newer rows are not included. A table without a primary key returns all rows.

            table.inspect.ro().collect()
        """
        return ReadOptimized(self._context).scan()

    @_listing_columns
    def branches(self) -> pl.DataFrame:
        """The branches, sorted by name, without `main`."""
        return self._frame("branches")

    @_listing_columns
    def consumers(self) -> pl.DataFrame:
        """The consumers, sorted by id."""
        return self._frame("consumers")

    @_listing_columns
    def aggregation_fields(self) -> pl.DataFrame:
        """The columns, with their options `fields.NAME.…`, in the order of the schema."""
        return self._frame("aggregation_fields")

    @_listing_columns
    def file_key_ranges(self) -> pl.DataFrame:
        """The live data files with their key ranges, by partition and bucket."""
        return self._frame("file_key_ranges")

    @_listing_columns
    def table_indexes(self) -> pl.DataFrame:
        """The index files of the snapshot: key hashes of dynamic buckets, deletion vectors.

        The offset and length of a vector are those in the index file.
        """
        return self._frame("table_indexes")

    @_listing_columns
    def statistics(self) -> pl.DataFrame:
        """The statistics that `analyze` computed; no row if the snapshot has none."""
        return self._frame("statistics")

    def system_table(self, name: str) -> SystemTable:
        """The `$` table of that name, as a table that can be read."""
        if not isinstance(name, str):
            raise InvalidRequest("a system table is named by a text", name=name)
        if name in (AUDIT_LOG, BINLOG):
            return ChangeLog(self._context, name)
        if name == RO:
            return ReadOptimized(self._context)
        if name == ROW_TRACKING:
            return RowTracking(self._context)
        if name not in SYSTEM_TABLES:
            known = name in UNSUPPORTED_SYSTEM_TABLES
            raise Unsupported(
                "the system table is not supported" if known else "no such system table",
                table=f"{self._context.identifier}${name}",
                **({} if known else did_you_mean(name, SYSTEM_TABLES)),
                system_tables=[*SYSTEM_TABLES, AUDIT_LOG, BINLOG, RO, ROW_TRACKING],
            )
        check_shown(self._context, name)
        return SystemTable(
            f"{self._context.identifier}${name}",
            SystemSource(
                table_schema=system_schema(name), load=partial(system_rows, self._context, name)
            ),
        )

    def _frame(self, name: str) -> pl.DataFrame:
        frame = pl.from_arrow(system_rows(self._context, name))
        assert isinstance(frame, pl.DataFrame)
        return frame


# --- change log -----------------------------------------------------------------------------------
# `$audit_log` and `$binlog`: the rows of a table with their kinds, as a table.
#
# https://paimon.apache.org/docs/master/concepts/system-tables/#audit-log-table
#
# - `$audit_log` has the column `rowkind` (+I, -U, +U, -D) before the columns of the table.
# - `$binlog` packs these rows into lists.
#
# A batch read returns the state of a snapshot: the merged row of each key with its stored kind, so
# a deleted key may have a row of kind -D. With the options `incremental-between...`, a batch read
# returns the changes between two points. A stream returns the changes of each snapshot.
#
# With `table-read.sequence-number.enabled`, the column `_SEQUENCE_NUMBER` follows `rowkind`.


# --- binlog --------------------------------------------------------------------------------------
# `$binlog`: the rows of `$audit_log` with each column as a list.
#
# https://paimon.apache.org/docs/master/concepts/system-tables/#binlog-table
#
# Each list has one value. Where the table shows changes, an update is one row of kind +U whose
# lists have two values: before and after. The sequence number is that of the old row.
#
# A catalog may filter and mask the rows of `$audit_log`, which are packed here. If the catalog
# hides one row of an update, the other one is refused, because alone it would look like a row that
# is no update.

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
        return self.table_schema.arrow

    def batches(
        self,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in batches of the requested columns, in the order of the changes.

        The predicate prunes nothing. `limit` is exact without a predicate. Raises Unsupported if
        the row filter hides the old or the new row of an update.
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


# --- rows with kinds ------------------------------------------------------------------------------

AUDIT_LOG, BINLOG = "audit_log", "binlog"
_KIND_COLUMN = Field(id=VALUE_KIND_ID, name=KIND, type=parse_type("STRING"))
_UPDATE_COLUMN = Field(id=UPDATE_ID, name=UPDATE, type=parse_type("INT"))
_TEXTS = string_array(KIND_TEXTS)


@dataclass(frozen=True, kw_only=True)
class ChangeLogSource:
    """The rows of changes in the form of `$audit_log`.

    With `numbered`, the column `UPDATE` says which rows are one update, for `$binlog`: the -U and
    the +U of an update have the same number, in the same batch; other rows have -1. Without
    `pairs`, every row has -1.
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
        schema = self.context.schema
        numbers = (_UPDATE_COLUMN,) if self.numbered else ()
        special = (_KIND_COLUMN, SEQUENCE_FIELD) if self._sequence else (_KIND_COLUMN,)
        return replace(schema, fields=(*numbers, *special, *schema.fields), primary_keys=())

    @property
    def schema(self) -> pa.Schema:
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
