"""What a compaction did, or would do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What `Table.compact` did. `snapshot_id` is None where nothing was to be compacted.

    `buckets` counts the buckets that changed; `files_before`, `bytes_before` and `rows_before` are
    of the files of theirs that were replaced, `..._after` of those in their place, and
    `files_upgraded` of those among them that only changed their level. Rows are counted as stored.
    `attempts` counts the plans that were made: more than one if other compactions came first.

    Of a dry run, `snapshot_id` and everything that only merging can tell (`..._after`) is None.
    """

    snapshot_id: int | None = None
    buckets: int = 0
    files_before: int = 0
    files_after: int | None = 0
    files_upgraded: int = 0
    bytes_before: int = 0
    bytes_after: int | None = 0
    rows_before: int = 0
    rows_after: int | None = 0
    attempts: int = 1
