"""The rows of a split as Polars reads them from its files, less those that do not come out.

Polars decodes faster than whoever cuts rows into windows, and of a section no value is moved but
those that come out (`marks.py`). It costs a mark a row, and what decides of all rows, which is read
before: sections of very many rows, or of which the caller wants a few, are merged window by window.

Memory follows the chunk, not the split: Polars is asked for a few row groups at a time. Left to
itself it would read ahead by the number of cores.

Files that another reads better stay with `read.py`: of large row groups, of several schemas, and of
Java, for Polars does not check the checksums that Java gives to pages. What Polars cannot read,
lakecore's own reader reads, which names what is damaged: a chunk, or, of what decides, the split.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.frames.polars_source import (
    FAILURES,
    bytes_in_arrow,
    native_scan,
    select,
    to_batches,
    to_frame,
    to_frames,
)
from lakecore.io.data_files import row_group_bounds
from lakecore.lsm.levels import SortedRun
from lakecore.model.rows import KEY_PREFIX
from lakecore.model.types import arrow_schema, arrow_type
from lakecore.plan.predicate import condition_on
from lakecore.table.runs.large_rows import are_large
from lakecore.table.runs.marks import decided_by_keys, mark_rows, no_marks
from lakecore.table.runs.native_files import native_paths
from lakecore.table.runs.read import batch_size, merge_fields, read_split
from lakecore.table.runs.split_files import KIND_FIELD, SEQUENCE_FIELD, SplitFiles
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
_DECIDING_SHARE = 8
"""The part of the budget, as a divisor, that what decides of a section may take, and its marks."""
_HELD_TIMES = 2
"""What is held of that while it is read, or laid out to be compared."""
_WINDOW_ROWS = 1 << 20
_WINDOW_ROW_SHARE = 256
"""Rows merged at once, and the part of the budget, as a divisor, of which a byte each is theirs."""
_CODECS = frozenset({"ZSTD", "UNCOMPRESSED"})
"""Of damage in others Polars tells less than Arrow."""
_CHUNK_SHARE = 8
"""The same of a chunk: it is held as decoded, less the rows that lose, and as Arrow has it."""
_CHUNK_PARTS_MIN = 8
"""Row groups that a chunk has room for. Polars reads a few at once, whatever is asked for."""
_CHUNKS_AT_ONCE = 2
"""Beside the one that is given out."""
_MARK = f"{KEY_PREFIX}MARK"
"""No column of a table has such a name."""
_BYTE = 8
_CODE_BYTES = 8
"""Of a value that is to be compared."""
_VIEW_BYTES = 16
"""Of a text decoded, beside its bytes, which it may share with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A row group of a file, which lies at a local path."""

    file: DataFile
    path: str
    group: RowGroup
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """Parts that are read at once, and where they are in the rows of all files."""

    parts: Sequence[Part]
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeRows:
    """A split that can be read so; `parts` are its files, in their order, a row group each.

    `deciding`: what decides of a section which rows come out, which takes `deciding_bytes`.
    """

    split: Split
    plan: ReadPlan
    store: Store
    budget: Budget
    parts: Sequence[Part]
    deciding: Sequence[Field] = ()
    deciding_bytes: int = 0

    def frames(self) -> Generator[pl.DataFrame, None, None]:
        """The rows as columns of the plan, in the order of the files."""
        if self.split.raw:
            yield from self._frames(self._undeleted(), ())
            return
        held_bytes = _HELD_TIMES * self.deciding_bytes
        with self.budget.acquire_up_to(held_bytes, held_bytes):
            deciding = self._deciding_rows()
            if deciding is not None:
                marks = no_marks(self.split.files, deciding)
                window_rows = min(_WINDOW_ROWS, self.budget.size_bytes // _WINDOW_ROW_SHARE)
                yield from self._frames(marks, mark_rows(marks, self._files, window_rows))
                return
        yield from to_frames(read_split(self.split, self.plan, self.store, self.budget))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of `frames` as Arrow has them."""
        with closing(self.frames()) as frames:
            for frame in frames:
                yield from to_batches(frame, self.plan.output, self._chunk_bytes)

    @property
    def _chunk_bytes(self) -> int:
        return self.budget.size_bytes // _CHUNK_SHARE

    @property
    def _files(self) -> SplitFiles:
        return SplitFiles(self.split, self.plan, self.store)

    def _deciding_rows(self) -> pl.DataFrame | None:
        """What decides, of all rows; None if it is not for Polars to read."""
        schema, paths = arrow_schema(self.deciding), list(dict.fromkeys(p.path for p in self.parts))
        with suppress(*FAILURES):
            rows = native_scan(schema, paths, schema.names, casts=False).collect()
            given = [field.name for field in self.deciding if not field.nullable]
            # Texts may be shared: how many bytes they are apart is known only now.
            small = bytes_in_arrow(rows) <= self.budget.size_bytes // _DECIDING_SHARE
            whole = rows.height == self.split.row_count
            if small and whole and not any(rows[name].null_count() for name in given):
                return rows
        return None

    def _undeleted(self) -> Marks | None:
        """Marks of the rows that no deletion vector names; None: of all."""
        if not self.split.vectors:
            return None
        files, marks = self._files, no_marks(self.split.files)
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
        parts: list[Part] = []
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
                return select(scan_parts(chunk.parts, self.plan.output, columns), columns).collect()
            known = marks.deciding[chunk.start : chunk.end]
            known = known.select(name for name in known.columns if name in columns)
            frames = [pl.LazyFrame([*known, pl.Series(_MARK, marks.rows[chunk.start : chunk.end])])]
            if others := [name for name in columns if name not in known.columns]:
                frames.append(scan_parts(chunk.parts, self.plan.output, others))
            # Of other heights it is an error.
            both = pl.concat(frames, how="horizontal")
            return select(both.filter(_MARK), columns).collect()
        return pl.concat(self._own_frames(chunk, marks))

    def _own_frames(self, chunk: _Chunk, marks: Marks | None) -> Iterator[pl.DataFrame]:
        """The marked rows of a chunk, as lakecore's own reader reads them."""
        files = self._files
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
    looked_at = plan.schema.names if split.raw else plan.merge.key
    if condition_on(plan.predicate, looked_at) is not None:
        return None
    deciding: tuple[Field, ...] = ()
    if not split.raw:
        if not decided_by_keys(plan):
            return None
        runs = [SortedRun(files=run) for run in split.runs]
        deciding = merge_fields(runs, replace(plan, columns=()))
    fields = [plan.schema.field(name) for name in plan.columns]
    stored = {*fields, *deciding}.difference((SEQUENCE_FIELD, KIND_FIELD))
    paths = native_paths([split], [*stored], plan.schemas.__getitem__, plan.layout, store)
    if not paths:
        return None
    parts: list[Part] = []
    # Beside a mark, what is copied to be compared.
    copied = [field for field in deciding if field.name in plan.merge.key and not _is_wide(field)]
    row_bytes = 1 + _width(deciding) + _CODE_BYTES * len(copied)
    deciding_bytes = row_bytes * split.row_count
    texts = [field.name for field in deciding if not _is_fixed(field)]
    files = SplitFiles(split, plan, store)
    for file, path in zip(split.files, paths, strict=True):
        own = parts_of(files, file, path, fields, texts)
        if own is None:
            return None
        parts += own
        deciding_bytes += sum(size for part in own for size in part.group.column_bytes.values())
    part_bytes = max(part.size_bytes for part in parts)
    if part_bytes * _CHUNK_PARTS_MIN > budget.size_bytes // _CHUNK_SHARE:
        return None
    if deciding and deciding_bytes > budget.size_bytes // _DECIDING_SHARE:
        return None
    return NativeRows(
        split=split,
        plan=plan,
        store=store,
        budget=budget,
        parts=parts,
        deciding=deciding,
        deciding_bytes=deciding_bytes,
    )


