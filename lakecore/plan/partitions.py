"""Converts partitions between serialized rows (as in manifests), directories, and strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.format.binary_row import decode_rows
from lakecore.format.partition_path import partition_path, partition_texts
from lakecore.merge.keys import sequence_codes
from lakecore.model.types import Atomic, Root, with_nullable
from lakecore.options import POSTPONE_BUCKET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakecore.model.files import Split
    from lakecore.model.schema import TableSchema
    from lakecore.model.types import Field
    from lakecore.options import TableOptions


class Partitions:
    """The partitions of one table; the path of each is computed once."""

    def __init__(self, schema: TableSchema, options: TableOptions) -> None:
        self.fields = schema.partition_fields
        self._default_name = options.partition_default_name
        self._legacy_name = options.partition_legacy_name
        self._sorts = options.scan_plan_sort_partition
        self._paths: dict[bytes, str] = {}

    def values(self, partitions: Sequence[bytes]) -> pa.RecordBatch:
        """The values of the partitions: a row for each, with a column for each partition key."""
        return decode_rows(partitions, self.fields)

    def in_scan_order(
        self, splits: Sequence[Split], seen: Sequence[bytes] | None = None
    ) -> list[Split]:
        """The splits, ordered by partition; within a partition, they keep their order.

        With `scan.plan-sort-partition`, the smaller value comes first, and null before all others.
        Otherwise, partitions are in the order of `seen`. Without `seen`, the order is unchanged.
        """
        partitions = list({split.partition: None for split in splits})
        if self._sorts and self.fields and partitions:
            columns = [pa.chunked_array([column]) for column in self.values(partitions).columns]
            ranks = sequence_codes(columns, descending=False).tolist()
        elif seen is not None:
            places = {partition: place for place, partition in enumerate(dict.fromkeys(seen))}
            ranks = [places[partition] for partition in partitions]
        else:
            return list(splits)
        rank_of = dict(zip(partitions, ranks, strict=True))
        return sorted(splits, key=lambda split: rank_of[split.partition])

    def path(self, partition: bytes) -> str:
        """The directories of a partition, joined by `/`; empty for an unpartitioned table."""
        if not self.fields:
            return ""
        if partition not in self._paths:
            self._paths[partition] = partition_path(
                self.values([partition]),
                self.fields,
                self._default_name,
                legacy_name=self._legacy_name,
            )
        return self._paths[partition]

    def spec(self, partition: bytes) -> Mapping[str, str]:
        """The partition values as strings, by column name, as catalogs name the partition."""
        return partition_texts(
            self.values([partition]),
            self.fields,
            self._default_name,
            legacy_name=self._legacy_name,
        )

    def texts(self, partition: bytes) -> Mapping[str, str]:
        """The partition values as strings, by column name, for messages."""
        return partition_texts(
            self.values([partition]), self.fields, self._default_name, legacy_name=False
        )


def bucket_key_fields(schema: TableSchema, options: TableOptions) -> tuple[Field, ...]:
    """The fields whose hash chooses the bucket; none if buckets are not chosen by hash.

    They are the option `bucket-key`, else the trimmed primary key. In a table with postponed
    buckets, they choose the real bucket of a row.
    """
    if options.bucket < 1 and options.bucket != POSTPONE_BUCKET:
        return ()
    names = options.bucket_key or schema.trimmed_primary_keys
    return tuple(schema.field(name) for name in names)


def hash_is_settled(fields: Sequence[Field], schemas: Iterable[TableSchema]) -> bool:
    """Whether equal values of a bucket key, as read from files, are in one bucket.

    `schemas` are all schemas that the table has had. Java allows a new type for a bucket key: its
    values then hash differently, but stored rows keep their buckets. For a CHAR the result is
    False: its trailing blanks are hashed, but ORC does not return them.
    """
    if any(isinstance(field.type, Atomic) and field.type.root is Root.CHAR for field in fields):
        return False
    kinds = {field.id: with_nullable(field.type, nullable=True) for field in fields}
    return all(
        with_nullable(column.type, nullable=True) == kinds[column.id]
        for schema in schemas
        for column in schema.fields
        if column.id in kinds
    )
