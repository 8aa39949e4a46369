"""Replies of the server: JSON, pages, and errors in the protocol's form."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from lakecore.catalog.identifier import (
    BRANCH_MARK,
    MAIN_BRANCH,
    NAME_BYTES_MAX,
    QUOTE,
    SPLITTER,
    Identifier,
    check_directory,
)
from lakecore.errors import AlreadyExists, InvalidRequest, LakecoreError, NotFound, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakecore.model.snapshot import Snapshot

Json: TypeAlias = "dict[str, Any]"
PAGE_MAX = 1_000
FAILED = "the server could not do this; its log says why"
_NAMED = ("database", "object")
_PLACE = re.compile(r"[/\\]")


@dataclass(frozen=True, slots=True)
class Reply:
    """A status and a JSON body, or metrics as text."""

    status: int
    body: dict[str, Any] | None = None
    metrics: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request: `parts` are those of its decoded `path` that have not been read yet."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    body: Json
    read: int = 0

    @property
    def parts(self) -> tuple[str, ...]:
        return self.path[self.read :]

    def below(self, count: int = 1) -> Request:
        """The request with `count` more parts read."""
        return replace(self, read=self.read + count)

    def no_endpoint(self) -> Problem:
        """The problem (501) of a request that this server does not support."""
        return Problem(501, f"this server has no {self.method} /v1/{'/'.join(self.path)}")

    def listing(
        self,
        key: str,
        names: Sequence[str],
        pattern: str = "",
        described: Callable[[str], Json | None] | None = None,
    ) -> Reply:
        """One page of a sorted list under `key`, and the token of the next page.

        `pattern`: the key of the pattern in the query. `described`: the form of a name in the list,
        None for one that is gone.
        """
        kept, following = page(names, self.query, pattern)
        found = kept if described is None else [*filter(None, map(described, kept))]
        return Reply(200, {key: found, "nextPageToken": following})

    def identifiers(
        self, key: str, databases: Iterable[str], names: Callable[[str], Iterable[str]], what: str
    ) -> Reply:
        """One page of the names in all databases, as identifiers. `what`: such as `view`."""
        found = [
            f"{database}/{name}"  # no name contains a slash
            for database in _like(databases, self.query.get("databaseNamePattern", ""))
            for name in _like(names(database), self.query.get(f"{what}NamePattern", ""))
        ]
        return self.listing(
            key,
            sorted(found),
            described=lambda each: dict(zip(_NAMED, each.split("/"), strict=True)),
        )


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


_CODES = {NotFound: 404, AlreadyExists: 409, Unsupported: 501, InvalidRequest: 400}


def problem_of(error: LakecoreError, resource: str = "", name: str = "") -> Problem:
    """Converts an error of lakecore to a problem of a resource."""
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return Problem(code, told(error), resource, name)
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

    Each piece is matched at its first occurrence. A regular expression would try all positions,
    which takes forever for a pattern with many `%`.
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


# --- request parts -------------------------------------------------------------------------------
# Parses and checks the parts of a request: names, and fields of its body.


def identifier_of(database: str, name: str) -> Identifier:
    """The table or branch `t$branch_b1` of a database. Raises InvalidRequest for a bad name."""
    table, mark, rest = name.partition(f"{SPLITTER}{BRANCH_MARK}")
    branch = rest if mark else MAIN_BRANCH
    check_database(database)
    for what, part in (("table", table), ("branch", branch)):
        check_directory(what, part)
    if SPLITTER in table or SPLITTER in branch:
        raise Problem(404, f"a system table is made by its reader: {name}", "TABLE", name)
    # Quotes would be removed from the name, and the table of the name within them would be found.
    if QUOTE in name or is_too_long(table) or is_too_long(branch):
        raise Problem(404, "no table has such a name", "TABLE", name)
    return Identifier(database=database, table=table, branch=branch)


def check_files(snapshot: Snapshot) -> None:
    """Raise Problem for the name of a file outside the table's own directories."""
    names = (
        snapshot.base_manifest_list,
        snapshot.delta_manifest_list,
        snapshot.changelog_manifest_list,
        snapshot.index_manifest,
        snapshot.statistics,
    )
    for name in names:
        if name is not None and ("/" in name or "\\" in name):
            raise Problem(400, f"the snapshot names a file by a path: {name}")


def text_of(body: Mapping[str, Any], key: str) -> str:
    """A non-empty string field of the body. Raises Problem for any other value."""
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise Problem(400, f"{key} is a text")
    return value


def object_of(body: Mapping[str, Any], key: str) -> Json:
    """An object of the body."""
    value = body.get(key)
    if not isinstance(value, dict):
        raise Problem(400, f"{key} is an object")
    return value


def check_database(name: str) -> None:
    """Raise InvalidRequest for an invalid name, and Problem for one that no database can have."""
    check_directory("database", name)
    if QUOTE in name or is_too_long(name):
        raise Problem(404, "no database has such a name", "DATABASE", name)


def is_too_long(name: str) -> bool:
    """Whether no directory can have the name."""
    return len(name.encode()) > NAME_BYTES_MAX


def specs_of(body: Mapping[str, Any], key: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """A list of partitions from the body, each as a mapping of partition keys to texts."""
    value = body.get(key)
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(each, dict) and each and {*each} <= {*columns} for each in value)
        or not all(isinstance(text, str) for each in value for text in each.values())
    ):
        raise Problem(400, f"{key} is a list of partitions: objects of {list(columns)}")
    return value


@contextmanager
def problems(resource: str, name: str, new_name: str | None = None) -> Iterator[None]:
    """Translate errors of lakecore in the `with` block into problems of a resource.

    `new_name`: the name to which the block renames the resource, and which may exist.
    """
    try:
        yield
    except LakecoreError as error:
        about = new_name if new_name and isinstance(error, AlreadyExists) else name
        raise problem_of(error, resource, about) from error
