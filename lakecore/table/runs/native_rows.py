"""The surviving rows of a split, decoded from its files by Polars.

Polars decodes faster than a merge in windows, and in a section only the values of surviving rows
are moved (`marks.py`). The price is one flag for each row and reading the deciding columns first.
The oldest run does not need this if the newer keys decide (`newer_keys.py`). Sections of very many
rows, and reads that want few rows, are merged window by window.

Memory depends on the chunk, not on the split: Polars reads a few row groups in each call. By itself
it would read ahead in proportion to the number of cores.

Large row groups and files of several schemas are left to `read.py`. If Polars cannot read a chunk
(or the deciding columns), lakecore's own reader reads it (or the whole split) and names the damage.
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

from lakecore.frames.polars_source import (
    FAILURES,
    bytes_in_arrow,
    native_scan,
    select,
    to_batches,
    to_frame,
    to_frames,
)
from lakecore.lsm.levels import SortedRun
from lakecore.model.rows import KEY_PREFIX
from lakecore.model.types import arrow_schema
from lakecore.plan.predicate import condition_on
from lakecore.table.runs.large_rows import are_large
from lakecore.table.runs.marks import Marks, decided_by_keys, mark_rows, no_marks
from lakecore.table.runs.native_files import native_paths
from lakecore.table.runs.native_parts import bytes_to_mark, parts_of, scan_parts, texts_of
from lakecore.table.runs.newer_keys import (
    NewerKeys,
    are_within,
    columns_and_key,
    flagged_keys,
    newer_keys,
)
from lakecore.table.runs.read import batch_size, merge_fields, read_split
from lakecore.table.runs.split_files import KIND_FIELD, SEQUENCE_FIELD, SplitFiles, out_of_order
from lakecore.table.runs.windows import READER, on_reader

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from lakecore.io.stores.store import Store
    from lakecore.memory import Budget
    from lakecore.model.files import Split
    from lakecore.model.types import Field
    from lakecore.table.runs.native_parts import Part
    from lakecore.table.runs.read_plan import ReadPlan

_ROWS_MIN = 65_536
"""For fewer rows, calling Polars costs more than it saves."""
_KNOWN_SHARE = 8
"""The deciding columns and marks of a section take at most the budget divided by this."""
_BESIDE_SHARE = 4
"""If newer runs have at most this part of the rows (a divisor), their values are read at once."""
_HELD_TIMES = 2
"""Copies of the deciding columns in memory while they are read or encoded for comparison."""
_WINDOW_ROWS = 1 << 20
_WINDOW_ROW_SHARE = 256
"""Rows merged in a window: at most the first number, and the budget in bytes divided by this."""
_CHUNK_SHARE = 8
"""A chunk takes at most the budget divided by this: decoded, filtered, and as Arrow batches."""
_CHUNK_PARTS_MIN = 8
"""A chunk has room for at least this many row groups, because Polars reads several at once."""
_CHUNKS_AT_ONCE = 2
"""Chunks that are read concurrently, in addition to the one that was returned."""
_MARK = f"{KEY_PREFIX}MARK"
"""No column of a table has such a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """Parts that are read together, their range of rows, and what decides which rows stay."""

    parts: Sequence[Part]
    start: int
    end: int
    stay: Marks | NewerKeys | None

    @property
    def is_decided(self) -> bool:
        """Whether it is known which rows stay."""
        return not isinstance(self.stay, Marks) or self.stay.are_decided(self.start, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeRows:
    """A split that Polars can read; `parts` are the row groups of its files, in order.

    `deciding`: the columns that decide which rows of a section survive. If there is a `span` of
    newer keys, flags of those keys decide for the row groups in `oldest`, which `parts` then does
    not contain. The columns `beside` are read together with `deciding`; both take `known_bytes`.
    """

    split: Split
    plan: ReadPlan
    store: Store
    budget: Budget
    parts: Sequence[Part]
    deciding: Sequence[Field] = ()
    beside: Sequence[Field] = ()
    oldest: Sequence[Part] = ()
    span: range | None = None

    def frames(self) -> Generator[pl.DataFrame, None, None]:
        """The rows, with the columns of the plan; rows of a raw split come in file order."""
        if self.split.raw:
            yield from self._frames(self._chunks(self.parts, self._undeleted()), ())
            return
        held_bytes = _HELD_TIMES * self.known_bytes
        with self.budget.acquire_up_to(held_bytes, held_bytes):
            known = self._known_columns()
            if known is not None:
                yield from self._section(known)
                return
        yield from to_frames(read_split(self.split, self.plan, self.store, self.budget))

    @property
    def row_count(self) -> int:
        """The rows of the parts."""
        return sum(part.group.row_count for part in self.parts)

    @property
    def known_bytes(self) -> int:
        """The bytes of a section that are read before any chunk, with its marks and flags."""
        if self.split.raw:
            return 0
        flags = 0 if self.span is None else len(self.span)
        return flags + bytes_to_mark(self.parts, self._known_fields, self.plan.merge.key)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of `frames` as Arrow batches."""
        with closing(self.frames()) as frames:
            for frame in frames:
                yield from to_batches(frame, self.plan.output, self._chunk_bytes)

    @property
    def _chunk_bytes(self) -> int:
        return self.budget.size_bytes // _CHUNK_SHARE

    @property
    def _files(self) -> SplitFiles:
        return SplitFiles(self.split, self.plan, self.store)

    def _known_columns(self) -> pl.DataFrame | None:
        """The columns that are read first, of all parts; None if Polars cannot read them."""
        schema = arrow_schema(self._known_fields)
        paths = list(dict.fromkeys(part.path for part in self.parts))
        with suppress(*FAILURES):
            rows = native_scan(schema, paths, schema.names, casts=False).collect()
            deciding = rows[[field.name for field in self.deciding]]
            given = [field.name for field in self.deciding if not field.nullable]
            # Strings may share bytes; their separate size is known only now.
            small = bytes_in_arrow(deciding) <= self.budget.size_bytes // _KNOWN_SHARE
            whole = rows.height == self.row_count
            if small and whole and not any(rows[name].null_count() for name in given):
                (key, *_) = self.plan.merge.key
                return rows if self.span is None or are_within(self.span, rows[key]) else None
        return None

    def _undeleted(self) -> Marks | None:
        """Marks of the rows that no deletion vector marks as deleted; None: of all rows."""
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

    @property
    def _known_fields(self) -> list[Field]:
        return list(dict.fromkeys((*self.deciding, *self.beside)))

    def _section(self, known: pl.DataFrame) -> Generator[pl.DataFrame, None, None]:
        files = self._files
        if self.span is not None:
            files = replace(files, split=replace(self.split, runs=self.split.runs[1:]))
        marks = no_marks(files.split.files, known)
        chunks = [] if self.beside else [*self._chunks(self.parts, marks)]
        if self.span is not None:
            newer = newer_keys(self.plan, self.span, known)
            chunks = [*self._chunks(self.oldest, newer), *chunks]
        yield from self._frames(chunks, self._known_frames(marks, files))

    def _known_frames(self, marks: Marks, files: SplitFiles) -> Iterator[pl.DataFrame | None]:
        """Mark the rows, one window per step; at the end, yield rows that are read already."""
        window_rows = min(_WINDOW_ROWS, self.budget.size_bytes // _WINDOW_ROW_SHARE)
        for _ in mark_rows(marks, files, window_rows):
            yield None
        if self.beside:
            yield marks.known.filter(pl.Series(marks.rows))[list(self.plan.columns)]

    def _frames(
        self, chunks: Iterable[_Chunk], known: Iterable[pl.DataFrame | None]
    ) -> Generator[pl.DataFrame, None, None]:
        """The surviving rows; chunks are read while later windows are marked."""
        total_bytes = sum(part.size_bytes for part in (*self.oldest, *self.parts))
        chunk_bytes = min(self._chunk_bytes, total_bytes)
        wanted_bytes = (1 + _CHUNKS_AT_ONCE) * chunk_bytes
        with self.budget.acquire_up_to(wanted_bytes, chunk_bytes) as lease:
            at_once = max(1, min(_CHUNKS_AT_ONCE, lease.size_bytes // chunk_bytes - 1))
            yield from self._frames_ahead(deque(chunks), known, at_once)

    def _frames_ahead(
        self, waiting: deque[_Chunk], known: Iterable[pl.DataFrame | None], at_once: int
    ) -> Generator[pl.DataFrame, None, None]:
        pool = ThreadPoolExecutor(at_once, thread_name_prefix=READER)
        coming: deque[Future[pl.DataFrame]] = deque()

        def read_on() -> None:
            while waiting and len(coming) < at_once and waiting[0].is_decided:
                coming.append(pool.submit(self._read, waiting.popleft()))

        try:
            read_on()
            for frame in known:
                read_on()
                if frame is not None:
                    yield frame
                del frame
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

    def _chunks(
        self, all_parts: Sequence[Part], stay: Marks | NewerKeys | None
    ) -> Iterator[_Chunk]:
        """The parts in chunks of about equal size."""
        total_bytes = sum(part.size_bytes for part in all_parts)
        count = -(-total_bytes // self._chunk_bytes)
        parts: list[Part] = []
        start = end = done_bytes = cut = 0
        for part in all_parts:
            if parts and done_bytes + part.size_bytes / 2 > total_bytes * (cut + 1) / count:
                yield _Chunk(parts=parts, start=start, end=end, stay=stay)
                parts, start, cut = [], end, cut + 1
            parts.append(part)
            end += part.group.row_count
            done_bytes += part.size_bytes
        yield _Chunk(parts=parts, start=start, end=end, stay=stay)

    def _read(self, chunk: _Chunk) -> pl.DataFrame:
        """The surviving rows of a chunk; lakecore's own reader reads what Polars cannot."""
        stay, columns = chunk.stay, list(self.plan.columns)
        with suppress(*FAILURES):
            if isinstance(stay, NewerKeys):
                names = columns_and_key(self.plan)
                # Parallel reads of pages would each wait for the interpreter lock.
                rows = scan_parts(chunk.parts, self.plan.schema.arrow, names, by_row_groups=True)
                return stay.kept(rows, chunk.start)[columns]
            if stay is None:
                return select(scan_parts(chunk.parts, self.plan.output, columns), columns).collect()
            known = stay.known[chunk.start : chunk.end]
            known = known.select(name for name in known.columns if name in columns)
            frames = [pl.LazyFrame([*known, pl.Series(_MARK, stay.rows[chunk.start : chunk.end])])]
            if others := [name for name in columns if name not in known.columns]:
                frames.append(scan_parts(chunk.parts, self.plan.output, others))
            # Polars raises an error if the heights differ.
            both = pl.concat(frames, how="horizontal")
            return select(both.filter(_MARK), columns).collect()
        if isinstance(stay, NewerKeys):
            return pl.concat(self._own_of_oldest(chunk, stay))
        return pl.concat(self._own_frames(chunk, stay))

    def _own_frames(self, chunk: _Chunk, marks: Marks | None) -> Iterator[pl.DataFrame]:
        """The marked rows of a chunk, read by lakecore's own reader."""
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

    def _own_of_oldest(self, chunk: _Chunk, newer: NewerKeys) -> Iterator[pl.DataFrame]:
        """The surviving rows of a chunk of the oldest run, read by lakecore's own reader."""
        files = self._files
        fields = [self.plan.schema.field(name) for name in columns_and_key(self.plan)]
        size = batch_size(fields, self._chunk_bytes)
        start = chunk.start
        for _, parts in groupby(chunk.parts, lambda part: part.path):
            own = list(parts)
            file, groups = own[0].file, [part.group.index for part in own]
            rows = files.stored_rows(file, fields, size, row_groups=groups)
            for each in files.slices_of(file, (batch for _, batch in rows)):
                frame = to_frame(each.rows)
                keys = frame[newer.key]
                frame = frame.filter(newer.lack(keys.alias("").to_physical()))
                if not newer.are_in_order(start, frame[newer.key]):
                    raise out_of_order(files.path(file))
                start += len(keys)
                yield frame[list(self.plan.columns)]


def native_rows(split: Split, plan: ReadPlan, store: Store, budget: Budget) -> NativeRows | None:
    """How Polars reads a split; None if it cannot, or if it would not be faster."""
    if split.row_count < _ROWS_MIN or plan.system_columns or are_large(split.files, budget):
        return None
    if not 0 < len(set(plan.columns)) == len(plan.columns):
        return None
    # Row-group pruning may leave few row groups; then windows are faster.
    looked_at = plan.schema.names if split.raw else plan.merge.key
    if condition_on(plan.predicate, looked_at) is not None:
        return None
    deciding: tuple[Field, ...] = ()
    span: range | None = None
    if not split.raw:
        if not decided_by_keys(plan):
            return None
        span = flagged_keys(split, plan)
        runs = [SortedRun(files=run) for run in split.runs[0 if span is None else 1 :]]
        deciding = merge_fields(runs, replace(plan, columns=()))
    names = plan.columns if span is None else columns_and_key(plan)
    fields = [plan.schema.field(name) for name in names]
    stored = {*fields, *deciding}.difference((SEQUENCE_FIELD, KIND_FIELD))
    schema_of = plan.schemas.__getitem__
    paths = native_paths([split], [*stored], schema_of, plan.layout, store, plan.checks)
    if not paths:
        return None
    parts: list[Part] = []
    texts = texts_of([*dict.fromkeys((*fields, *deciding))])
    files = SplitFiles(split, plan, store)
    for file, path in zip(split.files, paths, strict=True):
        own = parts_of(files, file, path, fields, texts)
        if own is None:
            return None
        parts += own
    part_bytes = max(part.size_bytes for part in parts)
    if part_bytes * _CHUNK_PARTS_MIN > budget.size_bytes // _CHUNK_SHARE:
        return None
    oldest_paths = set() if span is None else {*paths[: len(split.runs[0])]}
    oldest = [part for part in parts if part.path in oldest_paths]
    native = NativeRows(
        split=split,
        plan=plan,
        store=store,
        budget=budget,
        parts=parts[len(oldest) :],
        deciding=deciding,
        oldest=oldest,
        span=span,
    )
    known_bytes_max = budget.size_bytes // _KNOWN_SHARE
    if span is not None and native.row_count * _BESIDE_SHARE <= split.row_count:
        # For few rows, two scans cost more than one.
        whole = replace(native, beside=fields)
        if whole.known_bytes <= known_bytes_max:
            return whole
    return native if native.known_bytes <= known_bytes_max else None
