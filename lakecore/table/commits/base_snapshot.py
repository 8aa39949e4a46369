"""The history since an earlier snapshot: whether it still exists, and which commits followed.

A rollback removes snapshots, and later commits reuse their ids. The uuid distinguishes two
snapshots with the same id. (Paimon before 1.2 writes no uuid.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from lakecore.errors import CorruptTable, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.io.history.history import History
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot

_AT_ONCE = 64

Base: TypeAlias = tuple[int, str | None]
"""The id and the uuid of a snapshot."""


def was_rolled_back(history: History, base: Base, latest: Snapshot) -> bool:
    """Whether a rollback has removed the snapshot `base`. False if it has only expired."""
    snapshot_id, uuid = base
    if snapshot_id > latest.id:
        return True
    there = None if uuid is None else history.commits.at(snapshot_id, latest)
    return there is not None and there.uuid is not None and there.uuid != uuid


def is_there(history: History, snapshot: Snapshot, latest: Snapshot) -> bool:
    """Whether the snapshot still exists: it has not expired, and no rollback has removed it."""
    if was_rolled_back(history, (snapshot.id, snapshot.uuid), latest):
        return False
    return snapshot.id == latest.id or snapshot.id in history.snapshot_ids()


def committed_since(
    history: History, snapshot_id: int, latest: Snapshot
) -> Iterator[tuple[Snapshot, Sequence[ManifestEntry]]]:
    """The snapshots after `snapshot_id`, newest first, each with its own changes.

    Raises NotFound on reaching a snapshot that has expired.
    """
    snapshots = history.commits.after(snapshot_id, latest)
    for first in range(0, len(snapshots), _AT_ONCE):
        some = snapshots[first : first + _AT_ONCE]
        try:
            deltas = history.deltas(some)
        except CorruptTable as error:
            if history.snapshot_if_there(some[-1].id) is not None:
                raise
            raise _expired(some[-1].id) from error
        yield from zip(some, deltas, strict=True)
    if len(snapshots) < latest.id - snapshot_id:
        raise _expired(latest.id - len(snapshots))


def _expired(snapshot_id: int) -> NotFound:
    return NotFound("the snapshot has expired", snapshot_id=snapshot_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """The fields that a snapshot inherits from the one before it."""

    total_record_count: int | None = None
    schema_id: int = 0
    watermark: int | None = None
    next_row_id: int = 0

    @staticmethod
    def of(latest: Snapshot | None) -> Inherited:
        """The fields that the next snapshot inherits from a snapshot; empty if there is none."""
        if latest is None:
            return Inherited()
        return Inherited(
            total_record_count=latest.total_record_count,
            schema_id=latest.schema_id,
            watermark=latest.watermark,
            next_row_id=latest.next_row_id or 0,
        )
