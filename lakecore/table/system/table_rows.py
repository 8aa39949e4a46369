"""The rows of system tables that do not depend on a snapshot."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING

from lakecore.model.types import field_to_json
from lakecore.table.maintenance.branches import branch_times
from lakecore.table.maintenance.consumers import list_consumers
from lakecore.table.reads.told import told_snapshot
from lakecore.table.system.cell_texts import duration_text, json_text, local_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot, Tag
    from lakecore.table.context import TableContext
    from lakecore.table.system.cell_texts import Row


def _snapshot_rows(context: TableContext) -> Iterable[Row]:
    history = context.history
    return (
        _snapshot_row(told_snapshot(history.snapshot(found), context))
        for found in history.snapshot_ids()
    )


def _snapshot_row(snapshot: Snapshot) -> Row:
    return (
        snapshot.id,
        snapshot.schema_id,
        snapshot.commit_user,
        snapshot.commit_identifier,
        str(snapshot.commit_kind),
        local_time(snapshot.time_ms),
        snapshot.base_manifest_list,
        snapshot.delta_manifest_list,
        snapshot.changelog_manifest_list,
        snapshot.total_record_count,
        snapshot.delta_record_count,
        snapshot.changelog_record_count,
        snapshot.watermark,
        snapshot.next_row_id,
    )


def _schema_rows(context: TableContext) -> Iterable[Row]:
    history = context.history
    return (_schema_row(history.schema(found)) for found in history.schema_ids())


def _schema_row(schema: TableSchema) -> Row:
    return (
        schema.id,
        json_text([field_to_json(field) for field in schema.fields]),
        json_text(schema.partition_keys),
        json_text(schema.primary_keys),
        json_text(dict(schema.options)),
        schema.comment,
        local_time(schema.time_ms),
    )


def _option_rows(context: TableContext) -> Iterable[Row]:
    return context.schema.options.items()


def _tag_rows(context: TableContext) -> Iterable[Row]:
    return (
        _tag_row(tag, told_snapshot(tag.snapshot, context))
        for tag in map(context.history.tag, context.history.tag_names())
    )


def _tag_row(tag: Tag, snapshot: Snapshot) -> Row:
    created: datetime | None = None
    if tag.create_time is not None:
        year, month, day, hour, minute, second, nanos = tag.create_time
        created = datetime(year, month, day, hour, minute, second, nanos // 1_000_000 * 1000)
    return (
        tag.name,
        snapshot.id,
        snapshot.schema_id,
        local_time(snapshot.time_ms),
        snapshot.total_record_count,
        created,
        None if tag.retained_seconds is None else duration_text(tag.retained_seconds),
    )


def _consumer_rows(context: TableContext) -> Iterable[Row]:
    return ((each.consumer_id, each.next_snapshot) for each in list_consumers(context))


def _branch_rows(context: TableContext) -> Iterable[Row]:
    return ((name, local_time(made_ms)) for name, made_ms in branch_times(context))


def _aggregation_rows(context: TableContext) -> Iterable[Row]:
    """The columns of the newest schema, each with its options `fields.NAME...`."""
    schema = context.history.latest_schema() or context.schema
    keys: dict[str, list[str]] = defaultdict(list)
    values: dict[str, list[str]] = defaultdict(list)
    for key, value in schema.options.items():
        parts = key.split(".")
        if len(parts) > 2 and parts[0] == "fields":
            keys[parts[1]].append(key)
            values[parts[1]].append(value)
    for field in schema.fields:
        yield (
            field.name,
            str(field.type),
            f"[{', '.join(values[field.name])}]",
            f"[{', '.join(keys[field.name])}]",
            field.description,
        )


ROWS_OF_TABLE: Mapping[str, Callable[[TableContext], Iterable[Row]]] = {
    "snapshots": _snapshot_rows,
    "schemas": _schema_rows,
    "options": _option_rows,
    "tags": _tag_rows,
    "branches": _branch_rows,
    "consumers": _consumer_rows,
    "aggregation_fields": _aggregation_rows,
}
