"""Follows the snapshots of a table, one by one, as they are committed.

A step looks for the next snapshot that has changes:

1. Until there is a start (`starts.py`), look for one.
2. Return the state of the start, if it has one.
3. Read the next snapshot. If it has expired, read its long-lived changelog.
4. Skip a snapshot that has no changes for streams (`plan/row_changes.py`), and look for the next
   one.
5. End after the last snapshot, or at the first one past the bounded watermark.

A step never waits: it returns that there is nothing yet. Most such steps cost one request, for the
file of the next snapshot, and one more if the table keeps changelogs. In a sequence of such steps,
the first and every 16th also check whether the snapshot was deleted or rolled back, or belongs to
another table.

INVARIANT: no snapshot is skipped silently. It is an error if the next snapshot has expired, or if
the table was rolled back to before the last snapshot read, even if new snapshots have reused the
numbers since: the previous snapshot must still be the one that was read. It is also an error if the
last snapshot of the stream existed at its begin and was rolled back: a stream up to the latest
snapshot would wait for ever.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, NotFound
from lakecore.options import parse_options
from lakecore.plan.row_changes import Taken, taken_by_stream
from lakecore.table.changes.changes import Change, ChangesSource, Replaced, State, StoredRows
from lakecore.table.changes.starts import (
    Origin,
    RetainedChanges,
    Start,
    find_start,
    retained_changes,
)
from lakecore.table.context import TableContext, reload_context, require_table, with_options
from lakecore.table.maintenance.expire_snapshots import keeps_changelogs

if TYPE_CHECKING:
    from lakecore.model.snapshot import Snapshot

_STEPS_BETWEEN_CHECKS = 16
"""After this many empty steps, the range of snapshots is checked again, as in Java."""

START_OPTIONS = frozenset(
    {
        "scan.mode",
        "scan.snapshot-id",
        "scan.tag-name",
        "scan.timestamp",
        "scan.timestamp-millis",
        "scan.version",
        "scan.watermark",
        "scan.creation-time-millis",
        "scan.file-creation-time-millis",
        "incremental-between",
        "incremental-between-timestamp",
        "incremental-to-auto-tag",
    }
)
"""The options that only define where a stream begins, not how its rows are read."""


class Nothing(Enum):
    """Why a step found no changes."""

    YET = auto()
    """The next snapshot was not committed yet."""
    MORE = auto()
    """The stream has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A snapshot with changes, and their source."""

    snapshot_id: int
    source: ChangesSource


class Follower:
    """The position of a stream. A follower is not thread-safe.

    `next_id` is the first snapshot that was neither returned nor skipped; None before the start.
    """

    def __init__(
        self, context: TableContext, origin: Origin, last: int | None, latest: int = 0
    ) -> None:
        """Begin at the origin and end after the snapshot `last` (None: never end).

        `latest` is the latest snapshot that the caller has seen. Raises NotFound if the start has
        expired.
        """
        self._context = without_start_options(context)
        self._origin = origin
        self._last = last
        self._state: Start | None = None
        self._previous: Snapshot | None = None
        self._latest = latest
        self._empty_steps = 0
        self._ended = False
        self.next_id: int | None = None
        self.began_with_state = False
        self._begin(retained_changes(context))

    def step(self) -> Found | Nothing:
        """The next changes, if there are any."""
        if self.next_id is None and not self._ended:
            # One request shows whether the table is empty or has its first snapshot.
            if self._last == 0 or self._nothing_committed():
                return Nothing.MORE if self._last == 0 else Nothing.YET
            self._begin(retained_changes(self._context))
        if self._state is not None:
            return self._first(self._state)
        while not self._ended:
            found = self._follow()
            if found is not None:
                return found
        return Nothing.MORE

    def _nothing_committed(self) -> bool:
        self._empty_steps += 1
        if self._context.history.snapshot_if_there(1) is not None:
            return False
        if self._empty_steps % _STEPS_BETWEEN_CHECKS != 1:
            return True
        require_table(self._context)
        return self._context.history.latest_snapshot_id() is None

    def _begin(self, retained: RetainedChanges | None) -> None:
        self._latest = max(self._latest, 0 if retained is None else retained.latest)
        start = find_start(self._context, self._origin, retained)
        if start is None:
            return
        self._check_end(start)
        self.next_id = start.next_id
        if start.state is not None:
            self._state, self.began_with_state = start, True
        elif retained is not None and retained.earliest < start.next_id:
            self._previous = retained.snapshot(start.next_id - 1)
            self._ended = self._is_beyond_watermark(self._previous)

    def _check_end(self, start: Start) -> None:
        if self._last is None:
            return
        if start.state is not None and self._last < start.state.id:
            raise InvalidRequest(
                "the stream begins with the state of a snapshot after its end; name an earlier "
                "start by from_snapshot",
                until=self._last,
                state=start.state.id,
                table=self._context.identifier,
            )
        if start.next_id > self._last + 1:
            raise InvalidRequest(
                "the stream begins after its end",
                from_snapshot=start.next_id,
                until=self._last,
                table=self._context.identifier,
            )

    def _first(self, start: Start) -> Found:
        assert start.state is not None
        state = State(snapshot=start.state, created_since_ms=start.created_since_ms)
        found = self._found(start.state, state)
        self._state = None
        self._previous = start.state
        self._ended = self._is_beyond_watermark(start.state)
        return found

    def _follow(self) -> Found | Nothing | None:
        """The next changes; None if the next snapshot was skipped."""
        number = self.next_id
        assert number is not None
        if self._last is not None and number > self._last:
            self._ended = True
            return Nothing.MORE
        snapshot = self._look(number)
        if snapshot is None:
            return Nothing.YET
        if self._is_beyond_watermark(snapshot):
            self._ended = True
            return Nothing.MORE
        if self._is_too_young(snapshot):
            return Nothing.YET
        # The table may have been dropped or replaced since the previous step.
        require_table(self._context)
        self._check_previous(number)
        self._read_with_schema_of(snapshot)
        change = self._change(snapshot)
        found = None if change is None else self._found(snapshot, change)
        self._previous, self.next_id = snapshot, number + 1
        return found

    def _found(self, snapshot: Snapshot, change: Change) -> Found:
        source = ChangesSource(context=self._context, changes=(change,))
        return Found(snapshot_id=snapshot.id, source=source)

    # --- the next snapshot -----------------------------------------------------------------------

    def _look(self, number: int) -> Snapshot | None:
        context = self._context
        snapshot = context.history.snapshot_if_there(number)
        if snapshot is None and keeps_changelogs(context.options):
            with suppress(NotFound):
                snapshot = context.history.changelog(number)
        if snapshot is None:
            self._empty_steps += 1
            check = number <= self._latest or self._empty_steps % _STEPS_BETWEEN_CHECKS == 1
            snapshot = self._missing(number) if check else None
        if snapshot is not None:
            self._empty_steps = 0
        return snapshot

    def _missing(self, number: int) -> Snapshot | None:
        """The next snapshot if it now exists, or its changelog; None if it is not committed yet."""
        context, history = self._context, self._context.history
        require_table(context)
        latest = history.latest_snapshot_id() or 0
        if latest == number - 1:
            if self._last is not None and number <= self._last <= self._latest:
                raise self._rolled_back(self._last, latest)  # it may never come back
            return None
        if latest < number - 1:
            raise self._rolled_back(number - 1, latest)
        retained = retained_changes(context)
        if retained is None:
            raise self._rolled_back(number - 1, 0)
        return retained.snapshot(number)

    def _check_previous(self, number: int) -> None:
        before = self._previous
        if before is None or before.id != number - 1:
            return
        now = self._context.history.snapshot_if_there(before.id)
        if now is not None and now != before:
            raise self._rolled_back(before.id, number)

    def _rolled_back(self, snapshot_id: int, latest: int) -> NotFound:
        return NotFound(
            "the table was rolled back: a snapshot that the stream has read, or was to end with, "
            "does not exist any more; begin a new stream from an existing snapshot",
            snapshot_id=snapshot_id,
            latest=latest,
            table=self._context.identifier,
        )

    def _is_beyond_watermark(self, snapshot: Snapshot) -> bool:
        bound, watermark = self._context.options.scan_bounded_watermark, snapshot.watermark
        return bound is not None and watermark is not None and watermark > bound

    def _is_too_young(self, snapshot: Snapshot) -> bool:
        delay_ms = self._context.options.streaming_read_snapshot_delay_ms
        if not delay_ms:
            return False
        return snapshot.time_ms > self._context.ambient.now_ms() - delay_ms

    # --- its changes -----------------------------------------------------------------------------

    def _read_with_schema_of(self, snapshot: Snapshot) -> None:
        """If a snapshot has a newer schema, read it and those after it with the newest schema."""
        if snapshot.schema_id > self._context.schema.id:
            self._context = without_start_options(reload_context(self._context))

    def _change(self, snapshot: Snapshot) -> Change | None:
        context = self._context
        keyed = bool(context.schema.primary_keys)
        match taken_by_stream(snapshot, context.options, keyed=keyed):
            case None:
                return None
            case Taken.REPLACED:
                change = Replaced(snapshot=snapshot)
                return change if change.entries(context) else None
            case taken:
                stored = StoredRows(snapshot=snapshot, changelog=taken is Taken.CHANGELOG)
                return stored if stored.entries(context) else None


def without_start_options(context: TableContext) -> TableContext:
    """The table without the options that name a start: they have been applied already."""
    texts = {k: text for k, text in context.options.texts.items() if k not in START_OPTIONS}
    if len(texts) == len(context.options.texts):
        return context
    return with_options(context, parse_options(texts, table=context.identifier))
