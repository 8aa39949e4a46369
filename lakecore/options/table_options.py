"""The typed options of a table as one value, and what lakecore refuses among them.

INVARIANT: no option is accepted and ignored. A known option with another value than its default
that lakecore cannot honour makes `require_readable` (effect READ) or `require_writable` (READ or
WRITE) raise `Unsupported`. An option with effect MAINTAIN is read by the verb that it concerns.
What is not implemented yet is listed in `LIMITS`, or has `supported=False` in its declaration:
remove that entry once it is implemented.
"""

# ruff: noqa: RUF009  a declaration is a call; its arguments are constants

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

from lakecore.display import pairs_html, pairs_text
from lakecore.errors import Unsupported
from lakecore.masking import masked_options
from lakecore.options.choices import (
    LINE_FORMATS,
    ROW_TABLES,
    ChangelogProducer,
    ConsumerMode,
    Effect,
    ExpireMode,
    IcebergLocation,
    IcebergStorage,
    IncrementalScanMode,
    LookupCache,
    MergeEngine,
    PartitionExpiry,
    ScanMode,
    TagCreation,
    TagFormatter,
    TagPeriod,
)
from lakecore.options.files import BlobOptions, FileOptions, LayoutOptions, LineFileOptions
from lakecore.options.kinds import (
    APPEND,
    COUNT,
    DURATION,
    FLAG,
    IGNORE_KEY,
    INT_MAX,
    KEYED,
    LONG,
    LONG_MAX,
    MAINTAIN,
    NAME,
    NAMES,
    OTHER,
    READ,
    SIZE,
    TEXT,
    WRITE,
    ZONE,
    Option,
    choice,
    integer,
    keyed_family,
    one_of,
    option,
)
from lakecore.options.other_keys import OTHER_KEYS, OTHER_PATTERNS, matches
from lakecore.options.writing import (
    ClusteringOptions,
    CompactionOptions,
    MergeOptions,
    WriteOptions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


# --- scans ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ScanOptions:
    """Where a scan or a stream starts, and what it reads."""

    # Two lines for each declaration are easier to read than the formatter's eight lines.
    # fmt: off
    # --- scans ------------------------------------------------------------------------------------
    scan_mode: ScanMode = option(
        "scan.mode", choice(ScanMode), ScanMode.DEFAULT, READ,
        "Where a scan starts.", fallbacks=("log.scan",),
    )
    scan_snapshot_id: int | None = option(
        "scan.snapshot-id", integer(0, LONG_MAX), None, READ,
        "The snapshot to read.",
    )
    query_auth_enabled: bool = option(
        "query-auth.enabled", FLAG, False, READ,
        "Reads apply the row filters and column masks that the REST catalog states.",
    )
    scan_tag_name: str | None = option("scan.tag-name", NAME, None, READ, "The tag to read.")
    scan_timestamp_millis: int | None = option(
        "scan.timestamp-millis", LONG, None, READ,
        "Read the newest snapshot at or before this time, in milliseconds since 1970.",
        fallbacks=("log.scan.timestamp-millis",),
    )
    scan_timestamp: str | None = option(
        "scan.timestamp", NAME, None, READ,
        "Read the newest snapshot at or before this local time.",
    )
    scan_version: str | None = option(
        "scan.version", NAME, None, READ,
        "The tag, or else the snapshot, to read.",
    )
    scan_watermark: int | None = option(
        "scan.watermark", LONG, None, READ,
        "Read the first snapshot with this watermark or a later one.", supported=False,
    )
    scan_bucket: int | None = option(
        "scan.bucket", integer(0), None, READ,
        "The one bucket to read.", supported=False,
    )
    scan_creation_time_millis: int | None = option(
        "scan.creation-time-millis", LONG, None, READ,
        "Read from this time, or files made after it if no snapshot is that old.",
    )
    scan_file_creation_time_millis: int | None = option(
        "scan.file-creation-time-millis", LONG, None, READ,
        "Read only files that were created at or after this time.",
    )
    scan_fallback_branch: str | None = option(
        "scan.fallback-branch", NAME, None, READ,
        "Branch from which partitions that this branch lacks are read.",
    )
    scan_primary_branch: str | None = option(
        "scan.primary-branch", NAME, None, READ,
        "Branch whose partitions override those of this branch.", supported=False,
    )
    scan_ignore_corrupt_files: bool = option(
        "scan.ignore-corrupt-files", FLAG, False, READ,
        "Skip files that cannot be read.", supported=False,
    )
    scan_ignore_lost_files: bool = option(
        "scan.ignore-lost-files", FLAG, False, READ,
        "Skip files that are missing.", supported=False,
    )
    scan_plan_sort_partition: bool = option(
        "scan.plan-sort-partition", FLAG, False, READ,
        "Read in the order of partitions.",
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
        "Read the changes from the previous tag up to this tag.", supported=False,
    )
    source_split_target_size_bytes: int = option(
        "source.split.target-size", SIZE, 128 << 20, OTHER,
        "Bytes of files in one split.",
    )
    source_split_open_file_cost_bytes: int = option(
        "source.split.open-file-cost", SIZE, 4 << 20, OTHER,
        "Cost of opening a file, in bytes, when files are packed into splits.",
    )
    scan_manifest_parallelism: int | None = option(
        "scan.manifest.parallelism", COUNT, None, OTHER,
        "Manifests read at once.",
        no_effect="lakecore chooses how many manifests it reads at once.",
    )
    read_batch_size: int = option(
        "read.batch-size", COUNT, 1024, OTHER,
        "Rows in a batch of a reader.",
        no_effect="Batches are sized by the memory budget.",
    )
    write_batch_size: int = option(
        "write.batch-size", COUNT, 1024, OTHER,
        "Rows in a batch of a file writer.", fallbacks=("orc.write.batch-size",),
        no_effect="Batches are sized by the memory budget.",
    )

    # --- streams and consumers --------------------------------------------------------------------
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
        "A consumer keeps changelogs from expiring, but not snapshots.",
    )
    lookup_continuous_discovery_interval_ms: int | None = option(
        "lookup.continuous.discovery-interval", DURATION, None, MAINTAIN,
        "How often look-up handles look for snapshots; `continuous.discovery-interval` if unset.",
    )
    lookup_cache: LookupCache = option(
        "lookup.cache", choice(LookupCache), LookupCache.AUTO, MAINTAIN,
        "Cache of a look-up handle: blocks as needed, or (full, memory) all rows.",
    )
    lookup_cache_max_memory_size_bytes: int = option(
        "lookup.cache-max-memory-size", SIZE, 256 << 20, MAINTAIN,
        "Memory of a look-up handle for rows, within the memory budget.",
    )
    lookup_cache_max_disk_size_bytes: int | None = option(
        "lookup.cache-max-disk-size", SIZE, None, MAINTAIN,
        "Most local disk for rows that do not fit in the memory of a look-up handle.",
    )
    lookup_cache_file_retention_ms: int = option(
        "lookup.cache-file-retention", DURATION, 3_600_000, MAINTAIN,
        "How long a look-up handle keeps unused rows on local disk.",
    )
    continuous_discovery_interval_ms: int = option(
        "continuous.discovery-interval", DURATION, 10_000, MAINTAIN,
        "Interval at which a stream looks for new snapshots; in lakecore 1 s unless it is set.",
    )
    scan_bounded_watermark: int | None = option(
        "scan.bounded.watermark", LONG, None, MAINTAIN,
        "A stream ends before the first snapshot with a greater watermark.",
    )
    table_read_sequence_number_enabled: bool = option(
        "table-read.sequence-number.enabled", FLAG, False, OTHER,
        "`$audit_log` and `$binlog` show the sequence number of each row.", scope=KEYED,
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
        "Age that a snapshot must have before a stream reads it.",
    )
    # fmt: on


