"""Completion of table names in a shell, without the engine: only local warehouses are listed."""

from __future__ import annotations

from pathlib import Path

from lakecore.cli.settings import settings
from lakecore.errors import LakecoreError

_DATABASE = ".db"


def tables(warehouse: str | None, start: str) -> list[str]:
    """The names `database.table` of a local warehouse that begin with this text."""
    try:
        place = warehouse or settings().warehouse
    except LakecoreError:  # a completion must not print errors, such as those of wrong settings
        return []
    root = (place or "").removeprefix("file://").removeprefix("file:")
    if not root or "://" in root:
        return []
    found = (
        f"{path.parent.parent.name.removesuffix(_DATABASE)}.{path.parent.name}"
        for path in Path(root).glob(f"*{_DATABASE}/*/schema")
    )
    return sorted(name for name in found if name.startswith(start))
