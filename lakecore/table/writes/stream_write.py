"""Streaming writes: rows are divided into checkpoints, each of which becomes one commit.

https://paimon.apache.org/docs/master/program-api/java-api/ (stream write)

1. `write` buffers rows, as any writer does.
2. `prepare_commit(checkpoint)` writes the buffered rows to files, and compacts the buckets that are
   due. The messages are now *in flight*: they can be stored, but no reader sees the rows.
3. `commit(checkpoint)` commits every checkpoint in flight up to that one, oldest first, each under
   its own number.

Rows may be written and further checkpoints prepared before an earlier one is committed. Compactions
may include files in flight, but skip a bucket whose compaction is in flight. With dynamic buckets,
`own_index.py` decides which earlier commits of this writer do not conflict with later ones.

Exactly once: the number of a checkpoint and the commit user identify its commit. A checkpoint that
was committed before, by this process or by one that crashed, is not committed again.

INVARIANT: files in flight are removed only by `abort`, or if their checkpoint was certainly
committed from other files.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from lakecore.errors import InvalidRequest
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitResult
from lakecore.table.commits.commit import CommitRequest, last_committed
from lakecore.table.commits.commit_change import check_commit, check_messages
from lakecore.table.commits.message_files import check_not_committed, delete_files
from lakecore.table.context import require_table
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.reads.told import gated
from lakecore.table.writes.batch_write import check_author, compact_again, records_nothing
from lakecore.table.writes.full_compaction import WaitingBuckets
from lakecore.table.writes.own_index import OwnIndex
from lakecore.table.writes.write import TableWrite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from lakecore.model.files import CommitMessage
    from lakecore.table.context import TableContext


class StreamWrite:
    """A writer that commits checkpoint by checkpoint. Returned by `Table.new_stream_write`.

    Calls from several threads are carried out one after the other. One `StreamWrite` at a time may
    use a commit user. A context manager; leaving it drops rows that were not prepared and keeps the
    files of checkpoints in flight, because their messages may be committed after a restart.

        with table.new_stream_write("loader") as writer:
            for checkpoint, rows in enumerate(batches, start=1 + (writer.committed() or 0)):
                writer.write(rows)
                writer.prepare_commit(checkpoint)
                writer.commit(checkpoint)
    """

    def __init__(self, context: TableContext, commit_user: str) -> None:
        if commit_user is None:
            raise InvalidRequest("a stream write has a commit user: it finds its commits by it")
        check_author(commit_user, 0)
        self._context = context
        self._user = commit_user
        self._writer = TableWrite(context, streaming=True, user=commit_user)
        self._waiting = WaitingBuckets(context, commit_user)
        self._own_index = OwnIndex(context)
        self._in_flight: dict[int, list[CommitMessage]] = {}
        self._tried: set[int] = set()
        self._last = -1
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def commit_user(self) -> str:
        """The user whose commits these are."""
        return self._user

    @property
    def in_flight(self) -> tuple[int, ...]:
        """The checkpoints that are prepared and not committed, oldest first."""
        with self._lock:
            return tuple(self._in_flight)

    @property
    def row_count(self) -> int:
        """The number of rows written so far."""
        return self._writer.row_count

    @gated
    def write(self, data: object) -> int:
        """Add rows to the next checkpoint and return their number.

        `Table.write` describes `data`. Raises InvalidRequest, naming column, value and row, if a
        row does not fit; the rows since the last `prepare_commit` are then dropped, and the writer
        accepts no more rows. Checkpoints in flight can still be committed.
        """
        with self._lock:
            return self._writer.write(data)

    @gated
    def prepare_commit(self, checkpoint: int) -> list[CommitMessage]:
        """Write the rows since the last checkpoint to files, and run due compactions.

        `checkpoint` is a number from 0 on, greater than that of the checkpoint before. Returns one
        message for each changed bucket; none if there were no rows. Messages can be pickled and
        stored with the state of the job; after a crash, `recover` commits them.

        Raises InvalidRequest if the number is not greater. After any other error, the rows since
        the last checkpoint are dropped, with their files.
        """
        with self._lock:
            _check_checkpoint(checkpoint)
            if checkpoint <= self._last:
                raise InvalidRequest(
                    "the numbers of checkpoints rise",
                    checkpoint=checkpoint,
                    prepared_before=self._last,
                    table=self._context.identifier,
                )
            earlier = list(self._in_flight.values())
            try:
                messages = self._writer.prepare_after(earlier, waiting=self._waiting.keys())
            except BaseException:
                self._writer.close()
                raise
            self._waiting.note(messages)
            self._in_flight[checkpoint] = messages
            self._last = checkpoint
            return list(messages)

    @gated
    def commit(
        self,
        checkpoint: int,
        messages: Sequence[CommitMessage] | None = None,
        *,
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> CommitResult:
        """Commit a checkpoint, and before it all earlier checkpoints in flight.

        `messages` are those of all writers of the checkpoint, by default those that this object
        prepared. `watermark` is the event time in milliseconds up to which all rows have arrived;
        the snapshot stores the larger of this and the previous watermark. `properties` are stored
        in the snapshot.

        A checkpoint without rows makes an empty snapshot, unless `snapshot.ignore-empty-commit` is
        set. A checkpoint that was committed before is not committed again; `facts` of the result
        then has `already_committed`. The result counts all checkpoints that this call committed.

        Raises InvalidRequest for a checkpoint that is not prepared, and if `messages` lacks some
        that this object prepared. After CommitConflict, no later checkpoint can be committed: close
        this object, and write again the rows of all checkpoints after `committed()`. After
        CommitUnknown, call `commit` again.
        """
        with self._lock:
            _check_checkpoint(checkpoint)
            check_commit(() if messages is None else messages, watermark, properties)
            given = self._given(checkpoint, messages)
            result = CommitResult(commit_user=self._user, identifier=checkpoint)
            for earlier in [each for each in self._in_flight if each < checkpoint]:
                result = _joined(result, self._commit(earlier, self._in_flight[earlier]))
            made = self._commit(
                checkpoint, given, watermark, properties, foreign=messages is not None
            )
            return _joined(result, made)

    def committed(self) -> int | None:
        """The last checkpoint that this commit user committed; None if there is none."""
        last = last_committed(self._context, self._user)
        require_table(self._context)
        return None if last is None else last.commit_identifier

    def filter_committed(
        self, prepared: Mapping[int, Sequence[CommitMessage]]
    ) -> dict[int, Sequence[CommitMessage]]:
        """The checkpoints that are not committed yet, with their messages, in order."""
        _check_prepared(prepared)
        last = self.committed()
        return {
            checkpoint: prepared[checkpoint]
            for checkpoint in sorted(prepared)
            if last is None or checkpoint > last
        }

    @gated
    def recover(self, prepared: Mapping[int, Sequence[CommitMessage]]) -> tuple[CommitResult, ...]:
        """Commit the checkpoints that a crashed process prepared but did not commit.

        `prepared` has the messages that `prepare_commit` returned, by checkpoint. Call this before
        the first `write`. If the process died in the middle of a commit, its compaction is
        committed too. Returns the result of each checkpoint, in order.

        Raises InvalidRequest if files of the messages are not there any more.
        """
        with self._lock:
            _check_prepared(prepared)
            if self._in_flight or self._writer.row_count:
                raise InvalidRequest(
                    "recover before the first write", table=self._context.identifier
                )
            last = self.committed()
            results = tuple(
                self._commit(checkpoint, prepared[checkpoint], foreign=True)
                for checkpoint in sorted(prepared)
                if last is None or checkpoint >= last
            )
            self._last = max([self._last, *prepared])
            return results

    def abort(self) -> None:
        """Drop the rows since the last checkpoint, and the files of all checkpoints in flight.

        Files that a commit may use are kept. The writer can then write more rows.
        """
        with self._lock:
            safe = [each for at, each in self._in_flight.items() if at not in self._tried]
            self._in_flight = {}
            self._own_index.forget()
            self._writer.abort([message for messages in safe for message in messages])

    def close(self) -> None:
        """Close the writer and drop the rows since the last `prepare_commit`."""
        with self._lock:
            self._writer.close()

    # --- one checkpoint --------------------------------------------------------------------------

    def _given(
        self, checkpoint: int, messages: Sequence[CommitMessage] | None
    ) -> Sequence[CommitMessage]:
        """The messages to commit under a checkpoint: those given, or else those prepared."""
        own = self._in_flight.get(checkpoint)
        if messages is None:
            if own is None:
                raise InvalidRequest(
                    "the checkpoint is not prepared, or it was committed",
                    checkpoint=checkpoint,
                    in_flight=list(self._in_flight),
                    table=self._context.identifier,
                )
            return own
        names = {_identity(message) for message in messages}
        missing = [each.bucket for each in own or () if _identity(each) not in names]
        if missing:
            raise InvalidRequest(
                "messages of this checkpoint are missing: their rows would be lost",
                checkpoint=checkpoint,
                buckets=missing,
                table=self._context.identifier,
            )
        return messages

    def _commit(
        self,
        checkpoint: int,
        messages: Sequence[CommitMessage],
        watermark: int | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        foreign: bool = False,
    ) -> CommitResult:
        request = CommitRequest(
            messages=self._own_index.moved(messages),
            user=self._user,
            identifier=checkpoint,
            force=records_nothing(self._context, checkpoint),
            watermark=watermark,
            properties=properties,
            from_elsewhere=foreign,
        )
        was_tried = checkpoint in self._tried
        self._tried.add(checkpoint)

        def on_failure() -> None:
            if not was_tried:
                self._tried.discard(checkpoint)

        result = commit_and_maintain(self._context, request, on_failure=on_failure)
        mine = self._in_flight.pop(checkpoint, None)
        self._tried.discard(checkpoint)
        if result.facts.get("already_committed"):
            if mine is not None and not was_tried:
                self._drop(mine)
            self._own_index.forget()
            return result
        if self._own_index.is_needed:
            self._follow(request.messages, result)
        return compact_again(self._context, request, result)

    def _drop(self, messages: Sequence[CommitMessage]) -> None:
        """Remove this writer's files of a checkpoint that another process has committed already."""
        with suppress(InvalidRequest):
            check_not_committed(self._context, messages)
            delete_files(self._context, messages)

    def _follow(self, messages: Sequence[CommitMessage], result: CommitResult) -> None:
        """After a commit of this writer, update the base of its key index."""
        if messages and result.snapshot_ids:
            moved = self._own_index.follow(messages, result.snapshot_ids[-1])
            if moved is not None:
                self._writer.follow(*moved)
        if not self._in_flight:
            self._own_index.forget()
            self._writer.read_again()


