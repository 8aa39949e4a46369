"""The decision of how rows are read, from values alone: a `ReadPath` and the reason for it.

`decide` touches no storage. Its caller looks at the files (`examine.py`) and carries the decision
out (`polars_rows.py`, `read.py`); `explain()` shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.frames.polars_source import FOOTERS_MAX
from lakecore.lsm.levels import SortedRun
from lakecore.model.rows import KIND_FIELD, SEQUENCE_FIELD, TRACKING_FIELDS
from lakecore.model.types import TIMESTAMPS, Atomic, timestamp_unit, with_nullable
from lakecore.plan.predicate import condition_on
from lakecore.table.sections.large_rows import are_large
from lakecore.table.sections.windows_plan import merge_fields, section_windows
from lakecore.table.splits.marks import decided_by_keys
from lakecore.table.splits.newer_keys import columns_and_key, flagged_keys
from lakecore.table.splits.parts import CODECS, bytes_to_mark, parts_of
from lakecore.table.splits.read_path import (
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
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.memory import Budget
    from lakecore.model.files import Split
    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field
    from lakecore.table.splits.parts import FileFacts, Part
    from lakecore.table.splits.read_path import Examined
    from lakecore.table.stored_rows.read_plan import ReadPlan

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

    `span` is the key range of the newer runs, if a flag for each key decides (`newer_keys.py`).
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
    (`io/files/parquet_times.py`).
    """
    kind = field.type
    return isinstance(kind, Atomic) and not (
        kind.root in TIMESTAMPS and timestamp_unit(kind.precision or 0) == "ns"
    )
