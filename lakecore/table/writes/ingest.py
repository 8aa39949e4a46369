"""Writes a stream of frames, with one commit every few seconds.

Each item is written when it arrives. If the interval has passed by then, a checkpoint is prepared
and committed. The clock is read only when an item arrives, so a source that may wait for a long
time should yield None from time to time.

If the source ends or raises an error (also KeyboardInterrupt while it waits), the frames so far are
committed before the error is raised. If a frame cannot be written, or Ctrl-C comes while a frame is
written, the rows since the last commit are dropped, with their files. In all cases, only whole
frames are committed, in order, and `on_commit` is called after each commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from lakecore.display import ShownFacts
from lakecore.errors import CommitUnknown, InvalidRequest
from lakecore.options.kinds import parse_duration
from lakecore.table.writes.batch_write import author
from lakecore.table.writes.stream_write import StreamWrite

if TYPE_CHECKING:
    from lakecore.model.snapshot import CommitResult
    from lakecore.table.context import TableContext


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class IngestResult(ShownFacts):
    """What `Table.ingest` has committed so far.

    `frames` and `rows` count what was written; `commits` counts commits; `snapshot_ids` are those
    of the last commit, and `checkpoint` is its number (None: nothing was committed).
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
    """One run of `ingest`."""

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
