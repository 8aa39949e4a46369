"""Data files, statistics, manifests, deletion vectors and file indexes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.options.choices import BucketFunction, TableType, TagCreation
from lakecore.options.kinds import (
    APPEND,
    COMPRESSION,
    COUNT,
    DURATION,
    FILE_PREFIX,
    FLAG,
    FOLDER,
    FORMAT,
    INT_MAX,
    KEYED,
    LONG_MAX,
    MAINTAIN,
    NAME,
    NAMES,
    OTHER,
    PER_LEVEL,
    READ,
    SIZE,
    STATS_MODE,
    TEXT,
    WRITE,
    choice,
    family,
    integer,
    keyed_family,
    one_of,
    option,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Data files, statistics, manifests, deletion vectors and file indexes."""

    # Two lines for each declaration are easier to read than the formatter's eight lines.
    # fmt: off
    # --- data files -------------------------------------------------------------------------------
    file_format: str = option("file.format", FORMAT, "parquet", WRITE, "Format of new data files.")
    file_format_per_level: Mapping[int, str] = option(
        "file.format.per.level", PER_LEVEL, {}, WRITE,
        "Format of new data files, by level.", scope=KEYED,
    )
    file_compression: str = option(
        "file.compression", COMPRESSION, "zstd", WRITE,
        "Compression of new data files; Parquet columns that hardly compress stay uncompressed.",
    )
    file_compression_per_level: Mapping[int, str] = option(
        "file.compression.per.level", PER_LEVEL, {}, WRITE,
        "Compression of new data files, by level.", scope=KEYED,
    )
    file_compression_zstd_level: int = option(
        "file.compression.zstd-level", integer(-7, 22), 1, WRITE,
        "Level of zstd; a higher level makes smaller files.",
    )
    file_block_size_bytes: int | None = option(
        "file.block-size", SIZE, None, OTHER,
        "Size of a row group or stripe.",
        no_effect="Row groups are sized for merging within the memory budget.",
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
        "data-file.prefix", FILE_PREFIX, "data-", WRITE,
        "Prefix of the names of data files.",
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
        "Places outside the table's path for new data files.",
        supported=False,
    )
    lakecore_external_paths: tuple[str, ...] = option(
        "lakecore.external-paths", NAMES, (), OTHER,
        "Directories outside the table whose files its metadata may name; never stored.",
        stored=False,
    )
    index_file_in_data_file_dir: bool = option(
        "index-file-in-data-file-dir", FLAG, False, READ,
        "Index files are in the directory of the data files.", immutable=True,
    )
    file_suffix_include_compression: bool = option(
        "file.suffix.include.compression", FLAG, False, WRITE,
        "Names of data files contain the compression.",
    )
    changelog_file_prefix: str = option(
        "changelog-file.prefix", FILE_PREFIX, "changelog-", WRITE,
        "Prefix of the names of changelog files.", scope=KEYED,
    )
    changelog_file_format: str | None = option(
        "changelog-file.format", FORMAT, None, WRITE,
        "Format of changelog files; the same as for data files if unset.", scope=KEYED,
    )
    changelog_file_compression: str | None = option(
        "changelog-file.compression", COMPRESSION, None, WRITE,
        "Compression of changelog files; the same as for data files if unset.", scope=KEYED,
    )
    changelog_file_stats_mode: str | None = option(
        "changelog-file.stats-mode", STATS_MODE, None, WRITE,
        "Statistics of changelog files; the same as for data files if unset.", scope=KEYED,
    )
    orc_timestamp_ltz_legacy_type: bool = option(
        "orc.timestamp-ltz.legacy.type", FLAG, True, READ,
        "ORC stores local-zoned timestamps as wall clock of the writer's zone; lakecore's is UTC.",
        no_effect="The true instant is always written and read.",
    )

    # --- statistics and manifests -----------------------------------------------------------------
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
        "Store statistics only for columns that have statistics.",
    )
    metadata_stats_keep_first_n_columns: int = option(
        "metadata.stats-keep-first-n-columns", integer(-1), -1, WRITE,
        "First columns that get statistics; -1: all.", supported=False, ignorable=True,
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
        "Size of a merged manifest.",
    )
    manifest_full_compaction_threshold_size_bytes: int = option(
        "manifest.full-compaction-threshold-size", SIZE, 16 << 20, WRITE,
        "Bytes of small manifests at which a commit merges all manifests.",
    )
    manifest_merge_min_count: int = option(
        "manifest.merge-min-count", COUNT, 30, WRITE,
        "Number of small manifests from which a commit merges them.",
    )
    manifest_delete_file_drop_stats: bool = option(
        "manifest.delete-file-drop-stats", FLAG, False, OTHER,
        "Leave the statistics of columns of deleted files out of manifests.",
    )

    # --- deletion vectors and file indexes --------------------------------------------------------
    deletion_vectors_enabled: bool = option(
        "deletion-vectors.enabled", FLAG, False, READ,
        "Deleted rows are marked in index files.",
    )
    deletion_vectors_bitmap64: bool = option(
        "deletion-vectors.bitmap64", FLAG, False, WRITE,
        "Write 64-bit deletion vectors.",
    )
    deletion_vectors_merge_on_read: bool = option(
        "deletion-vectors.merge-on-read", FLAG, False, READ,
        "Reads include level 0 and merge it.", scope=KEYED,
    )
    deletion_vectors_modifiable: bool = option(
        "deletion-vectors.modifiable", FLAG, False, WRITE,
        "Let deletion-vectors.enabled change on a table with snapshots.",
    )
    deletion_vector_index_file_target_size_bytes: int = option(
        "deletion-vector.index-file.target-size", SIZE, 2 << 20, WRITE,
        "Size at which a new file of deletion vectors begins.",
    )
    file_index_in_manifest_threshold_bytes: int = option(
        "file-index.in-manifest-threshold", SIZE, 500, WRITE,
        "Size up to which a file index is stored in the manifest.",
    )
    file_index_read_enabled: bool = option(
        "file-index.read.enabled", FLAG, True, OTHER,
        "Let file indexes skip files.",
    )
    file_index_columns: Mapping[str, tuple[str, ...]] = keyed_family(
        "file-index.#.columns", NAMES, WRITE,
        "Columns with a file index of that type; `map[key]` is a key of a map.", ignorable=True,
    )
    file_index_settings: Mapping[str, str] = keyed_family(
        "file-index.#", TEXT, WRITE,
        "`TYPE.COLUMN.SETTING` of a file index.", ignorable=True,
    )
    # fmt: on


