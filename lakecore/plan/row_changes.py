"""What DELETE, UPDATE and MERGE can do in a table, and which columns their rows must hold.

A changed row is written like any other row, and the merge engine applies it:

- *deduplicate*: a -D deletes the row; a +U with all columns replaces it.
- *partial-update*: a +U holds the changed columns and null elsewhere, so that concurrent changes of
  other columns are kept. A -D deletes the row if an option allows it.
- *aggregation*: a -D deletes the row if an option allows it. A value can only be added, not set.
- *first-row*: the first row of a key never changes.

These are Paimon's own rules (https://paimon.apache.org/docs/master/flink/sql-write/). A deletion
has values for the key, the sequence fields and NOT NULL columns, and null elsewhere, because some
engines start a new row from the values of the deletion.

INVARIANT: a verb is refused if no row could have its effect.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.merge_rules import aggregate_functions
from lakecore.model.snapshot import CommitKind, Snapshot
from lakecore.options import ChangelogProducer, IncrementalScanMode, MergeEngine, TableOptions

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.schema import TableSchema

_KEEPS_NULL = frozenset({"last_value"})
"""Functions that take null as a new value: to keep the old value, a row must repeat it."""
_TAKES_LAST = frozenset({"last_value", "last_non_null_value"})
"""Functions whose result is the newest value, so that a value can be set."""


class Verb(StrEnum):
    """A verb that changes rows, as the snapshot records it."""

    DELETE = "DELETE"
    UPDATE = "UPDATE"
    MERGE = "MERGE"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateShape:
    """The columns of the rows of an update, in addition to the values it sets.

    - `carried`: columns whose old value is written again; all others are null;
    - `not_null`: columns that the update sets, where a null would have no effect;
    - `sequences`: the sequence columns of each group; if all of them were null, the merge would
      ignore the group.
    """

    carried: tuple[str, ...]
    not_null: tuple[str, ...] = ()
    sequences: tuple[tuple[str, ...], ...] = ()


def check_engine(options: TableOptions, verb: Verb) -> None:
    """Raise Unsupported if rows of the table's merge engine cannot have the verb's effect."""
    engine = options.merge_engine
    if verb is not Verb.DELETE and engine not in (
        MergeEngine.DEDUPLICATE,
        MergeEngine.PARTIAL_UPDATE,
    ):
        raise Unsupported(
            f"a table of this merge engine takes no {verb}",
            merge_engine=engine,
            supported=("deduplicate", "partial-update"),
            table=options.table,
        )


def check_deletion(options: TableOptions) -> None:
    """Raise an error if a row of kind -D would not delete the row of its key."""
    if options.ignore_delete:
        raise InvalidRequest(
            "the table ignores deletions, so this would change nothing",
            option="ignore-delete",
            value="true",
            table=options.table,
        )
    way_out: str | None
    match options.merge_engine:
        case MergeEngine.DEDUPLICATE:
            return
        case MergeEngine.PARTIAL_UPDATE:
            if (
                options.partial_update_remove_record_on_delete
                or options.partial_update_remove_record_on_sequence_group
            ):
                return
            way_out = (
                "partial-update.remove-record-on-sequence-group"
                if options.fields_sequence_group
                else "partial-update.remove-record-on-delete"
            )
        case MergeEngine.AGGREGATION:
            if options.aggregation_remove_record_on_delete:
                return
            way_out = "aggregation.remove-record-on-delete"
        case _:
            way_out = None
    facts = {} if way_out is None else {"way_out": f"a table with the option {way_out} takes them"}
    raise Unsupported(
        "a -D does not take a row away from a table of this merge engine",
        merge_engine=options.merge_engine,
        table=options.table,
        **facts,
    )


def deletion_columns(schema: TableSchema, options: TableOptions) -> tuple[str, ...]:
    """The columns that a row of kind -D holds.

    All columns if the row is copied to a changelog, because its readers retract these values.
    """
    if options.changelog_producer is ChangelogProducer.INPUT:
        return schema.names
    held = {*_placing(schema), *options.sequence_field, *_not_null(schema)}
    for sequence in removing_groups(options):
        held.update(sequence)
    return _in_order(schema, held)


def _placing(schema: TableSchema) -> tuple[str, ...]:
    """The columns that determine where a row is stored: the primary key and the partition keys."""
    return (*schema.primary_keys, *schema.partition_keys)


def removing_groups(options: TableOptions) -> tuple[tuple[str, ...], ...]:
    """The sequence columns of each sequence group in which a -D deletes the whole row."""
    named = options.partial_update_remove_record_on_sequence_group
    groups = (tuple(name.split(",")) for name in options.fields_sequence_group)
    return tuple(group for group in groups if not set(group).isdisjoint(named))


def update_shape(
    schema: TableSchema, options: TableOptions, changed: Collection[str]
) -> UpdateShape:
    """The other columns of a +U row that sets these columns.

    Raises InvalidRequest for a column that cannot be set.
    """
    for name in changed:
        schema.field(name)
        if name in schema.primary_keys:
            raise InvalidRequest(
                "a column of the primary key cannot be updated: delete the row and write another",
                column=name,
                primary_key=schema.primary_keys,
                table=options.table,
            )
        stays = options.merge_engine is not MergeEngine.DEDUPLICATE
        if name in schema.partition_keys and stays:
            raise Unsupported(
                "a row of this merge engine stays in its partition",
                column=name,
                merge_engine=options.merge_engine,
                table=options.table,
            )
        if name == options.rowkind_field:
            raise InvalidRequest(
                "the column of rowkind.field is set by the verb: leave it out",
                column=name,
                table=options.table,
            )
    if options.data_evolution_enabled:
        return UpdateShape(carried=())
    if options.merge_engine is not MergeEngine.PARTIAL_UPDATE:
        rest = [name for name in schema.names if name not in changed]
        return UpdateShape(carried=_in_order(schema, rest))
    return _partial_shape(schema, options, set(changed))


def _partial_shape(schema: TableSchema, options: TableOptions, changed: set[str]) -> UpdateShape:
    """The minimum columns of a partial row: those of changed sequence groups, and NOT NULL ones."""
    functions = _functions(schema, options)
    carried = {*_placing(schema), *options.sequence_field, *_not_null(schema)}
    groups = {
        tuple(names.split(",")): {*names.split(","), *columns}
        for names, columns in options.fields_sequence_group.items()
    }
    grouped: set[str] = set().union(*groups.values())
    # The merge applies a group if one of its sequence columns is not null.
    touched = {
        sequence: columns
        for sequence, columns in groups.items()
        if columns & changed or set(sequence) & carried
    }
    outside = set(schema.names) - grouped
    at_stake = outside.union(*touched.values())
    for columns in touched.values():
        carried |= {name for name in columns if functions.get(name) in (None, *_KEEPS_NULL)}
    carried |= {name for name in outside if functions.get(name) in _KEEPS_NULL}
    carried -= changed
    for name in schema.names:
        function = functions.get(name)
        if function is None or function in _TAKES_LAST or name not in at_stake:
            continue
        if name in changed or name in carried:
            raise Unsupported(
                "an update of this table cannot be written: what a row holds is added to the "
                "column, not put in its place",
                column=name,
                aggregate_function=function,
                table=options.table,
            )
    taken_as_null = set().union(*touched.values())
    return UpdateShape(
        carried=_in_order(schema, carried),
        not_null=_in_order(
            schema,
            {
                name
                for name in changed
                if functions.get(name) == "last_non_null_value"
                or (name not in taken_as_null and functions.get(name) not in _KEEPS_NULL)
            },
        ),
        sequences=tuple(touched),
    )


def _functions(schema: TableSchema, options: TableOptions) -> dict[str, str]:
    """For a partial-update table, the aggregate function of each column that has one."""
    found = aggregate_functions(schema, options)
    return {name: found[name] for name in found if name not in options.sequence_field}


def _not_null(schema: TableSchema) -> set[str]:
    return {field.name for field in schema.fields if not field.type.nullable}


def _in_order(schema: TableSchema, names: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in schema.names if name in names)


# --- changes -------------------------------------------------------------------------------------
# Which snapshots matter for readers of changes, and which rows of each snapshot they read.
#
# A stream (https://paimon.apache.org/docs/master/primary-key-table/changelog-producer/):
#
# | changelog-producer | snapshots that count | rows |
# |---|---|---|
# | none, and append tables | APPEND | the files that were added, row by row as stored |
# | input, lookup, full-compaction | those with a changelog | the changelog's |
#
# OVERWRITE snapshots are skipped unless `streaming-read-overwrite` (with a primary key) or
# `streaming-read-append-overwrite` (without one) is set. A read between two snapshots follows the
# same rules, but always skips OVERWRITE snapshots. `incremental-between-scan-mode` selects the
# added files or the changelog regardless of the producer.


class Taken(Enum):
    """The rows that are read as a snapshot's changes: added files, changelog, or replaced rows."""

    ADDED = auto()
    """The rows of the files that it added, as they were stored."""
    CHANGELOG = auto()
    """The rows of its changelog files."""
    REPLACED = auto()
    """The rows of the removed files as -D, then the rows of the added files."""


