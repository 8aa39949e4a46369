"""Converts the record of a rollback in progress to bytes and back.

lakecore writes it before the first change and deletes it after the last, so that a rollback whose
process died can be finished. It holds the target snapshot and all snapshots to remove; their
manifests name the files. Paimon does not know this file, and ignores it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable
from lakecore.format.json_files import decode_snapshot, encode_snapshot

if TYPE_CHECKING:
    from lakecore.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRecord:
    """A rollback: `target` becomes the latest snapshot; the snapshots `removed` are deleted.

    `kept_by` are the snapshots of the removed tags and long-lived changelogs.
    """

    target: Snapshot
    removed: tuple[Snapshot, ...]
    kept_by: tuple[Snapshot, ...] = ()


def encode_rollback(record: RollbackRecord) -> bytes:
    """The bytes of a record."""
    return json.dumps(
        {
            "target": encode_snapshot(record.target).decode(),
            "removed": [encode_snapshot(each).decode() for each in record.removed],
            "keptBy": [encode_snapshot(each).decode() for each in record.kept_by],
        }
    ).encode()


def decode_rollback(data: bytes, path: str) -> RollbackRecord:
    """Parse the record. Raises CorruptTable if it is damaged."""
    try:
        found = json.loads(data)
        target, removed, kept_by = found["target"], found["removed"], found["keptBy"]
        texts = [target, *removed, *kept_by]
        snapshots = [decode_snapshot(text.encode(), path) for text in texts]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptTable("the record of a rollback cannot be read", path=path) from error
    count = len(removed)
    return RollbackRecord(
        target=snapshots[0],
        removed=tuple(snapshots[1 : 1 + count]),
        kept_by=tuple(snapshots[1 + count :]),
    )