# --- line files ----------------------------------------------------------------------------------

_MODE = one_of("permissive", "dropmalformed", "failfast")
_NULL_KEYS = one_of("fail", "drop", "literal")


@dataclass(frozen=True, kw_only=True)
class LineFileOptions:
    """Data files of lines: CSV, JSON and text."""

    # fmt: off
    csv_field_delimiter: str = option(
        "csv.field-delimiter", TEXT, ",", READ, "CSV files: the separator of fields.",
        scope=APPEND, immutable=True,
        fallbacks=("field-delimiter", "delimiter", "seq"),
    )
    csv_line_delimiter: str = option(
        "csv.line-delimiter", TEXT, "\n", READ, "CSV files: the end of a line.",
        scope=APPEND, immutable=True,
    )
    csv_quote_character: str = option(
        "csv.quote-character", TEXT, '"', READ,
        "CSV files: what surrounds a field with special characters.", scope=APPEND, immutable=True,
    )
    csv_escape_character: str = option(
        "csv.escape-character", TEXT, "\\", READ,
        "CSV files: the character before a quote inside quotes.", scope=APPEND, immutable=True,
    )
    csv_include_header: bool = option(
        "csv.include-header", FLAG, False, READ,
        "CSV files: whether the first line names the columns.", scope=APPEND, immutable=True,
    )
    csv_null_literal: str = option(
        "csv.null-literal", TEXT, "", READ, "CSV files: the text for null.",
        scope=APPEND, immutable=True,
    )
    csv_mode: str = option(
        "csv.mode", _MODE, "permissive", OTHER,
        "CSV files: what a reader does with a malformed field.", scope=APPEND,
        no_effect="A malformed field always raises CorruptTable.",
    )
    json_line_delimiter: str = option(
        "json.line-delimiter", TEXT, "\n", READ, "JSON files: the end of a line.",
        scope=APPEND, immutable=True,
    )
    json_ignore_parse_errors: bool = option(
        "json.ignore-parse-errors", FLAG, False, READ,
        "JSON files: leave out lines that are not valid.", scope=APPEND, supported=False,
    )
    json_map_null_key_mode: str = option(
        "json.map-null-key-mode", _NULL_KEYS, "fail", READ,
        "JSON files: what is done with a null key of a map.", scope=APPEND, supported=False,
    )
    json_map_null_key_literal: str = option(
        "json.map-null-key-literal", TEXT, "null", READ,
        "JSON files: what stands for a null key of a map.", scope=APPEND, supported=False,
    )
    text_line_delimiter: str = option(
        "text.line-delimiter", TEXT, "\n", READ, "Text files: the end of a line.",
        scope=APPEND, immutable=True,
    )
    # fmt: on