# --- retention ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RetentionOptions:
    """How long partitions, snapshots, changelogs and tags are kept."""

    # Two lines for each declaration are easier to read than the formatter's eight lines.
    # fmt: off
    # --- expiry of partitions ---------------------------------------------------------------------
    partition_expiration_time_ms: int | None = option(
        "partition.expiration-time", DURATION, None, MAINTAIN,
        "Age at which partitions expire.",
    )
    partition_expiration_check_interval_ms: int = option(
        "partition.expiration-check-interval", DURATION, 3_600_000, MAINTAIN,
        "How often commits look for expired partitions.",
    )
    partition_expiration_strategy: PartitionExpiry = option(
        "partition.expiration-strategy", choice(PartitionExpiry), PartitionExpiry.VALUES_TIME,
        MAINTAIN,
        "Whether the age of a partition comes from its values or from its newest file.",
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
    end_input_check_partition_expire: bool = option(
        "end-input.check-partition-expire", FLAG, False, MAINTAIN,
        "Look for expired partitions after each batch commit.",
    )
    partition_mark_done_action: tuple[str, ...] = option(
        "partition.mark-done-action", NAMES, ("success-file",), MAINTAIN,
        "How mark_partition_done marks a partition as complete: success-file, http-report.",
    )
    lakecore_http_report_urls: tuple[str, ...] = option(
        "lakecore.http-report-urls", NAMES, (), MAINTAIN,
        "Beginnings of the addresses to which http-report may send; never stored.",
        stored=False,
    )
    partition_mark_done_action_http_url: str | None = option(
        "partition.mark-done-action.http.url", NAME, None, MAINTAIN,
        "Where http-report sends its request.",
    )
    partition_mark_done_action_http_params: str | None = option(
        "partition.mark-done-action.http.params", NAME, None, MAINTAIN,
        "Parameters in the request of http-report.",
    )

    # --- expiry of snapshots and changelogs -------------------------------------------------------
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
        "Age up to which snapshots are kept.",
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
        "Changelogs that are always kept; the same as for snapshots if unset.",
    )
    changelog_num_retained_max: int | None = option(
        "changelog.num-retained.max", integer(0), None, MAINTAIN,
        "Most changelogs kept; the same as for snapshots if unset.",
    )
    changelog_time_retained_ms: int | None = option(
        "changelog.time-retained", DURATION, None, MAINTAIN,
        "Age up to which changelogs are kept; the same as for snapshots if unset.",
    )

    # --- tags -------------------------------------------------------------------------------------
    tag_automatic_creation: TagCreation = option(
        "tag.automatic-creation", choice(TagCreation), TagCreation.NONE, MAINTAIN,
        "Commits create tags: by time, by watermark, or one for the newest snapshot (batch).",
    )
    tag_automatic_completion: bool = option(
        "tag.automatic-completion", FLAG, False, MAINTAIN,
        "Also create the tags of periods without a commit, one with each later commit.",
    )
    tag_creation_period: TagPeriod = option(
        "tag.creation-period", choice(TagPeriod), TagPeriod.DAILY, MAINTAIN,
        "The period of automatic tags.",
    )
    tag_creation_period_duration_ms: int | None = option(
        "tag.creation-period-duration", DURATION, None, MAINTAIN,
        "The period of automatic tags as a duration; overrides tag.creation-period.",
    )
    tag_creation_delay_ms: int = option(
        "tag.creation-delay", DURATION, 0, MAINTAIN,
        "Time after the end of a period before its tag is created.",
    )
    tag_period_formatter: TagFormatter = option(
        "tag.period-formatter", choice(TagFormatter), TagFormatter.WITH_DASHES, MAINTAIN,
        "Format of the names of automatic tags.",
    )
    tag_num_retained_max: int | None = option(
        "tag.num-retained-max", COUNT, None, MAINTAIN,
        "Most automatic tags kept; with batch, most tags of any kind.",
    )
    tag_default_time_retained_ms: int | None = option(
        "tag.default-time-retained", DURATION, None, MAINTAIN,
        "How long a tag stays if its creator states no time; forever if unset.",
    )
    tag_time_expire_enabled: bool = option(
        "tag.time-expire-enabled", FLAG, True, MAINTAIN,
        "A commit deletes tags whose time is over.",
    )
    tag_batch_customized_name: str | None = option(
        "tag.batch.customized-name", NAME, None, MAINTAIN,
        "Name of the tag of the newest snapshot; `batch-write-` and the date if unset.",
    )
    tag_create_success_file: bool = option(
        "tag.create-success-file", FLAG, False, MAINTAIN,
        "Write a success file for each new tag.",
    )
    sink_process_time_zone: tzinfo | None = option(
        "sink.process-time-zone", ZONE, None, MAINTAIN,
        "Time zone of the names of tags by process time; unset: that of this process.",
    )
    sink_watermark_time_zone: tzinfo = option(
        "sink.watermark-time-zone", ZONE, UTC, MAINTAIN,
        "Time zone of the names of tags by watermark.",
    )
    # fmt: on


