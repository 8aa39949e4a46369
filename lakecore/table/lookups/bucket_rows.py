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

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.io.files.data_files import BatchSize
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import Slice
from lakecore.model.types import Atomic, Root
from lakecore.rows.evolution import map_fields
from lakecore.table.lookups.blocks import Block
from lakecore.table.stored_rows.row_groups import bounded_row_groups
from lakecore.table.stored_rows.split_files import missing_is_corrupt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.io.history.cache import Cache
    from lakecore.merge.keys import OrderColumns
    from lakecore.model.files import DataFile
    from lakecore.model.types import Field
    from lakecore.table.lookups.disk_blocks import DiskBlocks
    from lakecore.table.lookups.state import SplitState

_BLOCK_ROWS_MAX = 1 << 22
_UNORDERED = frozenset({Root.FLOAT, Root.DOUBLE})


@dataclass(frozen=True, slots=True)
class Group:
    """A row group with bounds of its keys. If `index` is None, the whole file."""

    index: int | None
    first_row: int
    low: tuple[object, ...]
    high: tuple[object, ...]


@dataclass(frozen=True)
class BlockReader:
    """Reads blocks of the columns `fields` and caches them; threads may share it.

    `columns` are the columns of the look-up. They determine `fields`, and are part of the name of a
    block in the caches. `groups` caches the row groups of files; `disk` holds blocks that did not
    fit in memory.
    """

    columns: tuple[str, ...]
    fields: tuple[Field, ...]
    blocks: Cache[object, Block]
    groups: Cache[str, tuple[Group, ...]]
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

        They are in key order.
        """
        if not keys.length:
            return
        deleted = state.deleted(file)
        parts: list[pa.Table] = []
        for group in self._groups(state, file):
            inside = keys if group.index is None else _within(keys, group.low, group.high)
            if not inside.length:
                continue
            block = self._block(state, file, group)
            _, places = block.find(inside)
            if deleted is not None and len(places):
                places = places[~np.isin(places + block.first_row, deleted)]
            if len(places):
                parts.append(block.rows.take(pa.array(places)))
        if parts:
            yield pa.concat_tables(parts) if len(parts) > 1 else parts[0]

    def _block(self, state: SplitState, file: DataFile, group: Group) -> Block:
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

    def _groups(self, state: SplitState, file: DataFile) -> tuple[Group, ...]:
        known = self.groups.get(file.name)
        if known is None:
            known = _row_groups(state, file) or (Group(None, 0, (), ()),)
            self.groups.put(file.name, known, len(known))
        return known


def _block_of(rows: pa.Table, state: SplitState, group: Group, *, mapped: bool) -> Block:
    key = [rows.column(each) for each in state.plan.merge.key]
    return Block(rows, order_columns(key), group.first_row, unique=True, mapped=mapped)


def _within(keys: OrderColumns, low: tuple[object, ...], high: tuple[object, ...]) -> OrderColumns:
    """The keys from `low` to `high`, both included."""
    if keys.length == 1:  # a comparison of tuples is much faster than two searches
        return keys if low <= keys.at(0) <= high else keys.slice(0, 0)
    start, end = keys.count_below(low), keys.count_up_to(high)
    return keys.slice(start, max(0, end - start))


def _row_groups(state: SplitState, file: DataFile) -> tuple[Group, ...] | None:
    """The row groups with their key bounds; None if the bounds are not known."""
    plan = state.plan
    fields: Sequence[Field] = [plan.schema.field(name) for name in plan.merge.key]
    if any(isinstance(field.type, Atomic) and field.type.root in _UNORDERED for field in fields):
        return None
    mappings = map_fields(fields, plan.schemas[file.schema_id].fields)
    path = state.files.path(file)
    with missing_is_corrupt(path):
        columns = {each.read.name: each for each in mappings}
        found = bounded_row_groups(state.files.store, path, columns)
    if found is None or not found.groups:
        return None
    if any(column.null_count for column in (*found.low.columns, *found.high.columns)):
        return None
    low, high = order_columns(found.low.columns), order_columns(found.high.columns)
    return tuple(
        Group(group.index, group.first_row, low.at(number), high.at(number))
        for number, group in enumerate(found.groups)
        if group.row_count
    )
