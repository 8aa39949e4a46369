"""Streaming writes: rows are divided into checkpoints, each of which becomes one commit.

https://paimon.apache.org/docs/master/program-api/java-api/ (stream write)

1. `write` buffers rows, as any writer does.
2. `prepare_commit(checkpoint)` writes the buffered rows to files, and compacts the buckets that are
   due. The messages are now *in flight*: they can be stored, but no reader sees the rows.
3. `commit(checkpoint)` commits every checkpoint in flight up to that one, oldest first, each under
   its own number.

Rows may be written and further checkpoints prepared before an earlier one is committed. Compactions
may include files in flight, but skip a bucket whose compaction is in flight. With dynamic buckets,
`OwnIndex` decides which earlier commits of this writer do not conflict with later ones.

Exactly once: the number of a checkpoint and the commit user identify its commit. A checkpoint that
was committed before, by this process or by one that crashed, is not committed again.

INVARIANT: files in flight are removed only by `abort`, or if their checkpoint was certainly
committed from other files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from lakecore.display import ShownFacts
from lakecore.errors import CommitUnknown, CorruptTable, InvalidRequest, NotFound
from lakecore.model.files import HASH_INDEX, CommitMessage
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitResult, Snapshot
from lakecore.options.kinds import parse_duration
from lakecore.table.commits.commit import CommitRequest, last_committed
from lakecore.table.commits.commit_change import (
    Base,
    check_commit,
    check_messages,
    check_not_committed,
    delete_files,
)
from lakecore.table.context import TableContext, require_table
from lakecore.table.maintenance.after_commit import commit_and_maintain
from lakecore.table.reads.told import gated
from lakecore.table.writes.batch_write import author, check_author, compact_again, records_nothing
from lakecore.table.writes.write import TableWrite
from lakecore.table.writes.write_compaction import WaitingBuckets

if TYPE_CHECKING:
    from lakecore.table.writes.bucket_buffer import BucketKey


# --- own index -----------------------------------------------------------------------------------
# Dynamic buckets while several commits of one writer are in flight.
#
# The writer assigns keys by the hash index of a snapshot and by the new keys of its commits in
# flight. A commit is refused if the index has changed since the snapshot that its messages name
# (`plan/conflicts.py`, rule 7), even if an earlier commit of the same writer has changed it. But
# then there is no conflict, because the writer knows these keys. Messages are therefore *moved*:
# they name the snapshot of the earlier commit instead.
#
# INVARIANT: messages are moved from one snapshot to a later one only if the index of the later one
# consists of the index of the earlier one and the new index files of the writer's own commit.


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


# --- stream write --------------------------------------------------------------------------------


class StreamWrite:
    """A writer that commits checkpoint by checkpoint. Returned by `Table.new_stream_write`.

    Calls from several threads are carried out one after the other. One `StreamWrite` at a time may
    use a commit user. A context manager; leaving it drops rows that were not prepared and keeps the
    files of checkpoints in flight, because their messages may be committed after a restart.

        with table.new_stream_write("loader") as writer:
            first = 1 + (writer.committed() or 0)
            for checkpoint, rows in enumerate(batches, first):
                writer.write(rows)
                messages = writer.prepare_commit(checkpoint)
                writer.commit(checkpoint)

    Where checkpoints are confirmed later, a restarted process passes the messages that it stored:

        writer = table.new_stream_write("loader")
        writer.recover(writer.filter_committed({checkpoint: messages}))
        writer.commit_user, writer.in_flight, writer.row_count  # ('loader', (), 0)
        writer.abort()
        writer.close()
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

    def __exit__(self, *_: object) -> None:
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

        `messages`: the messages of all writers of the checkpoint, by default those that this object
        prepared. `watermark`: the event time in milliseconds up to which all rows have arrived; the
        snapshot stores the larger of the given and the previous watermark. `properties` are stored
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

        `prepared` has the messages that `prepare_commit` returned, by checkpoint. Call `recover`
        before the first `write`. If the process died in the middle of a commit, its compaction is
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