def parts_of(
    files: SplitFiles, file: DataFile, path: str, fields: Sequence[Field], sized: Sequence[str] = ()
) -> list[Part] | None:
    """The row groups of a file, with the bytes that these fields take; None: not for Polars.

    Of the columns `sized` each row group tells the bytes.
    """
    fixed = _width([field for field in fields if _is_fixed(field)])
    views = _width(fields) - fixed
    groups = row_group_bounds(files.store, files.path(file), sized) or ()
    if sum(group.row_count for group in groups) != file.row_count:
        return None
    if any(group.has_checksums or not group.codecs <= _CODECS for group in groups):
        return None
    return [
        Part(file=file, path=path, group=group, size_bytes=_size_of(group, fixed, views))
        for group in groups
    ]


def scan_parts(parts: Sequence[Part], schema: pa.Schema, names: list[str]) -> pl.LazyFrame:
    """Columns of all rows of parts, of which those of one file follow on each other."""
    scans = []
    # One scan of several files takes Polars up to twice as long.
    for path, own in groupby(parts, lambda part: part.path):
        groups = [part.group for part in own]
        count = sum(group.row_count for group in groups)
        rows = native_scan(schema, [path], names, casts=False)
        scans.append(rows.slice(groups[0].first_row, count))
    return pl.concat(scans)


def _size_of(group: RowGroup, fixed: int, views: int) -> int:
    """What columns of these widths take of a row group in Polars, at most."""
    return max(group.decoded_bytes, fixed * group.row_count) + views * group.row_count


def _is_fixed(field: Field) -> bool:
    return bool(pa.types.is_primitive(arrow_type(field.type)))


def _is_wide(field: Field) -> bool:
    """Whether its values are compared where they lie."""
    return _is_fixed(field) and arrow_type(field.type).bit_width == _BYTE * _CODE_BYTES


def _width(fields: Sequence[Field]) -> int:
    """The bytes of a row of these columns, less those of texts, which others may share."""
    kinds = [arrow_type(field.type) for field in fields if _is_fixed(field)]
    fixed: int = sum(max(kind.bit_width // _BYTE, 1) for kind in kinds)
    return fixed + _VIEW_BYTES * (len(fields) - len(kinds))
