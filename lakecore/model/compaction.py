"""What a compaction did, or would do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What `Table.compact` did. `snapshot_ids` is empty where nothing was to be compacted.

    `buckets` counts the buckets that changed; `files_before`, `bytes_before` and `rows_before` are
    of the files that were replaced, `..._after` of those in their place, and `files_upgraded` of
    those among them that only changed their level. Rows are counted as stored. `steps` counts the
    commits, and all sums go over them: a file that one step writes and the next takes counts in
    both. `attempts` counts the plans that were made: more than steps if others came first.

    Of a dry run, `snapshot_ids` is empty and what only merging can tell (`..._after`) is None;
    `steps` are those that the present files would take.
    """

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

    @property
    def snapshot_id(self) -> int | None:
        """The last snapshot it made."""
        return self.snapshot_ids[-1] if self.snapshot_ids else None
