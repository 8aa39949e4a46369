"""What a table is: its keys, buckets, partitions and schema rules."""

# ruff: noqa: RUF009  a declaration is a call; its arguments are constants

from __future__ import annotations

from dataclasses import dataclass

from lakecore.options.choices import (
    BucketFunction,
    TableType,
)
from lakecore.options.kinds import (
    COUNT,
    FLAG,
    INT_MAX,
    LONG_MAX,
    NAMES,
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

    # Two lines a declaration read better than the eight that the formatter would make.
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
        no_effect="Compaction always keeps the order.",
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

    # --- partition names --------------------------------------------------------------------------
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
        "An overwrite replaces only the partitions of its rows.",
    )
    overwrite_upgrade: bool = option(
        "overwrite-upgrade", FLAG, True, WRITE,
        "Files of an overwrite that do not overlap go to the last level at once.", scope=KEYED,
    )
    # fmt: on
