"""The rules of a schema about sizes, levels, formats, expiry and the start of a scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.merge_rules import needs_primary_key
from lakecore.model.types import TIMESTAMPS, Atomic, Root, Vector, has_variant, has_vector, leaves
from lakecore.options import ScanMode, TableOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.model.schema import TableSchema


def validate_scan(options: TableOptions) -> None:
    """Raise InvalidRequest unless `scan.*` options state the one start that `scan.mode` needs."""
    chosen = {mode: [key for key in keys if key in options.texts] for mode, keys in _STARTS.items()}
    starts = {mode: keys for mode, keys in chosen.items() if keys}
    mode = options.scan_mode
    if len(starts) > 1 or any(len(keys) > 1 for keys in starts.values()):
        raise InvalidRequest(
            "the scan options name more than one start",
            options=[key for keys in starts.values() for key in keys],
            table=options.table,
        )
    if mode is ScanMode.DEFAULT:
        return
    wanted = ScanMode.FROM_SNAPSHOT if mode is ScanMode.FROM_SNAPSHOT_FULL else mode
    needed = _STARTS.get(wanted, ())
    if needed and wanted not in starts:
        raise InvalidRequest(
            "the scan mode needs one more option",
            option="scan.mode",
            value=mode,
            needs=needed,
            table=options.table,
        )
    stray = [key for other, keys in starts.items() if other is not wanted for key in keys]
    if stray:
        raise InvalidRequest(
            "the option cannot be combined with the scan mode",
            option=stray[0],
            scan_mode=mode,
            table=options.table,
        )


_STARTS: Mapping[ScanMode, tuple[str, ...]] = {
    ScanMode.FROM_TIMESTAMP: ("scan.timestamp-millis", "scan.timestamp"),
    ScanMode.FROM_SNAPSHOT: ("scan.snapshot-id", "scan.tag-name", "scan.watermark", "scan.version"),
    ScanMode.FROM_FILE_CREATION_TIME: ("scan.file-creation-time-millis",),
    ScanMode.FROM_CREATION_TIMESTAMP: ("scan.creation-time-millis",),
    ScanMode.INCREMENTAL: (
        "incremental-between",
        "incremental-between-timestamp",
        "incremental-to-auto-tag",
    ),
}


def check_sizes(schema: TableSchema, options: TableOptions) -> None:
    """Check that sizes are greater than 0, and the shortest wait does not exceed the longest."""
    del schema
    for key, size in (
        ("target-file-size", options.target_file_size_bytes),
        ("write-buffer-size", options.write_buffer_size_bytes),
        ("manifest.target-file-size", options.manifest_target_file_size_bytes),
        ("lakecore.memory-budget", options.lakecore_memory_budget_bytes),
        ("source.split.target-size", options.source_split_target_size_bytes),
    ):
        if size == 0:
            raise InvalidRequest("the size must be more than 0", option=key, table=options.table)
    if options.commit_min_retry_wait_ms > options.commit_max_retry_wait_ms:
        raise InvalidRequest(
            "commit.min-retry-wait is longer than commit.max-retry-wait",
            min_ms=options.commit_min_retry_wait_ms,
            max_ms=options.commit_max_retry_wait_ms,
            table=options.table,
        )


def check_levels(schema: TableSchema, options: TableOptions) -> None:
    """Check that options for single levels name only levels that exist."""
    del schema
    beyond = {*options.file_format_per_level, *options.file_compression_per_level}
    wrong = sorted(level for level in beyond if level >= options.level_count)
    if wrong and options.num_levels is not None:
        raise InvalidRequest(
            "an option for a level names a level that the table does not have",
            level=wrong[0],
            num_levels=options.num_levels,
            table=options.table,
        )


def check_formats(schema: TableSchema, options: TableOptions) -> None:
    """Check that every file format of the table can store the types of the columns."""
    formats = {options.file_format, *options.file_format_per_level.values()}
    others = {*formats, options.changelog_file_format or "parquet"} - {"parquet"}
    variants = [column.name for column in schema.fields if has_variant(column.type)]
    if variants and others:
        raise InvalidRequest(
            "only Parquet files store VARIANT",
            columns=variants,
            formats=sorted(others),
            table=options.table,
        )
    vectors = [column.name for column in schema.fields if has_vector(column.type)]
    if vectors and "orc" in formats | {options.changelog_file_format}:
        raise Unsupported("ORC files do not store VECTOR", columns=vectors, table=options.table)
    for name in filter(None, schema.options.get("vector-field", "").split(",")):
        column = schema.by_name.get(name.strip())
        if column is None or not isinstance(column.type, Vector):
            raise InvalidRequest(
                "vector-field names a column that is not VECTOR: give it a type such as "
                "VECTOR<FLOAT, 3>",
                column=name.strip(),
                vector_columns=vectors,
                table=options.table,
            )
    for column in schema.fields:
        stated = schema.options.get(f"field.{column.name}.vector-dim")
        length = str(column.type.length) if isinstance(column.type, Vector) else None
        if stated is not None and stated.strip() != length:
            raise InvalidRequest(
                "vector-dim is not the length of a VECTOR column",
                column=column.name,
                type=column.type,
                value=stated,
                table=options.table,
            )
    if "avro" not in formats | {options.changelog_file_format}:
        return
    for column in schema.fields:
        for part in leaves(column.type):
            most, what = (3, "times") if part.root is Root.TIME else (6, "timestamps")
            timed = part.root is Root.TIME or part.root in TIMESTAMPS
            if timed and part.digits > most:
                raise InvalidRequest(
                    f"avro stores {what} with at most {most} fraction digits",
                    column=column.name,
                    type=column.type,
                    table=options.table,
                )


def check_retained(schema: TableSchema, options: TableOptions) -> None:
    """Check that the minimum number of retained snapshots does not exceed the maximum."""
    del schema
    least, most = options.snapshot_num_retained_min, options.snapshot_num_retained_max
    pairs = (
        ("snapshot", least, most),
        (
            "changelog",
            options.changelog_num_retained_min or least,
            most
            if options.changelog_num_retained_max is None
            else options.changelog_num_retained_max,
        ),
    )
    for what, low, high in pairs:
        if low > high:
            raise InvalidRequest(
                f"{what}.num-retained.min is greater than {what}.num-retained.max",
                min=low,
                max=high,
                table=options.table,
            )


def check_record_expiry(schema: TableSchema, options: TableOptions) -> None:
    """Check that record expiry has a time column of a fitting type, and a primary key."""
    name, expires = options.record_level_time_field, options.record_level_expire_time_ms is not None
    if expires and not schema.primary_keys:
        # Java accepts the option there, and keeps all rows.
        raise needs_primary_key("record-level.expire-time", options)
    if name is None:
        if expires:
            raise InvalidRequest(
                "record-level.expire-time needs record-level.time-field", table=options.table
            )
        return
    column = schema.by_name.get(name)
    if column is None:
        raise InvalidRequest(
            "the record-level.time-field is not a column", column=name, table=options.table
        )
    if getattr(column.type, "root", None) not in {Root.INT, Root.BIGINT, *TIMESTAMPS}:
        raise InvalidRequest(
            "the record-level.time-field must be INT, BIGINT or TIMESTAMP",
            column=name,
            type=column.type,
            table=options.table,
        )


def check_partition_expiry(schema: TableSchema, options: TableOptions) -> None:
    """Check that a table with partition expiry is partitioned."""
    if options.partition_expiration_time_ms is not None and not schema.partition_keys:
        raise InvalidRequest(
            "partition.expiration-time needs a table with partitions", table=options.table
        )


def check_clustering(schema: TableSchema, options: TableOptions) -> None:
    """Check that clustering names columns with an order, in a table without a key."""
    for name in options.clustering_columns:
        column = schema.by_name.get(name)
        if column is None:
            raise InvalidRequest(
                "clustering.columns names a column that is not there",
                column=name,
                table=options.table,
            )
        if not isinstance(column.type, Atomic):
            raise InvalidRequest(
                "rows cannot be clustered by a nested column",
                column=name,
                type=column.type,
                table=options.table,
            )
    if options.clustering_strategy == "hilbert" and len(options.clustering_columns) == 1:
        raise InvalidRequest(
            "a Hilbert order needs at least two clustering.columns", table=options.table
        )
    if not options.clustering_incremental:
        return
    if schema.primary_keys:
        raise InvalidRequest(
            "clustering.incremental needs a table without a primary key",
            primary_key=schema.primary_keys,
            table=options.table,
        )
    if options.bucket != -1 and (options.bucket_append_ordered or options.deletion_vectors_enabled):
        raise InvalidRequest(
            "clustering.incremental of a table with buckets needs bucket-append-ordered=false, and "
            "no deletion vectors",
            bucket=options.bucket,
            table=options.table,
        )
    if not options.clustering_columns:
        raise InvalidRequest("clustering.incremental needs clustering.columns", table=options.table)


def check_row_tracking(schema: TableSchema, options: TableOptions) -> None:
    """Check what row tracking and data evolution need: no primary key, and bucket=-1."""
    if options.row_tracking_enabled and (schema.primary_keys or options.bucket != -1):
        raise InvalidRequest(
            "row-tracking.enabled needs a table without a primary key, and bucket=-1",
            primary_key=schema.primary_keys,
            bucket=options.bucket,
            table=options.table,
        )
    if options.data_evolution_enabled and not options.row_tracking_enabled:
        raise InvalidRequest(
            "data-evolution.enabled needs row-tracking.enabled=true", table=options.table
        )
    if options.data_evolution_enabled and options.clustering_incremental:
        raise InvalidRequest(
            "rows of a table with data evolution are not clustered: set clustering.incremental="
            "false",
            table=options.table,
        )


def check_snapshot_ordering(schema: TableSchema, options: TableOptions) -> None:
    """Check that a table ordered by snapshot has no sequence fields or compaction within writes."""
    if not options.sequence_snapshot_ordering:
        return
    if not schema.primary_keys:
        raise needs_primary_key("sequence.snapshot-ordering", options)
    if options.sequence_field or not options.write_only:
        raise InvalidRequest(
            "sequence.snapshot-ordering needs write-only=true and no sequence.field",
            sequence_field=options.sequence_field,
            write_only=options.write_only,
            table=options.table,
        )


def check_scan(schema: TableSchema, options: TableOptions) -> None:
    """Check that the scan options state one start."""
    del schema
    validate_scan(options)
