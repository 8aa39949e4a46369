"""Row kinds, and the columns that Paimon and lakecore add to a table's own."""

from __future__ import annotations

from enum import IntEnum

from lakecore.model.types import Atomic, Field, Root

KEY_PREFIX = "_KEY_"
SEQUENCE_NUMBER = "_SEQUENCE_NUMBER"
VALUE_KIND = "_VALUE_KIND"
ROW_KIND = "_row_kind"
"""The string column (+I -U +U -D) with which users pass and receive row kinds."""

ROW_ID = "_ROW_ID"
"""The id of a row in a table with `row-tracking.enabled`."""

LAYER = "\0layer"
"""The number of a merged row among those of its key, oldest first; see `MergeSpec.lacks_older`."""

SYSTEM_COLUMNS = frozenset({SEQUENCE_NUMBER, VALUE_KIND, "_LEVEL", "rowkind", ROW_ID})
SEQUENCE_NUMBER_ID = 2_147_483_646
VALUE_KIND_ID = 2_147_483_645
ROW_ID_ID = 2_147_483_642
KEY_ID_OFFSET = 1_073_741_823

SEQUENCE_FIELD = Field(
    id=SEQUENCE_NUMBER_ID, name=SEQUENCE_NUMBER, type=Atomic(root=Root.BIGINT, nullable=False)
)
KIND_FIELD = Field(
    id=VALUE_KIND_ID, name=VALUE_KIND, type=Atomic(root=Root.TINYINT, nullable=False)
)
ROW_ID_FIELD = Field(id=ROW_ID_ID, name=ROW_ID, type=Atomic(root=Root.BIGINT, nullable=False))
TRACKING_FIELDS = (ROW_ID_FIELD, SEQUENCE_FIELD)
"""The columns that row tracking adds to those of the table."""


class RowKind(IntEnum):
    """The effect of a row on its key; the numbers are those in data files."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def text(self) -> str:
        """The short form: +I, -U, +U or -D."""
        return _TEXTS[self]

    @property
    def retracts(self) -> bool:
        """Whether the row is a retraction (-U, -D); the others add."""
        return self in RETRACTS


_TEXTS = ("+I", "-U", "+U", "-D")
KIND_TEXTS = _TEXTS
"""The short form of each kind, indexed by its number."""
RETRACTS = frozenset({RowKind.UPDATE_BEFORE, RowKind.DELETE})
