"""Dynamic buckets while several commits of one writer are in flight.

The writer assigns keys by the hash index of a snapshot and by the new keys of its commits in
flight. A commit is refused if the index has changed since the snapshot that its messages name
(`plan/conflicts.py`, rule 7), even if an earlier commit of the same writer has changed it. But then
there is no conflict, because the writer knows these keys. Messages are therefore *moved*: they name
the snapshot of the earlier commit instead.

INVARIANT: messages are moved from one snapshot to a later one only if the index of the later one
consists of the index of the earlier one and the new index files of the writer's own commit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.errors import CorruptTable, NotFound
from lakecore.model.files import HASH_INDEX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.commits.base_snapshot import Base
    from lakecore.table.context import TableContext
    from lakecore.table.writes.bucket_buffer import BucketKey


class OwnIndex:
    """Maps a snapshot to the later snapshot that commits of this writer made from it.

    Only later snapshots whose whole key index the writer knows are recorded.
    """

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._after: dict[Base | None, Base] = {}

    @property
    def is_needed(self) -> bool:
        """Whether the table assigns keys to buckets by an index."""
        return bool(self._context.schema.primary_keys) and self._context.options.bucket == -1

    def moved(self, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
        """The messages, moved to the newest snapshot whose key index the writer knows."""
        return [self._moved(message) for message in messages] if self._after else list(messages)

    def _moved(self, message: CommitMessage) -> CommitMessage:
        base = _base(message)
        while base in self._after:
            base = self._after[base]
        if base is None or base == _base(message):
            return message
        return replace(message, base_snapshot_id=base[0], base_snapshot_uuid=base[1])

    def follow(
        self, messages: Sequence[CommitMessage], snapshot_id: int
    ) -> tuple[Snapshot | None, Snapshot] | None:
        """Record that messages of this writer became snapshot `snapshot_id`.

        Returns the snapshot that the messages were based on, and the new one. Returns None if the
        index of the new one may have keys that the writer does not know.
        """
        bases = {_base(message) for message in messages if message.new_files}
        if len(bases) != 1:
            return None
        history, base = self._context.history, bases.pop()
        try:
            before = None if base is None else history.snapshot(base[0])
            after = history.snapshot(snapshot_id)
            known = self._index(before)
            there = self._index(after)
        except (NotFound, CorruptTable):
            return None  # expired, with its index manifest
        if base is not None and (before is None or before.uuid != base[1]):
            return None
        for message in messages:
            for file in message.new_index_files:
                known[message.partition, message.bucket] = file.name
        if known != there:
            return None
        self._after[base] = after.id, after.uuid
        return before, after

    def forget(self) -> None:
        """Forget the recorded snapshots: no messages are in flight."""
        self._after = {}

    def _index(self, snapshot: Snapshot | None) -> dict[BucketKey, str]:
        return {
            (entry.partition, entry.bucket): entry.file.name
            for entry in self._context.history.index_entries(snapshot)
            if entry.file.index_type == HASH_INDEX
        }


def _base(message: CommitMessage) -> Base | None:
    if message.base_snapshot_id is None:
        return None
    return message.base_snapshot_id, message.base_snapshot_uuid
