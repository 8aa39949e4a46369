"""Writing and committing."""

from __future__ import annotations

from dataclasses import dataclass

from lakecore.options.kinds import (
    DURATION,
    FLAG,
    NAME,
    NAMES,
    SIZE,
    integer,
)
from lakecore.options.option import (
    APPEND,
    IGNORE_KEY,
    KEYED,
    MAINTAIN,
    OTHER,
    WRITE,
    option,
)


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
