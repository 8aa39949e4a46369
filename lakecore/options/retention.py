"""How long partitions, snapshots, changelogs and tags are kept."""

# ruff: noqa: RUF009  a declaration is a call; its arguments are constants

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo

from lakecore.options.choices import (
    ExpireMode,
    PartitionExpiry,
    TagCreation,
    TagFormatter,
    TagPeriod,
)
from lakecore.options.kinds import (
    COUNT,
    DURATION,
    FLAG,
    INT_MAX,
    MAINTAIN,
    NAME,
    NAMES,
    ZONE,
    choice,
    integer,
    option,
)


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
