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
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = [
    "FAILED",
    "Problem",
    "Reply",
    "error_reply",
    "identifiers_page",
    "page",
    "problem_of",
    "told",
]

PAGE_MAX = 1_000
FAILED = "the server could not do this; its log says why"
_PLACE = re.compile(r"[/\\]")


@dataclass(frozen=True, slots=True)
class Reply:
    """A status and a JSON body."""

    status: int
    body: dict[str, Any] | None = None


class Problem(Exception):
    """Raised for a request that cannot be executed, with the status and message of the reply."""

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
    """Converts an error of lakecore to a problem of a resource."""
    match error:
        case NotFound():
            return Problem(404, told(error), resource, name)
        case AlreadyExists():
            return Problem(409, told(error), resource, name)
        case Unsupported():
            return Problem(501, told(error), resource, name)
        case InvalidRequest():
            return Problem(400, told(error), resource, name)
        case _:
            return Problem(500, FAILED, resource, name)


def told(error: LakecoreError) -> str:
    """The message of an error, without facts that name places of this server, or causes."""
    facts = {
        key: value
        for key, value in error.facts.items()
        if not isinstance(value, BaseException) and not _PLACE.search(str(value))
    }
    return str(type(error)(error.message, **facts))


def page(
    names: Sequence[str], query: Mapping[str, str], pattern_key: str = ""
) -> tuple[list[str], str | None]:
    """The names of one page of a sorted list, and the token of the next page.

    The token is the last name of the page, so the next page is right even if names are added or
    removed meanwhile.
    """
    names = _like(names, query.get(pattern_key, "") if pattern_key else "")
    after = query.get("pageToken")
    if after:
        names = [name for name in names if name > after]
    size = _size(query.get("maxResults"))
    kept = list(names[:size])
    return kept, kept[-1] if len(names) > size else None


def identifiers_page(
    databases: Iterable[str],
    names: Callable[[str], Iterable[str]],
    query: Mapping[str, str],
    pattern_key: str,
) -> tuple[list[dict[str, str]], str | None]:
    """One page of the names in all databases, as identifiers, and the token of the next page."""
    found = [
        f"{database}/{name}"  # no name contains a slash
        for database in _like(databases, query.get("databaseNamePattern", ""))
        for name in _like(names(database), query.get(pattern_key, ""))
    ]
    kept, following = page(sorted(found), query)
    pairs = [each.split("/") for each in kept]
    return [{"database": database, "object": name} for database, name in pairs], following


def _like(names: Iterable[str], pattern: str) -> list[str]:
    """The names that match a pattern. `%` matches any text; a backslash escapes it."""
    if not pattern:
        return list(names)
    pieces = [""]
    for part in re.findall(r"\\.|[^\\]|\\$", pattern, re.DOTALL):
        if part == "%":
            pieces.append("")
        else:
            pieces[-1] += part[-1]
    return [name for name in names if _has_pieces(name, pieces)]


def _has_pieces(name: str, pieces: Sequence[str]) -> bool:
    """Whether the name consists of the pieces, in order, with any text between them.

    Each piece is taken where it comes first. A regular expression would try all places, which takes
    forever for a pattern with many `%`.
    """
    first, *middle = pieces
    if not middle:
        return name == first
    last, place = middle.pop(), len(first)
    if not name.startswith(first):
        return False
    for piece in middle:
        found = name.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return len(name) - len(last) >= place and name.endswith(last)


def _size(text: str | None) -> int:
    if text is None or not text.strip():
        return PAGE_MAX
    try:
        number = int(text)
    except ValueError:
        raise Problem(400, f"maxResults is no number: {text}") from None
    return PAGE_MAX if number <= 0 else min(number, PAGE_MAX)