def _check_checkpoint(checkpoint: object) -> None:
    check_author(None, checkpoint)
    assert isinstance(checkpoint, int)
    if not 0 <= checkpoint < BATCH_COMMIT_IDENTIFIER:
        raise InvalidRequest(
            "the number of a checkpoint is between 0 and 2^63 - 2", checkpoint=checkpoint
        )


def _check_prepared(prepared: object) -> None:
    if not isinstance(prepared, Mapping):
        raise InvalidRequest(
            "give the messages of each checkpoint: {checkpoint: messages}",
            given=type(prepared).__name__,
        )
    for checkpoint, messages in prepared.items():
        _check_checkpoint(checkpoint)
        check_messages(messages, "recover")


def _identity(message: CommitMessage) -> CommitMessage:
    """The message without its base snapshot, for comparison with other messages."""
    return replace(message, base_snapshot_id=None, base_snapshot_uuid=None)


def _joined(first: CommitResult, second: CommitResult) -> CommitResult:
    """The sum of the results of two commits."""
    return replace(
        second,
        snapshot_ids=(*first.snapshot_ids, *second.snapshot_ids),
        rows=first.rows + second.rows,
        files_added=first.files_added + second.files_added,
        files_deleted=first.files_deleted + second.files_deleted,
        bytes_added=first.bytes_added + second.bytes_added,
        bytes_deleted=first.bytes_deleted + second.bytes_deleted,
        attempts=first.attempts + second.attempts,
    )
