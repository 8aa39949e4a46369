"""The rows of a split as Polars reads them from its files, less those that do not come out.

Polars decodes faster than whoever cuts rows into windows, and of a section no value is moved but
those that come out (`marks.py`). It costs a mark a row, and that the first rows wait for all keys
of their chunk: sections of very many rows, or of which the caller wants a few, are merged window by
window.

Memory follows the chunk, not the split: Polars is asked for a few row groups at a time. Left to
itself it would read ahead by the number of cores.

Files that another reads better stay with `read.py`: of large row groups, of several schemas, and of
Java, for Polars does not check the checksums that Java gives to pages. A chunk that Polars cannot
read is read by lakecore's own reader, which names what is damaged.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.frames.polars_source import FAILURES, native_scan, select, to_batches, to_frame
from lakecore.io.data_files import row_group_bounds
from lakecore.model.rows import KEY_PREFIX
from lakecore.model.types import arrow_type
from lakecore.plan.predicate import condition_on
from lakecore.table.runs.large_rows import are_large
from lakecore.table.runs.marks import decided_by_keys, kept_keys, mark_rows, no_marks
from lakecore.table.runs.native_files import native_paths
from lakecore.table.runs.read import batch_size
from lakecore.table.runs.split_files import SplitFiles
from lakecore.table.runs.windows import READER, on_reader

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from lakecore.io.file_format import RowGroup
    from lakecore.io.store import Store
    from lakecore.memory import Budget
    from lakecore.model.files import DataFile, Split
    from lakecore.model.types import Field
    from lakecore.table.runs.marks import Marks
    from lakecore.table.runs.read import ReadPlan

_ROWS_MIN = 65_536
"""To ask Polars for fewer costs more than it saves."""
_MARKS_SHARE = 64
_KEYS_SHARE = 16
"""Parts of the budget, as divisors: what the marks of a section, and its keys, may take."""
_CODECS = frozenset({"ZSTD", "UNCOMPRESSED"})
"""Of damage in others Polars tells less than Arrow."""
_CHUNK_SHARE = 16
"""The same of a chunk: it is held as decoded, less the rows that lose, and as Arrow has it."""
_CHUNK_PARTS_MIN = 4
"""Row groups that a chunk has room for. Polars reads a few at once, whatever is asked for."""
_CHUNKS_AT_ONCE = 2
"""Beside the one that is given out."""
_MARK = f"{KEY_PREFIX}MARK"
"""No column of a table has such a name."""
_VIEW_BYTES = 16
"""Of a text decoded, beside its bytes, which it may share with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A row group of a file, which lies at a local path."""

    file: DataFile
    path: str
    group: RowGroup
    size_bytes: int

    @property
    def is_whole(self) -> bool:
        """Whether the file has no other."""
        return self.group.row_count == self.file.row_count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """Parts that are read at once, and where they are in the rows of all files."""

    parts: Sequence[_Part]
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeRows:
    """A split that can be read so; `parts` are its files, in their order, a row group each."""

    split: Split
    plan: ReadPlan
    store: Store
    budget: Budget
    parts: Sequence[_Part]

    def frames(self) -> Generator[pl.DataFrame, None, None]:
        """The rows as columns of the plan, in the order of the files."""
        split, plan = self.split, self.plan
        if split.raw:
            yield from self._frames(self._undeleted(), ())
            return
        keys = kept_keys(plan)
        width = sum(each.type.bit_width // 8 for each in keys)
        if width * split.row_count > self.budget.size_bytes // _KEYS_SHARE:
            keys, width = [], 0
        held_bytes = (1 + width) * split.row_count
        with self.budget.acquire_up_to(held_bytes, held_bytes):
            marks = no_marks(split, keys)
            with closing(mark_rows(marks, split, plan, self.store, self.budget)) as windows:
                yield from self._frames(marks, windows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of `frames` as Arrow has them."""
        with closing(self.frames()) as frames:
            for frame in frames:
                yield from to_batches(frame, self.plan.output, self._chunk_bytes)

    @property
    def _chunk_bytes(self) -> int:
        return self.budget.size_bytes // _CHUNK_SHARE

    def _undeleted(self) -> Marks | None:
        """Marks of the rows that no deletion vector names; None: of all."""
        if not self.split.vectors:
            return None
        files, marks = SplitFiles(self.split, self.plan, self.store), no_marks(self.split)
        marks.rows[:] = True
        for start, file in zip(marks.starts, self.split.files, strict=False):
            deleted = files.deleted_rows(file)
            if deleted is not None:
                marks.rows[start + deleted[deleted < file.row_count]] = False
        marks.decided[:] = np.diff(marks.starts)
        return marks

    def _frames(
        self, marks: Marks | None, windows: Iterable[None]
    ) -> Generator[pl.DataFrame, None, None]:
        """The marked rows (None: all), a few chunks being read while the others are marked."""
        chunk_bytes = min(self._chunk_bytes, sum(part.size_bytes for part in self.parts))
        wanted_bytes = (1 + _CHUNKS_AT_ONCE) * chunk_bytes
        with self.budget.acquire_up_to(wanted_bytes, chunk_bytes) as lease:
            at_once = max(1, min(_CHUNKS_AT_ONCE, lease.size_bytes // chunk_bytes - 1))
            yield from self._frames_ahead(marks, windows, at_once)

    def _frames_ahead(
        self, marks: Marks | None, windows: Iterable[None], at_once: int
    ) -> Generator[pl.DataFrame, None, None]:
        pool = ThreadPoolExecutor(at_once, thread_name_prefix=READER)
        coming: deque[Future[pl.DataFrame]] = deque()
        waiting = deque(self._chunks())

        def read_on() -> None:
            while waiting and len(coming) < at_once:
                if marks is not None and not marks.are_decided(waiting[0].start, waiting[0].end):
                    return
                coming.append(pool.submit(self._read, waiting.popleft(), marks))

        try:
            for _ in windows:
                read_on()
                if coming and coming[0].done():
                    yield coming.popleft().result()
            read_on()
            while coming:
                frame = coming.popleft().result()
                read_on()
                yield frame
                del frame
        finally:
            for task in coming:
                task.cancel()
            pool.shutdown(wait=not on_reader())

    def _chunks(self) -> Iterator[_Chunk]:
        """The parts in chunks of about one size."""
        total_bytes = sum(part.size_bytes for part in self.parts)
        count = -(-total_bytes // self._chunk_bytes)
        parts: list[_Part] = []
        start = end = done_bytes = cut = 0
        for part in self.parts:
            if parts and done_bytes + part.size_bytes / 2 > total_bytes * (cut + 1) / count:
                yield _Chunk(parts=parts, start=start, end=end)
                parts, start, cut = [], end, cut + 1
            parts.append(part)
            end += part.group.row_count
            done_bytes += part.size_bytes
        yield _Chunk(parts=parts, start=start, end=end)

    def _read(self, chunk: _Chunk, marks: Marks | None) -> pl.DataFrame:
        """The marked rows of a chunk. What Polars cannot read, lakecore's own reader reads."""
        columns = list(self.plan.columns)
        with suppress(*FAILURES):
            if marks is None:
                return select(self._scan(chunk, columns), columns).collect()
            mark = pl.Series(_MARK, marks.rows[chunk.start : chunk.end])
            keys = to_frame(marks.keys_of(chunk.start, chunk.end))
            rows = self._scan(chunk, [name for name in columns if name not in keys.columns])
            # Of other heights it is an error.
            both = pl.concat([rows, pl.LazyFrame([*keys, mark])], how="horizontal")
            return select(both.filter(_MARK), columns).collect()
        return pl.concat(self._own_frames(chunk, marks))

    def _scan(self, chunk: _Chunk, names: list[str]) -> pl.LazyFrame:
        """Columns of all rows of a chunk, as Polars reads them."""
        schema = self.plan.output
        if all(part.is_whole for part in chunk.parts):
            return native_scan(schema, [part.path for part in chunk.parts], names, casts=False)
        scans = []
        for path, parts in groupby(chunk.parts, lambda part: part.path):
            groups = [part.group for part in parts]
            count = sum(group.row_count for group in groups)
            rows = native_scan(schema, [path], names, casts=False)
            scans.append(rows.slice(groups[0].first_row, count))
        return pl.concat(scans)

    def _own_frames(self, chunk: _Chunk, marks: Marks | None) -> Iterator[pl.DataFrame]:
        """The marked rows of a chunk, as lakecore's own reader reads them."""
        files = SplitFiles(self.split, self.plan, self.store)
        fields = [self.plan.schema.field(name) for name in self.plan.columns]
        size = batch_size(fields, self._chunk_bytes)
        start = chunk.start
        for part in chunk.parts:
            groups = [part.group.index]
            for position, batch in files.stored_rows(part.file, fields, size, row_groups=groups):
                frame = to_frame(batch)
                if marks is not None:
                    at = start + position - part.group.first_row
                    frame = frame.filter(pl.Series(marks.rows[at : at + batch.num_rows]))
                yield frame
            start += part.group.row_count


def native_rows(split: Split, plan: ReadPlan, store: Store, budget: Budget) -> NativeRows | None:
    """How to read a split so; None: that cannot be, or is of no use."""
    if split.row_count < _ROWS_MIN or plan.system_columns or are_large(split.files, budget):
        return None
    if not 0 < len(set(plan.columns)) == len(plan.columns):
        return None
    # A few row groups may do.
    deciding = plan.schema.names if split.raw else plan.merge.key
    if condition_on(plan.predicate, deciding) is not None:
        return None
    if not split.raw:
        values = set(plan.columns).difference(plan.merge.columns_for(()))
        too_many = split.row_count > budget.size_bytes // _MARKS_SHARE
        if not values or too_many or not decided_by_keys(plan):
            return None
    fields = [plan.schema.field(name) for name in plan.columns]
    paths = native_paths([split], fields, plan.schemas.__getitem__, plan.layout, store)
    if not paths:
        return None
    parts: list[_Part] = []
    for file, path in zip(split.files, paths, strict=True):
        own = _parts(file, path, fields, SplitFiles(split, plan, store).path(file), store)
        if own is None:
            return None
        parts += own
    part_bytes = max(part.size_bytes for part in parts)
    if part_bytes * _CHUNK_PARTS_MIN > budget.size_bytes // _CHUNK_SHARE:
        return None
    return NativeRows(split=split, plan=plan, store=store, budget=budget, parts=parts)


def _parts(
    file: DataFile, local: str, fields: Sequence[Field], path: str, store: Store
) -> list[_Part] | None:
    """The row groups of a file, of which columns are read; None if Polars is not to read it."""
    groups = row_group_bounds(store, path, ()) or ()
    if sum(group.row_count for group in groups) != file.row_count:
        return None
    if any(group.has_checksums or not group.codecs <= _CODECS for group in groups):
        return None
    kinds = [arrow_type(field.type) for field in fields]
    fixed = sum(kind.bit_width / 8 for kind in kinds if pa.types.is_primitive(kind))
    views = _VIEW_BYTES * sum(not pa.types.is_primitive(kind) for kind in kinds)
    return [
        _Part(
            file=file,
            path=local,
            group=group,
            size_bytes=int(
                max(group.decoded_bytes, fixed * group.row_count) + views * group.row_count
            ),
        )
        for group in groups
    ]