# --- ingest --------------------------------------------------------------------------------------
# Writes a stream of frames, with one commit every few seconds.
#
# Each item is written when it arrives. If the interval has passed by then, a checkpoint is prepared
# and committed. The clock is read only when an item arrives, so a source that may wait for a long
# time should yield None from time to time.
#
# If the source ends or raises an error (also KeyboardInterrupt while it waits), the frames so far
# are committed before the error is raised. If a frame cannot be written, or Ctrl-C comes while a
# frame is written, the rows since the last commit are dropped, with their files. In all cases, only
# whole frames are committed, in order, and `on_commit` is called after each commit.


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class IngestResult(ShownFacts):
    """What `Table.ingest` has committed so far.

    `frames` and `rows` count what was written; `commits` counts commits; `snapshot_ids` and
    `checkpoint` are the snapshots and the number of the last commit (None: nothing was committed).

        done = table.ingest([rows, rows], every="10 s", commit_user="loader")
        done.frames, done.rows, done.commits  # (2, 24, 1)
    """

    commit_user: str
    frames: int = 0
    rows: int = 0
    commits: int = 0
    checkpoint: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    _title: ClassVar[str] = "Ingest"

    def _shown(self) -> list[tuple[str, object]]:
        ids = ", ".join(map(str, self.snapshot_ids)) or "nothing committed"
        return [("rows", f"{self.rows:,}"), ("commits", self.commits), ("last snapshot", ids)]


def ingest(
    context: TableContext,
    frames: object,
    *,
    every: object,
    commit_user: str | None,
    on_commit: Callable[[IngestResult], None] | None,
) -> IngestResult:
    """Write a stream of frames; see `Table.ingest`."""
    interval_ms = _interval(every)
    is_one = isinstance(frames, str | bytes | dict) or hasattr(frames, "columns")
    if is_one or not isinstance(frames, Iterable):
        raise InvalidRequest(
            "ingest takes an iterable of frames; write takes a single one",
            frames=type(frames).__name__,
        )
    if on_commit is not None and not callable(on_commit):
        raise InvalidRequest("on_commit is a function of one argument", on_commit=on_commit)
    user = author(context, commit_user).user
    with StreamWrite(context, user) as writer:
        return _Ingest(context, writer, interval_ms, on_commit).run(iter(frames))


class _Ingest:
    def __init__(
        self,
        context: TableContext,
        writer: StreamWrite,
        interval_ms: int,
        on_commit: Callable[[IngestResult], None] | None,
    ) -> None:
        self._context = context
        self._writer = writer
        self._interval_ms = interval_ms
        self._on_commit = on_commit
        self._done = IngestResult(commit_user=writer.commit_user)
        self._frames = 0
        self._rows = 0
        self._checkpoint = writer.committed() or 0

    def run(self, frames: Iterator[object]) -> IngestResult:
        began_ms = self._context.ambient.now_ms()
        while True:
            try:
                frame = next(frames)
            except StopIteration:
                self._commit()
                return self._done
            except BaseException:
                self._commit()
                raise
            if frame is not None:
                self._rows += self._writer.write(frame)
                self._frames += 1
            now_ms = self._context.ambient.now_ms()
            if now_ms < began_ms or now_ms - began_ms >= self._interval_ms:
                self._commit()
                began_ms = self._context.ambient.now_ms()

    def _commit(self) -> None:
        """Commit the frames since the last commit, if there are any."""
        if not (self._frames or self._context.options.commit_force_create_snapshot):
            return
        self._checkpoint += 1
        try:
            self._writer.prepare_commit(self._checkpoint)
            result = self._writer.commit(self._checkpoint)
        except CommitUnknown:
            raise
        except BaseException:
            self._writer.abort()
            raise
        self._note(result)

    def _note(self, result: CommitResult) -> None:
        done = self._done
        self._done = replace(
            done,
            frames=done.frames + self._frames,
            rows=done.rows + self._rows,
            commits=done.commits + 1,
            checkpoint=self._checkpoint,
            snapshot_ids=result.snapshot_ids,
        )
        self._frames = self._rows = 0
        if self._on_commit is not None:
            self._on_commit(self._done)


def _interval(every: object) -> int:
    """The milliseconds between two commits."""
    if isinstance(every, str):
        try:
            return parse_duration(every)
        except ValueError as error:
            raise InvalidRequest(f"`every` is {error}", every=every) from error
    raise InvalidRequest("`every` is a duration such as '10 s'", every=every)
