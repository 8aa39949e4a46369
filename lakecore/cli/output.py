"""Runs commands, and writes their output: only here, so that errors of output are recognised."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, ParamSpec, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

INTERRUPTED = 130
ErrorLine: TypeAlias = "Callable[[str, Mapping[str, object]], str]"
ERROR_LINE: ContextVar[ErrorLine | None] = ContextVar("error_line", default=None)
"""Makes the line of the error that ends the program, given its message and its facts; None for
`error: MESSAGE`."""
P = ParamSpec("P")


def run(work: Callable[P, object], *arguments: P.args, **flags: P.kwargs) -> None:
    """Run a command. A closed pipe ends it silently, Ctrl-C with exit code 130."""
    try:
        work(*arguments, **flags)
        flush()
    except BrokenPipeError:  # the reader has closed the pipe, as in `lakecore read ... | head`
        to_nowhere()
    except KeyboardInterrupt:
        form = ERROR_LINE.get()
        sys.stderr.write("interrupted\n" if form is None else form("interrupted", {}))
        raise SystemExit(INTERRUPTED) from None


class OutputFailed(Exception):
    """Raised if standard output cannot be written: a disk is full, or a device is missing."""


def write(text: str) -> None:
    """Print this text unchanged. Raises OutputFailed, and BrokenPipeError if no one reads it."""
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(error.strerror or str(error)) from error


def flush() -> None:
    """Flush everything that was printed. Raises as `write` does."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(error.strerror or str(error)) from error


class BinaryOutput(io.RawIOBase):
    """Standard output as a file of bytes that counts its position. Closing it only flushes."""

    def __init__(self) -> None:
        self._position = 0

    def writable(self) -> bool:
        """Always True."""
        return True

    def tell(self) -> int:
        """The number of bytes written."""
        return self._position

    def write(self, data: object) -> int:
        """Write all bytes. Raises OutputFailed, and BrokenPipeError if no one reads them."""
        part = memoryview(data).cast("B")  # type: ignore[arg-type]  # bytes, or Arrow's buffers
        try:
            sys.stdout.buffer.write(part)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(error.strerror or str(error)) from error
        self._position += len(part)
        return len(part)

    def close(self) -> None:
        """Flush; standard output stays open."""
        if not self.closed:
            flush()
        super().close()


def to_nowhere() -> None:
    """Discard all further output, so that Python does not fail when it flushes at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
