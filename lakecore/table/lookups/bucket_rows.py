"""Finds the rows with given keys in one split, and caches blocks of rows.

1. A block holds the rows of one row group of a file, with the columns that a merge needs. Data
   files never change, so a block is valid as long as its file is part of a snapshot.
2. The smallest and largest keys of files and row groups say which blocks may hold a key.
3. In a raw split, the rows found are returned, except those that a deletion vector marks. In a
   section, the rows found in all runs are merged by the same merge function as in reads.

INVARIANT: for each key, the rows of all runs are found, or none. The merge then gets the same rows
as in a read.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import StorageError
from lakecore.io.files.data_files import BatchSize
from lakecore.io.spill import SpillDirectory, SpilledRun
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.keys import OrderColumns, order_columns
from lakecore.merge.spec import Slice
from lakecore.model.arrow_arrays import search_sorted, size_of
from lakecore.model.rows import KIND_FIELD, SEQUENCE_FIELD
from lakecore.plan.bucketing import bucket_ids, partition_groups
from lakecore.plan.partitions import bucket_key_fields, hash_is_settled
from lakecore.table.file_reader.late_casts import late_casts
from lakecore.table.file_reader.row_groups import BoundedFile, KeyGroup, bounded_files
from lakecore.table.file_reader.split_files import SplitFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from lakecore.io.cache import Cache
    from lakecore.model.files import DataFile, Split
    from lakecore.model.types import Field
    from lakecore.table.file_reader.read_plan import ReadPlan
    from lakecore.table.reads.source import TableSource


# --- blocks --------------------------------------------------------------------------------------
# Blocks: rows in key order, in memory, and the search for keys in them.
#
# A block is never changed, so threads may share it. Keys to find are unique and ascending; a block
# may hold a key several times.

_FEW = 24
"""Up to this many keys are searched one by one."""
_KEY_BYTES = 8


@dataclass(frozen=True)
class Block:
    """Rows sorted by their `keys`. `first_row` is the position of the first row in its file.

    `unique`: no key occurs twice. `mapped`: the rows are memory-mapped from a local file.
    """

    rows: pa.Table
    keys: OrderColumns
    first_row: int = 0
    unique: bool = False
    mapped: bool = False

    @property
    def size_bytes(self) -> int:
        """The approximate memory of the block."""
        rows = 0 if self.mapped else int(size_of(self.rows))
        return rows + _KEY_BYTES * self.keys.length * len(self.keys.columns)

    def find(self, keys: OrderColumns) -> tuple[np.ndarray, np.ndarray]:
        """All pairs of a key and a row with that key.

        Returns two arrays of equal length, ascending by key: the indexes of the keys, and of the
        rows.
        """
        if not keys.length or not self.keys.length:
            nothing = np.empty(0, np.int64)
            return nothing, nothing
        column = self.keys.columns[0]
        if len(self.keys.columns) == 1:
            if isinstance(column, np.ndarray):
                (asked,) = keys.columns
                starts = np.searchsorted(column, asked, "left")
                if self.unique:
                    there = column[np.minimum(starts, len(column) - 1)] == asked
                    return np.flatnonzero(there), starts[there]
                return _ranges(starts, np.searchsorted(column, asked, "right"))
            return self._find_texts(keys.columns[0])
        if keys.length <= _FEW:
            bounds = [keys.at(number) for number in range(keys.length)]
            starts = np.array([self.keys.count_below(bound) for bound in bounds])
            return _ranges(starts, np.array([self.keys.count_up_to(bound) for bound in bounds]))
        asked_frame = _frame(keys).with_row_index("key")
        names = asked_frame.columns[1:]
        found = self._frame.join(asked_frame, on=names, how="inner", maintain_order="left")
        # Rows are in key order, so the pairs are too.
        pairs = found.select("key", "row").to_numpy().astype(np.int64)
        return pairs[:, 0], pairs[:, 1]

    def _find_texts(self, asked: np.ndarray | pa.Array) -> tuple[np.ndarray, np.ndarray]:
        column = self.keys.columns[0]
        starts, ends = (search_sorted(column, asked, side).to_numpy() for side in ("left", "right"))
        return _ranges(starts, ends)

    @cached_property
    def _frame(self) -> pl.DataFrame:
        return _frame(self.keys).with_row_index("row")


def sorted_block(rows: pa.Table, on: Sequence[str]) -> Block:
    """A block of the rows in which no column of `on` is null, sorted by these columns."""
    for name in on:
        if rows.column(name).null_count:
            rows = rows.filter(pc.is_valid(rows.column(name)))
    keys = order_columns([rows.column(name).combine_chunks() for name in on])
    order = pa.array(order_of(keys))
    rows = rows.take(order).combine_chunks()
    return Block(rows, order_columns([rows.column(name) for name in on]))


def distinct(keys: OrderColumns) -> OrderColumns:
    """The keys in ascending order, each once."""
    column = keys.columns[0]
    if len(keys.columns) == 1 and isinstance(column, np.ndarray):
        # Sorting is several times faster than np.unique, which hashes first.
        ordered = np.sort(column)
        once = ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered
        return OrderColumns((once,), len(once))
    if keys.length == 1:
        return keys
    frame = _frame(keys)
    names = frame.columns
    frame = frame.with_row_index("row").unique(names, keep="any").sort(names)
    return keys.take(frame["row"].to_numpy().astype(np.int64))


def order_of(keys: OrderColumns) -> np.ndarray:
    """The indexes that sort the keys in ascending order; the sort is stable."""
    if len(keys.columns) == 1 and isinstance(keys.columns[0], np.ndarray):
        return np.argsort(keys.columns[0], kind="stable")
    frame = _frame(keys)
    return frame.select(pl.arg_sort_by(frame.columns, maintain_order=True)).to_series().to_numpy()


def _frame(keys: OrderColumns) -> pl.DataFrame:
    columns = []
    for number, column in enumerate(keys.columns):
        if isinstance(column, pa.Array) and pa.types.is_fixed_size_binary(column.type):
            column = column.cast(pa.binary())  # noqa: PLW2901  Polars has no fixed size
        series = pl.Series(column) if isinstance(column, np.ndarray) else pl.from_arrow(column)
        assert isinstance(series, pl.Series)
        columns.append(series.alias(str(number)))
    return pl.DataFrame(columns)


def _ranges(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs (i, row) with `starts[i]` <= row < `ends[i]`, as two arrays."""
    counts = ends - starts
    numbers = np.repeat(np.arange(len(counts)), counts)
    if len(numbers) == 0 or counts.max() == 1:
        return numbers, starts[numbers]
    within = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers, starts[numbers] + within


