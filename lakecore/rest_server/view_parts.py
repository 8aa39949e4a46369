"""Requests about the views of a catalog.

https://paimon.apache.org/docs/master/concepts/rest/rest-api/

For a catalog that stores no views, such as a filesystem catalog, lists of views are empty, and the
creation of a view is refused (501).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakecore.catalog.identifier import SPLITTER, Identifier, check_directory
from lakecore.catalog.view_changes import AddDialect, UpdateDialect, view_change_from_json
from lakecore.catalog.views import DIALECT, view_from_json, view_to_json
from lakecore.errors import AlreadyExists, CorruptTable, LakecoreError, NotFound, Unsupported
from lakecore.rest_server.replies import Problem, Reply, identifiers_page, page, problem_of, told
from lakecore.rest_server.request_parts import Json, no_endpoint, object_of, problems, text_of
from lakecore.sql.stored_query import check_stored_query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.catalog.catalog import Catalog
    from lakecore.catalog.views import View, Views

__all__ = ["all_views", "on_views", "rename_view"]

_VIEW, _DIALECT, _DATABASE = "VIEW", "DIALECT", "DATABASE"
_PATTERN = "viewNamePattern"


def all_views(catalog: Catalog, query: Mapping[str, str]) -> Reply:
    """The views of all databases."""
    views = catalog.views

    def names(database: str) -> tuple[str, ...]:
        return () if views is None else views.names(database)

    found, following = identifiers_page(catalog.list_databases(), names, query, _PATTERN)
    return Reply(200, {"views": found, "nextPageToken": following})


def rename_view(catalog: Catalog, body: Json) -> Reply:
    """Give a view another name."""
    source, target = object_of(body, "source"), object_of(body, "destination")
    old = _identifier(text_of(source, "database"), text_of(source, "object"))
    new = _identifier(text_of(target, "database"), text_of(target, "object"))
    views = _stored(catalog)
    if not catalog.database_exists(new.database):
        # Java's client would understand a 404 as a missing view.
        raise Problem(400, f"no such database: {new.database}", _DATABASE, new.database)
    try:
        views.rename(old, new)
    except AlreadyExists as error:
        raise problem_of(error, _VIEW, new.table) from error
    except LakecoreError as error:
        raise problem_of(error, _VIEW, old.table) from error
    return Reply(200)


def on_views(
    catalog: Catalog,
    method: str,
    database: str,
    parts: tuple[str, ...],
    query: Mapping[str, str],
    body: Json,
) -> Reply:
    """The reply to a request about the views of a database; `parts` begin with `views`."""
    match (method, *parts):
        case ("GET", "views" | "view-details" as form):
            return _list(catalog.views, database, form, query)
        case ("POST", "views"):
            return _create(_stored(catalog), database, body)
        case ("GET", "views", name):
            identifier = _identifier(database, name)
            return Reply(200, _described(identifier, _find(catalog.views, identifier)))
        case ("POST", "views", name):
            return _alter(catalog.views, _identifier(database, name), body)
        case ("DELETE", "views", name):
            identifier = _identifier(database, name)
            with problems(_VIEW, name):
                if catalog.views is None or not catalog.views.drop(identifier):
                    raise _missing(identifier)
            return Reply(200)
    raise no_endpoint(method, ("databases", "DATABASE", *parts))


def _list(views: Views | None, database: str, form: str, query: Mapping[str, str]) -> Reply:
    found = () if views is None else views.names(database)
    names, following = page(found, query, _PATTERN)
    if form == "views":
        return Reply(200, {"views": names, "nextPageToken": following})
    details = []
    for name in names:
        identifier = Identifier(database=database, table=name)
        # A view may have been dropped meanwhile, or only its own engine can read it.
        with suppress(Unsupported):
            view = None if views is None else views.find(identifier)
            if view is not None:
                details.append(_described(identifier, view))
    return Reply(200, {"viewDetails": details, "nextPageToken": following})


def _create(views: Views, database: str, body: Json) -> Reply:
    name = text_of(object_of(body, "identifier"), "object")
    identifier = _identifier(database, name)
    try:
        view = view_from_json(object_of(body, "schema"), identifier)
    except CorruptTable as error:
        raise Problem(400, f"the view is malformed: {told(error)}", _VIEW, name) from error
    with problems(_VIEW, name):
        _check_texts(identifier, {"": view.query, **view.dialects})
        if not views.create(identifier, view):
            raise Problem(409, f"a table or view has the name: {name}", _VIEW, name)
    return Reply(200)


def _alter(views: Views | None, name: Identifier, body: Json) -> Reply:
    listed = body.get("changes")
    if not isinstance(listed, list):
        raise Problem(400, "changes is a list")
    changes = [view_change_from_json(each) for each in listed]
    try:
        for change in changes:
            if isinstance(change, AddDialect | UpdateDialect):
                _check_texts(name, {change.dialect: change.query})
        if views is None or not views.alter(name, changes):
            raise _missing(name)
    except (AlreadyExists, NotFound) as error:
        raise problem_of(error, _DIALECT, str(error.facts.get("dialect", ""))) from error
    except LakecoreError as error:
        raise problem_of(error, _VIEW, name.table) from error
    return Reply(200)


def _check_texts(name: Identifier, texts: Mapping[str, str]) -> None:
    """Raise InvalidRequest for texts that lakecore's readers would refuse to run.

    Texts of other dialects are refused only if they are statements that no engine takes for a view.
    """
    for dialect, text in texts.items():
        check_stored_query(text, str(name), foreign=dialect != DIALECT)


def _find(views: Views | None, name: Identifier) -> View:
    with problems(_VIEW, name.table):
        found = None if views is None else views.find(name)
    if found is None:
        raise _missing(name)
    return found


def _described(name: Identifier, view: View) -> Json:
    """A view in the form of the protocol."""
    stated = dict.fromkeys(("owner", "createdBy", "updatedBy"))
    times = dict.fromkeys(("createdAt", "updatedAt"), 0)
    return {
        "id": str(name),
        "name": name.table,
        "schema": view_to_json(view),
        **stated,
        **times,
    }


def _identifier(database: str, name: str) -> Identifier:
    """The view of a database. Raises InvalidRequest for a bad name."""
    check_directory("database", database)
    check_directory("view", name)
    if SPLITTER in name:
        raise Problem(404, f"a view has no branches and no system tables: {name}", _VIEW, name)
    return Identifier(database=database, table=name)


def _stored(catalog: Catalog) -> Views:
    if catalog.views is None:
        raise Problem(501, "the catalog of this server stores no views", _VIEW)
    return catalog.views


def _missing(name: Identifier) -> Problem:
    return Problem(404, f"no such view: {name}", _VIEW, name.table)
