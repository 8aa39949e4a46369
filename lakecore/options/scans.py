"""Where a scan or a stream starts, and what it reads."""

# ruff: noqa: RUF009  a declaration is a call; its arguments are constants

from __future__ import annotations

from dataclasses import dataclass

from lakecore.options.choices import ConsumerMode, IncrementalScanMode, LookupCache, ScanMode
from lakecore.options.kinds import (
    APPEND,
    COUNT,
    DURATION,
    FLAG,
    KEYED,
    LONG,
    LONG_MAX,
    MAINTAIN,
    NAME,
    OTHER,
    READ,
    SIZE,
    choice,
    integer,
    option,
)


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