# --- state ---------------------------------------------------------------------------------------
# A state of a table as look-ups see it: its splits by bucket, with the key bounds of each file.
#
# A state never changes: a newer snapshot gets a new state. If a cast of stored values may fail, the
# split is *direct*: an ordinary read reads it, without a cache.

_WHOLE_FILE_BYTES_MAX = 32 << 20
"""The largest file without row groups that memory holds as one block."""


@dataclass(frozen=True, eq=False)
class SplitState:
    """A split, how it is read, and its files by run."""

    split: Split
    plan: ReadPlan
    files: SplitFiles
    runs: tuple[Sequence[BoundedFile], ...]
    direct: bool

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """A value for comparison: equal fingerprints mean that two splits hold the same rows."""
        vectors = sorted(
            (name, index.name, where.offset) for name, (index, where) in self.split.vectors.items()
        )
        names = tuple((file.name, file.level) for file in self.split.files)
        return (self.split.partition, self.split.bucket, names, tuple(vectors))


@dataclass(frozen=True, eq=False)
class LookupState:
    """The splits of a snapshot, by partition and bucket, for look-ups that return `columns`.

    `fields` are the columns that a merge needs to return `columns`.
    """

    source: TableSource
    columns: tuple[str, ...]
    fields: tuple[Field, ...]
    splits: tuple[SplitState, ...]
    by_bucket: Mapping[bytes, Mapping[int, list[SplitState]]] = field(default_factory=dict)

    def places(self, keys: pa.Table) -> Iterator[tuple[SplitState, np.ndarray]]:
        """Each split that may hold some of the keys, with the indexes of these keys.

        `keys` have the columns of the primary key.
        """
        context, schema = self.source.context, self.source.table_schema
        everything = np.arange(keys.num_rows)
        partitioned = set(schema.partition_keys) <= set(keys.schema.names)
        groups: list[tuple[bytes, np.ndarray]]
        if partitioned and schema.partition_keys:
            groups = partition_groups(keys, schema.partition_fields)
        else:
            groups = [(partition, everything) for partition in self.by_bucket]
        hashed = bucket_key_fields(schema, context.options)
        if hashed and not hash_is_settled(hashed, ()):
            hashed = ()
        for partition, numbers in groups:
            buckets = self.by_bucket.get(partition, {})
            own = keys if len(numbers) == keys.num_rows else keys.take(pa.array(numbers))
            for total in {s.split.total_buckets for each in buckets.values() for s in each}:
                ids: np.ndarray | None = None
                if hashed and total > 0:
                    columns = [own.column(f.name).combine_chunks() for f in hashed]
                    function = context.options.bucket_function_type
                    ids = bucket_ids(columns, [f.type for f in hashed], total, function)
                for bucket, states in buckets.items():
                    within = numbers if ids is None else numbers[ids == bucket]
                    for state in states if len(within) else ():
                        if state.split.total_buckets == total:
                            yield state, within


