"""The methods of a table that repair or tidy its metadata."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from lakecore.model.arguments import check_flags
from lakecore.table.maintenance.hints import repair_earliest_snapshot
from lakecore.table.reads.told import gated
from lakecore.table.verbs.compact_manifests import compact_manifests
from lakecore.table.verbs.unexisting_files import remove_unexisting_files

if TYPE_CHECKING:
    from lakecore.model.snapshot import CommitResult
    from lakecore.table.context import TableContext


class RepairVerbs(ABC):
    """The methods of a table that repair or tidy its metadata."""

    @property
    @abstractmethod
    def _context(self) -> TableContext:
        """The table."""

    @gated
    def compact_manifests(self) -> CommitResult:
        """Merge the manifests of the newest snapshot into few, without entries of deleted files.

        Commits merge manifests by the options `manifest.merge-min-count` and
        `manifest.full-compaction-threshold-size`; this merges all of them at once. The rows do not
        change. `snapshot_ids` of the result has the COMPACT snapshot, and is empty if there was
        nothing to merge (https://paimon.apache.org/docs/master/flink/procedures/).

        Raises CommitConflict if other commits win every retry, and CorruptTable if a manifest
        cannot be read.

            table.compact_manifests()
        """
        return compact_manifests(self._context)

    @gated
    def remove_unexisting_files(self, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove data files that do not exist from the newest snapshot. Returns their paths.

        The rows of these files are lost, and older rows of the same keys become visible again. Use
        this method only if files were deleted by mistake, to read the remaining rows. With
        `dry_run`, nothing changes. Older snapshots and tags still name the files
        (https://paimon.apache.org/docs/master/flink/procedures/).

        Raises the errors of a commit; StorageError, with nothing changed, if the storage does not
        answer.

            table.remove_unexisting_files(dry_run=True)
        """
        check_flags(dry_run=dry_run)
        # The result names partitions.
        self._context.options.require_all_rows()
        return remove_unexisting_files(self._context, dry_run=dry_run)

    @gated
    def repair_earliest_snapshot(self, snapshot_id: int) -> int:
        """Let the history begin with a snapshot that follows a gap. Returns the former first id.

        If snapshots in the middle were lost, expiry and readers of old snapshots fail. The
        snapshots before the gap are no longer read
        (https://paimon.apache.org/docs/master/flink/procedures/).

        Raises NotFound if a snapshot from `snapshot_id` to the newest is missing, InvalidRequest
        if the snapshot before it exists or if it is not between the first and the newest.

            table.repair_earliest_snapshot(7)
        """
        return repair_earliest_snapshot(self._context, snapshot_id)