def taken_by_stream(snapshot: Snapshot, options: TableOptions, *, keyed: bool) -> Taken | None:
    """The rows that a stream reads from a snapshot; None if it skips the snapshot."""
    if snapshot.commit_kind is CommitKind.OVERWRITE:
        if keyed and options.streaming_read_overwrite:
            return Taken.REPLACED
        if not keyed and options.streaming_read_append_overwrite:
            return Taken.ADDED
    if options.changelog_producer is not ChangelogProducer.NONE:
        return None if snapshot.changelog_manifest_list is None else Taken.CHANGELOG
    return Taken.ADDED if snapshot.commit_kind is CommitKind.APPEND else None


def taken_between(snapshot: Snapshot, mode: IncrementalScanMode) -> Taken | None:
    """What a read between snapshots takes from one of them; `mode` is `delta` or `changelog`."""
    if mode is IncrementalScanMode.DELTA:
        return Taken.ADDED if snapshot.commit_kind is CommitKind.APPEND else None
    assert mode is IncrementalScanMode.CHANGELOG, mode
    if snapshot.commit_kind is CommitKind.OVERWRITE or snapshot.changelog_manifest_list is None:
        return None
    return Taken.CHANGELOG


def mode_between(options: TableOptions) -> IncrementalScanMode:
    """The mode of a read between snapshots: `delta`, `changelog` or `diff`."""
    mode = options.incremental_between_scan_mode
    if mode is not IncrementalScanMode.AUTO:
        return mode
    if options.changelog_producer is ChangelogProducer.NONE:
        return IncrementalScanMode.DELTA
    return IncrementalScanMode.CHANGELOG


def files_of_first_plan(
    entries: Sequence[ManifestEntry], options: TableOptions
) -> list[ManifestEntry]:
    """The files that the first plan of a stream reads, out of the files of some buckets.

    Files whose rows a later compaction will write to the changelog are skipped; otherwise the
    stream would return their rows twice. With full-compaction, the changelog already has the rows
    of the deepest level of a bucket, whatever number the last level had at that time.
    """
    match options.changelog_producer:
        case ChangelogProducer.LOOKUP:
            return [entry for entry in entries if entry.file.level > 0]
        case ChangelogProducer.FULL_COMPACTION:
            deepest: Counter[tuple[bytes, int]] = Counter()
            for entry in entries:
                of_bucket = entry.partition, entry.bucket
                deepest[of_bucket] = max(deepest[of_bucket], entry.file.level)
            return [
                entry
                for entry in entries
                if entry.file.level == deepest[entry.partition, entry.bucket] > 0
            ]
        case _:
            return list(entries)
