"""Where a column that is read is found in a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakecore.model.types import Field

__all__ = ["ColumnMapping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """One column wanted, and the file's column that holds it; None if the file has none."""

    read: Field
    stored: Field | None
    changed: bool

    @property
    def renamed(self) -> bool:
        """Whether the file has the column under another name."""
        return self.stored is not None and self.stored.name != self.read.name
