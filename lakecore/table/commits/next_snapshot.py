"""Builds the next snapshot from a checked change, and first writes all files that it names.

The snapshot is not visible before it is published (`commit.py`).

INVARIANT: a snapshot keeps everything that it does not change, in particular the index manifest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable, NotFound
from lakecore.model.manifest import FileKind
from lakecore.model.snapshot import Snapshot
from lakecore.plan.row_ids import with_row_ids
from lakecore.table.commits.base_snapshot import Inherited
from lakecore.table.stored_rows.snapshot_numbers import with_snapshot_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from lakecore.model.manifest import ManifestEntry
    from lakecore.options import TableOptions
    from lakecore.table.commits.commit_change import Change, CommitRequest
    from lakecore.table.commits.commit_manifests import ManifestWriter
    from lakecore.table.context import TableContext


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Step:
    """A change that passed the checks against the latest snapshot, and its effect.

    `stamped`: entries of new files contain the snapshot's id, so another attempt needs new
    manifests. `delta` includes the deletions of all files in the `cleared` partitions; with row
    tracking, its new rows have ids. `schema_id` is the id of the newest schema.
    """

    change: Change
    latest: Snapshot | None
    schema_id: int
    delta: Sequence[ManifestEntry]
    cleared: AbstractSet[bytes]
    tracked: bool = False
    stamped: bool = False
    next_row_id: int = 0

    @property
    def snapshot_id(self) -> int:
        """The id of the snapshot to come."""
        return 1 if self.latest is None else self.latest.id + 1

    def numbered(self, options: TableOptions) -> Step:
        """The step, completed with what depends on the snapshot id and the previous snapshot.

        With row tracking, new rows have ids. With `sequence.snapshot-ordering`, they have the
        snapshot id as their sequence numbers; compacted rows keep theirs.
        """
        if options.sequence_snapshot_ordering:
            delta = with_snapshot_id(self.delta, self.snapshot_id)
            return replace(self, delta=delta, stamped=True)
        if not options.row_tracking_enabled:
            return self
        first = Inherited.of(self.latest).next_row_id
        delta, next_row_id = with_row_ids(self.delta, first, self.snapshot_id)
        return replace(self, delta=delta, next_row_id=next_row_id, tracked=True, stamped=True)


def next_snapshot(
    context: TableContext, request: CommitRequest, manifests: ManifestWriter, step: Step
) -> Snapshot:
    """The snapshot after the latest one; writes its manifests and manifest lists.

    Raises CorruptTable if a manifest to merge is missing: another commit replaced it, or it was
    lost.
    """
    change, latest, delta = step.change, step.latest, step.delta
    before = Inherited.of(latest)
    base_list, base_size = manifests.write_base(latest)
    delta_list, delta_size = manifests.write_delta(delta)
    changelog_list, changelog_size = (
        manifests.write_delta(change.changelog) if change.changelog else (None, None)
    )
    index_manifest = manifests.write_indexes(
        latest, change.indexes, change.deleted_indexes, step.cleared
    )
    delta_rows = sum(
        entry.file.row_count if entry.kind is FileKind.ADD else -entry.file.row_count
        for entry in delta
    )
    records_before = before.total_record_count
    if records_before is None:
        live = () if latest is None else context.history.live_entries(latest)
        records_before = sum(entry.file.row_count for entry in live)
    return Snapshot(
        id=step.snapshot_id,
        schema_id=max(step.schema_id, before.schema_id),
        uuid=context.ambient.new_uuid(),
        base_manifest_list=base_list,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta_list,
        delta_manifest_list_size=delta_size,
        changelog_manifest_list=changelog_list,
        changelog_manifest_list_size=changelog_size,
        index_manifest=index_manifest,
        commit_user=request.user,
        commit_identifier=request.identifier,
        commit_kind=change.kind,
        time_ms=context.ambient.now_ms(),
        total_record_count=records_before + delta_rows,
        delta_record_count=delta_rows,
        changelog_record_count=sum(entry.file.row_count for entry in change.changelog) or None,
        watermark=_later(before.watermark, request.watermark),
        statistics=request.statistics or _kept_statistics(context, latest, step.schema_id),
        properties=request.properties,
        next_row_id=step.next_row_id if step.tracked else before.next_row_id,
        operation=request.operation,
    )


def _kept_statistics(context: TableContext, latest: Snapshot | None, schema_id: int) -> str | None:
    """The name of the latest snapshot's statistics file, for the next snapshot to keep.

    None if the file cannot be read, or if it was made for another schema.
    """
    if latest is None or latest.statistics is None:
        return None
    try:
        statistics = context.history.statistics(latest)
    except (NotFound, CorruptTable):
        return None
    return latest.statistics if statistics and statistics.schema_id == schema_id else None


def _later(before: int | None, given: int | None) -> int | None:
    known = [mark for mark in (before, given) if mark is not None]
    return max(known, default=None)
