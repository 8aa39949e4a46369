"""Writing and committing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.options.choices import (
    ChangelogProducer,
    LookupCompact,
    MergeEngine,
    OrderStrategy,
    SequenceInit,
    SortOrder,
)
from lakecore.options.kinds import (
    APPEND,
    COUNT,
    DURATION,
    FLAG,
    IGNORE_KEY,
    KEYED,
    MAINTAIN,
    NAME,
    NAMES,
    OTHER,
    READ,
    SIZE,
    TEXT,
    WRITE,
    choice,
    family,
    fraction,
    integer,
    one_of,
    option,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Writing and committing."""

    # Two lines for each declaration are easier to read than the formatter's eight lines.
    # fmt: off
    # --- lakecore's own ---------------------------------------------------------------------------
    lakecore_memory_budget_bytes: int = option(
        "lakecore.memory-budget", SIZE, 1 << 30, OTHER,
        "Memory of all reads and writes of a process; a stored value is only a default.",
    )
    lakecore_ignore_options: tuple[str, ...] = option(
        IGNORE_KEY, NAMES, (), OTHER,
        "Keys to ignore: unknown ones, and those that do not affect rows.",
    )
    lakecore_verify_checksums: bool = option(
        "lakecore.verify-checksums", FLAG, True, OTHER,
        "Check the checksums of a data file when a process first reads it.",
    )
    commit_single_writer: bool = option(
        "commit.single-writer", FLAG, False, WRITE,
        "Promise that nobody else commits, for a store without an atomic put-if-absent.",
    )

    # --- writing ----------------------------------------------------------------------------------
    write_only: bool = option(
        "write-only", FLAG, False, WRITE,
        "Leave compaction and expiry to another job.", fallbacks=("write.compaction-skip",),
    )
    write_merge_schema: bool = option(
        "write.merge-schema", FLAG, False, WRITE,
        "A write or overwrite adds the columns that the table lacks.",
    )
    write_merge_schema_type_widening: bool = option(
        "write.merge-schema.type-widening", FLAG, False, WRITE,
        "With `write.merge-schema`, a write also widens the types of columns.",
    )
    write_merge_schema_explicit_cast: bool = option(
        "write.merge-schema.explicit-cast", FLAG, False, WRITE,
        "With type widening, a write also makes type changes that can lose values.",
    )
    write_buffer_size_bytes: int = option(
        "write-buffer-size", SIZE, 256 << 20, WRITE,
        "Bytes of rows that a writer holds before it writes a run.",
    )
    write_buffer_spillable: bool = option(
        "write-buffer-spillable", FLAG, True, WRITE,
        "A full buffer is spilled to local disk.",
    )
    write_buffer_spill_max_disk_size_bytes: int | None = option(
        "write-buffer-spill.max-disk-size", SIZE, None, WRITE,
        "Spilled bytes of a bucket above which a full buffer is written as a run.", scope=KEYED,
    )
    row_tracking_enabled: bool = option(
        "row-tracking.enabled", FLAG, False, WRITE,
        "Each row has an id that never changes.", scope=APPEND, immutable=True,
    )
    data_evolution_enabled: bool = option(
        "data-evolution.enabled", FLAG, False, WRITE,
        "Several files may hold the columns of a row; needs `row-tracking.enabled`.",
        scope=APPEND, immutable=True,
    )
    record_level_expire_time_ms: int | None = option(
        "record-level.expire-time", DURATION, None, MAINTAIN,
        "Age at which a compaction into the last level drops a row.", scope=KEYED,
    )
    record_level_time_field: str | None = option(
        "record-level.time-field", NAME, None, MAINTAIN,
        "Column with the time from which the age of a row is measured.", scope=KEYED,
    )
    disable_explicit_type_casting: bool = option(
        "disable-explicit-type-casting", FLAG, False, WRITE,
        "Refuse type changes that may lose information.",
    )
    alter_column_null_to_not_null_disabled: bool = option(
        "alter-column-null-to-not-null.disabled", FLAG, True, WRITE,
        "Refuse to make a nullable column NOT NULL.",
    )
    add_column_before_partition: bool = option(
        "add-column-before-partition", FLAG, False, WRITE,
        "A new column without a stated position goes before the first partition column.",
    )

    # --- commit -----------------------------------------------------------------------------------
    commit_max_retries: int = option(
        "commit.max-retries", integer(0), 10, WRITE,
        "Retries of a commit that lost the race for a snapshot number.",
    )
    commit_min_retry_wait_ms: int = option(
        "commit.min-retry-wait", DURATION, 10, WRITE,
        "Shortest wait before a retry; a retry also waits as long as the attempt took.",
    )
    commit_max_retry_wait_ms: int = option(
        "commit.max-retry-wait", DURATION, 10_000, WRITE,
        "Longest wait before a retry.",
    )
    commit_timeout_ms: int | None = option(
        "commit.timeout", DURATION, None, WRITE,
        "Time after which a commit gives up.",
    )
    commit_user_prefix: str | None = option(
        "commit.user-prefix", NAME, None, WRITE,
        "Prefix of the commit user.",
    )
    commit_force_create_snapshot: bool = option(
        "commit.force-create-snapshot", FLAG, False, WRITE,
        "`ingest` makes a snapshot at each interval, even without rows.",
    )
    commit_force_compact: bool = option(
        "commit.force-compact", FLAG, False, MAINTAIN,
        "Compact before each commit.",
        no_effect="A commit always waits for its compaction.",
    )
    snapshot_ignore_empty_commit: bool | None = option(
        "snapshot.ignore-empty-commit", FLAG, None, WRITE,
        "A commit without changes makes no snapshot; true in batch, false in streaming if unset.",
    )
    # fmt: on