# --- Iceberg metadata -----------------------------------------------------------------------------


_CODECS = ("snappy", "deflate", "zstd", "zstandard", "none", "null")


@dataclass(frozen=True, kw_only=True)
class IcebergOptions:
    """How Iceberg metadata of a table is written."""

    # fmt: off
    metadata_iceberg_storage: IcebergStorage = option(
        "metadata.iceberg.storage", choice(IcebergStorage), IcebergStorage.DISABLED, WRITE,
        "Write Iceberg metadata for each snapshot, and where.",
        ignorable=True,
    )
    metadata_iceberg_storage_location: IcebergLocation | None = option(
        "metadata.iceberg.storage-location", choice(IcebergLocation), None, MAINTAIN,
        "Iceberg: directory of the metadata, if it is not that of the storage.",
    )
    metadata_iceberg_format_version: int = option(
        "metadata.iceberg.format-version", integer(2, 3), 2, MAINTAIN,
        "Iceberg: version of the format; 3 shows deletion vectors.",
    )
    metadata_iceberg_manifest_compression: str = option(
        "metadata.iceberg.manifest-compression", one_of(*_CODECS), "snappy", MAINTAIN,
        "Iceberg: compression of manifests.",
    )
    metadata_iceberg_manifest_legacy_version: bool = option(
        "metadata.iceberg.manifest-legacy-version", FLAG, False, MAINTAIN,
        "Iceberg: write manifests of Iceberg 1.4.",
    )
    metadata_iceberg_compaction_min_file_num: int = option(
        "metadata.iceberg.compaction.min.file-num", COUNT, 10, MAINTAIN,
        "Iceberg: least number of manifests to merge.",
    )
    metadata_iceberg_compaction_max_file_num: int = option(
        "metadata.iceberg.compaction.max.file-num", COUNT, 50, MAINTAIN,
        "Iceberg: number of small manifests from which they are always merged.",
    )
    metadata_iceberg_delete_after_commit_enabled: bool = option(
        "metadata.iceberg.delete-after-commit.enabled", FLAG, True, MAINTAIN,
        "Iceberg: delete old metadata files after a commit.",
    )
    metadata_iceberg_previous_versions_max: int = option(
        "metadata.iceberg.previous-versions-max", integer(0), 0, MAINTAIN,
        "Iceberg: number of old metadata files to keep; lakecore always keeps one.",
    )
    metadata_iceberg_uri: str | None = option(
        "metadata.iceberg.uri", NAME, None, MAINTAIN,
        "Iceberg: URI of the Hive Metastore that lists the table.",
    )
    lakecore_iceberg_uris: tuple[str, ...] = option(
        "lakecore.iceberg-uris", NAMES, (), MAINTAIN,
        "Beginnings of the addresses of Iceberg catalogs that may be called; never stored.",
        stored=False,
    )
    metadata_iceberg_database: str | None = option(
        "metadata.iceberg.database", NAME, None, MAINTAIN,
        "Iceberg: database in the catalog, by default that of the table; several with `;`.",
    )
    metadata_iceberg_table: str | None = option(
        "metadata.iceberg.table", NAME, None, MAINTAIN,
        "Iceberg: name in the catalog, by default that of the table.",
    )
    metadata_iceberg_rest: Mapping[str, str] = keyed_family(
        "metadata.iceberg.rest.#", TEXT, MAINTAIN,
        "Iceberg: setting of the REST catalog that lists the table, such as its uri.",
    )
    metadata_iceberg_hive_skip_update_stats: bool = option(
        "metadata.iceberg.hive-skip-update-stats", FLAG, False, MAINTAIN,
        "Iceberg: the Hive Metastore does not count the files of the table.",
    )
    metadata_iceberg_table_properties: Mapping[str, str] = keyed_family(
        "metadata.iceberg.table-properties.#", TEXT, MAINTAIN,
        "Iceberg: property of the table in its metadata.",
    )
    field_id_one_based: bool = option(
        "field-id.one-based", FLAG, False, MAINTAIN,
        "A new table numbers its columns from 1, for readers of Iceberg that refuse the id 0.",
        immutable=True,
    )
    # fmt: on


