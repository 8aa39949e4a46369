"""The names of system tables behind a path: `PATH$files`."""

from __future__ import annotations

from lakecore import InvalidRequest
from lakecore.distributed.planning import SYSTEM_TABLES, UNSUPPORTED_SYSTEM_TABLES

__all__ = ["refuse_state", "split_system"]


def split_system(path: str) -> tuple[str, str | None]:
    """The path of the table, and the name of its system table (None: the table itself)."""
    location, mark, name = path.rpartition("$")
    if mark and name.lower() in (*SYSTEM_TABLES, *UNSUPPORTED_SYSTEM_TABLES):
        return location, name.lower()
    return path, None


def refuse_state(name: str) -> None:
    """Raise InvalidRequest, because the system table `name` cannot be read at a stated state."""
    raise InvalidRequest(
        "a system table is read as it is; to look at the files of a snapshot, give the table's own "
        "option scan.snapshot-id",
        table=name,
    )
