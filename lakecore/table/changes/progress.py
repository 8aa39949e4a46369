"""How far the reader of a stream is, and which progress its consumer file records.

- `consumer.mode=exactly-once`: progress is recorded when the reader says that a snapshot is done.
  If the reader stops before that, it gets the snapshot again.
- `consumer.mode=at-least-once`: a request for the next snapshot marks the previous one as done.
  This is recorded at most once in each interval, and when the stream ends or is closed.

In both modes, snapshots without changes that follow a done snapshot are done too. They are recorded
at most once in each interval. Thus snapshots of compactions can expire.

INVARIANT: a snapshot is recorded only after all snapshots before it were returned and done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.options import ConsumerMode
from lakecore.table.maintenance.consumers import write_consumer

if TYPE_CHECKING:
    from lakecore.table.context import TableContext


class Progress:
    """The progress of one stream.

    A position is the id of the next snapshot: all snapshots before it were returned, or are done.
    """

    def __init__(
        self, context: TableContext, consumer_id: str | None, recorded: int | None, every_ms: int
    ) -> None:
        """`recorded` is the content of the consumer file; None if there is no file."""
        self._context = context
        self._consumer_id = consumer_id
        self._confirms = context.options.consumer_mode is ConsumerMode.EXACTLY_ONCE
        self._every_ms = every_ms
        self._recorded = recorded
        self._recorded_ms = context.ambient.now_ms()
        self._done: int | None = None
        self.given: int | None = None
        """The next snapshot after all returned ones; None before the first."""

    def begin(self, next_id: int) -> None:
        """Note that the stream starts with the changes of snapshot `next_id`, without a state.

        A new consumer is recorded now, so that nothing that it needs expires.
        """
        self.given = self._done = next_id
        if self._consumer_id is not None and self._recorded is None:
            self._write(next_id)

    def give(self, snapshot_id: int) -> None:
        """Note that a snapshot was returned to the reader."""
        self.given = snapshot_id + 1

    def asked(self) -> None:
        """Note that the reader asks for more. At-least-once: all returned snapshots are done."""
        if not self._confirms:
            self._done = self.given
        self._record_in_time()

    def passed(self, next_id: int) -> None:
        """Note that all snapshots before `next_id` were returned or skipped."""
        if self.given is not None and self._done == self.given:
            self._done = next_id
        self.given = next_id
        self._record_in_time()

    def confirm(self, snapshot_id: int | None) -> None:
        """Record that this snapshot and all before it are done; None: all that were returned."""
        if self._consumer_id is None:
            raise InvalidRequest(
                "the stream has no consumer to record progress for; give it a consumer_id",
                table=self._context.identifier,
            )
        if isinstance(snapshot_id, bool) or not isinstance(snapshot_id, int | None):
            raise InvalidRequest("a snapshot id must be a whole number", snapshot_id=snapshot_id)
        done = self.given if snapshot_id is None else snapshot_id + 1
        if done is None:
            return
        if self.given is None or done > self.given:
            raise InvalidRequest(
                "the stream has not returned this snapshot yet",
                snapshot_id=snapshot_id,
                consumer_id=self._consumer_id,
                table=self._context.identifier,
            )
        if done < (self._done or 1):
            raise InvalidRequest(
                "a later snapshot is already recorded as done; use reset_consumer to go back",
                snapshot_id=snapshot_id,
                next_snapshot=self._done,
                consumer_id=self._consumer_id,
                table=self._context.identifier,
            )
        self._done = done
        self._write(done)

    def close(self) -> None:
        """Record the progress, unless it is recorded already."""
        if self._done is not None and self._recorded != self._done:
            self._write(self._done)

    def _record_in_time(self) -> None:
        if self._done is None or self._consumer_id is None or self._done == self._recorded:
            return
        if self._context.ambient.now_ms() - self._recorded_ms >= self._every_ms:
            self._write(self._done)

    def _write(self, next_id: int) -> None:
        if self._consumer_id is None:
            return
        write_consumer(self._context, self._consumer_id, next_id)
        self._recorded, self._recorded_ms = next_id, self._context.ambient.now_ms()
