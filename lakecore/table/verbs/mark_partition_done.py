"""Mark partitions as done, so that other programs know that no more rows are expected.

The option `partition.mark-done-action` names the actions:

- `success-file`: writes a file `_SUCCESS` into the directory of the partition, with the times when
  the file was created and last written;
- `http-report`: sends the partition by POST to `partition.mark-done-action.http.url`; the response
  must say `"result": "SUCCESS"`. The process allows the address by `lakecore.http-report-urls`,
  which no table stores. No error shows the response.

https://paimon.apache.org/docs/master/maintenance/manage-partitions/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, NotFound, StorageError, Unsupported
from lakecore.format.metadata import decode_success, encode_success
from lakecore.io.http import is_allowed, post_json
from lakecore.table.context import TableContext, require_table
from lakecore.table.writes.batch_write import matching

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.table.commits.commit import PartitionFilter

SUCCESS_FILE = "_SUCCESS"
_SUCCESS, _REPORT = "success-file", "http-report"
_OF_A_METASTORE = ("done-partition", "mark-event")


def mark_partition_done(
    context: TableContext, specs: Sequence[Mapping[str, object]]
) -> tuple[str, ...]:
    """Mark the partitions that match. Returns their directories, such as `dt=2024-01-01/hour=08`.

    Before the first action is carried out, all actions are checked.
    """
    require_table(context)
    context.options.require_all_rows()
    if not context.schema.partition_keys:
        raise InvalidRequest("the table has no partitions", table=context.identifier)
    return mark_chosen(context, specs, matching(context, specs))


def mark_chosen(
    context: TableContext, specs: Sequence[Mapping[str, object]], chosen: PartitionFilter
) -> tuple[str, ...]:
    """Mark the partitions that `chosen` selects for the specs that a caller stated.

    Partitions that share a directory, such as a null and a blank string, are marked once.
    """
    if not specs:
        raise InvalidRequest("name the partitions to mark", table=context.identifier)
    actions = _actions(context)
    paths = _paths(context, chosen)
    if not paths:
        raise NotFound("no partition matches", table=context.identifier, partitions=list(specs))
    for path in paths:
        if _SUCCESS in actions:
            _write_success(context, path)
        if _REPORT in actions:
            _report(context, path)
    return paths


def _actions(context: TableContext) -> tuple[str, ...]:
    options = context.options
    for action in options.partition_mark_done_action:
        if action in _OF_A_METASTORE:
            raise Unsupported(
                "this action needs a metastore that lists partitions",
                option="partition.mark-done-action",
                value=action,
                supported=[_SUCCESS, _REPORT],
            )
        if action not in {_SUCCESS, _REPORT}:
            raise Unsupported(
                "this action is not supported",
                option="partition.mark-done-action",
                value=action,
                supported=[_SUCCESS, _REPORT],
            )
        if action == _REPORT and options.partition_mark_done_action_http_url is None:
            raise InvalidRequest(
                "http-report needs the option partition.mark-done-action.http.url",
                table=context.identifier,
            )
        if action == _REPORT:
            _check_allowed(context)
    return options.partition_mark_done_action


def _check_allowed(context: TableContext) -> None:
    """Raise InvalidRequest unless this process allows the address: a table only states it."""
    url = context.options.partition_mark_done_action_http_url or ""
    if not is_allowed(url, context.options.lakecore_http_report_urls):
        raise InvalidRequest(
            "this process does not allow reports to that address; if it may call it, give the "
            "address by the dynamic option lakecore.http-report-urls",
            option="partition.mark-done-action.http.url",
            url=url,
            table=context.identifier,
        )


def _paths(context: TableContext, chosen: PartitionFilter) -> tuple[str, ...]:
    """The directories of the chosen partitions of the latest snapshot, each once."""
    latest = context.history.latest_snapshot()
    partitions = [] if latest is None else sorted(context.history.live_partitions(latest))
    kept = chosen(partitions) if partitions else ()
    found = (each for each, keep in zip(partitions, kept, strict=True) if keep)
    return tuple(sorted(set(map(context.partitions.path, found))))


def _write_success(context: TableContext, path: str) -> None:
    place = f"{context.layout.partition_dir(path)}/{SUCCESS_FILE}"
    now_ms = context.ambient.now_ms()
    try:
        created_ms = decode_success(context.store.read(place), place)
    except NotFound:
        created_ms = now_ms
    context.store.put(place, encode_success(created_ms, now_ms))


def _report(context: TableContext, path: str) -> None:
    options = context.options
    url = options.partition_mark_done_action_http_url or ""
    answer = post_json(
        url,
        {
            "params": options.partition_mark_done_action_http_params,
            "table": context.identifier,
            "path": context.layout.root,
            "partition": path,
        },
    )
    if str(answer.get("result", "")).upper() != "SUCCESS":
        raise StorageError("the server did not take the report", url=url, partition=path)