def lookup_state(source: TableSource, columns: Sequence[str]) -> LookupState:
    """The state of the source's snapshot, prepared for look-ups that return these columns."""
    schema, splits = source.table_schema, source.plan().splits
    plan = source.read_plan(splits, columns)
    names = plan.merge.columns_for(columns) if schema.primary_keys else tuple(columns)
    fields = tuple(schema.field(name) for name in names)
    if schema.primary_keys:
        fields = (*fields, SEQUENCE_FIELD, KIND_FIELD)
    states = [_split_state(split, plan, source, fields) for split in splits]
    by_bucket: dict[bytes, dict[int, list[SplitState]]] = defaultdict(lambda: defaultdict(list))
    for state in states:
        by_bucket[state.split.partition][state.split.bucket].append(state)
    return LookupState(source, tuple(columns), fields, tuple(states), by_bucket)


def _split_state(
    split: Split, plan: ReadPlan, source: TableSource, fields: Sequence[Field]
) -> SplitState:
    files = SplitFiles(split, plan, source.context.store)
    table_fields = [each for each in fields if each not in (SEQUENCE_FIELD, KIND_FIELD)]
    direct = bool(late_casts(split.files, table_fields, plan.schemas)) or any(
        file.format != "parquet" and file.size_bytes > _WHOLE_FILE_BYTES_MAX for file in split.files
    )
    key = source.table_schema.key_fields
    runs = tuple(bounded_files(run, key) for run in split.runs) if key else ()
    return SplitState(split, plan, files, runs, direct)


# --- disk blocks ---------------------------------------------------------------------------------
# Blocks on local disk: rows that did not fit in memory, mapped from a file when needed.
#
# If a block is read from its data file a second time, memory had no room to keep it. The block is
# then written to disk, uncompressed. From then on it is memory-mapped: only the pages that a
# look-up touches are read, and nothing is decoded. If memory holds all blocks, nothing is written.
#
# INVARIANT: the disk is only a cache. If a block is missing, it is read from its data file. If the
# disk is full or fails, it is not used any more; no look-up fails because of it.

_SEEN_MAX = 1 << 20

log = logging.getLogger("lakecore.lookup")


@dataclass(slots=True)
class _Stored:
    run: SpilledRun
    used_ms: int


