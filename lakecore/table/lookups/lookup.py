"""A handle for many look-ups: it keeps blocks of rows in memory and follows the table.

- *partial* cache, for look-ups by the whole primary key: blocks are row groups of data files, read
  when a key needs them (`bucket_rows.py`). A new snapshot costs only its new files;
- *full* cache, for other columns: the rows of each split, sorted by these columns. All rows are
  read when the handle opens; later, only splits whose files have changed are read again.

If the catalog filters or masks rows, blocks hold the rows as stored, with the additional columns
that the rules read. The rules are applied to the rows that a look-up finds. The handle asks the
catalog for its rules whenever it looks for a newer snapshot. If a column to look up by is masked,
nothing is cached: each look-up reads the table, and keys are compared with the masked values.

A newer snapshot replaces the whole state, so a look-up sees one snapshot. Threads may share a
handle. The memory budget counts blocks as a cache: a block may be dropped, and is then read again.
A block of a *partial* cache that is read again is also stored on local disk (`bucket_rows.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.frames.arrow_frames import to_frame
from lakecore.frames.incoming import incoming_batches
from lakecore.frames.polars_source import frames_of
from lakecore.frames.source import RowSource, checked_columns
from lakecore.io.cache import Cache
from lakecore.merge.keys import OrderColumns, order_columns
from lakecore.model.blob_rules import columns_to_follow
from lakecore.model.rows import KEY_PREFIX
from lakecore.model.types import Atomic, arrow_schema, with_nullable
from lakecore.options import LookupCache
from lakecore.plan.predicate import Column, Predicate, all_of, is_in
from lakecore.rows.fit import Place, fit
from lakecore.table.lookups.bucket_rows import (
    Block,
    BlockReader,
    DiskBlocks,
    LookupState,
    SplitState,
    distinct,
    lookup_state,
    sorted_block,
)
from lakecore.table.reads.access_policy import GuardedSource
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.told import told_call

if TYPE_CHECKING:
    from lakecore.model.schema import TableSchema
    from lakecore.rows.read_rules import ReadRules
    from lakecore.table.context import TableContext
    from lakecore.table.file_reader.row_groups import KeyGroup
    from lakecore.table.reads.fallback import FallbackSource


# --- keys ----------------------------------------------------------------------------------------
# The keys of a look-up: rows whose columns are the columns to look up by.
#
# Values are converted to the types of the table's columns without loss. As in SQL, a key with a
# null matches no row, and float keys are compared by `=`, so that -0.0 finds 0.0.

_LISTS = ("list", "tuple", "ndarray", "Array", "ChunkedArray", "Series", "range")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys as rows, with the columns to look up by, in the types of the table.

    Rows with nulls are included, although they match nothing.
    """

    rows: pa.Table

    @property
    def names(self) -> list[str]:
        return list(self.rows.schema.names)

    def predicate(self) -> Predicate:
        """A condition that holds for every row that a key finds, and perhaps for other rows."""
        parts = []
        for name in self.names:
            column = self.rows.column(name).combine_chunks()
            if not pa.types.is_floating(column.type):
                parts.append(is_in(Column(name, column.type), column.drop_null().unique()))
        return all_of(parts)


def keys_of(data: object, schema: TableSchema, on: Sequence[str] | None = None) -> Keys:
    """The keys of `data`: rows of any kind that `Table.write` takes, or a dict of one key.

    Raises InvalidRequest for a column that the table lacks or that cannot be compared, and for a
    value that does not fit the column's type. With `on`, the keys must have exactly these columns.
    """
    if isinstance(data, Mapping) and not any(type(v).__name__ in _LISTS for v in data.values()):
        data = [data]
    batches: list[pa.RecordBatch] = []
    first_row = 0
    for batch in incoming_batches(data, schema.fields):
        names = batch.schema.names
        _check(names, schema, on)
        columns = [
            fit(
                batch.column(name),
                with_nullable(schema.field(name).type, nullable=True),
                Place(column=name, first_row=first_row),
            )
            for name in names
        ]
        kinds = arrow_schema([schema.field(name) for name in names])
        kinds = pa.schema([kind.with_nullable(True) for kind in kinds])
        batches.append(pa.RecordBatch.from_arrays(columns, schema=kinds))
        first_row += batch.num_rows
    if not batches:
        kinds = arrow_schema([schema.field(name) for name in on or schema.primary_keys])
        if not kinds.names:
            raise InvalidRequest("keys without rows name no columns to look up by")
        return Keys(rows=kinds.empty_table())
    order = batches[0].schema.names if on is None else list(on)
    return Keys(rows=pa.Table.from_batches([batch.select(order) for batch in batches]))


