"""The decision of how rows are read, from values alone: a `ReadPath` and the reason for it.

`decide` touches no storage. Its caller looks at the files (`survivors.py`) and carries the decision
out (`polars_rows.py`, `read.py`); `explain()` shows it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
from polars.selectors import by_name

from lakecore.format.binary_row import decode_rows
from lakecore.frames.polars_source import FOOTERS_MAX
from lakecore.lsm.levels import SortedRun
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import ChoosesRows
from lakecore.model.rows import KIND_FIELD, SEQUENCE_FIELD, TRACKING_FIELDS
from lakecore.model.types import TIMESTAMPS, Atomic, arrow_type, timestamp_unit, with_nullable
from lakecore.plan.predicate import condition_on
from lakecore.plan.splits import may_hold_deletions
from lakecore.table.sections.large_rows import are_large
from lakecore.table.sections.windows import called_back, merge_fields, section_windows
from lakecore.table.splits.read_path import (
    CODECS,
    Decision,
    EachSplit,
    EngineScan,
    FileScan,
    Flagged,
    JoinedFiles,
    LateMaterialisation,
    PolarsChunks,
    Reader,
    Reason,
    bytes_to_mark,
    parts_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakecore.memory import Budget
    from lakecore.merge.spec import Slice
    from lakecore.model.files import DataFile, Split
    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field
    from lakecore.table.splits.read_path import Examined, FileFacts, Part
    from lakecore.table.stored_rows.read_plan import ReadPlan
    from lakecore.table.stored_rows.split_files import SplitFiles


# --- marks ---------------------------------------------------------------------------------------
# Late materialisation: keys decide which rows of a section survive; only their values are read.
#
# If a merge returns rows unchanged, the key, sequence number and kind of the rows determine which
# rows survive. These columns of all rows are held in memory. They are merged window by window, and
# the surviving rows are marked.


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


def decided_by_keys(plan: ReadPlan) -> bool:
    """Whether key, sequence number and kind alone determine which rows survive."""
    return isinstance(MERGE_FUNCTIONS[plan.engine], ChoosesRows)


def no_marks(files: Sequence[DataFile], known: pl.DataFrame | None = None) -> Marks:
    """Marks in which no row is marked and no flag is final."""
    starts = np.cumsum([0, *(file.row_count for file in files)])
    return Marks(
        starts=starts,
        rows=np.zeros(int(starts[-1]), bool),
        decided=np.zeros(len(files), np.int64),
        known=pl.DataFrame() if known is None else known,
    )


def mark_rows(marks: Marks, files: SplitFiles, window_rows: int) -> Iterator[None]:
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

    That key is the smallest last key of the runs that have more slices.
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

_SPAN_MAX = 8
"""The most flags for each stored row: then the flags take as many bytes as the keys."""
_LEAST = -(1 << 63)


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


def flagged_keys(split: Split, plan: ReadPlan) -> range | None:
    """The range of keys that newer runs may hold, if flags can decide for the oldest run.

    None if they cannot decide, or if the range is too large.
    """
    oldest, *newer = (SortedRun(files=run) for run in split.runs)
    engine, spec = MERGE_FUNCTIONS[plan.engine], plan.merge
    if not newer or not (isinstance(engine, ChoosesRows) and engine.newest_wins):
        return None
    if spec.sequence or spec.ignored or split.vectors or len(spec.key) > 1:
        return None
    files = [file for run in newer for file in run.files]
    if any(may_hold_deletions(file) for file in oldest.files):
        return None
    if oldest.sequence_max >= min(file.sequence_min for file in files):
        return None
    # With `complete_levels`, the lowest level wins, whatever the sequence numbers are.
    if min(file.level for file in oldest.files) <= max(file.level for file in files):
        return None
    kind = arrow_type(plan.schema.field(spec.key[0]).type)
    if not (pa.types.is_integer(kind) or pa.types.is_date(kind)):
        return None
    bounds = decode_rows(
        [bound for file in files for bound in (file.key_min, file.key_max)], plan.schema.key_fields
    )
    (numbers,) = order_columns(bounds.columns).columns
    low, high = int(np.min(numbers)), int(np.max(numbers))
    small = high - low < _SPAN_MAX * split.row_count
    return range(low, high + 1) if small and low > _LEAST else None


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


def columns_and_key(plan: ReadPlan) -> list[str]:
    """The columns to read from the oldest run: the plan's columns, and the key."""
    return list(dict.fromkeys((*plan.columns, *plan.merge.key)))


