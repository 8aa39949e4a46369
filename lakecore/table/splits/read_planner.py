"""The decision of how rows are read: a `ReadPath` and the reason for it.

- If no file needs a merge, an engine scans the files: Polars, DuckDB or Arrow.
- Otherwise each split has its own path. Polars decodes the row groups of large splits: all rows of
  a raw split; from a section, only the values of rows that survive a merge of the keys (late
  materialisation, `survivors.py`).
- lakecore's own reader does the rest: scans a raw split, and merges a section in windows.

`decide` touches no storage: if metadata alone does not decide, it gets the facts that `examine`
reads. Other modules carry the decision out (`polars_rows.py`, `read.py`); `explain()` shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.format.binary_row import decode_rows
from lakecore.frames.engine_scan import parquet_scan
from lakecore.frames.polars_source import FOOTERS_MAX
from lakecore.io.files.data_files import file_columns, row_group_bounds
from lakecore.lsm.levels import SortedRun
from lakecore.memory import Budget, Share
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.keys import order_columns
from lakecore.merge.spec import ChoosesRows
from lakecore.model.rows import KIND_FIELD, SEQUENCE_FIELD, TRACKING_FIELDS
from lakecore.model.types import (
    TIMESTAMPS,
    Atomic,
    Field,
    arrow_type,
    timestamp_unit,
    with_nullable,
)
from lakecore.options import LINE_FORMATS
from lakecore.plan.predicate import condition_on
from lakecore.plan.splits import may_hold_deletions
from lakecore.table.file_reader.split_files import check_size
from lakecore.table.sections.windows import Windows, merge_fields, section_windows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.io.files.file_format import RowGroup
    from lakecore.io.stores.store import Store
    from lakecore.model.files import DataFile, Split
    from lakecore.model.schema import TableSchema
    from lakecore.table.file_reader.read_plan import ReadPlan


# --- paths ---------------------------------------------------------------------------------------
# The ways of reading rows, and the reasons for them.


class Reader(Enum):
    """The readers that a read may use."""

    ENGINE = "an engine may scan all files of the read"
    MARKING = "an engine may scan all files; bits state which rows of merged files survive"
    POLARS = "Polars may decode row groups of the split"
    OWN = "only lakecore's own reader"


class Reason(Enum):
    """Why rows are read by a path. The values are sentences for people."""

    NO_MERGE = "no merge is needed"
    KEYS_DECIDE = "keys, sequence numbers and kinds decide which rows survive"
    NEWER_KEYS_DECIDE = "keys of newer runs decide which rows of the oldest run survive"
    MERGED = "some files must be merged"
    VECTORS = "many rows are in files with deletion vectors"
    OWN_READER = "batches of lakecore's own reader are wanted"
    FEW_ROWS = "the split has few rows"
    SYSTEM_COLUMNS = "sequence numbers, kinds or row ids are wanted"
    REFERENCES = "rows hold references to BLOB values, which must be followed"
    COLUMN_FILES = "several files hold columns of the same rows"
    LARGE_ROWS = "rows are large for the memory budget"
    COLUMNS = "no column is wanted, or one twice"
    CONDITION = "the condition may leave few row groups"
    FOLDS = "the merge engine computes values"
    FORMAT = "a file is not Parquet"
    PARTIAL_FILES = "a file holds only some columns"
    SCHEMAS = "the files have several schemas"
    COLUMN_CHANGED = "a column was added, renamed or changed after the files were written"
    COLUMN_TYPE = "engines read a nested or nanosecond column differently"
    OLD_FILES = "files of an old Paimon version hold nested columns"
    NOT_LOCAL = "a file is not on a local disk"
    MISSING_COLUMNS = "a migrated file lacks columns"
    ROW_COUNT = "the footer of a file contradicts the manifest"
    INDEXED = "file indexes leave few rows"
    CODEC = "Polars does not detect damage in this compression"
    LARGE_ROW_GROUPS = "row groups are large for the memory budget"
    LARGE_KEYS = "the keys of the section are large for the memory budget"
    FEW_ROW_GROUPS = "the condition leaves few row groups of large files"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineScan:
    """An engine scans these local files with its own reader, and leaves out deleted rows."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EachSplit:
    """An engine cannot scan the files of the read: each split has its own path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolarsChunks:
    """Polars decodes all these row groups of a raw split, a few at a time."""

    parts: tuple[Part, ...]

    @property
    def all_parts(self) -> tuple[Part, ...]:
        return self.parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Flagged:
    """Parts of the oldest run, whose rows survive unless a newer run holds their key.

    A flag for each key in `span` says whether a newer run holds it.
    """

    parts: tuple[Part, ...]
    span: range


@dataclass(frozen=True, slots=True, kw_only=True)
class LateMaterialisation:
    """First the `deciding` columns of the parts are merged, then Polars decodes the surviving rows.

    With `flagged`, flags of keys decide for the oldest run, and `parts` does not contain it.
    `held_bytes` is the memory of the deciding columns and all flags.
    """

    parts: tuple[Part, ...]
    deciding: tuple[Field, ...]
    flagged: Flagged | None = None
    held_bytes: int

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """All row groups; the row groups of the oldest run come first."""
        return self.parts if self.flagged is None else (*self.flagged.parts, *self.parts)


@dataclass(frozen=True, slots=True)
class FileScan:
    """lakecore's own reader scans the files of a raw split."""