# --- merging -------------------------------------------------------------------------------------

# ruff: noqa: RUF009  a declaration is a call; its arguments are constants


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


# --- compaction ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CompactionOptions:
    """When a bucket is compacted, and how far."""

    # Two lines for each declaration are easier to read than the formatter's eight lines.
    # fmt: off
    # --- compaction -------------------------------------------------------------------------------
    num_sorted_run_compaction_trigger: int = option(
        "num-sorted-run.compaction-trigger", COUNT, 5, MAINTAIN,
        "Sorted runs of a bucket that trigger a compaction.", scope=KEYED,
    )
    num_sorted_run_stop_trigger: int | None = option(
        "num-sorted-run.stop-trigger", COUNT, None, MAINTAIN,
        "Sorted runs at which writers wait; the compaction trigger + 3 if unset.", scope=KEYED,
    )
    num_levels: int | None = option(
        "num-levels", integer(2), None, MAINTAIN,
        "Levels of a bucket, level 0 included; the compaction trigger + 1 if unset.", scope=KEYED,
    )
    compaction_max_size_amplification_percent: int = option(
        "compaction.max-size-amplification-percent", integer(0), 200, MAINTAIN,
        "Size of the newer runs, in percent of the last, that triggers a full compaction.",
        scope=KEYED,
    )
    compaction_size_ratio: int = option(
        "compaction.size-ratio", integer(0), 1, MAINTAIN,
        "Percent by which the next run may be larger and still be merged.", scope=KEYED,
    )
    compaction_offpeak_start_hour: int = option(
        "compaction.offpeak.start.hour", integer(-1, 24), -1, MAINTAIN,
        "Local hour at which quiet hours begin; -1: there are none.", scope=KEYED,
    )
    compaction_offpeak_end_hour: int = option(
        "compaction.offpeak.end.hour", integer(-1, 24), -1, MAINTAIN,
        "Local hour before which quiet hours end, perhaps past midnight; -1: there are none.",
        scope=KEYED,
    )
    compaction_offpeak_ratio: int = option(
        "compaction.offpeak-ratio", integer(0), 0, MAINTAIN,
        "Percent added to the size ratio in quiet hours.", scope=KEYED,
    )
    compaction_optimization_interval_ms: int | None = option(
        "compaction.optimization-interval", DURATION, None, MAINTAIN,
        "Time between two full compactions.", scope=KEYED,
    )
    compaction_total_size_threshold_bytes: int | None = option(
        "compaction.total-size-threshold", SIZE, None, MAINTAIN,
        "Bucket size below which compactions are full.", scope=KEYED,
    )
    compaction_incremental_size_threshold_bytes: int | None = option(
        "compaction.incremental-size-threshold", SIZE, None, MAINTAIN,
        "Size outside the last level that triggers a full compaction.", scope=KEYED,
    )
    compaction_force_up_level_0: bool = option(
        "compaction.force-up-level-0", FLAG, False, MAINTAIN,
        "Take all of level 0 at each compaction.", scope=KEYED,
    )
    compaction_force_rewrite_all_files: bool = option(
        "compaction.force-rewrite-all-files", FLAG, False, MAINTAIN,
        "A full compaction rewrites every file.",
    )
    compaction_min_file_num: int = option(
        "compaction.min.file-num", COUNT, 5, MAINTAIN,
        "Small files that trigger a compaction.", scope=APPEND,
    )
    compaction_max_file_num: int | None = option(
        "compaction.max.file-num", COUNT, None, MAINTAIN,
        "Small files that one compaction takes (a key of older releases).", scope=APPEND,
    )
    compaction_file_num_limit: int = option(
        "compaction.file-num-limit", COUNT, 100_000, OTHER,
        "Files that a compaction plan holds in memory; lakecore plans with all.", scope=APPEND,
        no_effect="Compaction looks at all files; it streams their metadata.",
    )
    compaction_small_file_ratio: float = option(
        "compaction.small-file-ratio", fraction(0.0, 1.0), 0.7, MAINTAIN,
        "Share of the target size below which a file is small.",
    )
    compaction_delete_ratio_threshold: float = option(
        "compaction.delete-ratio-threshold", fraction(0.0, 1.0), 0.2, MAINTAIN,
        "Share of deleted rows at which a file is rewritten.", scope=APPEND,
    )
    compaction_skip_expired_partitions: bool = option(
        "compaction.skip-expired-partitions", FLAG, False, MAINTAIN,
        "Do not compact expired partitions.",
    )
    full_compaction_delta_commits: int | None = option(
        "full-compaction.delta-commits", COUNT, None, MAINTAIN,
        "Commits after which a write compacts its buckets in full.", scope=KEYED,
    )
    # fmt: on


