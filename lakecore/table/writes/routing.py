"""The partition and the bucket of each row of a writer.

- keys that may move between partitions: `cross_partition.py`;
- fixed buckets: the hash of the bucket key, by the bucket count of the partition;
- dynamic buckets: the hash index of the partition (`dynamic_index.py`);
- postponed buckets: the postponed bucket, or real buckets if the writer knows their number;
- no buckets: bucket 0.

INVARIANT: the bucket of a row is computed with the bucket count of its partition. A write to a
partition that has another bucket count than the table is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.format.binary_row import hash_rows
from lakecore.options import POSTPONE_BUCKET
from lakecore.plan.bucketing import bucket_ids, split_by_bucket, split_by_partition
from lakecore.plan.partitions import bucket_key_fields
from lakecore.table.context import crosses_partitions
from lakecore.table.writes.cross_partition import CrossPartition
from lakecore.table.writes.dynamic_index import DynamicIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    import pyarrow as pa

    from lakecore.table.context import TableContext
    from lakecore.table.writes.write_start import WriteStart


@dataclass(frozen=True, slots=True, kw_only=True)
class RealBuckets:
    """The number of real buckets of partitions whose buckets are postponed.

    A partition that is not `known` gets the `default` number. Without a default, its rows go to the
    postponed bucket.
    """

    known: Mapping[bytes, int]
    default: int | None = None

    def count(self, partition: bytes) -> int:
        """The number of buckets of a partition; `POSTPONE_BUCKET` if it is not known."""
        return self.known.get(partition) or self.default or POSTPONE_BUCKET


class Routing:
    """Routes the rows of one writer. `base` returns the facts of the table that it starts from.

    `real`: the real buckets of a table with postponed buckets; None: all rows are postponed.
    """

    def __init__(
        self,
        context: TableContext,
        base: Callable[[], WriteStart],
        *,
        overwrite: bool,
        real: RealBuckets | None,
    ) -> None:
        self._context = context
        self._base = base
        self._overwrite = overwrite
        self._real = real
        self.indexes: dict[bytes, DynamicIndex] = {}
        self._crosses = crosses_partitions(context)
        self._keys: CrossPartition | None = None

    def count(self, partition: bytes) -> int:
        """The number of buckets of a partition; less than 1 if they are not fixed."""
        return self._context.options.bucket if self._real is None else self._real.count(partition)

    def route(self, rows: pa.Table) -> Iterator[tuple[bytes, int, pa.Table]]:
        """The rows of each partition and bucket, in order of arrival."""
        if self._crosses:
            if self._keys is None:
                # An overwrite replaces all rows of such a table.
                snapshot = None if self._overwrite else self._base().snapshot
                self._keys = CrossPartition(self._context, snapshot)
            yield from self._keys.route(rows)
            return
        for partition, part in split_by_partition(rows, self._context.schema.partition_fields):
            if self.count(partition) == POSTPONE_BUCKET:
                yield partition, POSTPONE_BUCKET, part
                continue
            ids, count = self._bucket_ids(partition, part)
            if ids is None:
                yield partition, 0, part
                continue
            for number, own in split_by_bucket(ids, count).cut(part):
                yield partition, number, own

    def forget(self, *, keeps_index: bool) -> bool:
        """Forget the indexes; with `keeps_index`, only which buckets got new keys.

        Returns whether the indexes are kept.
        """
        if not (keeps_index and (self.indexes or self._keys is not None)):
            self.indexes = {}
            if self._keys is not None:
                self._keys.close()
                self._keys = None
            return False
        for index in self.indexes.values():
            index.grown = set()
        return True

    @property
    def keeps_keys(self) -> bool:
        """Whether the writer holds an index of all keys, which is slow to build again."""
        return self._keys is not None

    def _bucket_ids(self, partition: bytes, rows: pa.Table) -> tuple[np.ndarray | None, int]:
        """The bucket of each row (None: always bucket 0), and a number above all bucket numbers."""
        schema, options, count = self._context.schema, self._context.options, self.count(partition)
        self._check_bucket_count(partition, count)
        if count > 0:
            if count == 1:
                return None, 1
            fields = bucket_key_fields(schema, options)
            columns = [rows.column(field.name).combine_chunks() for field in fields]
            types = [field.type for field in fields]
            return bucket_ids(columns, types, count, options.bucket_function_type), count
        if not schema.primary_keys:
            return None, 1
        index = self.indexes.get(partition)
        if index is None:
            snapshot = None if self._overwrite else self._base().snapshot
            index = self.indexes[partition] = DynamicIndex(self._context, partition, snapshot)
        fields = schema.key_fields
        columns = [rows.column(field.name).combine_chunks() for field in fields]
        assignment = index.assign(hash_rows(columns, [field.type for field in fields]))
        return assignment.buckets, int(assignment.buckets.max()) + 1

    def _check_bucket_count(self, partition: bytes, count: int) -> None:
        written = self._base().bucket_counts.get(partition)
        if written is not None and written != count and not self._overwrite:
            raise InvalidRequest(
                "the partition was written with another number of buckets: rescale or overwrite "
                "it, or set the option bucket back",
                table=self._context.identifier,
                partition=dict(self._context.partitions.texts(partition)),
                buckets=written,
                option_bucket=count,
            )