# --- blobs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BlobOptions:
    """BLOB columns: how their values are stored, found and returned."""

    # fmt: off
    blob_field: tuple[str, ...] = option(
        "blob-field", NAMES, (), WRITE,
        "Binary columns that a new table stores as BLOB.", immutable=True,
    )
    blob_descriptor_field: tuple[str, ...] = option(
        "blob-descriptor-field", NAMES, (), READ,
        "BLOB columns whose rows hold descriptors: where a value is, in any file.",
        immutable=True, fallbacks=("blob.stored-descriptor-fields",),
    )
    blob_view_field: tuple[str, ...] = option(
        "blob-view-field", NAMES, (), READ,
        "BLOB columns whose rows name a row and a BLOB column of another table.", immutable=True,
    )
    blob_external_storage_field: tuple[str, ...] = option(
        "blob-external-storage-field", NAMES, (), READ,
        "Columns of `blob-descriptor-field` whose values are in `blob-external-storage-path`.",
        immutable=True,
    )
    blob_external_storage_path: str | None = option(
        "blob-external-storage-path", NAME, None, READ,
        "The directory for the values of `blob-external-storage-field`.", immutable=True,
    )
    blob_target_file_size_bytes: int | None = option(
        "blob.target-file-size", SIZE, None, WRITE,
        "Size of a file of BLOB values; `target-file-size` if not set.",
    )
    blob_as_descriptor: bool = option(
        "blob-as-descriptor", FLAG, False, READ,
        "Read the descriptors of BLOB values (file, offset, length) in place of the values.",
    )
    blob_view_resolve_enabled: bool = option(
        "blob-view.resolve.enabled", FLAG, True, READ,
        "Read the values that views of BLOB values name; if false, the names themselves.",
    )
    blob_write_null_on_missing_file: bool = option(
        "blob-write-null-on-missing-file", FLAG, False, WRITE,
        "Write null for a descriptor of a file that does not exist.",
    )
    blob_write_null_on_fetch_failure: bool = option(
        "blob-write-null-on-fetch-failure", FLAG, False, WRITE,
        "Write null for a descriptor of a file that exists, but cannot be read.",
    )
    lakecore_blob_paths: tuple[str, ...] = option(
        "lakecore.blob-paths", NAMES, (), OTHER,
        "Directories outside the table whose files descriptors may name; never stored.",
        stored=False,
    )
    blob_descriptor_storage: Mapping[str, str] = keyed_family(
        "blob-descriptor.#", TEXT, OTHER,
        "Option of the storage that descriptors name, if it is not that of the table; a stored one "
        "does not count.",
    )
    # fmt: on

    @property
    def blob_inline_field(self) -> frozenset[str]:
        """The BLOB columns whose rows hold descriptors or views."""
        return frozenset((*self.blob_descriptor_field, *self.blob_view_field))


# --- layout --------------------------------------------------------------------------------------

# ruff: noqa: RUF009  a declaration is a call; its arguments are constants