def _numbers(keys: pl.Series) -> np.ndarray:
    return keys.alias("").to_physical().cast(pl.Int64).to_numpy()


# --- decide --------------------------------------------------------------------------------------

_ROWS_MIN = 65_536
"""For fewer rows, calling Polars costs more than it saves."""
_KEYS_SHARE = 8
"""The deciding columns and marks of a section take at most the budget divided by this."""
_CHUNK_SHARE = 8
"""A chunk takes at most the budget divided by this: decoded, filtered, and as Arrow batches."""
_BITS_SHARE = 64
"""The bits of all rows of an engine scan take at most the budget divided by this."""
_BYTE = 8
_NUMBERED_MAX = (1 << 31) - 1
"""The most rows of a scan by Polars or DuckDB: both number rows by 32-bit integers."""
_SCANNERS = (Reader.ENGINE, Reader.MARKING)
_CHUNK_PARTS_MIN = 8
"""A chunk has room for at least this many row groups, because Polars reads several at once."""


def decide(
    splits: Sequence[Split],
    plan: ReadPlan,
    budget: Budget,
    by: Reader,
    examined: Examined | None = None,
) -> Decision | None:
    """Decide how splits are read: all splits of a read if an engine may scan them, else one split.

    None if the decision depends on storage, which is not `examined` yet. Uses only the size of the
    budget.
    """
    refusal = _refusal(splits, plan, budget, by)
    if refusal is None and examined is None:
        return None
    found = refusal if examined is None else refusal or _path(splits, plan, budget, by, examined)
    match found:
        case LateMaterialisation(flagged=None):
            return Decision(path=found, reason=Reason.KEYS_DECIDE)
        case LateMaterialisation():
            return Decision(path=found, reason=Reason.NEWER_KEYS_DECIDE)
        case EngineScan() | PolarsChunks():
            return Decision(path=found, reason=Reason.NO_MERGE)
    assert found is not None
    if by in _SCANNERS:
        return Decision(path=EachSplit(), reason=found)
    (split,) = splits
    if split.raw:
        return Decision(path=FileScan(), reason=found)
    if not plan.schema.primary_keys:
        return Decision(path=JoinedFiles(), reason=found)
    return Decision(path=section_windows(split, plan, budget), reason=found)


@dataclass(frozen=True, slots=True)
class PolarsColumns:
    """The columns that Polars reads: `wanted` for the result, `deciding` which rows survive.

    `span` is the key range of the newer runs, if a flag for each key decides.
    """

    wanted: tuple[Field, ...]
    deciding: tuple[Field, ...]
    span: range | None

    @property
    def all(self) -> tuple[Field, ...]:
        """All columns that Polars reads."""
        return (*self.wanted, *self.deciding)


def polars_columns(split: Split, plan: ReadPlan) -> PolarsColumns:
    """The columns that Polars reads from a split; from a raw split, only the plan's columns."""
    schema = plan.schema
    if split.raw:
        return PolarsColumns(tuple(map(schema.field, plan.columns)), (), None)
    span = flagged_keys(split, plan)
    runs = [SortedRun(files=run) for run in split.runs[0 if span is None else 1 :]]
    names = plan.columns if span is None else columns_and_key(plan)
    deciding = merge_fields(runs, replace(plan, columns=()))
    return PolarsColumns(tuple(map(schema.field, names)), deciding, span)


def chunk_bytes(budget: Budget) -> int:
    """The most bytes that the row groups of a chunk take."""
    return budget.size_bytes // _CHUNK_SHARE


