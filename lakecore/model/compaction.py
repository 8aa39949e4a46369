"""The result of a compaction, or of its dry run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lakecore.display import ShownFacts, show_bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompactionResult(ShownFacts):
    """The result of `Table.compact`.

    - `snapshot_ids`: the committed snapshots; empty if there was nothing to compact;
    - `buckets`: the number of changed buckets;
    - `files_before`, `bytes_before`, `rows_before`: totals of the replaced files;
    - `files_after`, `bytes_after`, `rows_after`: totals of the new files;
    - `files_upgraded`: the new files that only changed their level;
    - `steps`: the number of commits. Totals are sums over all steps: a file that one step writes
      and the next one replaces counts in both;
    - `attempts`: the number of plans; more than `steps` if other commits won races.

    Rows are stored rows, unmerged. In a dry run, `snapshot_ids` is empty, the `..._after` fields
    are None, and `steps` is the number of steps for the current files.

        done = table.compact(full=True)
        done.snapshot_id, done.files_before, done.files_after  # (4, 3, 1)
    """

    _title: ClassVar[str] = "Compaction"

    snapshot_ids: tuple[int, ...] = ()
    buckets: int = 0
    files_before: int = 0
    files_after: int | None = 0
    files_upgraded: int = 0
    bytes_before: int = 0
    bytes_after: int | None = 0
    rows_before: int = 0
    rows_after: int | None = 0
    steps: int = 0
    attempts: int = 1

    def _shown(self) -> list[tuple[str, object]]:
        """The fields that are not empty."""
        if not self.buckets:
            return [("snapshots", "none: there was nothing to compact")]
        made = ", ".join(map(str, self.snapshot_ids)) or "none: nothing was written"
        lines: list[tuple[str, object]] = [("snapshots", made), ("buckets", f"{self.buckets:,}")]
        for name, files, rows, size_bytes in (
            ("before", self.files_before, self.rows_before, self.bytes_before),
            ("after", self.files_after, self.rows_after, self.bytes_after),
        ):
            if files is not None and rows is not None and size_bytes is not None:
                lines.append((name, f"{files:,} files, {rows:,} rows, {show_bytes(size_bytes)}"))
        if self.files_upgraded:
            lines.append(("files that changed their level alone", f"{self.files_upgraded:,}"))
        if self.steps > 1:
            lines.append(("steps", self.steps))
        return lines

    @property
    def snapshot_id(self) -> int | None:
        """The last snapshot that the compaction made."""
        return self.snapshot_ids[-1] if self.snapshot_ids else None