@dataclass(frozen=True, slots=True)
class JoinedFiles:
    """lakecore's own reader joins files that hold columns of the same rows."""


ReadPath: TypeAlias = (
    "EngineScan | EachSplit | PolarsChunks | LateMaterialisation | FileScan | JoinedFiles | Windows"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How a read is done (a read path), and the reason for this choice."""

    path: ReadPath
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What was read from storage: facts of each file, in order; and whether few row groups match.

    If a file is not on a local disk, the facts of the other files may be missing.
    """

    files: tuple[FileFacts, ...]
    few_row_groups: bool = False


# --- parts ---------------------------------------------------------------------------------------
# What is known about data files: facts from storage, row groups for Polars, size in memory.

CODECS = frozenset({"ZSTD", "UNCOMPRESSED"})
"""The codecs that Polars may decode: with other codecs, Polars detects less damage than Arrow."""
_BYTE = 8
_CODE_BYTES = 8
"""Bytes of the number that stands for a value in a comparison."""
_VIEW_BYTES = 16
"""Bytes of the view of a decoded string; several views may share the bytes of one string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What storage says about a data file.

    - `path`: the local path (None: the file is not on a local disk);
    - `columns`: the names of the columns (None: all columns of the file's schema);
    - `groups`: the row groups; empty if they were not examined.
    """

    path: str | None
    columns: frozenset[str] | None = None
    groups: tuple[RowGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A row group of a file at a local path."""

    file: DataFile
    path: str
    group: RowGroup
    size_bytes: int


def parts_of(file: DataFile, facts: FileFacts, fields: Sequence[Field]) -> list[Part]:
    """The row groups of a file, with the size of these fields in bytes."""
    assert facts.path is not None
    fixed = _width([field for field in fields if _is_fixed(field)])
    views = _width(fields) - fixed
    return [
        Part(file=file, path=facts.path, group=group, size_bytes=_size_of(group, fixed, views))
        for group in facts.groups
    ]


def bytes_to_mark(parts: Sequence[Part], fields: Sequence[Field], key: Sequence[str]) -> int:
    """The bytes of a merge of keys: these columns of all rows, flags, and the encoded `key`.

    The size of string columns comes from each part.
    """
    copied = [field for field in fields if field.name in key and not _is_wide(field)]
    row_bytes = 1 + _width(fields) + _CODE_BYTES * len(copied)
    groups, texts = [part.group for part in parts], texts_of(fields)
    return sum(
        row_bytes * group.row_count + sum(group.column_bytes[name] for name in texts)
        for group in groups
    )


def texts_of(fields: Sequence[Field]) -> list[str]:
    """The columns whose values have variable width."""
    return [field.name for field in fields if not _is_fixed(field)]


def scan_parts(
    parts: Sequence[Part], schema: pa.Schema, names: list[str], *, by_row_groups: bool = False
) -> pl.LazyFrame:
    """The columns `names` of all rows of the parts; parts of one file must be adjacent."""
    scans = []
    # In Polars, one scan of several files takes up to twice the time of one scan for each file.
    for path, own in groupby(parts, lambda part: part.path):
        groups = [part.group for part in own]
        count = sum(group.row_count for group in groups)
        rows = parquet_scan(schema, [path], names, casts=False, by_row_groups=by_row_groups)
        scans.append(rows.slice(groups[0].first_row, count))
    return pl.concat(scans)


def _size_of(group: RowGroup, fixed: int, views: int) -> int:
    """The most bytes that Polars needs for columns of these widths in a row group."""
    return max(group.decoded_bytes, fixed * group.row_count) + views * group.row_count


def _is_fixed(field: Field) -> bool:
    return bool(pa.types.is_primitive(arrow_type(field.type)))


def _is_wide(field: Field) -> bool:
    """Whether the values of a column are compared directly, without encoding."""
    return _is_fixed(field) and arrow_type(field.type).bit_width == _BYTE * _CODE_BYTES


def _width(fields: Sequence[Field]) -> int:
    """The bytes of these columns in one row, without the bytes of strings, which rows may share."""
    kinds = [arrow_type(field.type) for field in fields if _is_fixed(field)]
    fixed: int = sum(max(kind.bit_width // _BYTE, 1) for kind in kinds)
    return fixed + _VIEW_BYTES * (len(fields) - len(kinds))


# --- decide --------------------------------------------------------------------------------------

_ROWS_MIN = 65_536
"""For fewer rows, calling Polars costs more than it saves."""
_NUMBERED_MAX = (1 << 31) - 1
"""The most rows of a scan by Polars or DuckDB: both number rows by 32-bit integers."""
_SCANNERS = (Reader.ENGINE, Reader.MARKING)
_CHUNK_PARTS_MIN = 8
"""A chunk has room for at least this many row groups, because Polars reads several at once."""
_SPAN_MAX = 8
"""The most flags for each stored row: then the flags take as many bytes as the keys."""
_LEAST = -(1 << 63)


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
    return Share.CHUNK.of(budget.size_bytes)


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


def _paths_of(
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


def _parts_or_reason(
    split: Split, plan: ReadPlan, fields: Sequence[Field], files: Sequence[FileFacts]
) -> tuple[Part, ...] | Reason:
    """The row groups of a split with the size of these columns, or why Polars cannot read them."""
    paths = _paths_of([split], plan.schemas, files)
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
        (Reason.LARGE_ROWS, lambda: budget.is_large(split.row_bytes)),
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
    bytes_max = Share.SCAN_MASKS.of(budget.size_bytes)
    return len(files) <= FOOTERS_MAX and rows <= min(_BYTE * bytes_max, _NUMBERED_MAX)


def stored_only(fields: Sequence[Field]) -> list[Field]:
    """The columns, each once, without the sequence number and the row kind."""
    return [each for each in dict.fromkeys(fields) if each not in (SEQUENCE_FIELD, KIND_FIELD)]


def _path(
    splits: Sequence[Split], plan: ReadPlan, budget: Budget, by: Reader, examined: Examined
) -> EngineScan | PolarsChunks | LateMaterialisation | Reason:
    """How an engine reads the splits, or why it cannot. Metadata alone did not rule it out."""
    if by in _SCANNERS:
        paths = _paths_of(splits, plan.schemas, examined.files)
        if isinstance(paths, Reason):
            return paths
        return Reason.FEW_ROW_GROUPS if examined.few_row_groups else EngineScan(paths=paths)
    (split,) = splits
    columns = polars_columns(split, plan)
    parts = _parts_or_reason(split, plan, columns.wanted, examined.files)
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
    return Share.DECIDING.of(budget.size_bytes)


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
        kind.root in TIMESTAMPS and timestamp_unit(kind.digits) == "ns"
    )


def decided_by_keys(plan: ReadPlan) -> bool:
    """Whether key, sequence number and kind alone determine which rows survive."""
    return isinstance(MERGE_FUNCTIONS[plan.engine], ChoosesRows)


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


def columns_and_key(plan: ReadPlan) -> list[str]:
    """The columns to read from the oldest run: the plan's columns, and the key."""
    return list(dict.fromkeys((*plan.columns, *plan.merge.key)))


# --- examine -------------------------------------------------------------------------------------
# Reads the facts that `decide` needs: sizes, columns and row groups of local files.


def decide_split(split: Split, plan: ReadPlan, store: Store, budget: Budget) -> Decision:
    """How a split is read: by Polars if that is possible and faster.

    Raises CorruptTable if the size of a file differs from the manifest's, or a footer is damaged.
    """
    decision = decide([split], plan, budget, Reader.POLARS)
    if decision is None:
        sized = texts_of(polars_columns(split, plan).all)
        files = examine([split], plan, store, sized)
        decision = decide([split], plan, budget, Reader.POLARS, Examined(files=files))
    assert decision is not None
    return decision


def polars_parts(
    split: Split, plan: ReadPlan, store: Store, fields: Sequence[Field], sized: Sequence[str] = ()
) -> tuple[Part, ...] | None:
    """The row groups of a split with the size of these columns; None if Polars cannot read them.

    `sized`: the columns whose size each row group states.
    """
    if file_refusal([split], stored_only(fields), plan.schemas) is not None:
        return None
    parts = _parts_or_reason(split, plan, fields, examine([split], plan, store, sized))
    return parts if isinstance(parts, tuple) else None


def examine(
    splits: Sequence[Split], plan: ReadPlan, store: Store, sized: Sequence[str] | None
) -> tuple[FileFacts, ...]:
    """The facts of the files, in order. If one file is not local, the facts of that file alone.

    `sized`: the columns whose size each row group states; None: row groups are not examined.
    """
    paths: list[tuple[DataFile, str, str]] = []
    for split in splits:
        for file in split.files:
            path = plan.layout.data_file(split.partition_path, split.bucket, file)
            local = store.local_path(path)
            if local is None:
                return (FileFacts(path=None),)
            # The engine's reader does not know the manifest, so check the size first.
            check_size(store, path, file)
            paths.append((file, path, local))
    return tuple(
        FileFacts(
            path=local,
            # Files that were migrated from Hive have no sequence numbers and may lack columns.
            columns=None if named else frozenset(file_columns(store, path)),
            groups=() if sized is None else tuple(row_group_bounds(store, path, sized) or ()),
        )
        for file, path, local in paths
        for named in (file.sequence_max or file.format in LINE_FORMATS,)
    )
