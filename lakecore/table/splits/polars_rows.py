"""The surviving rows of a split, decoded from its files by Polars.

Polars decodes faster than lakecore's own reader, and in a section only the values of surviving rows
are copied. The copy needs one flag for each row, and a read of the keys before the values. The
oldest run needs neither if the keys of newer runs decide (`survivors.py`).

Memory depends on the chunk, not on the split: Polars gets a few row groups in each call. If it got
the whole split, it would read ahead in proportion to the number of cores.

If Polars cannot read a chunk (or the deciding columns), lakecore's own reader reads it (or the
whole split) and names the damage.
"""

from __future__ import annotations

from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from lakecore.frames.arrow_frames import to_frame
from lakecore.frames.polars_source import FAILURES, select, to_batches, to_frames
from lakecore.frames.polars_versions import beside
from lakecore.io.files.file_checks import check_files
from lakecore.model.rows import KEY_PREFIX
from lakecore.table.file_reader.split_files import SplitFiles, out_of_order
from lakecore.table.sections.windows import batch_size, on_reader, reader_threads
from lakecore.table.splits.read import read_split
from lakecore.table.splits.read_planner import (
    LateMaterialisation,
    Part,
    PolarsChunks,
    chunk_bytes,
    columns_and_key,
    scan_parts,
    stored_only,
)
from lakecore.table.splits.survivors import (
    HELD_TIMES,
    Marks,
    NewerKeys,
    are_within,
    merge_of_keys,
    newer_keys,
    no_marks,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from lakecore.io.stores.store import Store
    from lakecore.memory import Budget
    from lakecore.model.files import Split
    from lakecore.table.file_reader.read_plan import ReadPlan

_CHUNKS_AT_ONCE = 2
"""Chunks that are read concurrently, in addition to the one that was returned."""
_MARK = f"{KEY_PREFIX}MARK"
"""No column of a table has such a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """Parts that are read together, and their range of rows.

    `stay` decides which of these rows stay; None: all rows.
    """

    parts: Sequence[Part]
    start: int
    end: int
    stay: Marks | NewerKeys | None

    @property
    def is_decided(self) -> bool:
        """Whether it is known which rows of the chunk stay."""
        return not isinstance(self.stay, Marks) or self.stay.are_decided(self.start, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolarsRows:
    """The rows of a split, decoded by Polars in the way that `path` describes."""

    split: Split
    plan: ReadPlan
    store: Store
    budget: Budget
    path: PolarsChunks | LateMaterialisation

    def frames(self) -> Generator[pl.DataFrame, None, None]:
        """The rows, with the columns of the plan; rows of a raw split come in file order.

        Raises CorruptTable for a file with a wrong checksum: engines do not check these.
        """
        path, plan = self.path, self.plan
        late = path if isinstance(path, LateMaterialisation) else None
        fields = stored_only(
            (*map(plan.schema.field, plan.columns), *(late.deciding if late else ()))
        )
        paths = list(dict.fromkeys(part.path for part in path.all_parts))
        check_files(self.store, paths, [field.name for field in fields], plan.checks)
        if late is None:
            yield from self._frames(self._chunks(path.parts, self._undeleted()), ())
            return
        held_bytes = HELD_TIMES * late.held_bytes
        with self.budget.acquire_up_to(held_bytes, held_bytes):
            chunks = self._section(late)
            if chunks is not None:
                yield from self._frames(*chunks)
                return
        yield from to_frames(read_split(self.split, self.plan, self.store, self.budget))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows of `frames` as Arrow batches."""
        with closing(self.frames()) as frames:
            for frame in frames:
                yield from to_batches(frame, self.plan.output, self._chunk_bytes)

    @property
    def _chunk_bytes(self) -> int:
        return chunk_bytes(self.budget)

    @property
    def _files(self) -> SplitFiles:
        return SplitFiles(self.split, self.plan, self.store)

    def _undeleted(self) -> Marks | None:
        """Marks in which every row survives, except the rows that deletion vectors mark.

        None if there are no vectors.
        """
        if not self.split.vectors:
            return None
        files, marks = self._files, no_marks(self.split.files)
        marks.rows[:] = True
        for start, file in zip(marks.starts, self.split.files, strict=False):
            mask = files.mask(file)
            if mask is not None:
                marks.rows[start : start + file.row_count] = mask.flags
        marks.decided[:] = np.diff(marks.starts)
        return marks

    def _section(self, late: LateMaterialisation) -> tuple[list[_Chunk], Iterator[None]] | None:
        """The chunks of a section, and the merge of its keys. None if Polars cannot read them."""
        split, flagged = self.split, late.flagged
        if flagged is not None:
            split = replace(split, runs=split.runs[1:])
        merge = merge_of_keys(split, self.plan, self.store, self.budget, late.parts, late.deciding)
        if merge is None:
            return None
        marks, windows = merge
        chunks = [*self._chunks(late.parts, marks)]
        if flagged is not None:
            (key, *_) = self.plan.merge.key
            if not are_within(flagged.span, marks.known[key]):
                return None
            newer = newer_keys(self.plan, flagged.span, marks.known)
            chunks = [*self._chunks(flagged.parts, newer), *chunks]
        return chunks, windows

    def _frames(
        self, chunks: Iterable[_Chunk], marking: Iterable[None]
    ) -> Generator[pl.DataFrame, None, None]:
        """The surviving rows. Chunks are read while later windows are still merged."""
        total_bytes = sum(part.size_bytes for part in self.path.all_parts)
        chunk_bytes = min(self._chunk_bytes, total_bytes)
        wanted_bytes = (1 + _CHUNKS_AT_ONCE) * chunk_bytes
        with self.budget.acquire_up_to(wanted_bytes, chunk_bytes) as lease:
            at_once = max(1, min(_CHUNKS_AT_ONCE, lease.size_bytes // chunk_bytes - 1))
            yield from self._frames_ahead(deque(chunks), marking, at_once)

    def _frames_ahead(
        self, waiting: deque[_Chunk], marking: Iterable[None], at_once: int
    ) -> Generator[pl.DataFrame, None, None]:
        pool = reader_threads(at_once)
        coming: deque[Future[pl.DataFrame]] = deque()

        def read_on() -> None:
            while waiting and len(coming) < at_once and waiting[0].is_decided:
                coming.append(pool.submit(self._read, waiting.popleft()))

        try:
            read_on()
            for _ in marking:
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

    def _chunks(
        self, all_parts: Sequence[Part], stay: Marks | NewerKeys | None
    ) -> Iterator[_Chunk]:
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
            return select(beside(frames).filter(_MARK), columns).collect()
        if isinstance(stay, NewerKeys):
            return pl.concat(self._own_of_oldest(chunk, stay))
        return pl.concat(self._own_frames(chunk, stay))

    def _own_frames(self, chunk: _Chunk, marks: Marks | None) -> Iterator[pl.DataFrame]:
        """The surviving rows of a chunk, read by lakecore's own reader."""
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
