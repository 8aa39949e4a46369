"""The typed options of a table, each declared once: key, kind, default, effect, meaning.

INVARIANT: no option is accepted and ignored. A known option with another value than its default
that lakecore cannot honour makes `require_readable` (effect READ) or `require_writable` (READ or
WRITE) raise `Unsupported`; MAINTAIN options are read by the verb they are about. What is not done
yet stands in `LIMITS`, and as `supported=False` beside the option: to enable it, take that away.
"""

# ruff: noqa: RUF009  a declaration is a call; what it is given are constants

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from lakecore.errors import Unsupported
from lakecore.option_choices import (
    BucketFunction,
    ChangelogProducer,
    ConsumerMode,
    Effect,
    ExpireMode,
    IncrementalScanMode,
    LookupCompact,
    MergeEngine,
    PartitionExpiry,
    ScanMode,
    Scope,
    SequenceInit,
    SortOrder,
    TableType,
    TagCreation,
    TagFormatter,
    TagPeriod,
)
from lakecore.option_keys import OTHER_KEYS, OTHER_PATTERNS, matches
from lakecore.option_types import (
    COMPRESSION,
    COUNT,
    DURATION,
    FLAG,
    FOLDER,
    FORMAT,
    INT_MAX,
    LONG,
    LONG_MAX,
    NAME,
    NAMES,
    PER_LEVEL,
    SIZE,
    STATS_MODE,
    TEXT,
    Option,
    choice,
    family,
    fraction,
    integer,
    option,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


READ, WRITE, MAINTAIN, OTHER = Effect.READ, Effect.WRITE, Effect.MAINTAIN, Effect.OTHER
KEYED, APPEND = Scope.PRIMARY_KEY, Scope.APPEND
POSTPONE_BUCKET = -2
IGNORE_KEY = "lakecore.ignore-options"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The options of a table. `texts` holds what was set, by the key of today; `table` names it.

    An attribute is the key with `.` and `-` as `_`, the unit last. `fields.X.NAME` families are
    mappings by column (or by the sequence columns) under `fields_NAME`.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    table: str = ""

    # Two lines a declaration read better than the eight that the formatter would make.
    # fmt: off
    # --- lakecore's own -------------------------------------------------------------------------
    lakecore_memory_budget_bytes: int = option(
        "lakecore.memory-budget", SIZE, 1 << 30, OTHER,
        "Memory that all reads and writes of the process hold; the last table that sets it wins.",
    )
    lakecore_ignore_options: tuple[str, ...] = option(
        IGNORE_KEY, NAMES, (), OTHER,
        "Keys to leave unread: unknown ones, and those that change no row.",
    )
    commit_single_writer: bool = option(
        "commit.single-writer", FLAG, False, WRITE,
        "Promise that nobody else commits, for a store without an atomic put-if-absent.",
    )

    # --- kind of table, keys, buckets -----------------------------------------------------------
    type: TableType = option(
        "type", choice(TableType), TableType.TABLE, READ,
        "What lies at the table's path.", immutable=True,
    )
    branch: str = option("branch", TEXT, "main", READ, "The branch to read and write.")
    auto_create: bool = option(
        "auto-create", FLAG, False, WRITE,
        "Create the table's storage at first use.",
    )
    primary_key: tuple[str, ...] = option(
        "primary-key", NAMES, (), WRITE,
        "The primary key, as an option; creation moves it into the schema.", immutable=True,
    )
    partition: tuple[str, ...] = option(
        "partition", NAMES, (), WRITE,
        "The partition keys, as an option; creation moves them into the schema.", immutable=True,
    )
    primary_key_nullable: bool = option(
        "primary-key.nullable", FLAG, False, READ,
        "Let primary keys be null; nulls are equal.", scope=KEYED, supported=False, immutable=True,
    )
    bucket: int = option(
        "bucket", integer(1, INT_MAX, -1, -2), -1, WRITE,
        "Buckets of a partition; -1: dynamic, or unaware without a primary key; -2: postponed.",
    )
    bucket_key: tuple[str, ...] = option(
        "bucket-key", NAMES, (), WRITE,
        "Columns that choose the bucket; the primary key, less the partition keys, if unset.",
        immutable=True,
    )
    bucket_function_type: BucketFunction = option(
        "bucket-function.type", choice(BucketFunction), BucketFunction.DEFAULT, WRITE,
        "How the bucket key becomes a bucket number.", immutable=True,
    )
    bucket_append_ordered: bool = option(
        "bucket-append-ordered", FLAG, True, MAINTAIN,
        "Keep the order of rows within a bucket when files are compacted.", scope=APPEND,
    )
    dynamic_bucket_target_row_num: int = option(
        "dynamic-bucket.target-row-num", integer(1, LONG_MAX), 2_000_000, WRITE,
        "Keys of a dynamic bucket before a new one is opened.", scope=KEYED,
    )
    dynamic_bucket_initial_buckets: int | None = option(
        "dynamic-bucket.initial-buckets", COUNT, None, WRITE,
        "Dynamic buckets that an assigner opens at first.", scope=KEYED, immutable=True,
    )
    dynamic_bucket_max_buckets: int = option(
        "dynamic-bucket.max-buckets", integer(1, INT_MAX, -1), -1, WRITE,
        "Most dynamic buckets of a partition; -1: no bound.", scope=KEYED,
    )

    # --- merging --------------------------------------------------------------------------------
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
        supported=False, immutable=True,
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
        "A -D removes the row of a partial-update table.", scope=KEYED, immutable=True,
    )
    partial_update_remove_record_on_sequence_group: tuple[str, ...] = option(
        "partial-update.remove-record-on-sequence-group", NAMES, (), READ,
        "Sequence columns whose group removes the row when a -D of it comes.", scope=KEYED,
        immutable=True,
    )
    aggregation_remove_record_on_delete: bool = option(
        "aggregation.remove-record-on-delete", FLAG, False, READ,
        "A -D removes the row of an aggregation table.", scope=KEYED, immutable=True,
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
        "What parts the texts of listagg; a comma if unset.", scope=KEYED,
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
        "Columns that the named sequence columns (commas between them) order.", scope=KEYED,
    )

    # --- changelog ------------------------------------------------------------------------------
    changelog_producer: ChangelogProducer = option(
        "changelog-producer", choice(ChangelogProducer), ChangelogProducer.NONE, WRITE,
        "Where the changelog comes from.", scope=KEYED,
    )
    changelog_producer_row_deduplicate: bool = option(
        "changelog-producer.row-deduplicate", FLAG, False, MAINTAIN,
        "Leave out -U and +U of equal rows.", scope=KEYED,
    )
    changelog_producer_row_deduplicate_ignore_fields: tuple[str, ...] = option(
        "changelog-producer.row-deduplicate-ignore-fields", NAMES, (), MAINTAIN,
        "Columns that do not count when -U and +U are compared.", scope=KEYED,
    )
    lookup_wait: bool = option(
        "lookup-wait", FLAG, True, MAINTAIN,
        "A commit waits for the compaction that looks up.", scope=KEYED,
        fallbacks=("changelog-producer.lookup-wait",),
    )
    lookup_compact: LookupCompact = option(
        "lookup-compact", choice(LookupCompact), LookupCompact.RADICAL, MAINTAIN,
        "How eagerly a compaction that looks up takes level 0.", scope=KEYED,
    )
    lookup_compact_max_interval: int | None = option(
        "lookup-compact.max-interval", COUNT, None, MAINTAIN,
        "Most compactions that a gentle look-up skips.", scope=KEYED,
    )
    force_lookup: bool = option(
        "force-lookup", FLAG, False, MAINTAIN,
        "Compact as tables with a lookup changelog do.", scope=KEYED, immutable=True,
    )

    # --- data files -----------------------------------------------------------------------------
    file_format: str = option("file.format", FORMAT, "parquet", WRITE, "Format of new data files.")
    file_format_per_level: Mapping[int, str] = option(
        "file.format.per.level", PER_LEVEL, {}, WRITE,
        "Format of new data files, by level.", scope=KEYED,
    )
    file_compression: str = option(
        "file.compression", COMPRESSION, "zstd", WRITE,
        "Compression of new data files; Parquet keeps plain numbers that hardly shrink.",
    )
    file_compression_per_level: Mapping[int, str] = option(
        "file.compression.per.level", PER_LEVEL, {}, WRITE,
        "Compression of new data files, by level.", scope=KEYED,
    )
    file_compression_zstd_level: int = option(
        "file.compression.zstd-level", integer(-7, 22), 1, WRITE,
        "Level of zstd: more is smaller.",
    )
    file_block_size_bytes: int | None = option(
        "file.block-size", SIZE, None, OTHER,
        "Size of a row group or stripe; lakecore sizes row groups for its windows.",
    )
    target_file_size_bytes: int | None = option(
        "target-file-size", SIZE, None, WRITE,
        "Size at which a new file begins; 128 mb with a primary key, 256 mb without.",
    )
    target_file_row_num: int = option(
        "target-file-row-num", integer(1, LONG_MAX), LONG_MAX, WRITE,
        "Rows at which a new file begins.", supported=False, ignorable=True,
    )
    data_file_prefix: str = option(
        "data-file.prefix", TEXT, "data-", WRITE,
        "Begins the names of data files.",
    )
    data_file_thin_mode: bool = option(
        "data-file.thin-mode", FLAG, False, WRITE,
        "Store key columns once, not as `_KEY_` columns too.", scope=KEYED,
    )
    data_file_path_directory: str | None = option(
        "data-file.path-directory", FOLDER, None, READ,
        "Folder of the table that holds its partitions and buckets.", immutable=True,
    )
    data_file_external_paths: tuple[str, ...] = option(
        "data-file.external-paths", NAMES, (), WRITE,
        "Places outside the table's path for new data files.", supported=False,
    )
    index_file_in_data_file_dir: bool = option(
        "index-file-in-data-file-dir", FLAG, False, READ,
        "Index files lie beside the data files.", immutable=True,
    )
    file_suffix_include_compression: bool = option(
        "file.suffix.include.compression", FLAG, False, WRITE,
        "Names of data files say the compression.",
    )
    changelog_file_prefix: str = option(
        "changelog-file.prefix", TEXT, "changelog-", WRITE,
        "Begins the names of changelog files.", scope=KEYED,
    )
    changelog_file_format: str | None = option(
        "changelog-file.format", FORMAT, None, WRITE,
        "Format of changelog files; that of data files if unset.", scope=KEYED,
    )
    changelog_file_compression: str | None = option(
        "changelog-file.compression", COMPRESSION, None, WRITE,
        "Compression of changelog files; that of data files if unset.", scope=KEYED,
    )
    changelog_file_stats_mode: str | None = option(
        "changelog-file.stats-mode", STATS_MODE, None, WRITE,
        "Statistics of changelog files; those of data files if unset.", scope=KEYED,
    )
    orc_timestamp_ltz_legacy_type: bool = option(
        "orc.timestamp-ltz.legacy.type", FLAG, True, READ,
        "ORC holds local-zoned timestamps as wall clock of the writer's zone; lakecore's is UTC.",
    )

    # --- statistics and manifests ---------------------------------------------------------------
    metadata_stats_mode: str = option(
        "metadata.stats-mode", STATS_MODE, "truncate(16)", WRITE,
        "Statistics of each column in the manifest.",
    )
    stats_modes: Mapping[str, str] = family(
        "stats-mode", STATS_MODE, WRITE,
        "Statistics of the column.",
    )
    metadata_stats_dense_store: bool = option(
        "metadata.stats-dense-store", FLAG, True, WRITE,
        "Store statistics of the columns that have some, not of all.",
    )
    metadata_stats_keep_first_n_columns: int = option(
        "metadata.stats-keep-first-n-columns", integer(-1), -1, WRITE,
        "Columns, from the first, that get statistics; -1: all.", supported=False, ignorable=True,
    )
    metadata_stats_mode_per_level: Mapping[int, str] = option(
        "metadata.stats-mode.per.level", PER_LEVEL, {}, WRITE,
        "Statistics by level.", scope=KEYED, supported=False, ignorable=True,
    )
    manifest_format: str = option("manifest.format", FORMAT, "avro", WRITE, "Format of manifests.")
    manifest_compression: str = option(
        "manifest.compression", COMPRESSION, "zstd", WRITE,
        "Compression of manifests.",
    )
    manifest_target_file_size_bytes: int = option(
        "manifest.target-file-size", SIZE, 8 << 20, WRITE,
        "Size that merging gives a manifest.",
    )
    manifest_full_compaction_threshold_size_bytes: int = option(
        "manifest.full-compaction-threshold-size", SIZE, 16 << 20, WRITE,
        "Bytes of small manifests that make a commit merge all of them.",
    )
    manifest_merge_min_count: int = option(
        "manifest.merge-min-count", COUNT, 30, WRITE,
        "Small manifests that make a commit merge them.",
    )
    manifest_delete_file_drop_stats: bool = option(
        "manifest.delete-file-drop-stats", FLAG, False, OTHER,
        "Leave the statistics of columns of deleted files out of manifests.",
    )

    # --- partitions -----------------------------------------------------------------------------
    partition_default_name: str = option(
        "partition.default-name", TEXT, "__DEFAULT_PARTITION__", READ,
        "Folder name of a null or empty partition value.",
    )
    partition_legacy_name: bool = option(
        "partition.legacy-name", FLAG, True, READ,
        "Write partition values as older releases did: a date is its day number.",
    )
    dynamic_partition_overwrite: bool = option(
        "dynamic-partition-overwrite", FLAG, True, WRITE,
        "An overwrite replaces the partitions that its rows touch, not all.",
    )
    overwrite_upgrade: bool = option(
        "overwrite-upgrade", FLAG, True, WRITE,
        "Files of an overwrite that do not overlap go to the last level at once.", scope=KEYED,
    )
    partition_expiration_time_ms: int | None = option(
        "partition.expiration-time", DURATION, None, MAINTAIN,
        "Age at which partitions expire.",
    )
    partition_expiration_check_interval_ms: int = option(
        "partition.expiration-check-interval", DURATION, 3_600_000, MAINTAIN,
        "Time between two looks for expired partitions.",
    )
    partition_expiration_strategy: PartitionExpiry = option(
        "partition.expiration-strategy", choice(PartitionExpiry), PartitionExpiry.VALUES_TIME,
        MAINTAIN,
        "What a partition's age is measured by.",
    )
    partition_expiration_max_num: int = option(
        "partition.expiration-max-num", COUNT, 100, MAINTAIN,
        "Most partitions that one run expires.",
    )
    partition_expiration_batch_size: int | None = option(
        "partition.expiration-batch-size", COUNT, None, MAINTAIN,
        "Partitions that one commit of an expiry drops.",
    )
    partition_timestamp_formatter: str | None = option(
        "partition.timestamp-formatter", NAME, None, MAINTAIN,
        "Format of the time in partition values.",
    )
    partition_timestamp_pattern: str | None = option(
        "partition.timestamp-pattern", NAME, None, MAINTAIN,
        "How partition values make up a time: '$dt $hour'.",
    )

    # --- writing --------------------------------------------------------------------------------
    write_only: bool = option(
        "write-only", FLAG, False, WRITE,
        "Leave compaction and expiry to another job.", fallbacks=("write.compaction-skip",),
    )
    write_buffer_size_bytes: int = option(
        "write-buffer-size", SIZE, 256 << 20, WRITE,
        "Bytes of rows that a writer holds before it writes a run.",
    )
    write_buffer_spillable: bool = option(
        "write-buffer-spillable", FLAG, True, WRITE,
        "A full buffer may go to local disk.",
    )
    write_buffer_spill_max_disk_size_bytes: int | None = option(
        "write-buffer-spill.max-disk-size", SIZE, None, WRITE,
        "Spilled bytes of a bucket from which a full buffer makes it write a run.", scope=KEYED,
    )
    row_tracking_enabled: bool = option(
        "row-tracking.enabled", FLAG, False, WRITE,
        "Each row has an id that never changes.", scope=APPEND, supported=False, immutable=True,
    )
    record_level_expire_time_ms: int | None = option(
        "record-level.expire-time", DURATION, None, MAINTAIN,
        "Age at which compaction drops a row.", scope=KEYED,
    )
    record_level_time_field: str | None = option(
        "record-level.time-field", NAME, None, MAINTAIN,
        "Column that a row's age is measured by.", scope=KEYED,
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
        "A new column without a place goes before the first partition column.",
    )

    # --- commit ---------------------------------------------------------------------------------
    commit_max_retries: int = option(
        "commit.max-retries", integer(0), 10, WRITE,
        "Times that a lost commit is tried again.",
    )
    commit_min_retry_wait_ms: int = option(
        "commit.min-retry-wait", DURATION, 10, WRITE,
        "Least wait before a retry; it is at least as long as the attempt took.",
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
        "Begins the name of the commit user.",
    )
    commit_force_create_snapshot: bool = option(
        "commit.force-create-snapshot", FLAG, False, OTHER,
        "Flink: a streaming commit without changes makes a snapshot too.",
    )
    commit_force_compact: bool = option(
        "commit.force-compact", FLAG, False, MAINTAIN,
        "Compact before each commit.",
    )
    snapshot_ignore_empty_commit: bool | None = option(
        "snapshot.ignore-empty-commit", FLAG, None, WRITE,
        "A commit without changes makes no snapshot; true in batch, false in streaming if unset.",
    )

    # --- deletion vectors and file indexes ------------------------------------------------------
    deletion_vectors_enabled: bool = option(
        "deletion-vectors.enabled", FLAG, False, READ,
        "Deleted rows are marked in index files.",
    )
    deletion_vectors_bitmap64: bool = option(
        "deletion-vectors.bitmap64", FLAG, False, WRITE,
        "Write 64-bit vectors.",
    )
    deletion_vectors_merge_on_read: bool = option(
        "deletion-vectors.merge-on-read", FLAG, False, READ,
        "Reads see level 0 too, and merge.", scope=KEYED,
    )
    deletion_vectors_modifiable: bool = option(
        "deletion-vectors.modifiable", FLAG, False, WRITE,
        "Let deletion-vectors.enabled change on a table with snapshots.",
    )
    deletion_vector_index_file_target_size_bytes: int = option(
        "deletion-vector.index-file.target-size", SIZE, 2 << 20, WRITE,
        "Size at which a new file of vectors begins.",
    )
    file_index_in_manifest_threshold_bytes: int = option(
        "file-index.in-manifest-threshold", SIZE, 500, WRITE,
        "Size up to which a file index lies in the manifest.",
    )
    file_index_read_enabled: bool = option(
        "file-index.read.enabled", FLAG, True, OTHER,
        "Let file indexes skip files.",
    )

    # --- compaction -----------------------------------------------------------------------------
    num_sorted_run_compaction_trigger: int = option(
        "num-sorted-run.compaction-trigger", COUNT, 5, MAINTAIN,
        "Sorted runs of a bucket that ask for compaction.", scope=KEYED,
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
        "Size of the newer runs, in percent of the last, that asks for a full compaction.",
        scope=KEYED,
    )
    compaction_size_ratio: int = option(
        "compaction.size-ratio", integer(0), 1, MAINTAIN,
        "Percent by which the next run may be larger and still be taken.", scope=KEYED,
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
        "Size outside the last level that asks for a full compaction.", scope=KEYED,
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
        "Small files that ask for compaction.", scope=APPEND,
    )
    compaction_max_file_num: int | None = option(
        "compaction.max.file-num", COUNT, None, MAINTAIN,
        "Small files that one compaction takes (a key of older releases).", scope=APPEND,
    )
    compaction_file_num_limit: int = option(
        "compaction.file-num-limit", COUNT, 100_000, OTHER,
        "Files that one look for compaction holds in memory; lakecore looks at all.", scope=APPEND,
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
        "Leave partitions alone that expire anyway.",
    )
    full_compaction_delta_commits: int | None = option(
        "full-compaction.delta-commits", COUNT, None, MAINTAIN,
        "Commits after which a write compacts its buckets in full.", scope=KEYED,
    )

    # --- scans ----------------------------------------------------------------------------------
    scan_mode: ScanMode = option(
        "scan.mode", choice(ScanMode), ScanMode.DEFAULT, READ,
        "Where a scan starts.", fallbacks=("log.scan",),
    )
    scan_snapshot_id: int | None = option(
        "scan.snapshot-id", integer(0, LONG_MAX), None, READ,
        "The snapshot to read.",
    )
    scan_tag_name: str | None = option("scan.tag-name", NAME, None, READ, "The tag to read.")
    scan_timestamp_millis: int | None = option(
        "scan.timestamp-millis", LONG, None, READ,
        "Read what was newest at this time, in milliseconds since 1970.",
        fallbacks=("log.scan.timestamp-millis",),
    )
    scan_timestamp: str | None = option(
        "scan.timestamp", NAME, None, READ,
        "Read what was newest at this local time.",
    )
    scan_version: str | None = option(
        "scan.version", NAME, None, READ,
        "The tag, or else the snapshot, to read.",
    )
    scan_watermark: int | None = option(
        "scan.watermark", LONG, None, READ,
        "Read the first snapshot of this watermark or a later.", supported=False,
    )
    scan_bucket: int | None = option(
        "scan.bucket", integer(0), None, READ,
        "The one bucket to read.", supported=False,
    )
    scan_creation_time_millis: int | None = option(
        "scan.creation-time-millis", LONG, None, READ,
        "Read from this time, or files made after it if no snapshot is that old.", supported=False,
    )
    scan_file_creation_time_millis: int | None = option(
        "scan.file-creation-time-millis", LONG, None, READ,
        "Read files made after this time.", supported=False,
    )
    scan_fallback_branch: str | None = option(
        "scan.fallback-branch", NAME, None, READ,
        "Branch that gives the partitions missing here.", supported=False,
    )
    scan_primary_branch: str | None = option(
        "scan.primary-branch", NAME, None, READ,
        "Branch whose partitions go before those here.", supported=False,
    )
    scan_ignore_corrupt_files: bool = option(
        "scan.ignore-corrupt-files", FLAG, False, READ,
        "Skip files that cannot be read.", supported=False,
    )
    scan_ignore_lost_files: bool = option(
        "scan.ignore-lost-files", FLAG, False, READ,
        "Skip files that are gone.", supported=False,
    )
    scan_plan_sort_partition: bool = option(
        "scan.plan-sort-partition", FLAG, False, READ,
        "Read in the order of partitions.", supported=False, ignorable=True,
    )
    incremental_between: str | None = option(
        "incremental-between", NAME, None, READ,
        "Two snapshots or tags: read the changes after the first, up to the second.",
    )
    incremental_between_timestamp: str | None = option(
        "incremental-between-timestamp", NAME, None, READ,
        "Two times: read the changes after the first, up to the second.",
    )
    incremental_between_scan_mode: IncrementalScanMode = option(
        "incremental-between-scan-mode", choice(IncrementalScanMode), IncrementalScanMode.AUTO,
        READ,
        "What an incremental read takes from each snapshot.",
    )
    incremental_between_tag_to_snapshot: bool = option(
        "incremental-between-tag-to-snapshot", FLAG, False, READ,
        "Read the snapshots between two tags, not the tags' difference.",
    )
    incremental_to_auto_tag: str | None = option(
        "incremental-to-auto-tag", NAME, None, READ,
        "Read the changes from the tag before this one, up to it.", supported=False,
    )
    source_split_target_size_bytes: int = option(
        "source.split.target-size", SIZE, 128 << 20, OTHER,
        "Bytes of files in one split.",
    )
    source_split_open_file_cost_bytes: int = option(
        "source.split.open-file-cost", SIZE, 4 << 20, OTHER,
        "Bytes that opening a file counts for when splits are packed.",
    )
    scan_manifest_parallelism: int | None = option(
        "scan.manifest.parallelism", COUNT, None, OTHER,
        "Manifests read at once.",
    )
    read_batch_size: int = option(
        "read.batch-size", COUNT, 1024, OTHER,
        "Rows that a reader hands on at once.",
    )
    write_batch_size: int = option(
        "write.batch-size", COUNT, 1024, OTHER,
        "Rows that a file writer takes at once.", fallbacks=("orc.write.batch-size",),
    )

    # --- streams and consumers ------------------------------------------------------------------
    consumer_id: str | None = option(
        "consumer-id", NAME, None, MAINTAIN,
        "The consumer whose progress a stream records.",
    )
    consumer_mode: ConsumerMode = option(
        "consumer.mode", choice(ConsumerMode), ConsumerMode.EXACTLY_ONCE, MAINTAIN,
        "How exactly a consumer's progress is recorded.",
    )
    consumer_expiration_time_ms: int | None = option(
        "consumer.expiration-time", DURATION, None, MAINTAIN,
        "Age at which a consumer expires.",
    )
    consumer_ignore_progress: bool = option(
        "consumer.ignore-progress", FLAG, False, MAINTAIN,
        "A new stream starts where its scan mode says, not where the consumer was.",
    )
    consumer_changelog_only: bool = option(
        "consumer.changelog-only", FLAG, False, MAINTAIN,
        "A consumer holds back the expiry of changelogs, not of snapshots.",
    )
    continuous_discovery_interval_ms: int = option(
        "continuous.discovery-interval", DURATION, 10_000, MAINTAIN,
        "Wait of a stream between two looks for a snapshot.",
    )
    scan_bounded_watermark: int | None = option(
        "scan.bounded.watermark", LONG, None, MAINTAIN,
        "Watermark at which a stream ends.",
    )
    streaming_read_overwrite: bool = option(
        "streaming-read-overwrite", FLAG, False, MAINTAIN,
        "A stream sees the changes of overwrites.", scope=KEYED,
    )
    streaming_read_append_overwrite: bool = option(
        "streaming-read-append-overwrite", FLAG, False, MAINTAIN,
        "A stream sees the new rows of overwrites.", scope=APPEND,
    )
    streaming_read_snapshot_delay_ms: int | None = option(
        "streaming.read.snapshot.delay", DURATION, None, MAINTAIN,
        "Age of a snapshot before a stream reads it.",
    )

    # --- expiry of snapshots and changelogs -----------------------------------------------------
    snapshot_num_retained_min: int = option(
        "snapshot.num-retained.min", COUNT, 10, MAINTAIN,
        "Snapshots that are always kept.",
    )
    snapshot_num_retained_max: int = option(
        "snapshot.num-retained.max", integer(0), INT_MAX, MAINTAIN,
        "Most snapshots kept.",
    )
    snapshot_time_retained_ms: int = option(
        "snapshot.time-retained", DURATION, 3_600_000, MAINTAIN,
        "Age up to which they are kept.",
    )
    snapshot_expire_limit: int = option(
        "snapshot.expire.limit", COUNT, 50, MAINTAIN,
        "Most snapshots that one run expires.",
    )
    snapshot_expire_execution_mode: ExpireMode = option(
        "snapshot.expire.execution-mode", choice(ExpireMode), ExpireMode.SYNC, MAINTAIN,
        "Whether a commit waits for the expiry after it.",
    )
    snapshot_clean_empty_directories: bool = option(
        "snapshot.clean-empty-directories", FLAG, False, MAINTAIN,
        "Expiry removes folders that it leaves empty.",
        fallbacks=("snapshot.expire.clean-empty-directories",),
    )
    changelog_num_retained_min: int | None = option(
        "changelog.num-retained.min", COUNT, None, MAINTAIN,
        "Changelogs that are always kept; as snapshots if unset.",
    )
    changelog_num_retained_max: int | None = option(
        "changelog.num-retained.max", integer(0), None, MAINTAIN,
        "Most changelogs kept; as snapshots if unset.",
    )
    changelog_time_retained_ms: int | None = option(
        "changelog.time-retained", DURATION, None, MAINTAIN,
        "Age up to which changelogs are kept; as snapshots if unset.",
    )

    # --- tags -----------------------------------------------------------------------------------
    tag_automatic_creation: TagCreation = option(
        "tag.automatic-creation", choice(TagCreation), TagCreation.NONE, MAINTAIN,
        "What makes tags by itself.",
    )
    tag_automatic_completion: bool = option(
        "tag.automatic-completion", FLAG, False, MAINTAIN,
        "Make up for missing tags.",
    )
    tag_creation_period: TagPeriod = option(
        "tag.creation-period", choice(TagPeriod), TagPeriod.DAILY, MAINTAIN,
        "The period of tags made by themselves.",
    )
    tag_creation_period_duration_ms: int | None = option(
        "tag.creation-period-duration", DURATION, None, MAINTAIN,
        "That period, as a duration; it goes before tag.creation-period.",
    )
    tag_creation_delay_ms: int = option(
        "tag.creation-delay", DURATION, 0, MAINTAIN,
        "Wait after a period before its tag is made.",
    )
    tag_period_formatter: TagFormatter = option(
        "tag.period-formatter", choice(TagFormatter), TagFormatter.WITH_DASHES, MAINTAIN,
        "How the names of such tags are written.",
    )
    tag_num_retained_max: int | None = option(
        "tag.num-retained-max", COUNT, None, MAINTAIN,
        "Most tags kept that made themselves.",
    )
    tag_default_time_retained_ms: int | None = option(
        "tag.default-time-retained", DURATION, None, MAINTAIN,
        "Age up to which tags are kept.",
    )
    tag_time_expire_enabled: bool = option(
        "tag.time-expire-enabled", FLAG, True, MAINTAIN,
        "Let tags expire by age.",
    )
    tag_batch_customized_name: str | None = option(
        "tag.batch.customized-name", NAME, None, MAINTAIN,
        "Name of the tag that a batch makes.",
    )
    tag_create_success_file: bool = option(
        "tag.create-success-file", FLAG, False, MAINTAIN,
        "Write a success file for each tag.",
    )

    # fmt: on

    def target_file_size(self, *, primary_key: bool) -> int:
        """The bytes at which a new data file begins, in a table with or without a primary key."""
        if self.target_file_size_bytes is not None:
            return self.target_file_size_bytes
        return (128 if primary_key else 256) << 20

    @property
    def level_count(self) -> int:
        """The levels of a bucket, level 0 included."""
        return self.num_levels or self.num_sorted_run_compaction_trigger + 1

    @property
    def stop_trigger(self) -> int:
        """The sorted runs of a bucket at which a writer waits for compaction."""
        trigger = self.num_sorted_run_compaction_trigger
        return max(trigger, self.num_sorted_run_stop_trigger or trigger + 3)

    @property
    def folds_rows(self) -> bool:
        """Whether a row takes up values of older rows of its key."""
        return self.merge_engine in (MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION)

    @property
    def needs_lookup(self) -> bool:
        """Whether compaction of level 0 looks up what lies above it, in any case."""
        return (
            self.changelog_producer is ChangelogProducer.LOOKUP
            or self.deletion_vectors_enabled
            or self.merge_engine is MergeEngine.FIRST_ROW
            or self.force_lookup
        )

    def require_readable(self) -> None:
        """Raise Unsupported if an option asks of a reader what lakecore does not do."""
        self._require({READ}, "reading")

    def require_writable(
        self,
        *,
        primary_keys: Sequence[str] | None = None,
        partition_keys: Sequence[str] = (),
    ) -> None:
        """Raise Unsupported if an option asks of a writer what lakecore does not do.

        Keys that are not given may be any: what only an append table may do is refused then too.
        """
        self._require({READ, WRITE}, "writing")
        missing = [name for name in partition_keys if name not in (primary_keys or partition_keys)]
        if missing:
            raise Unsupported(
                "writing a table whose primary key lacks partition keys is not supported",
                missing=missing,
                primary_key=tuple(primary_keys or ()),
                table=self.table,
            )
        keyed = primary_keys is None or bool(primary_keys)
        if keyed and self.deletion_vectors_enabled and not self.write_only:
            raise Unsupported(
                "writing a primary-key table with this option needs write-only=true",
                option="deletion-vectors.enabled",
                value="true",
                table=self.table,
            )

    def _require(self, effects: set[Effect], verb: str) -> None:
        for key, text in self.texts.items():
            known = find_option(key)
            if known is None or known.effect not in effects or known.supported:
                continue
            if known.kind.parse(text) != known.default:
                out = f"set {IGNORE_KEY}={key} to leave it undone" if known.ignorable else None
                raise self._refusal(verb, key, text, out)
        for limit in LIMITS:
            if limit.effect in effects and limit.holds(self):
                raise self._refusal(verb, limit.key, self.texts.get(limit.key, ""), limit.way_out)

    def _refusal(self, verb: str, key: str, text: str, way_out: str | None) -> Unsupported:
        facts = {"option": key, "value": text, "table": self.table}
        if way_out is not None:
            facts["way_out"] = way_out
        return Unsupported(f"{verb} a table with this option is not supported", **facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Values of an option that lakecore does not do yet, and what does it instead."""

    key: str
    effect: Effect
    holds: Callable[[TableOptions], bool]
    way_out: str | None = None


_LAKE_FORMATS = frozenset({"parquet", "orc", "avro"})
_SCAN_MODES_TO_COME = frozenset(
    {
        ScanMode.LATEST_DELTA,
        ScanMode.COMPACTED_FULL,
        ScanMode.FROM_CREATION_TIMESTAMP,
        ScanMode.FROM_FILE_CREATION_TIME,
    }
)

LIMITS = (
    Limit(
        key="type",
        effect=READ,
        holds=lambda o: o.type not in (TableType.TABLE, TableType.MATERIALIZED_TABLE),
    ),
    Limit(
        key="scan.mode",
        effect=READ,
        holds=lambda o: o.scan_mode in _SCAN_MODES_TO_COME,
    ),
    Limit(
        key="bucket",
        effect=WRITE,
        holds=lambda o: o.bucket == POSTPONE_BUCKET,
    ),
    Limit(
        key="record-level.expire-time",
        effect=WRITE,
        holds=lambda o: o.record_level_expire_time_ms is not None and not o.write_only,
        way_out="set write-only=true and leave expiry to a compaction by another engine",
    ),
    Limit(
        key="file.format",
        effect=WRITE,
        holds=lambda o: o.file_format not in _LAKE_FORMATS,
        way_out="lakecore writes parquet, orc and avro",
    ),
    Limit(
        key="file.format.per.level",
        effect=WRITE,
        holds=lambda o: not _LAKE_FORMATS.issuperset(o.file_format_per_level.values()),
        way_out="lakecore writes parquet, orc and avro",
    ),
    Limit(
        key="changelog-file.format",
        effect=WRITE,
        holds=lambda o: (o.changelog_file_format or "parquet") not in _LAKE_FORMATS,
        way_out="lakecore writes parquet, orc and avro",
    ),
    Limit(
        key="manifest.format",
        effect=READ,
        holds=lambda o: o.manifest_format not in _LAKE_FORMATS,
        way_out="lakecore reads and writes avro, parquet and orc manifests",
    ),
)

# --- the table of keys --------------------------------------------------------------------------

DECLARED: Mapping[str, Option] = {
    part.name: part.metadata["option"] for part in fields(TableOptions) if "option" in part.metadata
}
SINGLE = {known.key: name for name, known in DECLARED.items() if "#" not in known.key}
FAMILIES = {known.key: name for name, known in DECLARED.items() if "#" in known.key}
RENAMED = {old: known.key for known in DECLARED.values() for old in known.fallbacks}


def find_option(key: str) -> Option | None:
    """What is known of the option of that key, older keys and families included."""
    if (name := SINGLE.get(RENAMED.get(key, key))) is not None:
        return DECLARED[name]
    if key in OTHER_KEYS:
        return OTHER_KEYS[key]
    if (found := member(key)) is not None:
        return DECLARED[found[0]]
    return next((known for known in OTHER_PATTERNS if matches(known.key, key)), None)


def member(key: str) -> tuple[str, str] | None:
    """The attribute and the column of a key such as `fields.X.aggregate-function`."""
    for pattern, name in FAMILIES.items():
        before, _, after = pattern.partition("#")
        if key.startswith(before) and key.endswith(after) and len(key) > len(pattern) - 1:
            return name, key[len(before) : -len(after)]
    return None
