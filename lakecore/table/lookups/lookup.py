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
handle. The memory budget counts blocks as a cache: it may drop them, and they are then read again.
A block of a *partial* cache that is read again is also stored on local disk (`disk_blocks.py`).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.frames.arrow_frames import to_frame
from lakecore.io.history.cache import Cache
from lakecore.merge.keys import order_columns
from lakecore.options import LookupCache
from lakecore.table.lookups.blocks import distinct, sorted_block
from lakecore.table.lookups.bucket_rows import BlockReader
from lakecore.table.lookups.disk_blocks import DiskBlocks
from lakecore.table.lookups.find import find_rows
from lakecore.table.lookups.keys import Keys, keys_of, rows_in_order
from lakecore.table.lookups.state import lookup_state
from lakecore.table.reads.guarded import GuardedSource
from lakecore.table.reads.source import TableSource
from lakecore.table.reads.told import told_call
from lakecore.table.stored_rows.followed import columns_to_follow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from lakecore.frames.source import RowSource
    from lakecore.merge.keys import OrderColumns
    from lakecore.rows.read_rules import ReadRules
    from lakecore.table.context import TableContext
    from lakecore.table.lookups.blocks import Block
    from lakecore.table.lookups.bucket_rows import Group
    from lakecore.table.lookups.state import LookupState, SplitState
    from lakecore.table.reads.fallback import FallbackSource

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
    """Looks up rows by keys, again and again; see `Table.open_lookup`. Threads may share it."""

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
        self._groups: Cache[str, tuple[Group, ...]] = Cache(_GROUP_BYTES, budget=context.budget)
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        `continuous.discovery-interval`) has passed since the last check, this first checks for a
        newer snapshot.
        Raises InvalidRequest if the handle is closed, and the errors of `Table.lookup`.
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

        If expiry has deleted files of the state, read a newer state and call it again.
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
        """The rows of a split that match the keys, by a read of the split."""
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