def file_refusal(
    splits: Sequence[Split], fields: Sequence[Field], schemas: Mapping[int, TableSchema]
) -> Reason | None:
    """Why engines cannot read these columns, judged by metadata; None if it shows no reason."""
    files = [file for split in splits for file in split.files]
    if any(file.format != "parquet" for file in files):
        return Reason.FORMAT
    names = {field.name for field in fields}
    if any(not names.issubset(file.write_columns or names) for file in files):
        return Reason.PARTIAL_FILES
    # Files of several schemas have different columns, and engines match columns by position.
    stored = [schemas[schema_id] for schema_id in {file.schema_id for file in files}]
    if len(stored) > 1:
        return Reason.SCHEMAS
    for schema in stored:
        if not all(_is_unchanged(field, schema) for field in fields):
            return Reason.COLUMN_CHANGED
    if files and not all(_is_alike(field) for field in fields):
        return Reason.COLUMN_TYPE
    # A file without a file source is from an old Java version, which declared map keys nullable in
    # Parquet. Engines refuse such a file.
    old = any(file.file_source is None for file in files)
    if old and not all(isinstance(each.type, Atomic) for s in stored for each in s.fields):
        return Reason.OLD_FILES
    return None


def paths_of(
    splits: Sequence[Split], schemas: Mapping[int, TableSchema], files: Sequence[FileFacts]
) -> tuple[str, ...] | Reason:
    """The local paths of the files, or why engines cannot read them."""
    if any(facts.path is None for facts in files):
        return Reason.NOT_LOCAL
    ids = {file.schema_id for split in splits for file in split.files}
    names = {name for schema_id in ids for name in schemas[schema_id].names}
    # Files that were migrated from Hive may lack columns.
    if not all(facts.columns is None or names <= facts.columns for facts in files):
        return Reason.MISSING_COLUMNS
    return tuple(facts.path for facts in files if facts.path is not None)


def parts_or_reason(
    split: Split, plan: ReadPlan, fields: Sequence[Field], files: Sequence[FileFacts]
) -> tuple[Part, ...] | Reason:
    """The row groups of a split with the size of these columns, or why Polars cannot read them."""
    paths = paths_of([split], plan.schemas, files)
    if isinstance(paths, Reason):
        return paths
    parts: list[Part] = []
    for file, facts in zip(split.files, files, strict=True):
        if sum(group.row_count for group in facts.groups) != file.row_count:
            return Reason.ROW_COUNT
        if not all(group.codecs <= CODECS for group in facts.groups):
            return Reason.CODEC
        parts += parts_of(file, facts, fields)
    return tuple(parts)


def _refusal(splits: Sequence[Split], plan: ReadPlan, budget: Budget, by: Reader) -> Reason | None:
    """Why no engine can read the splits, judged by metadata; None if metadata shows no reason."""
    if by is Reader.OWN:
        return Reason.OWN_READER
    if any(plan.schema.field(name) in TRACKING_FIELDS for name in plan.columns):
        return Reason.SYSTEM_COLUMNS
    if plan.followed:
        return Reason.REFERENCES
    if by in _SCANNERS:
        if not all(split.raw for split in splits) and (reason := _merge_refusal(plan, by)):
            return reason
        if not _bits_fit(splits, budget):
            return Reason.VECTORS
        if any(split.selected for split in splits):
            return Reason.INDEXED
        fields = [plan.schema.field(name) for name in plan.columns]
        return file_refusal(splits, fields, plan.schemas)
    (split,) = splits
    if not split.raw and not plan.schema.primary_keys:
        return Reason.COLUMN_FILES
    # Row-group pruning may leave few row groups; then lakecore's own reader is faster.
    pruning = plan.schema.names if split.raw else plan.merge.key
    refusals: tuple[tuple[Reason, Callable[[], bool]], ...] = (
        (Reason.INDEXED, lambda: bool(split.selected)),
        (Reason.FEW_ROWS, lambda: split.row_count < _ROWS_MIN),
        (Reason.SYSTEM_COLUMNS, lambda: plan.system_columns),
        (Reason.LARGE_ROWS, lambda: are_large(split.files, budget)),
        (Reason.COLUMNS, lambda: not 0 < len(set(plan.columns)) == len(plan.columns)),
        (Reason.CONDITION, lambda: condition_on(plan.predicate, pruning) is not None),
        (Reason.FOLDS, lambda: not split.raw and not decided_by_keys(plan)),
    )
    for reason, applies in refusals:
        if applies():
            return reason
    return file_refusal([split], stored_only(polars_columns(split, plan).all), plan.schemas)


