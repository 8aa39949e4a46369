"""Branches of a table, and the result of a fast-forward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lakecore.display import ShownFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A branch of a table.

    - `name`: the name of the branch;
    - `schema_id`: the id of its newest schema; None if there is none, because a process died while
      it created or deleted the branch;
    - `earliest_snapshot_id`, `latest_snapshot_id`: its live snapshots; None if it has none.
    """

    name: str
    schema_id: int | None = None
    earliest_snapshot_id: int | None = None
    latest_snapshot_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FastForwardResult(ShownFacts):
    """The changes that `Table.fast_forward` made to its table.

    - `branch`: the branch whose state the table has now;
    - `snapshot_id`: the latest snapshot, which is that of the branch;
    - `snapshots_copied`, `schemas_copied`, `tags_copied`: how many were copied from the branch.
      Those that were the same in both are not counted;
    - `snapshots_deleted`, `schemas_deleted`, `tags_deleted`: how many were deleted, because the
      branch does not have them.

    In a dry run, these are the changes that a real run would make.
    """

    _title: ClassVar[str] = "Fast-forward"

    branch: str
    snapshot_id: int
    snapshots_copied: int = 0
    schemas_copied: int = 0
    tags_copied: int = 0
    snapshots_deleted: int = 0
    schemas_deleted: int = 0
    tags_deleted: int = 0

    def _shown(self) -> list[tuple[str, object]]:
        """The fields that are not empty."""
        lines: list[tuple[str, object]] = [("branch", self.branch), ("snapshot", self.snapshot_id)]
        counts = {
            "snapshots copied": self.snapshots_copied,
            "schemas copied": self.schemas_copied,
            "tags copied": self.tags_copied,
            "snapshots deleted": self.snapshots_deleted,
            "schemas deleted": self.schemas_deleted,
            "tags deleted": self.tags_deleted,
        }
        return lines + [(what, count) for what, count in counts.items() if count]
