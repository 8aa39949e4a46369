"""The only module that writes to standard output, so that its errors can be distinguished."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

__all__ = ["OutputFailed", "flush", "to_nowhere", "write"]


class OutputFailed(Exception):
    """Standard output cannot be written: a disk is full, or a device is missing."""


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


def to_nowhere() -> None:
    """Discard all further output, so that Python does not fail when it flushes at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
