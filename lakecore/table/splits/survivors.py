"""Which rows of a section survive its merge, as one bit for each row of each file.

If key, sequence number and kind of each row decide (`read_planner.py`), the result of the merge
does not depend on the columns or the condition of a query. The bits are computed once from the
deciding columns and cached. Every later read of the same files is a scan by an engine that leaves
out rows, as if deletion vectors marked them. The scan may then apply any condition on values,
because it is already decided which rows survive.

INVARIANT: the key of the cache names everything that the result depends on: the files in their
order, with inode, size and time, their levels (a compaction may move a file to another level),
their deletion vectors, and the rules of the merge.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
from polars.selectors import by_name

from lakecore.frames.engine_scan import parquet_scan
from lakecore.frames.polars_source import FAILURES, bytes_in_arrow
from lakecore.frames.source import EngineFile
from lakecore.io.cache import Cache
from lakecore.io.files.file_checks import check_files, identity_of
from lakecore.lsm.levels import SortedRun
from lakecore.memory import Budget, Share
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.spec import ChoosesRows, Slice
from lakecore.model.row_mask import RowMask
from lakecore.model.types import Field, arrow_schema
from lakecore.table.file_reader.split_files import SplitFiles, vector_masks
from lakecore.table.sections.windows import called_back, merge_fields
from lakecore.table.splits.read_planner import (
    Part,
    bytes_to_mark,
    decided_by_keys,
    keys_bytes_max,
    polars_parts,
    texts_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.io.stores.store import Store
    from lakecore.model.files import DataFile, Split
    from lakecore.table.file_reader.read_plan import ReadPlan

    RowMasks: TypeAlias = Mapping[str, RowMask]
    """The masks of the files of a section, by the name of the file."""


# --- marks ---------------------------------------------------------------------------------------
# Late materialisation: keys decide which rows of a section survive; only their values are read.
#
# If a merge returns rows unchanged, the key, sequence number and kind of the rows determine which
# rows survive. These columns of all rows are held in memory and merged window by window, and the
# surviving rows are marked.


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """A flag for each row of a split: whether the row survives. Files are in order.

    The rows of file `n` begin at `starts[n]`; its first `decided[n]` flags are final. `known` holds
    the columns that decide (key, sequence number, kind) of all rows.
    """

    starts: np.ndarray
    rows: np.ndarray
    decided: np.ndarray
    known: pl.DataFrame = field(default_factory=pl.DataFrame)

    def are_decided(self, start: int, end: int) -> bool:
        """Whether the flags of the rows from `start` to `end` (exclusive) are final."""
        inside = slice(
            int(np.searchsorted(self.starts, start, side="right")) - 1,
            int(np.searchsorted(self.starts, end, side="left")),
        )
        ends = np.minimum(self.starts[1:][inside], end)
        return bool((self.starts[:-1][inside] + self.decided[inside] >= ends).all())

    def decide(self, places: range | np.ndarray | None, wins: np.ndarray) -> None:
        """Set the flags of the rows at `places`, the next undecided rows of one file."""
        assert places is not None
        self.rows[slice(places.start, places.stop) if isinstance(places, range) else places] = wins
        number = int(np.searchsorted(self.starts, places[-1], side="right")) - 1
        self.decided[number] = places[-1] + 1 - self.starts[number]


def no_marks(files: Sequence[DataFile], known: pl.DataFrame | None = None) -> Marks:
    """Marks in which no row is marked and no flag is final."""
    starts = np.cumsum([0, *(file.row_count for file in files)])
    return Marks(
        starts=starts,
        rows=np.zeros(int(starts[-1]), bool),
        decided=np.zeros(len(files), np.int64),
        known=pl.DataFrame() if known is None else known,
    )


def _mark_rows(marks: Marks, files: SplitFiles, window_rows: int) -> Iterator[None]:
    """Merge the keys of a section for which `decided_by_keys` holds, in windows of `window_rows`.

    Raises CorruptTable for keys out of order, see `SplitFiles.slices_of`.
    """
    plan, split = files.plan, files.split
    engine = MERGE_FUNCTIONS[plan.engine]
    assert isinstance(engine, ChoosesRows)
    rows_max = max(1, window_rows // len(split.runs))
    numbers = count()
    runs = [
        deque(
            part
            for file in run
            for part in _placed_rows(marks, files, file, next(numbers), rows_max)
        )
        for run in split.runs
    ]
    for window in _windows(runs):
        for part, wins in engine.winners(window, plan.merge):
            marks.decide(part.places, wins)
        yield
    # Deleted rows at the end of a file were never passed to `decide`.
    marks.decided[:] = np.diff(marks.starts)


def _placed_rows(
    marks: Marks, files: SplitFiles, file: DataFile, number: int, rows_max: int
) -> Iterator[Slice]:
    """The rows of a file that are not deleted, at most `rows_max` in each slice."""
    start, end = marks.starts[number : number + 2].tolist()
    rows = marks.known[start:end]
    places: range | np.ndarray = range(start, end)
    mask = files.mask(file)
    if mask is not None:
        places = start + np.flatnonzero(mask.flags)
        rows = rows.filter(pl.Series(mask.array))
    # Keep the chunks as they were read; do not copy them into one.
    for part in files.slices_of(file, rows.to_arrow().to_batches(rows_max)):
        length = part.keys.length
        yield replace(part, places=places[:length])
        places = places[length:]


def _windows(runs: Sequence[deque[Slice]]) -> Iterator[list[Slice]]:
    """Windows over the runs: the rows of each run up to a common key.

    The common key is the smallest last key of the runs that have more slices.
    """
    while left := [run for run in runs if run]:
        lasts = [run[0].keys.at(run[0].keys.length - 1) for run in left if len(run) > 1]
        bound = min(lasts) if lasts else None
        window: list[Slice] = []
        for run in left:
            part = run.popleft()
            length = part.keys.length
            inside = length if bound is None else part.keys.count_up_to(bound)
            if inside < length:
                run.appendleft(part.cut(inside, length))
            if inside:
                window.append(part.cut(0, inside))
        yield window


# --- newer keys ----------------------------------------------------------------------------------
# Which rows of the oldest run of a section survive, decided while they are decoded.
#
# The newest row of a key wins. If every row of the oldest run is older than all other rows, a row
# of the oldest run survives unless a newer run holds its key. An array has one flag for each
# possible key between the first and the last key of the newer runs. The oldest run usually has most
# of the rows; with the flags, its keys need no separate read before its values.


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerKeys:
    """The keys that newer runs hold; `key` is the name of the key column.

    `lacking` has one flag for each key from `low` on: True if no newer run holds the key. One more
    flag at each end stands for all smaller and all larger keys. The methods are thread-safe.
    """

    key: str
    low: int
    lacking: np.ndarray
    _ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def lack(self, keys: pl.Series) -> pl.Series:
        """For each key (a number), whether no newer run holds it; True for a null.

        Raises a Polars error if the keys are not in ascending order.
        """
        # Polars may take a name for a pattern, so use an empty one.
        keys = keys.alias("")
        if keys.null_count():
            return self.lack(keys.fill_null(0)) | keys.is_null()
        numbers = keys.to_numpy()
        if (numbers[1:] < numbers[:-1]).any():
            raise pl.exceptions.ComputeError("keys are out of order")
        # A difference that overflows belongs to a key outside the flags; `clip` handles it.
        places = numbers - np.int64(self.low - 1)
        return pl.Series(self.lacking.take(places, mode="clip"))

    def kept(self, rows: pl.LazyFrame, start: int) -> pl.DataFrame:
        """The rows of the oldest run, from row `start` on, whose keys no newer run holds.

        Raises a Polars error if a key is null or out of order.
        """
        # NOTE: the filter is pushed down to the Parquet reader, which may call it with values that
        # belong to no row.
        key = by_name(self.key).to_physical()
        kept = rows.filter(key.map_batches(self.lack, pl.Boolean, is_elementwise=True))
        with called_back():
            frame = kept.collect()
        if frame[self.key].null_count() or not self.are_in_order(start, frame[self.key]):
            raise pl.exceptions.ComputeError("keys are null, or out of order")
        return frame

    def are_in_order(self, start: int, keys: pl.Series) -> bool:
        """Whether the keys of surviving rows ascend, also across the chunks checked before.

        `start` is the position of the chunk's first row in the oldest run.
        """
        # The keys are chunked; check each chunk without copying them into one.
        pieces = [_numbers(piece) for piece in keys.get_chunks() if len(piece)]
        ends = [(int(piece[0]), int(piece[-1])) for piece in pieces]
        if not ends:
            return True
        rise = all((piece[1:] >= piece[:-1]).all() for piece in pieces)
        with self._lock:
            starts = sorted(self._ends)
            at = bisect_left(starts, start)
            before, after = starts[:at][-1:], starts[at:][:1]
            around = [
                *(self._ends[each] for each in before),
                *ends,
                *(self._ends[each] for each in after),
            ]
            rise = rise and all(last <= first for (_, last), (first, _) in pairwise(around))
            if rise:
                # Record only the bounds of chunks that are in order.
                self._ends[start] = ends[0][0], ends[-1][1]
        return rise


def newer_keys(plan: ReadPlan, span: range, newer: pl.DataFrame) -> NewerKeys:
    """Compute the flags from the keys of the newer rows. All these keys must be within `span`."""
    (key,) = plan.merge.key
    numbers = _numbers(newer[key])
    lacking = np.ones(1 + len(span) + 1, bool)
    lacking[numbers - np.int64(span.start - 1)] = False
    return NewerKeys(key=key, low=span.start, lacking=lacking)


def are_within(span: range, keys: pl.Series) -> bool:
    """Whether these keys are within the span that the manifest states."""
    numbers = _numbers(keys)
    return bool(numbers.min() >= span.start and numbers.max() < span.stop)


def _numbers(keys: pl.Series) -> np.ndarray:
    return keys.alias("").to_physical().cast(pl.Int64).to_numpy()


# --- survivors -----------------------------------------------------------------------------------

HELD_TIMES = 2
"""Copies of the deciding columns in memory while they are read or encoded for comparison."""
_WINDOW_ROWS = 1 << 20
_KNOWN: Cache[tuple[object, ...], RowMasks] = Cache(1)


def known_survivors(split: Split, plan: ReadPlan, store: Store) -> RowMasks | None:
    """The bits of the surviving rows of a section, if an earlier read has computed them."""
    identity = _identity(split, plan, store)
    return None if identity is None else _KNOWN.get(identity)


def forget() -> None:
    """Drop all cached bitmaps, for example when memory is needed."""
    _KNOWN.give_back(_KNOWN.size_bytes)


def survivors(split: Split, plan: ReadPlan, store: Store, budget: Budget) -> RowMasks | None:
    """The bits of the surviving rows of a section; None if another reader must merge it.

    The plan has no predicate, so the bits cover all rows. Raises CorruptTable for a file that
    is missing, has a wrong checksum, or whose keys are out of order.
    """
    assert plan.predicate is None, "the bits of a section are those of all its rows"
    if not decided_by_keys(plan):
        return None
    # Compute the identity before the first read: if a file changes later, the identity differs.
    identity = _identity(split, plan, store)
    if identity is None:
        return None
    known = _KNOWN.get(identity)
    if known is not None:
        return known
    fields = _deciding_fields(split, plan)
    parts = polars_parts(split, plan, store, fields, texts_of(fields))
    if parts is None:
        return None
    held_bytes = bytes_to_mark(parts, fields, plan.merge.key)
    if held_bytes > keys_bytes_max(budget):
        return None
    with budget.acquire_up_to(HELD_TIMES * held_bytes, HELD_TIMES * held_bytes):
        paths = list(dict.fromkeys(part.path for part in parts))
        check_files(store, paths, [field.name for field in fields], plan.checks)
        merge = merge_of_keys(split, plan, store, budget, parts, fields)
        if merge is None:
            return None
        marks, windows = merge
        for _ in windows:
            pass
    found = _masks(split, marks)
    _KNOWN.put(identity, found, sum(len(mask.bits) for mask in found.values()))
    return found


def _deciding_fields(split: Split, plan: ReadPlan) -> tuple[Field, ...]:
    runs = [SortedRun(files=run) for run in split.runs]
    return merge_fields(runs, replace(plan, columns=()))


def merge_of_keys(
    split: Split,
    plan: ReadPlan,
    store: Store,
    budget: Budget,
    parts: Sequence[Part],
    fields: Sequence[Field],
) -> tuple[Marks, Iterator[None]] | None:
    """Marks for the rows of a section, and the merge of its keys, which sets them.

    Each step of the iterator merges one more window. `fields` are the columns of the parts that
    decide. None if Polars cannot read them.
    """
    known = _deciding_columns(parts, fields, budget)
    if known is None:
        return None
    marks = no_marks(split.files, known)
    window_rows = min(_WINDOW_ROWS, Share.WINDOW_ROWS.of(budget.size_bytes))
    return marks, _mark_rows(marks, SplitFiles(split, plan, store), window_rows)


def _deciding_columns(
    parts: Sequence[Part], fields: Sequence[Field], budget: Budget
) -> pl.DataFrame | None:
    """The deciding columns of the parts, as Polars decodes them.

    None if Polars cannot read them, if they do not fit the budget, or if a value is null that must
    not be.
    """
    schema = arrow_schema(fields)
    paths = list(dict.fromkeys(part.path for part in parts))
    with suppress(*FAILURES):
        rows = parquet_scan(schema, paths, schema.names, casts=False).collect()
        given = [field.name for field in fields if not field.nullable]
        # Strings may share bytes in Polars; their size in Arrow is known only now.
        small = bytes_in_arrow(rows) <= keys_bytes_max(budget)
        whole = rows.height == sum(part.group.row_count for part in parts)
        if small and whole and not any(rows[name].null_count() for name in given):
            return rows
    return None


def _masks(split: Split, marks: Marks) -> dict[str, RowMask]:
    ends = marks.starts[1:].tolist()
    return {
        file.name: RowMask.of(marks.rows[end - file.row_count : end])
        for file, end in zip(split.files, ends, strict=True)
    }


def _identity(split: Split, plan: ReadPlan, store: Store) -> tuple[object, ...] | None:
    """Everything that decides which rows of a section survive; None if files are not local."""
    stored = _stored(split, plan, store)
    if None in stored:
        return None
    by_commit = sorted(split.files, key=lambda file: split.commit_order.get(file.name, 0))
    return (
        plan.layout.root,
        split.partition_path,
        split.bucket,
        tuple(tuple((file.name, file.level) for file in run) for run in split.runs),
        tuple(file.name for file in by_commit),
        tuple(
            (file.name, index.name, where.offset)
            for file in split.files
            if file.name in split.vectors
            for index, where in [split.vectors[file.name]]
        ),
        plan.engine,
        plan.merge,
        plan.schema.id,
        plan.options.sequence_snapshot_ordering,
        stored,
    )


def _stored(split: Split, plan: ReadPlan, store: Store) -> tuple[object, ...]:
    """Values that change if a file of the section is replaced.

    None for a missing or remote file.
    """
    files = SplitFiles(split, plan, store)
    indexes = {index.name: index for index, _ in split.vectors.values()}
    paths = [
        *map(files.path, split.files),
        *(
            plan.layout.live_index_file(split.partition_path, split.bucket, index)
            for index in indexes.values()
        ),
    ]
    return tuple(identity_of(store, path) for path in paths)


# --- engine files --------------------------------------------------------------------------------
# The files that an engine scans, with masks of the rows that deletion vectors or a merge leave.

NOTHING: RowMasks = MappingProxyType({})


def engine_files(
    splits: Sequence[Split],
    paths: Sequence[str],
    plan: ReadPlan,
    store: Store,
    surviving: RowMasks = NOTHING,
) -> list[EngineFile]:
    """The files of the splits, at these local paths, each with a mask of the rows to return.

    `surviving` has the masks of the files of merged sections. A file of a merged section without a
    surviving row is left out.
    """
    masks = {**vector_masks((split for split in splits if split.raw), plan, store), **surviving}
    files = [file for split in splits for file in split.files]
    found = [
        EngineFile(path=path, row_count=file.row_count, mask=masks.get(file.name))
        for path, file in zip(paths, files, strict=True)
    ]
    if not surviving:
        return found
    return [
        replace(file, mask=None) if file.returned_count == file.row_count else file
        for file in found
        if file.returned_count
    ]
