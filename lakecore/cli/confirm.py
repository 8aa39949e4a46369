"""Asks for confirmation before data is lost permanently."""

from __future__ import annotations

import sys
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.cli.arguments import Care

DRY = "dry run: nothing was changed"
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class Verb(Protocol[R_co]):
    """A verb that removes something, or in a dry run only says what it would remove."""

    def __call__(self, *, dry_run: bool) -> R_co: ...


def confirmed(verb: Verb[R], question: Callable[[R], str | None], care: Care) -> R:
    """Run a verb after the user agreed, and return its result, or that of a dry run.

    A dry run determines what would be removed, and `question` turns its result into a question. If
    `question` returns None, there is nothing to remove: then nothing is asked or done.
    """
    planned = verb(dry_run=True)
    if care.dry_run:
        return planned
    asked = question(planned)
    if asked is None:
        return _done(planned)
    require_consent(asked, yes=care.yes)
    return verb(dry_run=False)


def _done(result: R) -> R:
    """The result of a verb with nothing to remove, which is no dry run."""
    if is_dataclass(result) and not isinstance(result, type) and hasattr(result, "dry_run"):
        return cast("R", replace(result, dry_run=False))
    return result


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
