"""Requests about the snapshots, partitions, branches and tags of one table."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from lakecore.catalog.partition_statistics import partition_statistics
from lakecore.catalog.rest.wire import snapshot_to_json
from lakecore.rest_server.replies import Problem, Reply, page
from lakecore.rest_server.request_parts import Json, no_endpoint, problems, specs_of, text_of
from lakecore.table.verbs.mark_partition_done import mark_chosen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.snapshot import Snapshot, Tag
    from lakecore.table.commits.commit import PartitionFilter
    from lakecore.table.context import TableContext
    from lakecore.table.handle import Table

__all__ = ["on_parts", "tag_of", "version_of"]

_DIGITS_MAX = 19
"""No snapshot has a longer number."""


def on_parts(
    method: str, table: Table, parts: tuple[str, ...], query: Mapping[str, str], body: Json
) -> Reply:
    """The reply to a request about a part of a table."""
    match (method, *parts):
        case ("GET", "snapshots"):
            return _snapshots(table.context, query)
        case ("GET", "snapshots", version):
            return Reply(200, {"snapshot": snapshot_to_json(version_of(table.context, version))})
        case ("GET", "partitions"):
            return _partitions(table.context, query)
        case ("POST", "partitions", "mark"):
            specs = specs_of(body, "specs", table.schema.partition_keys)
            with problems("PARTITION", str(specs[0])):
                mark_chosen(table.context, specs, _of_specs(table.context, specs))
            return Reply(200)
        case (_, "branches", *rest):
            return _on_branches(method, table, tuple(rest), body)
        case (_, "tags", *rest):
            return _on_tags(method, table, tuple(rest), query, body)
        case ("GET", "consumers"):
            found = [
                {"consumerId": each.consumer_id, "nextSnapshotId": each.next_snapshot}
                for each in table.consumers()
            ]
            return Reply(200, {"consumers": found, "nextPageToken": None})
        case ("POST", "consumers", "reset"):
            table.reset_consumer(text_of(body, "consumerId"), body.get("nextSnapshotId"))
            return Reply(200)
    raise no_endpoint(method, ("databases", "DATABASE", "tables", "TABLE", *parts))


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


def _snapshots(context: TableContext, query: Mapping[str, str]) -> Reply:
    # Ids are padded with zeros, so that the texts sort as the numbers do.
    ids = [f"{number:019d}" for number in context.history.snapshot_ids()]
    names, following = page(ids, query)
    found = [context.history.snapshot_if_there(int(name)) for name in names]
    listed = [snapshot_to_json(each) for each in found if each is not None]
    return Reply(200, {"snapshots": listed, "nextPageToken": following})


def _partitions(context: TableContext, query: Mapping[str, str]) -> Reply:
    if query.get("partitionNamePattern"):
        raise Problem(501, "this server does not filter partitions by a pattern", "PARTITION")
    snapshot = context.history.latest_snapshot()
    live: Sequence[ManifestEntry] = (
        () if snapshot is None else context.history.live_entries(snapshot)
    )
    found = {
        json.dumps(each["spec"], sort_keys=True): each
        for each in partition_statistics(live, context.partitions).values()
    }
    names, following = page(sorted(found), query)
    listed = [{**found[name], "done": False} for name in names]
    return Reply(200, {"partitions": listed, "nextPageToken": following})


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


def _on_branches(method: str, table: Table, parts: tuple[str, ...], body: Json) -> Reply:
    match (method, *parts):
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
    raise no_endpoint(method, ("branches", *parts))


def _on_tags(
    method: str, table: Table, parts: tuple[str, ...], query: Mapping[str, str], body: Json
) -> Reply:
    match (method, *parts):
        case ("GET",):
            prefix = query.get("tagNamePrefix", "").rstrip("%")
            found = [name for name in table.context.history.tag_names() if name.startswith(prefix)]
            names, following = page(found, query)
            return Reply(200, {"tags": names, "nextPageToken": following})
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
    raise no_endpoint(method, ("tags", *parts))


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