# --- clustering ----------------------------------------------------------------------------------

LOCAL_SORT = "local-sort"


@dataclass(frozen=True, kw_only=True)
class ClusteringOptions:
    """How the rows of append tables are sorted, so that reads skip files."""

    # Two lines for each declaration are easier to read than the formatter's eight lines.
    # fmt: off
    # --- clustering -------------------------------------------------------------------------------
    clustering_columns: tuple[str, ...] = option(
        "clustering.columns", NAMES, (), WRITE,
        "Columns by which a batch write sorts the rows of a table without buckets.", scope=APPEND,
        fallbacks=("sink.clustering.by-columns",),
    )
    clustering_strategy: str = option(
        "clustering.strategy", one_of("auto", *OrderStrategy), "auto", WRITE,
        "How rows are sorted; auto: order for one column, zorder for up to 4, else hilbert.",
        scope=APPEND, fallbacks=("sink.clustering.strategy",),
    )
    clustering_incremental: bool = option(
        "clustering.incremental", FLAG, False, WRITE,
        "Compactions sort rows, a part of the files at a time; writes do not.", scope=APPEND,
    )
    clustering_incremental_mode: str = option(
        "clustering.incremental.mode", one_of("global-sort", LOCAL_SORT), "global-sort", MAINTAIN,
        "Compactions sort along the curve, or (local-sort) by the columns one after another.",
        scope=APPEND,
    )
    clustering_incremental_optimize_write: bool = option(
        "clustering.incremental.optimize-write", FLAG, False, WRITE,
        "With `clustering.incremental`, batch writes sort rows too.", scope=APPEND,
    )
    clustering_history_partition_idle_to_full_sort_ms: int | None = option(
        "clustering.history-partition.idle-to-full-sort", DURATION, None, MAINTAIN,
        "A compaction of chosen partitions also sorts other partitions that are idle this long.",
        scope=APPEND,
    )
    clustering_history_partition_limit: int = option(
        "clustering.history-partition.limit", COUNT, 5, MAINTAIN,
        "Most idle partitions that one compaction sorts.", scope=APPEND,
    )
    zorder_var_length_contribution: int = option(
        "zorder.var-length-contribution", integer(1, 1024), 8, MAINTAIN,
        "Bytes of a string or binary that count in a Z-order.", scope=APPEND,
    )
    local_sort_max_num_file_handles: int = option(
        "local-sort.max-num-file-handles", integer(2), 128, MAINTAIN,
        "Sorted runs on local disk that a sort merges at once.", scope=APPEND,
    )
    # fmt: on
