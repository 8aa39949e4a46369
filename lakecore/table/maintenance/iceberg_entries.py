"""What the entries of a table in an Iceberg catalog do, and by which names they are found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from lakecore.format.iceberg.documents import Json, warehouse_place
from lakecore.format.layout import canonical

if TYPE_CHECKING:
    from collections.abc import Callable


Newest: TypeAlias = "Callable[[], tuple[str, Json] | None]"
"""Reads the document of the latest snapshot, and its path. None while a publisher is at work."""


class Entries(Protocol):
    """The entries of one table in a catalog, which may list it in several databases."""

    def point(self, newest: Newest) -> bool:
        """Make the entries point to the newest document; create those that are missing.

        False while another publisher is at work.
        """

    def forget(self) -> None:
        """Remove the entries that point to the table's metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The databases and the name by which a catalog lists a table, and the table's directory."""

    databases: tuple[str, ...]
    table: str
    root: str

    def has_metadata(self, location: str | None) -> bool:
        """Whether a document is one of this table."""
        if location is None:
            return False
        places = (self.root, warehouse_place(self.root) or self.root)
        return canonical(location).rpartition("/")[0] in {f"{each}/metadata" for each in places}