class DiskBlocks:
    """A cache of named blocks on local disk, at most `size_max_bytes` (None: no limit).

    Thread-safe.

    Rows that were not used for `retention_ms` are deleted. `now_ms` is the clock.
    """

    def __init__(
        self, size_max_bytes: int | None, retention_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self._size_max_bytes = size_max_bytes
        self._retention_ms = retention_ms
        self._now_ms = now_ms
        directory = SpillDirectory(compression=None)
        self._directory: SpillDirectory | None = directory
        # Delete the files even if nobody closes the handle.
        weakref.finalize(self, directory.close)
        self._stored: OrderedDict[Hashable, _Stored] = OrderedDict()
        self._seen: OrderedDict[Hashable, None] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def get(self, name: Hashable) -> pa.Table | None:
        """The rows with this name, mapped from disk; None if they are not there."""
        with self._lock:
            self._drop_unused()
            found = self._stored.get(name)
            if found is None or self._directory is None:
                return None
            found.used_ms = self._now_ms()
            self._stored.move_to_end(name)
            try:
                return self._directory.mapped_rows(found.run)
            except StorageError:
                self._drop(name)
                return None

    def offer(self, name: Hashable, rows: pa.Table) -> None:
        """Remember that these rows were read; the second time, write them to disk."""
        with self._lock:
            if self._directory is None or name in self._stored:
                return
            if name not in self._seen:
                self._seen[name] = None
                if len(self._seen) > _SEEN_MAX:
                    self._seen.popitem(last=False)
                return
            if self._size_max_bytes is not None and rows.nbytes > self._size_max_bytes:
                return
            self._write(name, rows, self._directory)

    def close(self) -> None:
        """Delete all files. Rows that were returned stay usable."""
        with self._lock:
            self._stored.clear()
            self._size_bytes = 0
            if self._directory is not None:
                self._directory.close()
                self._directory = None

    def _write(self, name: Hashable, rows: pa.Table, directory: SpillDirectory) -> None:
        try:
            run = directory.write(rows.schema, [rows], 0, 0)
        except StorageError as error:
            log.warning("look-ups use no local disk any more: %s", error)
            self._stored.clear()
            self._size_bytes = 0
            directory.close()
            self._directory = None
            return
        self._stored[name] = _Stored(run, self._now_ms())
        self._size_bytes += run.size_bytes
        while self._size_max_bytes is not None and self._size_bytes > self._size_max_bytes:
            self._drop(next(iter(self._stored)))

    def _drop_unused(self) -> None:
        before_ms = self._now_ms() - self._retention_ms
        while self._stored:
            name, oldest = next(iter(self._stored.items()))
            if oldest.used_ms >= before_ms:
                return
            self._drop(name)

    def _drop(self, name: Hashable) -> None:
        dropped = self._stored.pop(name)
        self._size_bytes -= dropped.run.size_bytes
        if self._directory is not None:
            self._directory.remove(dropped.run)


# --- bucket rows ---------------------------------------------------------------------------------

_BLOCK_ROWS_MAX = 1 << 22


@dataclass(frozen=True)
class BlockReader:
    """Reads blocks of the columns `fields` and caches them; threads may share it.

    `columns`: the columns of the look-up, which determine `fields` and are part of the name of a
    block in the caches. `groups` caches the row groups of files; `disk` holds blocks that did not
    fit in memory.
    """

    columns: tuple[str, ...]
    fields: tuple[Field, ...]
    blocks: Cache[object, Block]
    groups: Cache[str, tuple[KeyGroup, ...]]
    disk: DiskBlocks

    def rows(self, state: SplitState, keys: OrderColumns) -> list[pa.Table]:
        """The rows with these keys, merged as in a read. The keys are unique and ascending."""
        found = [
            (run, each, rows)
            for run, files in enumerate(state.runs)
            for each in files
            for rows in self._of_file(state, each.file, _within(keys, each.low, each.high))
        ]
        if state.split.raw or not found:
            return [rows for _, _, rows in found]
        spec = state.plan.merge
        slices = [
            Slice(
                rows=rows,
                keys=order_columns([rows.column(name).combine_chunks() for name in spec.key]),
                sequence_min=each.file.sequence_min,
                sequence_max=each.file.sequence_max,
                commit_order=state.split.commit_order.get(each.file.name, 0),
                level=each.file.level,
            )
            for _, each, rows in found
        ]
        return list(MERGE_FUNCTIONS[state.plan.engine](slices, spec))

    def _of_file(self, state: SplitState, file: DataFile, keys: OrderColumns) -> Iterator[pa.Table]:
        """The rows of a file that have these keys and are not deleted, as one table or none.

        The rows of the table are in key order.
        """
        if not keys.length:
            return
        mask = state.files.mask(file)
        parts: list[pa.Table] = []
        for group in self._groups(state, file):
            inside = keys if group.index is None else _within(keys, group.low, group.high)
            if not inside.length:
                continue
            block = self._block(state, file, group)
            _, places = block.find(inside)
            if mask is not None and len(places):
                places = places[mask.has(places + block.first_row)]
            if len(places):
                parts.append(block.rows.take(pa.array(places)))
        if parts:
            yield pa.concat_tables(parts) if len(parts) > 1 else parts[0]

    def _block(self, state: SplitState, file: DataFile, group: KeyGroup) -> Block:
        name = (file.name, group.index, self.columns)
        block = self.blocks.get(name)
        if block is None and (mapped := self.disk.get(name)) is not None:
            block = _block_of(mapped, state, group, mapped=True)
            self.blocks.put(name, block, block.size_bytes)
        if block is None:
            wanted = None if group.index is None else [group.index]
            size = BatchSize(_BLOCK_ROWS_MAX, 1 << 40)
            batches = [
                batch
                for _, batch in state.files.stored_rows(file, self.fields, size, row_groups=wanted)
            ]
            rows = pa.Table.from_batches(batches).combine_chunks()
            block = _block_of(rows, state, group, mapped=False)
            self.blocks.put(name, block, block.size_bytes)
            self.disk.offer(name, rows)
        return block

    def _groups(self, state: SplitState, file: DataFile) -> tuple[KeyGroup, ...]:
        known = self.groups.get(file.name)
        if known is None:
            known = state.files.key_groups(file)
            self.groups.put(file.name, known, len(known))
        return known


def _block_of(rows: pa.Table, state: SplitState, group: KeyGroup, *, mapped: bool) -> Block:
    key = [rows.column(each) for each in state.plan.merge.key]
    return Block(rows, order_columns(key), group.first_row, unique=True, mapped=mapped)


def _within(keys: OrderColumns, low: tuple[object, ...], high: tuple[object, ...]) -> OrderColumns:
    """The keys from `low` to `high`, both included."""
    if keys.length == 1:  # a comparison of tuples is much faster than two searches
        return keys if low <= keys.at(0) <= high else keys.slice(0, 0)
    start, end = keys.count_below(low), keys.count_up_to(high)
    return keys.slice(start, max(0, end - start))
