"""Whether options and types that decide how stored files are read may change, given these files.

An option that only affects how new files are written may always change. Each of the following
options may change only if every stored row is then still read in the same way:

1. *How rows of a key merge* (sequence fields, aggregate functions, sequence groups, ignored
   kinds) may change if no bucket holds a key in several runs. Otherwise some rows would be merged
   by the old rules (in compactions before the change), and the others by the new rules. Columns
   that the same call adds are not checked.
2. `deletion-vectors.enabled`. On: reads no longer merge the files of a bucket, so each bucket must
   be one run above level 0 without tombstones. Off: rows that deletion vectors hide would reappear,
   so no file may have a deletion vector.
3. *Names of partition directories* may change if the directories of existing partitions stay the
   same.
4. *Whether compaction looks up rows*: see the section at the end.

A column's type may change only if the type in each file has a cast to it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.merge.spec import MergeSpec, merge_spec
from lakecore.model.evolution import evolve
from lakecore.model.files import DELETION_VECTORS, DataFile
from lakecore.model.schema_change import Change, RemoveOption, SetOption, UpdateColumnType
from lakecore.options import TableOptions, parse_known
from lakecore.plan.partitions import Partitions
from lakecore.plan.splits import may_hold_deletions
from lakecore.rows.evolution import map_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lakecore.io.history import History
    from lakecore.model.schema import TableSchema


# --- lookup option change ------------------------------------------------------------------------
# Whether options that decide how the levels of a bucket are read may change.
#
# If compaction looks up rows, the row of a key in the lowest level above 0 already includes the
# rows of the key in higher levels, and a read ignores those. Otherwise a read merges the rows of
# all levels. If a table is compacted in one way and read in the other, an aggregation loses rows or
# counts them twice, and the row with the greatest sequence field can lose against an older row.


def check_lookup_change(history: History, before: TableOptions, after: TableOptions) -> None:
    """Raise InvalidRequest if the change would alter how rows of the newest snapshot are read."""
    turned_on = after.needs_lookup and bool(after.sequence_field)
    if before.needs_lookup == after.needs_lookup:
        return
    if not (after.folds_rows or turned_on):
        return
    snapshot = history.latest_snapshot()
    levels: dict[tuple[bytes, int], set[int]] = defaultdict(set)
    for entry in () if snapshot is None else history.live_entries(snapshot):
        if entry.file.level > 0:
            levels[entry.partition, entry.bucket].add(entry.file.level)
    several = sum(len(found) > 1 for found in levels.values())
    if several:
        raise InvalidRequest(
            "whether compaction looks up rows cannot change while a bucket has rows in several "
            "levels above 0: run a full compaction of the table first",
            changelog_producer=after.changelog_producer,
            force_lookup=after.force_lookup,
            merge_engine=after.merge_engine,
            buckets=several,
            table=after.table,
        )


# --- change options ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Switch:
    """The schema and options before and after a change, and the columns that both schemas have."""

    schema: TableSchema
    before: TableOptions
    after: TableOptions
    changed: TableSchema
    columns: Collection[str]


def check_stored_rows(
    history: History,
    current: TableSchema,
    changed: TableSchema,
    changes: Sequence[Change],
    *,
    table: str,
) -> None:
    """Raise InvalidRequest if schema changes would alter how stored rows are read."""
    snapshot = history.latest_snapshot()
    if snapshot is None:
        return
    others = [change for change in changes if not isinstance(change, SetOption | RemoveOption)]
    if len(others) < len(changes):
        _check_options(history, current, changed, others, table)
    if any(isinstance(change, UpdateColumnType) for change in changes):
        stored = {entry.file.schema_id for entry in history.live_entries(snapshot)}
        _check_types(history, changed, stored - {current.id}, table)


def _check_types(
    history: History, changed: TableSchema, schema_ids: Collection[int], table: str
) -> None:
    """Raise InvalidRequest if reads cannot cast what a live file stores to its column's new type.

    Each change has a cast from the current type, but older files may hold a column in another type.
    """
    for schema_id in sorted(schema_ids):
        try:
            map_fields(changed.fields, history.schema(schema_id).fields)
        except Unsupported as error:
            raise InvalidRequest(
                "the column's type cannot become this one while files hold an older type, which "
                "has no cast to it; run a full compaction of the table first",
                **error.facts,
                schema_id=schema_id,
                table=table,
            ) from error


def _check_options(
    history: History,
    current: TableSchema,
    changed: TableSchema,
    others: Sequence[Change],
    table: str,
) -> None:
    """Check the changes of options; `others` are the other changes of the same call."""
    # A renamed column is renamed in options too, which does not change a rule.
    try:
        renamed = evolve(current, others, now_ms=changed.time_ms, has_snapshots=True, table=table)
    except InvalidRequest:
        # Without the option changes, the other changes may be invalid.
        renamed = current
    known = {field.id for field in current.fields}
    switch = _Switch(
        schema=renamed,
        before=parse_known(renamed.stated_options, table=table),
        after=parse_known(changed.stated_options, table=table),
        changed=changed,
        columns={field.name for field in renamed.fields if field.id in known},
    )
    check_lookup_change(history, switch.before, switch.after)
    check_vectors_change(history, switch.before, switch.after, keyed=bool(changed.primary_keys))
    if changed.primary_keys:
        _check_merging(history, switch)
    _check_partition_names(history, switch)


def check_vectors_change(
    history: History, before: TableOptions, after: TableOptions, *, keyed: bool
) -> None:
    """Raise InvalidRequest if `deletion-vectors.enabled` may not change now.

    The option must not be switched on while files of a bucket must be merged, nor off while a
    vector hides rows.
    """
    if before.deletion_vectors_enabled == after.deletion_vectors_enabled:
        return
    if before.deletion_vectors_enabled:
        marked = sum(
            len(entry.file.vectors or ())
            for entry in history.index_entries(history.latest_snapshot())
            if entry.file.index_type == DELETION_VECTORS
        )
        if marked:
            raise InvalidRequest(
                "deletion vectors cannot be switched off while they hide rows: deleted rows "
                "would reappear; run a full compaction of the table first",
                option="deletion-vectors.enabled",
                files=marked,
                table=after.table,
            )
        return
    unmerged = [
        files
        for files in _buckets(history)
        if keyed and not (_is_one_run(files) and all(map(_is_settled, files)))
    ]
    if unmerged:
        raise InvalidRequest(
            "deletion vectors cannot be switched on while files of a bucket must be merged: "
            "keys would be duplicated; run a full compaction of the table first",
            option="deletion-vectors.enabled",
            buckets=len(unmerged),
            table=after.table,
        )


def _check_merging(history: History, switch: _Switch) -> None:
    before = _rules(switch.schema, switch.before, switch.columns)
    after = _rules(switch.changed, switch.after, switch.columns)
    if before == after:
        return
    several = sum(not _is_one_run(files) for files in _buckets(history))
    if several:
        raise InvalidRequest(
            "how rows of a key merge cannot change while a bucket has rows in several sorted "
            "runs: some were merged by the old rules; run a full compaction of the table first",
            options=_differing(switch.before, switch.after),
            buckets=several,
            table=switch.after.table,
        )


def _check_partition_names(history: History, switch: _Switch) -> None:
    before = Partitions(switch.schema, switch.before)
    after = Partitions(switch.changed, switch.after)
    snapshot = history.latest_snapshot()
    if not before.fields or snapshot is None:
        return
    for partition in history.live_partitions(snapshot):
        if before.path(partition) != after.path(partition):
            # The catalog may hide the rows of the partition from this user.
            hidden = switch.before.query_auth_enabled or switch.after.query_auth_enabled
            paths = {"directory": before.path(partition), "new": after.path(partition)}
            named = {} if hidden else paths
            raise InvalidRequest(
                "the directories of stored partitions would be renamed, and their files would "
                "not be found; write the rows to a new table instead",
                options=_differing(switch.before, switch.after),
                table=switch.after.table,
                **named,
            )


def _buckets(history: History) -> list[list[DataFile]]:
    """The live files of each bucket of the newest snapshot."""
    snapshot = history.latest_snapshot()
    found: dict[tuple[bytes, int], list[DataFile]] = defaultdict(list)
    for entry in () if snapshot is None else history.live_entries(snapshot):
        found[entry.partition, entry.bucket].append(entry.file)
    return list(found.values())


def _is_one_run(files: Sequence[DataFile]) -> bool:
    levels = {file.level for file in files}
    return len(files) == 1 or (len(levels) == 1 and 0 not in levels)


def _is_settled(file: DataFile) -> bool:
    """Whether a table with deletion vectors shows the file, and nothing in it needs a merge."""
    return file.level > 0 and not may_hold_deletions(file)


def _rules(
    schema: TableSchema, options: TableOptions, columns: Collection[str]
) -> MergeSpec | None:
    """How rows of these columns merge; None if lakecore does not know one of the functions."""
    try:
        spec = merge_spec(schema, options)
    except Unsupported:
        return None
    # Whether rows are looked up is checked separately.
    aggregates = tuple(each for each in spec.aggregates if each.column in columns)
    groups = tuple(
        replace(group, columns=tuple(name for name in group.columns if name in columns))
        for group in spec.groups
    )
    return replace(
        spec,
        aggregates=aggregates,
        groups=tuple(group for group in groups if group.columns),
        complete_levels=False,
    )


def _differing(before: TableOptions, after: TableOptions) -> list[str]:
    keys = {*before.texts, *after.texts}
    return sorted(key for key in keys if before.texts.get(key) != after.texts.get(key))
