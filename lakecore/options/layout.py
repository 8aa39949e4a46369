"""What a table is: its keys, buckets, partitions and schema rules."""

# ruff: noqa: RUF009  a declaration is a call; its arguments are constants

from __future__ import annotations

from dataclasses import dataclass

from lakecore.options.choices import (
    BucketFunction,
    TableType,
    TagCreation,
)
from lakecore.options.kinds import (
    COUNT,
    DURATION,
    FLAG,
    INT_MAX,
    LONG_MAX,
    NAMES,
    SIZE,
    TEXT,
    choice,
    integer,
)
from lakecore.options.option import (
    APPEND,
    KEYED,
    MAINTAIN,
    READ,
    WRITE,
    option,
)


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
