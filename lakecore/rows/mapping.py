"""The mapping from a column to read to the column of a file that holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakecore.model.types import Field


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """A column to read, and the file's column that holds it; None if the file has none."""

    read: Field
    stored: Field | None
    changed: bool

    @property
    def renamed(self) -> bool:
        """Whether the column has another name in the file."""
        return self.stored is not None and self.stored.name != self.read.name
