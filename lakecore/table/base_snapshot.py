"""Of the snapshot before: whether it is still a part of the table's history, and what it hands on.

A rollback takes snapshots away, and later commits use their ids again: an id alone proves nothing,
and the uuid tells them apart. (Paimon before 1.2 writes none.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from lakecore.errors import NotFound

if TYPE_CHECKING:
    from lakecore.io.history import History
    from lakecore.model.snapshot import Snapshot

Base: TypeAlias = tuple[int, str | None]
"""The id and the uuid of a snapshot."""


def was_rolled_back(history: History, base: Base, latest: Snapshot) -> bool:
    """Whether the table has gone back behind a snapshot since. One that expired was not."""
    snapshot_id, uuid = base
    if snapshot_id > latest.id:
        return True
    if uuid is None:
        return False
    try:
        there = latest if snapshot_id == latest.id else history.snapshot(snapshot_id)
    except NotFound:
        return False
    return there.uuid is not None and there.uuid != uuid


def is_there(history: History, snapshot: Snapshot, latest: Snapshot) -> bool:
    """Whether the snapshot has neither expired nor been rolled back."""
    if was_rolled_back(history, (snapshot.id, snapshot.uuid), latest):
        return False
    return snapshot.id == latest.id or snapshot.id in history.snapshot_ids()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """What a snapshot takes over from the one before it."""

    total_record_count: int | None = None
    schema_id: int = 0
    watermark: int | None = None
    statistics: str | None = None
    next_row_id: int = 0

    @staticmethod
    def of(latest: Snapshot | None) -> Inherited:
        """What the successor of a snapshot takes over; of none, nothing."""
        if latest is None:
            return Inherited()
        return Inherited(
            total_record_count=latest.total_record_count,
            schema_id=latest.schema_id,
            watermark=latest.watermark,
            statistics=latest.statistics,
            next_row_id=latest.next_row_id or 0,
        )
