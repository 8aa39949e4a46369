"""Replies of the server: JSON, pages, and errors in the protocol's form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakecore.errors import (
    AlreadyExists,
    InvalidRequest,
    LakecoreError,
    NotFound,
    Unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Problem", "Reply", "error_reply", "page", "problem_of"]

PAGE_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Reply:
    """A status and a JSON body."""

    status: int
    body: dict[str, Any] | None = None


class Problem(Exception):
    """A request that cannot be carried out: what the server replies."""

    def __init__(self, code: int, message: str, resource: str = "", name: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.resource, self.name = code, message, resource, name


def error_reply(problem: Problem) -> Reply:
    """The protocol's form of an error."""
    return Reply(
        problem.code,
        {
            "resourceType": problem.resource or None,
            "resourceName": problem.name or None,
            "message": problem.message,
            "code": problem.code,
        },
    )


def problem_of(error: LakecoreError, resource: str = "", name: str = "") -> Problem:
    """An error of lakecore as a problem with a resource."""
    match error:
        case NotFound():
            return Problem(404, str(error), resource, name)
        case AlreadyExists():
            return Problem(409, str(error), resource, name)
        case Unsupported():
            return Problem(501, str(error), resource, name)
        case InvalidRequest():
            return Problem(400, str(error), resource, name)
        case _:
            return Problem(500, str(error), resource, name)


def page(
    names: Sequence[str], query: Mapping[str, str], pattern_key: str = ""
) -> tuple[list[str], str | None]:
    """The names of one page of a sorted list, and the token of the next page.

    The token is the last name of the page, so names that come or go do not shift the next page.
    """
    pattern = query.get(pattern_key, "") if pattern_key else ""
    if pattern:
        like = re.compile(re.escape(pattern).replace("%", ".*"))
        names = [name for name in names if like.fullmatch(name)]
    after = query.get("pageToken")
    if after:
        names = [name for name in names if name > after]
    size = _size(query.get("maxResults"))
    kept = list(names[:size])
    return kept, kept[-1] if len(names) > size else None


def _size(text: str | None) -> int:
    if text is None or not text.strip():
        return PAGE_MAX
    try:
        number = int(text)
    except ValueError:
        raise Problem(400, f"maxResults is no number: {text}") from None
    return PAGE_MAX if number <= 0 else min(number, PAGE_MAX)
