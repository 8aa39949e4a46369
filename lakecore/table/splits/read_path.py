"""The ways of reading rows, and the reasons for them. `decide.py` chooses among these values.

- If no file needs a merge, an engine scans the files: Polars, DuckDB or Arrow.
- Otherwise each split has its own path. Polars decodes the row groups of large splits: all rows of
  a raw split; from a section, only the values of rows that survive a merge of the keys (late
  materialisation, `decide.py`).
- lakecore's own reader does the rest. It scans a raw split, and merges a section in windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import polars as pl
import pyarrow as pa

from lakecore.frames.engine_scan import parquet_scan
from lakecore.model.types import arrow_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.io.files.file_format import RowGroup
    from lakecore.model.files import DataFile
    from lakecore.model.types import Field
    from lakecore.table.sections.windows import Windows


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
        """The row groups."""
        return self.parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Flagged:
    """Parts of the oldest run. Their rows survive unless a newer run holds their key.

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
"""The codecs that Polars may decode: with others, it detects less damage than Arrow."""
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
    """The bytes of a merge of keys (`decide.py`): these columns of all rows, flags, encoded `key`.

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
