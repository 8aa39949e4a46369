"""Requests about the functions of a catalog. This server only lists and describes them.

https://paimon.apache.org/docs/master/concepts/rest/rest-api/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.catalog.functions import function_to_json
from lakecore.catalog.identifier import Identifier, check_directory
from lakecore.rest_server.replies import Problem, Reply, identifiers_page, page
from lakecore.rest_server.request_parts import Json, no_endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.catalog.catalog import Catalog

__all__ = ["all_functions", "on_functions"]

_FUNCTION = "FUNCTION"
_PATTERN = "functionNamePattern"


def all_functions(catalog: Catalog, query: Mapping[str, str]) -> Reply:
    """The functions of all databases."""
    found, following = identifiers_page(
        catalog.list_databases(), lambda database: _names(catalog, database), query, _PATTERN
    )
    return Reply(200, {"functions": found, "nextPageToken": following})


def on_functions(
    catalog: Catalog,
    method: str,
    database: str,
    parts: tuple[str, ...],
    query: Mapping[str, str],
) -> Reply:
    """The reply to a request about functions of a database; `parts` begin with `functions`."""
    match (method, *parts):
        case ("GET", "functions" | "function-details" as form):
            names, following = page(_names(catalog, database), query, _PATTERN)
            if form == "functions":
                return Reply(200, {"functions": names, "nextPageToken": following})
            found = [_described(catalog, database, name) for name in names]
            details = [each for each in found if each is not None]
            return Reply(200, {"functionDetails": details, "nextPageToken": following})
        case ("GET", "functions", name):
            described = _described(catalog, database, name)
            if described is None:
                raise Problem(404, f"no such function: {name}", _FUNCTION, name)
            return Reply(200, described)
    raise no_endpoint(method, ("databases", "DATABASE", *parts))


def _names(catalog: Catalog, database: str) -> tuple[str, ...]:
    return () if catalog.functions is None else catalog.functions.names(database)


def _described(catalog: Catalog, database: str, name: str) -> Json | None:
    """A function in the form of the protocol; None if there is none of that name."""
    check_directory("function", name)
    identifier = Identifier(database=database, table=name)
    found = None if catalog.functions is None else catalog.functions.find(identifier)
    if found is None:
        return None
    stated = dict.fromkeys(("owner", "createdBy", "updatedBy"))
    times = dict.fromkeys(("createdAt", "updatedAt"), 0)
    named = {"uuid": str(identifier), "name": name}
    return {**named, **function_to_json(found), **stated, **times}
