"""Which snapshot a read sees, and with which schema.

The latest snapshot is read with the latest schema. A snapshot that is named by id, tag or time is
read with the schema that it was committed with
(https://paimon.apache.org/docs/master/concepts/snapshot/).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.errors import KEPT_LONGER, InvalidRequest, NotFound
from lakecore.model.times import Time, to_milliseconds
from lakecore.options import RENAMED, parse_options, rename_in_options
from lakecore.plan.partitions import Partitions
from lakecore.table.context import TableContext, require_table, require_table_of

if TYPE_CHECKING:
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot

_LEVELS = ("changelog-producer", "deletion-vectors.enabled")
"""The options that decide whether reads merge all levels or use the lowest one."""
_BLOBS = ("blob-field", "blob-descriptor-field", "blob-view-field")
"""The options that decide how the rows of a BLOB column are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Travel:
    """A state of the table, named in at most one way; by default the latest."""

    snapshot_id: int | None = None
    tag: str | None = None
    timestamp: Time | None = None

    def __post_init__(self) -> None:
        number: object = self.snapshot_id
        if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
            raise InvalidRequest("a snapshot id must be a whole number", snapshot_id=number)
        if self.tag is not None and not isinstance(self.tag, str):
            raise InvalidRequest("the name of a tag must be a string", tag=self.tag)
        if self.timestamp is not None:
            to_milliseconds(self.timestamp)
        named = [v for v in (self.snapshot_id, self.tag, self.timestamp) if v is not None]
        if len(named) > 1:
            raise InvalidRequest(
                "name a snapshot in one way only: snapshot_id, tag or timestamp",
                snapshot_id=self.snapshot_id,
                tag=self.tag,
                timestamp=self.timestamp,
            )


def resolve(context: TableContext, travel: Travel) -> tuple[Snapshot | None, TableSchema]:
    """The snapshot (None: the table is empty) and the schema to read it with."""
    travel = stated_travel(context, travel)
    history = context.history
    if travel.snapshot_id is not None:
        snapshot = history.snapshot(travel.snapshot_id)
    elif travel.tag is not None:
        snapshot = history.tag(travel.tag).snapshot
    elif travel.timestamp is not None:
        snapshot = _at(context, to_milliseconds(travel.timestamp))
    else:
        latest = history.latest_snapshot()
        require_table_of(context, latest)
        return latest, context.schema
    require_table(context)
    return snapshot, history.schema(snapshot.schema_id)


def as_of(context: TableContext, schema: TableSchema) -> TableContext:
    """The table with an older schema, to read an older snapshot; options use its column names.

    If a sequence field or bucket key was renamed later, the options have its old name. Options of
    levels (`_LEVELS`) and of BLOB columns (`_BLOBS`) come from the older schema: files were
    compacted under it, and BLOB columns may have been dropped since.
    """
    if schema.id == context.schema.id:
        return context
    context = with_levels_of(context, schema)
    texts = in_names_of(context, schema)
    then = {RENAMED.get(key, key): text for key, text in schema.stated_options.items()}
    texts = {key: text for key, text in texts.items() if key not in _BLOBS}
    texts |= {key: then[key] for key in _BLOBS if key in then}
    options = parse_options(texts, table=context.identifier)
    return replace(context, schema=schema, options=options, partitions=Partitions(schema, options))


def in_names_of(context: TableContext, schema: TableSchema) -> dict[str, str]:
    """The options of the table as strings, with the column names of another schema."""
    renamed = [
        (column.name, then.name)
        for column in context.schema.fields
        if (then := schema.by_id.get(column.id)) is not None and then.name != column.name
    ]
    texts = dict(context.options.texts)
    # Rename through temporary names: two columns may have swapped names.
    for number, (name, _) in enumerate(renamed):
        texts = rename_in_options(texts, name, f"\0{number}")
    for number, (_, name) in enumerate(renamed):
        texts = rename_in_options(texts, f"\0{number}", name)
    return texts


def with_levels_of(context: TableContext, schema: TableSchema) -> TableContext:
    """The table with today's schema and the level options of an older schema.

    A dynamic option keeps its value if the stored option is the same in both schemas.
    """
    today, then = (each.stated_options for each in (context.schema, schema))
    changed = [key for key in _LEVELS if today.get(key) != then.get(key)]
    if not changed:
        return context
    texts = {key: text for key, text in context.options.texts.items() if key not in changed}
    texts |= {key: then[key] for key in changed if key in then}
    return replace(context, options=parse_options(texts, table=context.identifier))


def schema_read(context: TableContext) -> TableSchema:
    """The schema of a read whose call names no snapshot.

    The newest schema, unless options of the table name a past snapshot.
    """
    if stated_travel(context, Travel()) == Travel():
        return context.schema
    return resolve(context, Travel())[1]


def stated_travel(context: TableContext, travel: Travel) -> Travel:
    """The state that the call names, or else the state that the options of the table name."""
    if travel != Travel():
        return travel
    options = context.options
    if options.scan_version is not None:
        version = options.scan_version
        if version in context.history.tag_names():
            return Travel(tag=version)
        if not version.isdecimal():
            raise NotFound("no tag or snapshot of that name", version=version)
        return Travel(snapshot_id=int(version))
    timestamp: Time | None = options.scan_timestamp_millis
    if timestamp is None:
        timestamp = options.scan_timestamp
    return Travel(
        snapshot_id=options.scan_snapshot_id, tag=options.scan_tag_name, timestamp=timestamp
    )


def _at(context: TableContext, time_ms: int) -> Snapshot:
    """The newest snapshot committed at or before a time."""
    history = context.history
    ids = history.snapshot_ids()
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if history.snapshot(ids[middle]).time_ms <= time_ms:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        expired = bool(ids) and ids[0] > 1
        raise NotFound(
            f"no existing snapshot is that old{f'; {KEPT_LONGER}' if expired else ''}",
            time_ms=time_ms,
            earliest_ms=history.snapshot(ids[0]).time_ms if ids else None,
        )
    return history.snapshot(ids[low - 1])