# --- known ---------------------------------------------------------------------------------------
# Every option that lakecore knows, by key: declared attributes, families, and other keys.

SUBJECTS = {
    "Keys, buckets and schema": LayoutOptions,
    "Merging and changelog": MergeOptions,
    "Writing and committing": WriteOptions,
    "Reading and streaming": ScanOptions,
    "Compaction": CompactionOptions,
    "Clustering": ClusteringOptions,
    "Retention, tags and partitions": RetentionOptions,
    "Data files, statistics and indexes": FileOptions,
    "CSV, JSON and text files": LineFileOptions,
    "BLOB columns": BlobOptions,
    "Iceberg metadata": IcebergOptions,
}
"""The classes of declared options by the headings of `docs/options.md`."""

DECLARED: Mapping[str, Option] = {
    part.name: part.metadata["option"] for subject in SUBJECTS.values() for part in fields(subject)
}
SINGLE = {known.key: name for name, known in DECLARED.items() if "#" not in known.key}
FAMILIES = {known.key: name for name, known in DECLARED.items() if "#" in known.key}
NEVER_STORED = frozenset(known.key for known in DECLARED.values() if not known.stored)
"""The options that only the process that uses a table gives."""
RENAMED = {old: known.key for known in DECLARED.values() for old in known.fallbacks}