def _check(names: Sequence[str], schema: TableSchema, on: Sequence[str] | None) -> None:
    unknown = [name for name in names if name not in schema.by_name]
    if unknown or not names:
        raise InvalidRequest(
            "keys name columns of the table to look up by", unknown=unknown, columns=schema.names
        )
    if on is not None and set(names) != set(on):
        raise InvalidRequest(
            "the keys must have the columns that the look-up was opened for",
            keys=list(names),
            columns=list(on),
        )
    for name in names:
        if not isinstance(schema.field(name).type, Atomic):
            raise InvalidRequest(
                "a nested column cannot be looked up by", column=name, type=schema.field(name).type
            )


def rows_in_order(keys: Keys, rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """These columns of `rows`, in the order of the keys that find the rows.

    Each row matches a key. `rows` has at least `columns` and the columns of the keys.
    """
    if keys.rows.num_rows <= 1:
        return rows if rows.columns == list(columns) else rows.select(columns)
    frame = to_frame(keys.rows)
    asked = [KEY_PREFIX + name for name in keys.names]
    # The result has the values of the rows, not of the keys: -0.0 finds 0.0.
    found = frame.rename(dict(zip(keys.names, asked, strict=True))).join(
        rows, left_on=asked, right_on=keys.names, how="inner", coalesce=False, maintain_order="left"
    )
    return found.select(columns)


# --- find ----------------------------------------------------------------------------------------
# Finds the rows of keys in a state of a table by an ordinary read.
#
# The keys become a condition, which prunes partitions, buckets, files (by statistics and indexes)
# and row groups. The remaining rows are joined with the keys. A look-up therefore returns what a
# read returns, with any merge engine.


def find_rows(source: RowSource, keys: Keys, columns: Sequence[str]) -> pl.DataFrame:
    """These columns of the rows that match the keys, in the order of the keys."""
    wanted = to_frame(keys.rows).drop_nulls().unique()
    names = list(dict.fromkeys((*columns, *keys.names)))
    parts = [to_frame(source.schema.empty_table().select(names))]
    if wanted.height:
        parts += [
            frame.join(wanted, on=keys.names, how="semi")
            for frame in frames_of(source, names, keys.predicate())
        ]
    return rows_in_order(keys, pl.concat(parts, how="vertical"), columns)


# --- lookup --------------------------------------------------------------------------------------

_GROUP_BYTES = 300
_DECODED_RATIO = 4
"""Rows in memory take about this many times the bytes of their file."""
_ATTEMPTS_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupColumns:
    """The columns to look up by, and the columns of the result."""

    on: tuple[str, ...]
    result: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of both, each once."""
        return tuple(dict.fromkeys((*self.result, *self.on)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What look-ups see: the rows at `read_ms`, and the rules that the catalog stated then.

    `state` is None if look-ups are reads of the source.
    """

    source: TableSource | FallbackSource | GuardedSource
    state: LookupState | None
    rules: ReadRules | None
    read_ms: int

    @property
    def plain(self) -> RowSource:
        """The rows as stored."""
        return self.source.source if isinstance(self.source, GuardedSource) else self.source


class Lookup:
    """Looks up rows by keys, again and again; see `Table.open_lookup`. Threads may share it.

    lookup = table.open_lookup()
    lookup.rows([{"id": 1}])
    lookup.refresh()  # 3
    lookup.snapshot_id, lookup.cached_bytes > 0  # (3, True)
    lookup.close()
    """

    def __init__(
        self,
        context: TableContext,
        columns: LookupColumns,
        newest: Callable[[], TableSource | FallbackSource | GuardedSource],
    ) -> None:
        options = context.options
        self._context, self._columns, self._newest = context, columns, newest
        primary = context.schema.primary_keys
        by_key = set(columns.on) == set(primary) and bool(primary)
        self._partial = by_key and options.lookup_cache is LookupCache.AUTO
        kinds = [context.schema.arrow.field(name).type for name in columns.on]
        # -0.0 must find 0.0, but `OrderColumns` distinguishes them.
        floats = any(map(pa.types.is_floating, kinds))
        self._cached = not (floats or options.primary_key_nullable)
        self._references = columns_to_follow(context.schema, options)
        limit = options.lookup_cache_max_memory_size_bytes
        self._limit_bytes = limit
        self._blocks: Cache[object, Block] = Cache(1, budget=context.budget, size_max_bytes=limit)
        self._groups: Cache[str, tuple[KeyGroup, ...]] = Cache(_GROUP_BYTES, budget=context.budget)
        self._disk = DiskBlocks(
            options.lookup_cache_max_disk_size_bytes,
            options.lookup_cache_file_retention_ms,
            context.ambient.now_ms,
        )
        self._lock = threading.Lock()
        self._closed = False
        self._seen: _Seen | None = None
        self._seen = self._look()

    # --- what it is ------------------------------------------------------------------------------

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that look-ups see now; None if the table was empty."""
        plain = self._now.plain
        snapshot = plain.snapshot if isinstance(plain, TableSource) else None
        return None if snapshot is None else snapshot.id

    @property
    def cached_bytes(self) -> int:
        """The approximate memory that cached rows take."""
        return self._blocks.size_bytes

    def __repr__(self) -> str:
        by = ", ".join(self._columns.on)
        return f"Lookup({self._context.identifier!r}, on=({by}), snapshot={self.snapshot_id})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the cache. The handle cannot be used any more; closing it again has no effect."""
        self._closed = True
        self._blocks.give_back(1 << 62)
        self._groups.give_back(1 << 62)
        self._disk.close()

    # --- look-ups --------------------------------------------------------------------------------

    def rows(self, keys: object) -> pl.DataFrame:
        """The rows with these keys in the newest known snapshot, as `Table.lookup` returns them.

        If the interval `lookup.continuous.discovery-interval` (default: the value of
        `continuous.discovery-interval`) has passed since the last check, the call first checks for
        a newer snapshot. Raises InvalidRequest if the handle is closed, and the errors of
        `Table.lookup`.
        """
        self._require_open()
        fitted = keys_of(keys, self._context.schema, self._columns.on)
        self._refresh_if_due()
        return self._retried(lambda: self._rows(fitted))

    def refresh(self) -> int | None:
        """Look for a newer snapshot now. Returns the snapshot that look-ups see from now on."""
        self._require_open()
        with self._lock:
            self._seen = self._look()
        return self.snapshot_id

    # --- the state -------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidRequest("the look-up is closed", table=self._context.identifier)

    @property
    def _now(self) -> _Seen:
        assert self._seen is not None, "the handle was opened"
        return self._seen

    def _is_due(self) -> bool:
        options = self._context.options
        interval_ms = options.lookup_continuous_discovery_interval_ms
        if interval_ms is None:
            interval_ms = options.continuous_discovery_interval_ms
        return self._context.ambient.now_ms() >= self._now.read_ms + interval_ms

    def _refresh_if_due(self) -> None:
        if not self._is_due():
            return
        # No thread may use rules that are older than the interval, even if the server fails.
        waits = isinstance(self._now.source, GuardedSource)
        if not self._lock.acquire(blocking=waits):
            return
        try:
            if self._is_due():
                self._seen = self._look()
        finally:
            self._lock.release()

    def _look(self) -> _Seen:
        """The newest rows and rules. Fills a *full* cache."""
        now_ms = self._context.ambient.now_ms()
        source, names = self._newest(), self._columns.names
        rules = source.rules(names) if isinstance(source, GuardedSource) else None
        seen = _Seen(source=source, state=None, rules=rules, read_ms=now_ms)
        plain = seen.plain
        if not isinstance(plain, TableSource) or not self._cached:
            return seen
        if rules is not None:
            if any(name in rules.masks for name in self._columns.on):
                return seen
            names = tuple(dict.fromkeys((*names, *rules.inputs(names))))
        if self._references.intersection(names):
            return seen
        known = None if self._seen is None else self._seen.state
        if known is not None and known.columns == names and known.source.snapshot == plain.snapshot:
            return replace(seen, state=known)
        if rules is None:
            return replace(seen, state=self._filled(plain, names))
        with suppress(InvalidRequest):
            # If a hidden row cannot be read, each look-up reads the table.
            state = told_call(lambda: self._filled(plain, names), self._context)
            return replace(seen, state=state)
        return seen

    def _filled(self, plain: TableSource, names: tuple[str, ...]) -> LookupState:
        state = lookup_state(plain, names)
        if not self._partial:
            for split in state.splits:
                self._full_block(state, split)
        return state

    def _retried(self, look_up: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """Call `look_up`.

        If expiry has deleted files of the state, read a newer state and call `look_up` again.
        """
        for _ in range(_ATTEMPTS_MAX):
            before = self.snapshot_id
            try:
                return look_up()
            except CorruptTable:
                self.refresh()
                if self.snapshot_id == before:
                    raise
        return look_up()

    # --- rows ------------------------------------------------------------------------------------

    def _rows(self, keys: Keys) -> pl.DataFrame:
        seen = self._now
        if seen.state is not None and seen.rules is None:
            return self._cached_rows(seen, seen.state, keys)
        if seen.state is not None:
            state = seen.state
            with suppress(InvalidRequest):
                return told_call(lambda: self._cached_rows(seen, state, keys), self._context)
        return find_rows(seen.source, keys, list(self._columns.result))

    def _cached_rows(self, seen: _Seen, state: LookupState, keys: Keys) -> pl.DataFrame:
        result = list(self._columns.result)
        wanted = Keys(rows=_without_nulls(keys.rows))
        parts: list[pa.Table] = []
        if self._partial:
            for split, numbers in state.places(wanted.rows):
                own = wanted.rows
                if len(numbers) < own.num_rows:
                    own = own.take(pa.array(numbers))
                parts += self._rows_of_split(state, split, own)
        else:
            for split in state.splits:
                parts += self._rows_of_split(state, split, wanted.rows)
        kinds = pa.schema([state.source.schema.field(name) for name in state.columns])
        tables = [
            part if part.schema == kinds else part.cast(kinds)
            for each in parts
            if (part := each.select(state.columns)).num_rows
        ] or [kinds.empty_table()]
        if seen.rules is not None:
            names = self._columns.names
            shown = pa.schema([seen.source.schema.field(name) for name in names])
            tables = [_ruled(part, seen.rules, shown) for part in tables]
        frames = [to_frame(part) for part in tables]
        rows = frames[0] if len(frames) == 1 else pl.concat(frames, how="vertical")
        return rows_in_order(keys, rows, result)

    def _rows_of_split(
        self, state: LookupState, split: SplitState, keys: pa.Table
    ) -> Sequence[pa.Table]:
        if split.direct:
            return self._read_direct(state, split, keys)
        if self._partial:
            key = split.plan.merge.key
            reader = BlockReader(
                state.columns, state.fields, self._blocks, self._groups, self._disk
            )
            return reader.rows(split, _ascending(keys, key))
        block = self._full_block(state, split)
        if block is None:
            return self._read_direct(state, split, keys)
        _, rows = block.find(_ascending(keys, self._columns.on))
        return [block.rows.take(pa.array(rows))] if len(rows) else []

    def _full_block(self, state: LookupState, split: SplitState) -> Block | None:
        """All rows of a split, sorted; None if they do not fit in memory."""
        if split.direct or split.split.size_bytes * _DECODED_RATIO > self._limit_bytes:
            return None
        name = (split.fingerprint, state.columns)
        block = self._blocks.get(name)
        if block is None:
            batches = list(state.source.read([split.split], split.plan))
            rows = pa.Table.from_batches(batches, split.plan.output)
            block = sorted_block(rows, self._columns.on)
            self._blocks.put(name, block, block.size_bytes)
        return block

    def _read_direct(
        self, state: LookupState, split: SplitState, keys: pa.Table
    ) -> Sequence[pa.Table]:
        asked = Keys(rows=keys)
        plan = replace(split.plan, predicate=asked.predicate())
        wanted = to_frame(keys)
        found: list[pa.Table] = []
        for batch in state.source.read([split.split], plan):
            frame = to_frame(batch).with_row_index("_row")
            rows = frame.join(wanted, on=asked.names, how="semi")["_row"].to_arrow()
            found.append(pa.Table.from_batches([batch]).take(rows))
        return found


def _ruled(rows: pa.Table, rules: ReadRules, shown: pa.Schema) -> pa.Table:
    """The rows that the rules show, with their masked values."""
    return pa.Table.from_batches([rules.apply(each, shown) for each in rows.to_batches()], shown)


def _without_nulls(rows: pa.Table) -> pa.Table:
    for name in rows.schema.names:
        if rows.column(name).null_count:
            rows = rows.filter(pc.is_valid(rows.column(name)))
    return rows


def _ascending(keys: pa.Table, on: Sequence[str]) -> OrderColumns:
    """The columns `on` of the keys: each key once, in ascending order."""
    return distinct(order_columns([keys.column(name).combine_chunks() for name in on]))


# --- lookup verbs --------------------------------------------------------------------------------
# The methods of a table that look up rows.


def look_up(source: RowSource, keys: object, columns: Sequence[str] | str | None) -> pl.DataFrame:
    """The rows of some keys, with these columns (None: all)."""
    schema = source.table_schema
    names = schema.names if columns is None else checked_columns(columns, schema)
    return find_rows(source, keys_of(keys, schema), list(dict.fromkeys(names)))


def open_lookup(
    context: TableContext,
    columns: Sequence[str] | str | None,
    on: Sequence[str] | str | None,
    newest: Callable[[], TableSource | FallbackSource | GuardedSource],
) -> Lookup:
    """A handle for many look-ups; `newest` returns the rows of the latest snapshot."""
    context.options.require_readable(filters_rows=True)
    schema = context.schema
    by = schema.primary_keys if on is None else tuple(checked_columns(on, schema))
    if not by:
        raise InvalidRequest(
            "name the columns to look up by: the table has no primary key",
            columns=schema.names,
            table=context.identifier,
        )
    for name in by:
        if not isinstance(schema.field(name).type, Atomic):
            raise InvalidRequest(
                "a nested column cannot be looked up by", column=name, type=schema.field(name).type
            )
    names = schema.names if columns is None else checked_columns(columns, schema)
    wanted = LookupColumns(on=tuple(dict.fromkeys(by)), result=tuple(dict.fromkeys(names)))
    return Lookup(context, wanted, newest)
