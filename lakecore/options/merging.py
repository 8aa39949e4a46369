"""How rows of one key merge, and where the changelog comes from."""

# ruff: noqa: RUF009  a declaration is a call; its arguments are constants

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.options.choices import (
    ChangelogProducer,
    LookupCompact,
    MergeEngine,
    SequenceInit,
    SortOrder,
)
from lakecore.options.kinds import (
    COUNT,
    FLAG,
    NAME,
    NAMES,
    TEXT,
    choice,
)
from lakecore.options.option import (
    KEYED,
    MAINTAIN,
    READ,
    WRITE,
    family,
    option,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class MergeOptions:
    """How rows of one key merge, and where the changelog comes from."""

    # Two lines for each declaration are easier to read than the formatter's eight lines.
    # fmt: off
    # --- merging ----------------------------------------------------------------------------------
    merge_engine: MergeEngine = option(
        "merge-engine", choice(MergeEngine), MergeEngine.DEDUPLICATE, READ,
        "How the rows of one key become one.", scope=KEYED, immutable=True,
    )
    sequence_field: tuple[str, ...] = option(
        "sequence.field", NAMES, (), READ,
        "Columns that order the rows of a key, before the order of writing.", scope=KEYED,
    )
    sequence_field_sort_order: SortOrder = option(
        "sequence.field.sort-order", choice(SortOrder), SortOrder.ASCENDING, READ,
        "Whether the greater or the smaller sequence field wins; null always loses.", scope=KEYED,
    )
    sequence_snapshot_ordering: bool = option(
        "sequence.snapshot-ordering", FLAG, False, READ,
        "Let the rows of later snapshots win, whatever their sequence numbers.", scope=KEYED,
        immutable=True,
    )
    write_sequence_number_init_mode: SequenceInit = option(
        "write.sequence-number-init-mode", choice(SequenceInit), SequenceInit.SCAN, WRITE,
        "Where a writer learns the next sequence number.", scope=KEYED, supported=False,
    )
    rowkind_field: str | None = option(
        "rowkind.field", NAME, None, WRITE,
        "STRING column that holds the row kind: +I, -U, +U or -D.", scope=KEYED, immutable=True,
    )
    ignore_delete: bool = option(
        "ignore-delete", FLAG, False, READ,
        "Skip rows of kind -U and -D.", scope=KEYED,
        fallbacks=(
            "first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete",
        ),
    )
    ignore_update_before: bool = option(
        "ignore-update-before", FLAG, False, READ,
        "Skip rows of kind -U.", scope=KEYED,
    )
    partial_update_remove_record_on_delete: bool = option(
        "partial-update.remove-record-on-delete", FLAG, False, READ,
        "A -D row deletes the record in a partial-update table.", scope=KEYED, immutable=True,
    )
    partial_update_remove_record_on_sequence_group: tuple[str, ...] = option(
        "partial-update.remove-record-on-sequence-group", NAMES, (), READ,
        "Sequence columns of groups whose newest -D row deletes the record.", scope=KEYED,
        immutable=True,
    )
    aggregation_remove_record_on_delete: bool = option(
        "aggregation.remove-record-on-delete", FLAG, False, READ,
        "A -D row deletes the record in an aggregation table.", scope=KEYED, immutable=True,
    )
    fields_default_aggregate_function: str | None = option(
        "fields.default-aggregate-function", NAME, None, READ,
        "The aggregate function of every column that names none.", scope=KEYED,
    )
    fields_aggregate_function: Mapping[str, str] = family(
        "aggregate-function", TEXT, READ,
        "The column's aggregate function.", scope=KEYED,
    )
    fields_ignore_retract: Mapping[str, bool] = family(
        "ignore-retract", FLAG, READ,
        "The column's function skips -U and -D.", scope=KEYED,
    )
    fields_distinct: Mapping[str, bool] = family(
        "distinct", FLAG, READ,
        "listagg and collect keep each value once.", scope=KEYED,
    )
    fields_list_agg_delimiter: Mapping[str, str] = family(
        "list-agg-delimiter", TEXT, READ,
        "Separator of listagg; a comma if unset.", scope=KEYED,
    )
    fields_nested_key: Mapping[str, tuple[str, ...]] = family(
        "nested-key", NAMES, READ,
        "The key of the rows inside the column.", scope=KEYED,
    )
    fields_nested_key_null_strategy: Mapping[str, str] = family(
        "nested-key-null-strategy", TEXT, READ,
        "What a null in a nested key does.", scope=KEYED,
    )
    fields_nested_sequence_field: Mapping[str, tuple[str, ...]] = family(
        "nested-sequence-field", NAMES, READ,
        "Orders the rows of one nested key.", scope=KEYED,
    )
    fields_count_limit: Mapping[str, int] = family(
        "count-limit", COUNT, READ,
        "Most rows that nested_update keeps.", scope=KEYED,
    )
    fields_ts_field: Mapping[str, str] = family(
        "ts-field", TEXT, READ,
        "The time field of merge_map_with_keytime.", scope=KEYED,
    )
    fields_sequence_group: Mapping[str, tuple[str, ...]] = family(
        "sequence-group", NAMES, READ,
        "Columns that the sequence columns in the key (with commas) order.", scope=KEYED,
    )

    # --- changelog --------------------------------------------------------------------------------
    changelog_producer: ChangelogProducer = option(
        "changelog-producer", choice(ChangelogProducer), ChangelogProducer.NONE, WRITE,
        "How the changelog is produced.", scope=KEYED,
    )
    changelog_producer_row_deduplicate: bool = option(
        "changelog-producer.row-deduplicate", FLAG, False, MAINTAIN,
        "Leave -U and +U of equal rows out of the changelog.", scope=KEYED,
    )
    changelog_producer_row_deduplicate_ignore_fields: tuple[str, ...] = option(
        "changelog-producer.row-deduplicate-ignore-fields", NAMES, (), MAINTAIN,
        "Columns to ignore when -U and +U are compared.", scope=KEYED,
    )
    lookup_wait: bool = option(
        "lookup-wait", FLAG, True, MAINTAIN,
        "A commit waits for the compaction that looks up.", scope=KEYED,
        fallbacks=("changelog-producer.lookup-wait",),
        no_effect="A commit always waits for its compaction.",
    )
    lookup_compact: LookupCompact = option(
        "lookup-compact", choice(LookupCompact), LookupCompact.RADICAL, MAINTAIN,
        "How often a compaction with look-ups takes all of level 0.", scope=KEYED,
    )
    lookup_compact_max_interval: int | None = option(
        "lookup-compact.max-interval", COUNT, None, MAINTAIN,
        "With `gentle`, level 0 is compacted after at most this many commits.", scope=KEYED,
    )
    force_lookup: bool = option(
        "force-lookup", FLAG, False, MAINTAIN,
        "Compact as tables with a lookup changelog do.", scope=KEYED, immutable=True,
    )
    # fmt: on