def option_keys() -> list[str]:
    """The keys of the options that lakecore reads."""
    return [option.key for option in DECLARED.values()]


def find_option(key: str) -> Option | None:
    """The option with that key. The key may be an older one, or belong to a family of keys."""
    if (name := SINGLE.get(RENAMED.get(key, key))) is not None:
        return DECLARED[name]
    if key in OTHER_KEYS:
        return OTHER_KEYS[key]
    if (found := member(key)) is not None:
        return DECLARED[found[0]]
    return next((known for known in OTHER_PATTERNS if matches(known.key, key)), None)


def member(key: str) -> tuple[str, str] | None:
    """The attribute and the column X of a key such as `fields.X.aggregate-function`, or None."""
    for pattern, name in FAMILIES.items():
        before, _, after = pattern.partition("#")
        if key.startswith(before) and key.endswith(after) and len(key) > len(pattern) - 1:
            return name, key[len(before) : len(key) - len(after)]
    return None


# --- table options -------------------------------------------------------------------------------

POSTPONE_BUCKET = -2
"""The bucket of rows that a later compaction distributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions(
    LayoutOptions,
    MergeOptions,
    FileOptions,
    LineFileOptions,
    WriteOptions,
    BlobOptions,
    CompactionOptions,
    ClusteringOptions,
    ScanOptions,
    RetentionOptions,
    IcebergOptions,
):
    """The options of a table. `texts` has the options that were set, by current key.

    The name of an attribute is the key with `_` in place of `.` and `-`, and the unit at the end.
    The attribute `fields_NAME` holds all options `fields.X.NAME`, as a mapping from the column X
    (or the sequence columns) to the value.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    table: str = ""

    def __repr__(self) -> str:
        return f"TableOptions({self.shown})"

    def __str__(self) -> str:
        """A line for each option that was set."""
        return pairs_text(self.shown.items()) or "no options are set"

    def _repr_html_(self) -> str:
        return pairs_html("options that were set", self.shown.items())

    @property
    def shown(self) -> dict[str, object]:
        """The options that were set, with their secrets hidden."""
        return masked_options(self.texts)

    def target_file_size(self, *, primary_key: bool) -> int:
        """The target size of a data file in bytes, for a table with or without a primary key."""
        return self.target_file_size_bytes or (128 if primary_key else 256) << 20

    @property
    def level_count(self) -> int:
        """The number of levels of a bucket, including level 0."""
        return self.num_levels or self.num_sorted_run_compaction_trigger + 1

    @property
    def stop_trigger(self) -> int:
        """The number of sorted runs in a bucket at which a writer waits for compaction."""
        trigger = self.num_sorted_run_compaction_trigger
        return max(trigger, self.num_sorted_run_stop_trigger or trigger + 3)

    @property
    def folds_rows(self) -> bool:
        """Whether a merged row combines values of several rows of its key."""
        return self.merge_engine in (MergeEngine.PARTIAL_UPDATE, MergeEngine.AGGREGATION)

    @property
    def reads_changes(self) -> bool:
        """Whether a read that names no state returns the changes between two states."""
        return (
            self.incremental_between is not None
            or self.incremental_between_timestamp is not None
            or self.scan_mode is ScanMode.INCREMENTAL
        )

    @property
    def needs_lookup(self) -> bool:
        """Whether every compaction of level 0 looks up the rows of higher levels."""
        return (
            self.changelog_producer is ChangelogProducer.LOOKUP
            or self.deletion_vectors_enabled
            or self.merge_engine is MergeEngine.FIRST_ROW
            or self.force_lookup
        )

    def require_readable(self, *, filters_rows: bool = False) -> None:
        """Raise Unsupported if an option requires a reader to do what lakecore cannot do.

        `filters_rows`: this reader applies the row filters and column masks of the catalog.
        """
        self._require({READ}, "reading")
        if not filters_rows:
            self.require_all_rows()

    def require_all_rows(self) -> None:
        """Raise Unsupported if the catalog may hide rows or values of the table from the reader."""
        if self.query_auth_enabled:
            raise Unsupported(
                "the catalog filters and masks the rows of this table, and this would use or show "
                "rows and values without it",
                option="query-auth.enabled",
                table=self.table,
            )

    def require_writable(
        self, *, primary_keys: Sequence[str] | None = None, partition_keys: Sequence[str] = ()
    ) -> None:
        """Raise Unsupported if an option requires a writer to do what lakecore cannot do.

        With `primary_keys`, also checks that the primary key contains the partition keys, unless
        buckets are dynamic.
        """
        self._require({READ, WRITE}, "writing")
        if primary_keys and self.file_format in LINE_FORMATS:
            way_out = "a table with a primary key has files in parquet, orc or avro"
            raise self._refusal("writing", "file.format", self.file_format, way_out)
        missing = [name for name in partition_keys if name not in (primary_keys or partition_keys)]
        if missing and self.bucket != -1:
            raise Unsupported(
                "writing a table whose primary key lacks partition keys needs dynamic buckets: "
                "bucket=-1",
                missing=missing,
                primary_key=tuple(primary_keys or ()),
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
    """Values of an option that lakecore does not support yet, and an alternative (`way_out`)."""

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
        holds=lambda o: o.type not in ROW_TABLES,
    ),
    Limit(key="scan.mode", effect=READ, holds=lambda o: o.scan_mode in _SCAN_MODES_TO_COME),
    Limit(
        key="scan.creation-time-millis",
        effect=READ,
        holds=lambda o: o.scan_creation_time_millis is not None,
        way_out="table.stream reads from that time",
    ),
    Limit(
        key="scan.file-creation-time-millis",
        effect=READ,
        holds=lambda o: o.scan_file_creation_time_millis is not None,
        way_out="table.stream reads from that time",
    ),
    Limit(
        key="file.format",
        effect=WRITE,
        holds=lambda o: o.file_format not in (*_LAKE_FORMATS, *LINE_FORMATS),
        way_out="lakecore writes parquet, orc and avro, and without a primary key csv, json, text",
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
