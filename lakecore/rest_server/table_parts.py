"""Requests about the snapshots, partitions, branches and tags of one table."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from lakecore.catalog.identifier import SPLITTER, Identifier, check_directory
from lakecore.catalog.metastore import live_statistics
from lakecore.catalog.rest.wire import snapshot_to_json
from lakecore.catalog.views import (
    DIALECT,
    AddDialect,
    UpdateDialect,
    View,
    Views,
    view_change_from_json,
    view_from_json,
    view_to_json,
)
from lakecore.errors import AlreadyExists, CorruptTable, LakecoreError, NotFound, Unsupported
from lakecore.rest_server.replies import (
    Json,
    Problem,
    Reply,
    Request,
    object_of,
    problem_of,
    problems,
    specs_of,
    text_of,
    told,
)
from lakecore.sql.stored_views import check_stored_query
from lakecore.table.verbs.mark_partition_done import mark_chosen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.catalog.catalog import Catalog
    from lakecore.model.snapshot import Snapshot, Tag
    from lakecore.table.commits.commit import PartitionFilter
    from lakecore.table.context import TableContext
    from lakecore.table.handle import Table

_DIGITS_MAX = 19
"""No snapshot has a longer number."""


def on_parts(table: Table, request: Request) -> Reply:
    """The reply to a request about a part of a table."""
    body = request.body
    match (request.method, *request.parts):
        case ("GET", "snapshots"):
            return _snapshots(table.context, request)
        case ("GET", "snapshots", version):
            return Reply(200, {"snapshot": snapshot_to_json(version_of(table.context, version))})
        case ("GET", "partitions"):
            return _partitions(table.context, request)
        case ("POST", "partitions", "mark"):
            specs = specs_of(body, "specs", table.schema.partition_keys)
            with problems("PARTITION", str(specs[0])):
                mark_chosen(table.context, specs, _of_specs(table.context, specs))
            return Reply(200)
        case (_, "branches", *_):
            return _on_branches(table, request.below())
        case (_, "tags", *_):
            return _on_tags(table, request.below())
        case ("GET", "consumers"):
            found = [
                {"consumerId": each.consumer_id, "nextSnapshotId": each.next_snapshot}
                for each in table.consumers()
            ]
            return Reply(200, {"consumers": found, "nextPageToken": None})
        case ("POST", "consumers", "reset"):
            table.reset_consumer(text_of(body, "consumerId"), body.get("nextSnapshotId"))
            return Reply(200)
    raise request.no_endpoint()


def version_of(context: TableContext, version: str) -> Snapshot:
    """The snapshot of a version: EARLIEST, LATEST, the number of a snapshot, or else a tag."""
    history = context.history
    found: Snapshot | None = None
    if version == "LATEST":
        found = history.latest_snapshot()
    elif version == "EARLIEST":
        first = history.earliest_snapshot_id()
        found = None if first is None else history.snapshot_if_there(first)
    elif version.isdecimal() and len(version) <= _DIGITS_MAX:
        found = history.snapshot_if_there(int(version))
    elif version in history.tag_names():
        found = history.tag(version).snapshot
    if found is None:
        raise Problem(404, f"no such snapshot: {version}", "SNAPSHOT", version)
    return found


def _snapshots(context: TableContext, request: Request) -> Reply:
    # Ids are padded with zeros, so that the texts sort as the numbers do.
    ids = [f"{number:019d}" for number in context.history.snapshot_ids()]

    def described(number: str) -> Json | None:
        found = context.history.snapshot_if_there(int(number))
        return None if found is None else snapshot_to_json(found)

    return request.listing("snapshots", ids, described=described)


def _partitions(context: TableContext, request: Request) -> Reply:
    if request.query.get("partitionNamePattern"):
        raise Problem(501, "this server does not filter partitions by a pattern", "PARTITION")
    snapshot = context.history.latest_snapshot()
    sums = (
        {} if snapshot is None else live_statistics(context.history, snapshot, context.partitions)
    )
    found = {json.dumps(each["spec"], sort_keys=True): each for each in sums.values()}
    return request.listing(
        "partitions", sorted(found), described=lambda name: {**found[name], "done": False}
    )


def _of_specs(context: TableContext, specs: Sequence[Mapping[str, str]]) -> PartitionFilter:
    """A filter of the partitions that have one of the specs, as `GET partitions` lists them.

    Several partitions may share a spec: the spec has the default partition name for a null, for a
    blank string, and for a string that is this name.
    """

    def chosen(partitions: Sequence[bytes]) -> Sequence[bool]:
        return [
            any(spec.items() <= texts.items() for spec in specs)
            for texts in map(context.partitions.spec, partitions)
        ]

    return chosen


def _on_branches(table: Table, request: Request) -> Reply:
    body = request.body
    match (request.method, *request.parts):
        case ("GET",):
            return Reply(200, {"branches": [branch.name for branch in table.branches()]})
        case ("POST",):
            tag = body.get("fromTag")
            if tag is not None:
                tag_of(table, tag)
            with problems("BRANCH", text_of(body, "branch")):
                table.create_branch(text_of(body, "branch"), tag=tag)
            return Reply(200)
        case ("DELETE", name):
            with problems("BRANCH", name):
                table.delete_branch(name)
            return Reply(200)
        case ("POST", name, "forward"):
            with problems("BRANCH", name):
                table.fast_forward(name)
            return Reply(200)
        case ("POST", name, "rename"):
            with problems("BRANCH", name):
                table.rename_branch(name, text_of(body, "toBranch"))
            return Reply(200)
    raise request.no_endpoint()


def _on_tags(table: Table, request: Request) -> Reply:
    body = request.body
    match (request.method, *request.parts):
        case ("GET",):
            prefix = request.query.get("tagNamePrefix", "").rstrip("%")
            found = [name for name in table.context.history.tag_names() if name.startswith(prefix)]
            return request.listing("tags", found)
        case ("POST",):
            name = text_of(body, "tagName")
            number = body.get("snapshotId")
            if number is not None and number not in [tag.snapshot.id for tag in table.tags()]:
                version_of(table.context, str(number))
            with problems("TAG", name):
                table.create_tag(name, snapshot_id=number, time_retained=body.get("timeRetained"))
            return Reply(200)
        case ("GET", name):
            tag = tag_of(table, name)
            return Reply(
                200,
                {
                    "tagName": tag.name,
                    "snapshot": snapshot_to_json(tag.snapshot),
                    "tagCreateTime": _created_ms(tag),
                    "tagTimeRetained": _duration(tag.retained_seconds),
                },
            )
        case ("DELETE", name):
            tag_of(table, name)
            with problems("TAG", name):
                table.delete_tag(name)
            return Reply(200)
    raise request.no_endpoint()


def tag_of(table: Table, name: str) -> Tag:
    """The tag of that name. Raises Problem if there is none."""
    if name not in table.context.history.tag_names():
        raise Problem(404, f"no such tag: {name}", "TAG", name)
    return table.context.history.tag(name)


def _duration(seconds: float | None) -> str | None:
    """A duration in the text form of Java's Duration."""
    return None if seconds is None else f"PT{seconds:g}S"


