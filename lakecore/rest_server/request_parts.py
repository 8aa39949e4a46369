"""Parses and checks the parts of a request: names, and fields of its body."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from lakecore.catalog.identifier import (
    BRANCH_MARK,
    MAIN_BRANCH,
    SPLITTER,
    Identifier,
    check_directory,
)
from lakecore.errors import LakecoreError
from lakecore.rest_server.replies import Problem, problem_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Json", "identifier_of", "no_endpoint", "object_of", "problems", "specs_of", "text_of"]

Json: TypeAlias = "dict[str, Any]"


def identifier_of(database: str, name: str) -> Identifier:
    """The table or branch `t$branch_b1` of a database. Raises InvalidRequest for a bad name."""
    table, mark, rest = name.partition(f"{SPLITTER}{BRANCH_MARK}")
    branch = rest if mark else MAIN_BRANCH
    for what, part in (("database", database), ("table", table), ("branch", branch)):
        check_directory(what, part)
    if SPLITTER in table or SPLITTER in branch:
        raise Problem(404, f"a system table is made by its reader: {name}", "TABLE", name)
    return Identifier(database=database, table=table, branch=branch)


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


def specs_of(body: Mapping[str, Any], key: str) -> list[dict[str, str]]:
    """A list of partitions from the body, each as a mapping of column to value."""
    value = body.get(key)
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise Problem(400, f"{key} is a list of partitions")
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
