"""The methods of a table for streams and their consumers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

from lakecore.errors import InvalidRequest, NotFound
from lakecore.table.changes.retained import retained_changes
from lakecore.table.changes.stream import StreamRequest, open_stream
from lakecore.table.context import require_table
from lakecore.table.maintenance import consumers
from lakecore.table.maintenance.steps import decide

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    import polars as pl

    from lakecore.model.consumer import Consumer
    from lakecore.model.times import Time
    from lakecore.table.changes.change_stream import ChangeStream
    from lakecore.table.context import TableContext


class ConsumerVerbs(ABC):
    """Streams of changes, and the consumers that record how far they are read."""

    @property
    @abstractmethod
    def _context(self) -> TableContext:
        """The table."""

    def stream(  # noqa: PLR0913 - the public verb
        self,
        from_snapshot: int | None = None,
        until: int | Literal["latest"] | None = None,
        columns: Sequence[str] | str | None = None,
        where: pl.Expr | str | None = None,
        *,
        from_timestamp: Time | None = None,
        scan_mode: str | None = None,
        consumer_id: str | None = None,
        poll: str | float | timedelta | None = None,
    ) -> ChangeStream[pl.LazyFrame]:
        """The changes of each snapshot: pairs of a snapshot id and a lazy frame with `_row_kind`.

        The stream is an iterator and an asynchronous iterator. Snapshots are in ascending order;
        those without changes are skipped. Data is read when a frame is collected.
        `stream.to_batches()` gives Arrow batches in place of frames, for snapshots of any size.

        - `from_snapshot`: the first pair holds the changes of this snapshot. Without a start, the
          first pair holds all rows of the latest snapshot, as +I.
        - `from_timestamp`: begin with the first snapshot committed at this time or later.
        - `scan_mode`: Paimon's `scan.mode`, which says what the first pair is: `latest-full`,
          `latest`, `compacted-full`, `from-snapshot`, `from-snapshot-full`, `from-timestamp`,
          `from-creation-timestamp` or `from-file-creation-time`. Without these arguments, the
          options `scan.*` of the table name the start.
        - `until`: the last snapshot; `"latest"` means the latest one now. With None, the stream
          never ends: it waits for the next snapshot.
        - `columns`, `where`: as in `changes`; they apply to each frame.
        - `consumer_id`: the stream continues at the position of this consumer, if it exists, and
          `stream.commit()` records the progress. A consumer keeps snapshots from expiring
          (https://paimon.apache.org/docs/master/flink/consumer-id/).
        - `poll`: the interval at which the stream checks for the next snapshot: a string such as
          `"10 s"`, a timedelta, or seconds; by default `continuous.discovery-interval`, or
          else 1 s.

        Overwrites are skipped, unless `streaming-read-overwrite` or
        `streaming-read-append-overwrite` is set. A snapshot with a newer schema, and those after
        it, are read with the newest schema.

        Raises NotFound, naming the earliest existing snapshot, if changes expired before they were
        read, or if the table was rolled back to before the stream's position; InvalidRequest for
        invalid arguments.

            for snapshot_id, changes in table.stream(until="latest"):
                print(snapshot_id, changes.collect())
        """
        request = StreamRequest(
            from_snapshot=from_snapshot,
            from_timestamp=from_timestamp,
            scan_mode=scan_mode,
            until=until,
            consumer_id=consumer_id,
            poll=poll,
            columns=columns,
            where=where,
        )
        return open_stream(self._context, request)

    def consumers(self) -> tuple[Consumer, ...]:
        """The consumers of the table, sorted by id: each with the snapshot that it reads next.

        Expiry keeps all snapshots from the smallest `next_snapshot` on. A branch has its own
        consumers (https://paimon.apache.org/docs/master/flink/consumer-id/).

        Raises CorruptTable, naming the file, if a consumer cannot be read.

            table.consumers()
        """
        found = consumers.list_consumers(self._context)
        require_table(self._context)
        return found

    def reset_consumer(self, consumer_id: str, next_snapshot: int | None = None) -> None:
        """Set the snapshot that a consumer reads next; with None, delete the consumer.

        The consumer is created if it does not exist. Stop its stream first: a stream overwrites the
        position. `next_snapshot` may be the one after the latest.

        Raises NotFound if the snapshot has expired or is more than one after the latest (the error
        names both), or if there is no such consumer to delete; InvalidRequest for an id that is not
        a valid file name.

            table.reset_consumer("reports", next_snapshot=1)
        """
        context = self._context
        name = consumers.checked_consumer_id(consumer_id)
        if next_snapshot is None:
            require_table(context)
            known = consumers.consumer_ids(context)
            if name not in known:
                raise NotFound(
                    "no such consumer", consumer_id=name, consumers=known, table=context.identifier
                )
            decide(
                lambda: consumers.delete_consumer(context, name),
                lambda: name not in consumers.consumer_ids(context),
                consumer_id=name,
            )
            return
        if isinstance(next_snapshot, bool) or not isinstance(next_snapshot, int):
            raise InvalidRequest("next_snapshot must be a snapshot id", next_snapshot=next_snapshot)
        self._require_retained(next_snapshot)
        before = consumers.stored_consumer(context, name)
        decide(
            lambda: consumers.write_consumer(context, name, next_snapshot),
            lambda: consumers.read_consumer(context, name) == next_snapshot,
            consumer_id=name,
        )
        try:
            # An expiry that listed the consumers before does not keep this snapshot.
            self._require_retained(next_snapshot)
        except NotFound:
            consumers.restore_consumer(context, name, before)
            raise

    def _require_retained(self, next_snapshot: int) -> None:
        retained = retained_changes(self._context)
        earliest, latest = (1, 0) if retained is None else (retained.earliest, retained.latest)
        if not earliest <= next_snapshot <= latest + 1:
            raise NotFound(
                "the consumer would wait for a snapshot that has expired, or is not the next one",
                next_snapshot=next_snapshot,
                earliest=earliest,
                latest=latest,
                table=self._context.identifier,
            )

    def clear_consumers(
        self, including: str | None = None, excluding: str | None = None, *, dry_run: bool = False
    ) -> tuple[str, ...]:
        """Delete consumers; returns the ids of those that were deleted, sorted.

        `including` and `excluding` are regular expressions of Python, which must match the whole
        id. Without `including`, all consumers match; without `excluding`, none is kept. With
        `dry_run`, nothing is deleted. The snapshots that only these consumers needed may expire.

        Raises InvalidRequest for an invalid regular expression.

            table.clear_consumers("test-.*", excluding="test-1")
        """
        context = self._context
        require_table(context)
        return consumers.clear_consumers(context, including, excluding, dry_run=dry_run)
