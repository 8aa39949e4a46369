"""The ways of reading rows, and the reasons for them. `decide.py` chooses among these values.

- If no file needs a merge, an engine scans the files: Polars, DuckDB or Arrow.
- Otherwise each split has its own path. Polars decodes the row groups of large splits: all rows of
  a raw split; from a section, only the values of rows that survive a merge of the keys (late
  materialisation, `marks.py`).
- lakecore's own reader does the rest. It scans a raw split, and merges a section in windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from lakecore.model.types import Field
    from lakecore.table.sections.windows_plan import Windows
    from lakecore.table.splits.parts import FileFacts, Part


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
