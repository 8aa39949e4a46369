"""Watches a running statement: Ctrl-C stops it, and a terminal shows its progress.

Python handles a signal only when the main thread runs Python code again, but a DuckDB query may
compute for hours before it returns. The C-level signal handler runs immediately: it writes a byte
to a socket, and a thread that reads the socket stops the query. The same thread shows the progress.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["watched"]

_BYTES = 64
_SECONDS = 0.5
_SILENT_ROUNDS = 4
"""Progress is first shown after this many times `_SECONDS`: most statements are faster."""
_ERASE = "\r\x1b[K"


class Running(Protocol):
    """The engine that runs statements."""

    def interrupt(self) -> None:
        """Stop the running statement."""
        ...

    def progress(self) -> float | None:
        """How much of the running query is done, in percent; None if that is unknown."""
        ...


@contextmanager
def watched(running: Running) -> Iterator[None]:
    """Stop the statement on SIGINT, and show its progress in a terminal.

    Does nothing outside of the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    watcher = threading.Thread(
        target=_watch, args=(receiver, running), name="lakecore-statement", daemon=True
    )
    watcher.start()
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before, warn_on_full_buffer=False)
        sender.close()
        watcher.join()
        receiver.close()


def _watch(receiver: socket.socket, running: Running) -> None:
    """Read signal numbers from the socket until the other end is closed."""
    receiver.settimeout(_SECONDS)
    rounds, shown = 0, False
    while True:
        try:
            numbers = receiver.recv(_BYTES)
        except TimeoutError:
            rounds += 1
            done = running.progress() if rounds > _SILENT_ROUNDS and sys.stderr.isatty() else None
            if done is not None and done >= 1:  # work without a known end stays at 0
                sys.stderr.write(f"{_ERASE}{done:.0f} % done")
                sys.stderr.flush()
                shown = True
            continue
        if signal.SIGINT in numbers:
            running.interrupt()
        if not numbers or signal.SIGINT in numbers:
            if shown:
                sys.stderr.write(_ERASE)
                sys.stderr.flush()
            rounds, shown = 0, False
        if not numbers:
            return
