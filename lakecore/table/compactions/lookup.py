"""Finds the rows of keys in the levels above those that a compaction rewrites.

1. Keys arrive window by window in ascending order, so every file is read forward, at most once.
2. A level is searched only for keys that no lower level has: the row in the lower level already
   includes the rows of the higher levels.
3. In a file, only row groups whose key bounds contain a key are read. The key columns of such row
   groups give the positions of the keys.
4. The other columns of row groups with such positions are read, and the rows are taken. Polars
   reads many row groups together where possible. If only the existence of a key matters, only key
   columns are read.

Memory: for each level, one open file with a batch of keys, a batch of rows and their row groups,
plus two chunks while Polars reads. A file without row groups or key bounds is read from its start.

INVARIANT: the bounds of several key columns are the minimum and the maximum of each column, so they
can only be too wide. A key within the bounds of one row group may be stored in a later one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.frames.polars_source import FAILURES, to_batches
from lakecore.io.files.file_checks import check_files
from lakecore.merge.keys import NONE, OrderColumns, order_columns, shared_codes
from lakecore.merge.spec import Slice
from lakecore.model.rows import SEQUENCE_NUMBER
from lakecore.model.types import Field, arrow_schema
from lakecore.table.file_reader.row_groups import KeyGroup, bounded_files
from lakecore.table.sections.windows import reader_threads
from lakecore.table.splits.read_planner import Part, polars_parts, scan_parts, stored_only

if TYPE_CHECKING:
    from lakecore.io.files.data_files import BatchSize
    from lakecore.memory import Lease
    from lakecore.model.files import DataFile
    from lakecore.table.file_reader.split_files import SplitFiles


# --- row group lookup ----------------------------------------------------------------------------
# Reads rows at positions in many row groups of a file with Polars.
#
# Polars decodes several row groups concurrently, which is faster than reading them one by one. A
# row group that is requested again is read again.

_AT_ONCE = 2
_PARTS_MIN = 2
"""The least number of row groups in a chunk: with fewer, nothing can be read concurrently."""


@dataclass(frozen=True, slots=True)
class RowGroupLookup:
    """A file that Polars can read; `parts` are its row groups, in order."""

    parts: Sequence[Part]
    schema: pa.Schema
    chunk_bytes: int

    def rows(self, groups: Sequence[int], positions: np.ndarray) -> pa.Table | None:
        """The rows at these ascending positions, all within these row groups.

        None if Polars cannot read them; lakecore's own reader then reports the damage.
        """
        with suppress(*FAILURES), reader_threads(_AT_ONCE) as pool:
            chunks = self._chunks(groups)
            tasks = [pool.submit(self._read, chunk, positions) for chunk in chunks]
            try:
                return pa.concat_tables([task.result() for task in tasks])
            finally:
                for task in tasks:
                    task.cancel()
        return None

    def _chunks(self, groups: Sequence[int]) -> Iterator[list[Part]]:
        """The row groups in chunks: adjacent groups, as many as fit in a chunk."""
        chunk: list[Part] = []
        chunk_bytes = 0
        for index in groups:
            part = self.parts[index]
            follows = bool(chunk) and chunk[-1].group.index + 1 == index
            if chunk and not (follows and chunk_bytes + part.size_bytes <= self.chunk_bytes):
                yield chunk
                chunk, chunk_bytes = [], 0
            chunk.append(part)
            chunk_bytes += part.size_bytes
        yield chunk

    def _read(self, chunk: Sequence[Part], positions: np.ndarray) -> pa.Table:
        start = chunk[0].group.first_row
        end = start + sum(part.group.row_count for part in chunk)
        frame = scan_parts(chunk, self.schema, self.schema.names).collect()
        if frame.height != end - start:
            raise pl.exceptions.ShapeError("row groups of other rows than their footer says")
        low, high = np.searchsorted(positions, [start, end])
        taken = frame[positions[low:high] - start]
        return pa.Table.from_batches(to_batches(taken, self.schema, self.chunk_bytes), self.schema)


def row_group_lookup(
    files: SplitFiles, file: DataFile, fields: Sequence[Field], chunk_bytes: int
) -> RowGroupLookup | None:
    """The reader that looks up rows of these columns of a file with Polars.

    None if Polars cannot read the file. Two chunks are in memory at the same time.
    """
    if files.places is not None or files.late:
        return None
    split = replace(files.split, runs=((file,),))
    parts = polars_parts(split, files.plan, files.store, fields)
    if not parts or max(part.size_bytes for part in parts) * _PARTS_MIN > chunk_bytes:
        return None
    check_files(
        files.store,
        [parts[0].path],
        [field.name for field in stored_only(fields)],
        files.plan.checks,
    )
    return RowGroupLookup(parts, arrow_schema(fields), chunk_bytes)


# --- lookup --------------------------------------------------------------------------------------

_MANY_GROUPS = 8
"""From this number of row groups on, Polars reads the rows, the last group perhaps twice."""
_CHUNK_BATCHES = 2
"""Size of a chunk that Polars reads, in batches: one of rows, one of encoded data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupPlan:
    """The files above some level, and how they are read.

    `fields` are the columns of the returned rows. `marks` collects the positions of all rows that
    are found, by file name (None: not collected). Rows that a deletion vector marks are never
    found.
    """

    files: SplitFiles
    fields: tuple[Field, ...]
    size: BatchSize
    marks: dict[str, list[np.ndarray]] | None = None

    @property
    def keys(self) -> tuple[Field, ...]:
        read = self.files.plan
        return tuple(read.schema.field(name) for name in read.merge.key)

    def batches(
        self, file: DataFile, fields: Sequence[Field], row_groups: Iterable[int] | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The stored rows of a file, with their positions."""
        return self.files.stored_rows(file, fields, self.size, row_groups=row_groups)


class UpperLevels:
    """Looks up ascending keys in the files above a level; `close` releases files and lease."""

    def __init__(self, plan: LookupPlan, lease: Lease) -> None:
        self._plan = plan
        self._lease = lease
        files = sorted(plan.files.split.files, key=lambda file: file.level)
        self._levels = [
            _Level(plan, level, list(own))
            for level, own in groupby(files, key=lambda file: file.level)
        ]

    def rows(self, keys: OrderColumns) -> list[Slice]:
        """For each key that exists, its row from the lowest level that holds the key.

        Returns one slice for each level with such rows.

        `keys` must be unique, ascending, and greater than all keys of earlier calls.
        """
        found: list[Slice] = []
        left = np.arange(keys.length)
        for level in self._levels:
            asked = keys if len(left) == keys.length else keys.take(left)
            at, rows = level.rows(asked)
            if rows is not None:
                found.append(self._slice(rows, level.number))
            left = left[at == NONE]
        return found

    def known(self, keys: OrderColumns) -> np.ndarray:
        """For each key, whether it exists; see `rows`."""
        known = np.zeros(keys.length, bool)
        for level in self._levels:
            left = np.flatnonzero(~known)
            known[left] = level.find(keys.take(left) if len(left) < keys.length else keys)
        return known

    def mark(self, keys: OrderColumns) -> None:
        """Collect the positions of the rows of these keys, without reading the rows; see `rows`."""
        self.known(keys)

    def close(self) -> None:
        for level in self._levels:
            level.close()
        self._lease.release()

    def _slice(self, rows: pa.Table, level: int) -> Slice:
        numbers = rows.column(SEQUENCE_NUMBER).to_numpy()
        return Slice(
            rows=rows,
            keys=order_columns([rows.column(name) for name in self._plan.files.plan.merge.key]),
            sequence_min=int(numbers.min()),
            sequence_max=int(numbers.max()),
            # These rows are older than all compacted rows, and than the rows of lower levels.
            commit_order=-level,
            level=level,
        )


class _Level:
    """The files of one level, in key order."""

    def __init__(self, plan: LookupPlan, level: int, files: Sequence[DataFile]) -> None:
        self.number = level
        self._plan = plan
        waiting = bounded_files(files, plan.keys)
        self._waiting = deque(sorted(waiting, key=lambda bounded: bounded.low))
        self._open: _File | None = None

    def rows(self, keys: OrderColumns) -> tuple[np.ndarray, pa.Table | None]:
        """For each key, the index of its row in the returned rows, or NONE if the key is not found.

        The rows are None if no key is found.
        """
        places = np.full(keys.length, NONE)
        tables: list[pa.Table] = []
        count = 0
        for start, positions, file in self._found(keys):
            hits = np.flatnonzero(positions != NONE)
            if len(hits):
                tables.append(file.rows(positions[hits]))
                places[start + hits] = count + np.arange(len(hits))
                count += len(hits)
        return places, pa.concat_tables(tables) if tables else None

    def find(self, keys: OrderColumns) -> np.ndarray:
        """For each key, whether the level holds it."""
        known = np.zeros(keys.length, bool)
        for start, positions, _ in self._found(keys):
            known[start : start + len(positions)] |= positions != NONE
        return known

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _found(self, keys: OrderColumns) -> Iterator[tuple[int, np.ndarray, _File]]:
        """Yields each file that may hold some of the keys.

        Each item: the index of the first such key, the positions of the keys in the file, the file.
        """
        while self._waiting and keys.length:
            bounded = self._waiting[0]
            start, end = keys.count_below(bounded.low), keys.count_up_to(bounded.high)
            if start < end:
                if self._open is None:
                    self._open = _File(self._plan, bounded.file)
                yield start, self._open.find(keys.slice(start, end - start)), self._open
            if end == keys.length:
                # The next keys may be in this file, too.
                return
            self.close()
            self._waiting.popleft()


class _File:
    """One file, read forward with ascending keys."""

    def __init__(self, plan: LookupPlan, file: DataFile) -> None:
        self._plan = plan
        self._file = file
        self._all = plan.files.key_groups(file)
        self._groups = deque(self._all)
        whole = self._all[0].index is None
        self._ends = np.array([group.end for group in self._all])
        self._mask = plan.files.mask(file)
        self._keys = _Forward(plan, file, plan.keys, whole=whole)
        self._rows = _Forward(plan, file, plan.fields, whole=whole)
        self._batch: tuple[int, OrderColumns] | None = None

    def find(self, keys: OrderColumns) -> np.ndarray:
        """The position of each key in the file, or NONE."""
        positions = np.full(keys.length, NONE)
        done = 0
        while self._groups:
            group = self._groups[0]
            start, end = done, keys.length
            if group.index is not None:
                start = max(done, keys.count_below(group.low))
                end = max(start, keys.count_up_to(group.high))
            done = start
            if start < end:
                done += self._find(group, keys.slice(start, end - start), positions[start:end])
            if done == keys.length:
                # The next keys may be in this group, too.
                break
            self._groups.popleft()
        if self._mask is not None:
            positions[~self._mask.has(positions)] = NONE
        marks = self._plan.marks
        if marks is not None and (hits := positions[positions != NONE]).size:
            marks.setdefault(self._file.name, []).append(hits)
        return positions

    def rows(self, positions: np.ndarray) -> pa.Table:
        """The rows at these positions, which ascend and are greater than in all earlier calls."""
        insides = np.searchsorted(positions, self._ends)
        touched = np.flatnonzero(np.diff(insides, prepend=0))
        if len(touched) >= _MANY_GROUPS and self._lookup is not None:
            groups = [self._all[place].index for place in touched.tolist()]
            found = self._lookup.rows([index for index in groups if index is not None], positions)
            if found is not None:
                return found
        tables: list[pa.Table] = []
        done = 0
        for place in touched.tolist():
            group, inside = self._all[place], int(insides[place])
            while done < inside:
                at, batch = self._rows.reach(group, int(positions[done]))
                end = done + int(np.searchsorted(positions[done:inside], at + batch.num_rows))
                taken = batch.take(pa.array(positions[done:end] - at))
                tables.append(pa.Table.from_batches([taken]))
                done = end
        return pa.concat_tables(tables)

    def close(self) -> None:
        self._keys.close()
        self._rows.close()

    @cached_property
    def _lookup(self) -> RowGroupLookup | None:
        """The reader that looks up rows of this file with Polars; None if Polars cannot."""
        chunk_bytes = _CHUNK_BATCHES * self._plan.size.size_bytes
        return row_group_lookup(self._plan.files, self._file, self._plan.fields, chunk_bytes)

    def _find(self, group: KeyGroup, keys: OrderColumns, positions: np.ndarray) -> int:
        """Set the position of each key in the group. Returns how many keys need no further search.

        The remaining keys are greater than the group's last key, even if its bounds are wider.
        """
        done = 0
        at = group.first_row
        while done < keys.length and at < group.end:
            if self._batch is None or self._batch[0] + self._batch[1].length <= at:
                start, batch = self._keys.reach(group, at)
                columns = [batch.column(field.name) for field in self._plan.keys]
                self._batch = start, order_columns(columns)
            start, held = self._batch
            end = keys.count_up_to(held.at(held.length - 1))
            if done < end:
                asked = keys.slice(done, end - done)
                hits = _hits(asked, held)
                positions[done:end] = np.where(hits == NONE, NONE, start + hits)
                done = end
            at = start + held.length
        return done


class _Forward:
    """Batches of some columns of the requested row groups of a file, read forward."""

    def __init__(
        self, plan: LookupPlan, file: DataFile, fields: Sequence[Field], *, whole: bool
    ) -> None:
        self._asked: deque[int] = deque()
        self._group: int | None = None
        self._held: tuple[int, pa.RecordBatch] | None = None
        self._batches = plan.batches(file, fields, None if whole else self._wanted())

    def reach(self, group: KeyGroup, position: int) -> tuple[int, pa.RecordBatch]:
        """The batch that holds `position` of the row group, and the position of its first row."""
        if group.index is not None and group.index != self._group:
            self._asked.append(group.index)
            self._group, self._held = group.index, None
        while self._held is None or self._held[0] + self._held[1].num_rows <= position:
            self._held = next(self._batches)
        return self._held

    def close(self) -> None:
        self._held = None
        if isinstance(self._batches, Generator):
            self._batches.close()

    def _wanted(self) -> Iterator[int]:
        # INVARIANT: a row group is requested before it is awaited, so this never ends early.
        while self._asked:
            yield self._asked.popleft()


def _hits(keys: OrderColumns, held: OrderColumns) -> np.ndarray:
    """For each key, its index in `held`, or NONE. Keys and `held` ascend without duplicates."""
    asked, there = shared_codes([keys, held])
    at = np.searchsorted(there, asked)
    at[at == len(there)] = 0
    hits: np.ndarray = np.where(there[at] == asked, at, NONE)
    return hits
