"""Parses and checks the parts of a request: names, and fields of its body."""

from __future__ import annotations

from contextlib import contextmanager
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
from lakecore.errors import LakecoreError
from lakecore.rest_server.replies import Problem, problem_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.model.snapshot import Snapshot

__all__ = [
    "Json",
    "check_database",
    "check_files",
    "identifier_of",
    "no_endpoint",
    "object_of",
    "problems",
    "specs_of",
    "text_of",
]

Json: TypeAlias = "dict[str, Any]"


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
    """Raise Problem for the name of a file that would lie outside the table's own directories."""
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
    """A text field of the body that is not empty. Raises Problem for any other value."""
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


def no_endpoint(method: str, parts: tuple[str, ...]) -> Problem:
    """The problem (501) of a request that this server does not support."""
    return Problem(501, f"this server has no {method} /v1/{'/'.join(parts)}")


@contextmanager
def problems(resource: str, name: str) -> Iterator[None]:
    """Translate errors of lakecore in the `with` block into problems of a resource."""
    try:
        yield
    except LakecoreError as error:
        raise problem_of(error, resource, name) from error