def _merge_refusal(plan: ReadPlan, by: Reader) -> Reason | None:
    """Why an engine cannot scan files that must be merged.

    None if bitmaps of rows make it possible.
    """
    if by is Reader.ENGINE:
        return Reason.MERGED
    if not plan.schema.primary_keys:
        return Reason.COLUMN_FILES
    return None if decided_by_keys(plan) else Reason.FOLDS


def _bits_fit(splits: Sequence[Split], budget: Budget) -> bool:
    """Whether the bitmaps of a scan fit the budget.

    Files with deletion vectors and files to merge need a bitmap, with one bit for each row.
    """
    files = [
        file
        for split in splits
        for file in split.files
        if not split.raw or file.name in split.vectors
    ]
    rows = sum(file.row_count for file in files)
    bytes_max = budget.size_bytes // _BITS_SHARE
    return len(files) <= FOOTERS_MAX and rows <= min(_BYTE * bytes_max, _NUMBERED_MAX)


def stored_only(fields: Sequence[Field]) -> list[Field]:
    """The columns, each once, without the sequence number and the row kind."""
    return [each for each in dict.fromkeys(fields) if each not in (SEQUENCE_FIELD, KIND_FIELD)]


def _path(
    splits: Sequence[Split], plan: ReadPlan, budget: Budget, by: Reader, examined: Examined
) -> EngineScan | PolarsChunks | LateMaterialisation | Reason:
    """How an engine reads the splits, or why it cannot. Metadata alone did not rule it out."""
    if by in _SCANNERS:
        paths = paths_of(splits, plan.schemas, examined.files)
        if isinstance(paths, Reason):
            return paths
        return Reason.FEW_ROW_GROUPS if examined.few_row_groups else EngineScan(paths=paths)
    (split,) = splits
    columns = polars_columns(split, plan)
    parts = parts_or_reason(split, plan, columns.wanted, examined.files)
    if isinstance(parts, Reason):
        return parts
    if max(part.size_bytes for part in parts) * _CHUNK_PARTS_MIN > chunk_bytes(budget):
        return Reason.LARGE_ROW_GROUPS
    return PolarsChunks(parts=parts) if split.raw else _late(split, plan, budget, columns, parts)


def _late(
    split: Split, plan: ReadPlan, budget: Budget, columns: PolarsColumns, parts: tuple[Part, ...]
) -> LateMaterialisation | Reason:
    flagged, held_bytes = None, 0
    if columns.span is not None:
        oldest = {file.name for file in split.runs[0]}
        of_oldest = tuple(part for part in parts if part.file.name in oldest)
        flagged, held_bytes = Flagged(parts=of_oldest, span=columns.span), len(columns.span)
        parts = parts[len(of_oldest) :]
    held_bytes += bytes_to_mark(parts, columns.deciding, plan.merge.key)
    if held_bytes > keys_bytes_max(budget):
        return Reason.LARGE_KEYS
    return LateMaterialisation(
        parts=parts, deciding=columns.deciding, flagged=flagged, held_bytes=held_bytes
    )


def keys_bytes_max(budget: Budget) -> int:
    """The most bytes that the columns deciding a merge may take for a section."""
    return budget.size_bytes // _KEYS_SHARE


def _is_unchanged(field: Field, schema: TableSchema) -> bool:
    """Whether files of this schema hold the column under the same name and with the same type."""
    twin = schema.by_id.get(field.id)
    return (
        twin is not None
        and twin.name == field.name
        and with_nullable(twin.type, nullable=True) == with_nullable(field.type, nullable=True)
    )


def _is_alike(field: Field) -> bool:
    """Whether engines read all values of such a column as lakecore does.

    False for nanoseconds: engines read values outside the nanosecond range as other values
    (`io/files/parquet_read.py`).
    """
    kind = field.type
    return isinstance(kind, Atomic) and not (
        kind.root in TIMESTAMPS and timestamp_unit(kind.precision or 0) == "ns"
    )
