"""Asks for confirmation before data is lost permanently."""

from __future__ import annotations

import sys

from lakecore.errors import InvalidRequest

__all__ = ["require_consent"]


def require_consent(question: str, *, yes: bool) -> None:
    """Return if the user agrees, by `--yes` or at the terminal.

    Raises InvalidRequest if the user declines, or if there is no terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequest("this needs a confirmation: add --yes", question=question)
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise InvalidRequest("nothing was changed")
