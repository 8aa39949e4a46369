"""Imports and runs the module of a command only when needed, so that `--help` stays fast."""

from __future__ import annotations

import sys
from importlib import import_module

from lakecore.cli.output import flush, to_nowhere

__all__ = ["INTERRUPTED", "run"]

INTERRUPTED = 130


def run(module: str, command: str, *arguments: object, **flags: bool) -> None:
    """Import the module of a command, and call its function of that name."""
    try:
        getattr(import_module(module), command)(*arguments, **flags)
        flush()
    except BrokenPipeError:  # the reader has closed the pipe, as in `lakecore read ... | head`
        to_nowhere()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(INTERRUPTED) from None