def _created_ms(tag: Tag) -> int | None:
    """When the tag was created, in milliseconds since 1970. The tag's file states local time."""
    if tag.create_time is None:
        return None
    year, month, day, hour, minute, second, nanos = tag.create_time
    local = datetime(year, month, day, hour, minute, second, nanos // 1000)
    return int(local.timestamp() * 1000)


# --- view parts ----------------------------------------------------------------------------------
# Requests about the views of a catalog.
#
# https://paimon.apache.org/docs/master/concepts/rest/rest-api/
#
# For a catalog that stores no views, such as a filesystem catalog, lists of views are empty, and
# the creation of a view is refused (501).

_VIEW, _DIALECT, _DATABASE = "VIEW", "DIALECT", "DATABASE"
_PATTERN = "viewNamePattern"


def all_views(catalog: Catalog, request: Request) -> Reply:
    """The views of all databases."""
    databases = catalog.list_databases()
    return request.identifiers("views", databases, partial(_names, catalog.views), "view")


def rename_view(catalog: Catalog, body: Json) -> Reply:
    """Give a view another name."""
    source, target = object_of(body, "source"), object_of(body, "destination")
    old = _identifier(text_of(source, "database"), text_of(source, "object"))
    new = _identifier(text_of(target, "database"), text_of(target, "object"))
    views = _stored(catalog)
    if not catalog.database_exists(new.database):
        # Java's client would understand a 404 as a missing view.
        raise Problem(400, f"no such database: {new.database}", _DATABASE, new.database)
    with problems(_VIEW, old.table, new.table):
        views.rename(old, new)
    return Reply(200)


def on_views(catalog: Catalog, database: str, request: Request) -> Reply:
    """The reply to a request about the views of a database; `parts` begin with `views`."""
    views = catalog.views
    match (request.method, *request.parts):
        case ("GET", "views"):
            return request.listing("views", _names(views, database), _PATTERN)
        case ("GET", "view-details"):
            form = partial(_readable, views, database)
            return request.listing("viewDetails", _names(views, database), _PATTERN, form)
        case ("POST", "views"):
            return _create(_stored(catalog), database, request.body)
        case ("GET", "views", name):
            identifier = _identifier(database, name)
            return Reply(200, _described(identifier, _find(views, identifier)))
        case ("POST", "views", name):
            return _alter(views, _identifier(database, name), request.body)
        case ("DELETE", "views", name):
            identifier = _identifier(database, name)
            with problems(_VIEW, name):
                if views is None or not views.drop(identifier):
                    raise _missing(identifier)
            return Reply(200)
    raise request.no_endpoint()


def _names(views: Views | None, database: str) -> tuple[str, ...]:
    return () if views is None else views.names(database)


def _readable(views: Views | None, database: str, name: str) -> Json | None:
    """The view, unless it was dropped meanwhile, or only its own engine can read it."""
    identifier = Identifier(database=database, table=name)
    with suppress(Unsupported):
        view = None if views is None else views.find(identifier)
        return None if view is None else _described(identifier, view)
    return None


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
    return {"id": str(name), "name": name.table, "schema": view_to_json(view), **stated, **times}


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
