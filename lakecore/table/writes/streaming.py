"""The methods of a table for streaming (unbounded) writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from lakecore.table.reads.told import gated
from lakecore.table.writes.ingest import IngestResult, ingest
from lakecore.table.writes.stream_write import StreamWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakecore.table.context import TableContext


class StreamWrites(ABC):
    """The methods of a table for streaming writes. A subclass provides the table."""

    @property
    @abstractmethod
    def _context(self) -> TableContext:
        """The table."""

    @gated
    def new_stream_write(self, commit_user: str) -> StreamWrite:
        """A writer that commits checkpoint by checkpoint: each exactly once, also after restarts.

        `commit_user` identifies the job. Use the same name after a restart, and in only one process
        at a time.

            with table.new_stream_write("loader") as writer:
                checkpoint = 1 + (writer.committed() or 0)
                writer.write(rows)
                writer.prepare_commit(checkpoint)
                writer.commit(checkpoint)

        https://paimon.apache.org/docs/master/program-api/java-api/
        """
        return StreamWrite(self._context, commit_user)

    @gated
    def ingest(
        self,
        frames: Iterable[object],
        *,
        every: str = "10 s",
        commit_user: str | None = None,
        on_commit: Callable[[IngestResult], None] | None = None,
    ) -> IngestResult:
        """Write an iterable of frames, with one commit every few seconds, until it ends.

        Each item is anything that `write` accepts, or None. A commit is made only when an item
        arrives: a source that may wait for a long time should yield None from time to time. An
        interval without frames makes no commit, unless `commit.force-create-snapshot` is set.

        If the source raises an error, or Ctrl-C interrupts it while it waits, the frames so far are
        committed, and the error is raised. If Ctrl-C comes while a frame is written, or a frame
        does not fit, the frames since the last commit are dropped. `on_commit` is called after each
        commit with the result so far, for example to move the offset of a queue.

        `commit_user` identifies the job; by default, a random name is used.

            table.ingest(read_queue(), every="10 s", commit_user="loader")
        """
        return ingest(
            self._context, frames, every=every, commit_user=commit_user, on_commit=on_commit
        )