@dataclass(frozen=True, kw_only=True)
class LayoutOptions:
    """What a table is: its keys, buckets, partitions and schema rules."""

    # Two lines for each declaration are easier to read than the formatter's eight lines.
    # fmt: off
    # --- kind of table, keys, buckets -------------------------------------------------------------
    type: TableType = option(
        "type", choice(TableType), TableType.TABLE, READ,
        "What kind of table this is.", immutable=True,
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
    metastore_partitioned_table: bool = option(
        "metastore.partitioned-table", FLAG, False, WRITE,
        "A Hive catalog lists the partitions in the metastore.",
    )
    partition_idle_time_to_report_statistic_ms: int = option(
        "partition.idle-time-to-report-statistic", DURATION, 0, WRITE,
        "Above 0: commits report statistics of partitions to Hive; streams after this idle time.",
    )
    metastore_tag_to_partition: str | None = option(
        "metastore.tag-to-partition", TEXT, None, WRITE,
        "A Hive catalog lists the tags as partitions, by a key of this name.",
    )
    metastore_tag_to_partition_preview: TagCreation = option(
        "metastore.tag-to-partition.preview", choice(TagCreation), TagCreation.NONE, WRITE,
        "Also list the tag of the current period, by time or watermark; batch lists none.",
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
        no_effect="Compaction keeps the order, unless clustering.incremental sorts the rows.",
    )
    dynamic_bucket_target_row_num: int = option(
        "dynamic-bucket.target-row-num", integer(1, LONG_MAX), 2_000_000, WRITE,
        "Keys of a dynamic bucket before a new one is opened.", scope=KEYED,
    )
    dynamic_bucket_initial_buckets: int | None = option(
        "dynamic-bucket.initial-buckets", COUNT, None, WRITE,
        "Dynamic buckets that are filled at the same time.", scope=KEYED, immutable=True,
    )
    dynamic_bucket_max_buckets: int = option(
        "dynamic-bucket.max-buckets", integer(1, INT_MAX, -1), -1, WRITE,
        "Most dynamic buckets of a partition; -1: no bound.", scope=KEYED,
    )

    cross_partition_upsert_index_ttl_ms: int | None = option(
        "cross-partition-upsert.index-ttl", DURATION, None, WRITE,
        "A writer does not look for keys in older files; such a key may then be stored twice.",
        scope=KEYED,
    )
    postpone_batch_write_fixed_bucket: bool = option(
        "postpone.batch-write-fixed-bucket", FLAG, True, WRITE,
        "bucket=-2: batch writes go to real buckets at once.", scope=KEYED,
    )
    postpone_batch_write_fixed_bucket_max_parallelism: int = option(
        "postpone.batch-write-fixed-bucket.max-parallelism", COUNT, 2048, WRITE,
        "bucket=-2: most buckets that a batch write chooses for a partition.", scope=KEYED,
    )
    postpone_batch_write_fixed_bucket_rescale_load_factor: int = option(
        "postpone.batch-write-fixed-bucket.rescale-load-factor", COUNT, 32, WRITE,
        "bucket=-2: a batch that needs more than this many times its buckets rescales them.",
        scope=KEYED,
    )
    postpone_default_bucket_num: int | None = option(
        "postpone.default-bucket-num", COUNT, None, WRITE,
        "bucket=-2: buckets of a partition that has none yet.", scope=KEYED,
    )
    postpone_target_row_num_per_bucket: int | None = option(
        "postpone.target-row-num-per-bucket", integer(1, LONG_MAX), None, WRITE,
        "bucket=-2: target number of rows of a bucket in a new partition.", scope=KEYED,
    )
    postpone_target_size_per_bucket_bytes: int = option(
        "postpone.target-size-per-bucket", SIZE, 1 << 30, WRITE,
        "bucket=-2: target bytes of a bucket, if no target number of rows is set.", scope=KEYED,
    )
    postpone_merge_on_read: bool = option(
        "postpone.merge-on-read", FLAG, False, READ,
        "bucket=-2: reads show the rows that wait for their buckets.", scope=KEYED,
        supported=False,
    )

    # --- partition names --------------------------------------------------------------------------
    partition_default_name: str = option(
        "partition.default-name", TEXT, "__DEFAULT_PARTITION__", READ,
        "Directory name of a null or empty partition value.",
    )
    partition_legacy_name: bool = option(
        "partition.legacy-name", FLAG, True, READ,
        "Write partition values as older releases did: a date is its day number.",
    )
    dynamic_partition_overwrite: bool = option(
        "dynamic-partition-overwrite", FLAG, True, WRITE,
        "An overwrite replaces only the partitions of its rows.",
    )
    overwrite_upgrade: bool = option(
        "overwrite-upgrade", FLAG, True, WRITE,
        "Files of an overwrite that do not overlap go to the last level at once.", scope=KEYED,
    )
    # fmt: on
