"""The methods of a table that write without an end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from lakecore.table.writes.ingest import IngestResult, ingest
from lakecore.table.writes.stream_write import StreamWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakecore.table.context import TableContext


class StreamWrites(ABC):
    """The methods of a table that write without an end. A subclass provides the table."""

    @property
    @abstractmethod
    def _context(self) -> TableContext:
        """The table."""

    def new_stream_write(self, commit_user: str) -> StreamWrite:
        """A writer that commits checkpoint by checkpoint, exactly once also over restarts.

        `commit_user` names the job; keep it over restarts, and let one process use it at a time.

            with table.new_stream_write("loader") as writer:
                checkpoint = 1 + (writer.committed() or 0)
                writer.write(rows)
                writer.prepare_commit(checkpoint)
                writer.commit(checkpoint)

        https://paimon.apache.org/docs/master/program-api/java-api/
        """
        return StreamWrite(self._context, commit_user)

    def ingest(
        self,
        frames: Iterable[object],
        *,
        every: str = "10 s",
        commit_user: str | None = None,
        on_commit: Callable[[IngestResult], None] | None = None,
    ) -> IngestResult:
        """Write an iterable of frames, with one commit every few seconds, until it ends.

        Each item is anything that `write` accepts, or None to let time pass: a source that may
        wait for long yields None now and then, because a commit is made only when an item comes.
        An interval without frames makes no commit, unless `commit.force-create-snapshot` is set.

        If the source raises an error, or Ctrl-C comes while it waits, the frames so far are
        committed, and the error is raised. If Ctrl-C comes while a frame is written, or a frame
        does not fit, the frames since the last commit are dropped. `on_commit` is called after each
        commit with what is committed so far, for example to move the offset of a queue.

        `commit_user` names the job; without it, a random one is used.

            table.ingest(read_queue(), every="10 s", commit_user="loader")
        """
        return ingest(
            self._context, frames, every=every, commit_user=commit_user, on_commit=on_commit
        )
