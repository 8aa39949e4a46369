"""Finds the partition and bucket of rows, which decide the task that owns them."""

from __future__ import annotations

from lakecore.format.binary_row import hash_rows
from lakecore.plan.bucketing import BUCKETS_MAX, bucket_ids
from lakecore.plan.partitions import bucket_key_fields
from lakecore.rows.conform import KindRule, conform
from lakecore.table.context import crosses_partitions
from lakecore.table.writes.cross_partition import read_hashes

__all__ = [
    "BUCKETS_MAX",
    "KindRule",
    "bucket_ids",
    "bucket_key_fields",
    "conform",
    "crosses_partitions",
    "hash_rows",
    "read_hashes",
]
