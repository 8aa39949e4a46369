"""A state of a table as look-ups see it: its splits by bucket, with the key bounds of each file.

A state never changes: a newer snapshot gets a new state. If a cast of stored values may fail, the
split is *direct*: an ordinary read reads it, without a cache.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.format.binary_row import decode_rows
from lakecore.merge.keys import order_columns
from lakecore.model.rows import KIND_FIELD, SEQUENCE_FIELD
from lakecore.plan.bucketing import bucket_ids, partition_groups
from lakecore.plan.partitions import bucket_key_fields, hash_is_settled
from lakecore.table.stored_rows.late_casts import late_casts
from lakecore.table.stored_rows.split_files import SplitFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.model.files import DataFile, Split
    from lakecore.model.types import Field
    from lakecore.table.reads.source import TableSource
    from lakecore.table.stored_rows.read_plan import ReadPlan

_WHOLE_FILE_BYTES_MAX = 32 << 20
"""The largest file without row groups that memory holds as one block."""


@dataclass(frozen=True, eq=False)
class BoundedFile:
    """A file with its first and last key, as `OrderColumns.at` gives them."""

    file: DataFile
    low: tuple[object, ...]
    high: tuple[object, ...]


@dataclass(frozen=True, eq=False)
class SplitState:
    """A split, how it is read, and its files by run."""

    split: Split
    plan: ReadPlan
    files: SplitFiles
    runs: tuple[tuple[BoundedFile, ...], ...]
    direct: bool
    _deleted: dict[str, np.ndarray | None] = field(default_factory=dict)

    def deleted(self, file: DataFile) -> np.ndarray | None:
        """The positions in the file's deletion vector; read once."""
        if file.name not in self._deleted:
            self._deleted[file.name] = self.files.deleted_rows(file)
        return self._deleted[file.name]

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """A value for comparison: equal fingerprints mean that two splits hold the same rows."""
        vectors = sorted(
            (name, index.name, where.offset) for name, (index, where) in self.split.vectors.items()
        )
        names = tuple((file.name, file.level) for file in self.split.files)
        return (self.split.partition, self.split.bucket, names, tuple(vectors))


@dataclass(frozen=True, eq=False)
class LookupState:
    """The splits of a snapshot, by partition and bucket, for look-ups that return `columns`.

    `fields` are the columns that a merge needs to return `columns`.
    """

    source: TableSource
    columns: tuple[str, ...]
    fields: tuple[Field, ...]
    splits: tuple[SplitState, ...]
    by_bucket: Mapping[bytes, Mapping[int, list[SplitState]]] = field(default_factory=dict)

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot; None if the table is empty."""
        return None if self.source.snapshot is None else self.source.snapshot.id

    def places(self, keys: pa.Table) -> Iterator[tuple[SplitState, np.ndarray]]:
        """Each split that may hold some of the keys, with the indexes of these keys.

        The columns of `keys` are those of the primary key.
        """
        context, schema = self.source.context, self.source.table_schema
        everything = np.arange(keys.num_rows)
        partitioned = set(schema.partition_keys) <= set(keys.schema.names)
        groups: list[tuple[bytes, np.ndarray]]
        if partitioned and schema.partition_keys:
            groups = partition_groups(keys, schema.partition_fields)
        else:
            groups = [(partition, everything) for partition in self.by_bucket]
        hashed = bucket_key_fields(schema, context.options)
        if hashed and not hash_is_settled(hashed, ()):
            hashed = ()
        for partition, numbers in groups:
            buckets = self.by_bucket.get(partition, {})
            own = keys if len(numbers) == keys.num_rows else keys.take(pa.array(numbers))
            for total in {s.split.total_buckets for each in buckets.values() for s in each}:
                ids: np.ndarray | None = None
                if hashed and total > 0:
                    columns = [own.column(f.name).combine_chunks() for f in hashed]
                    function = context.options.bucket_function_type
                    ids = bucket_ids(columns, [f.type for f in hashed], total, function)
                for bucket, states in buckets.items():
                    within = numbers if ids is None else numbers[ids == bucket]
                    for state in states if len(within) else ():
                        if state.split.total_buckets == total:
                            yield state, within


def lookup_state(source: TableSource, columns: Sequence[str]) -> LookupState:
    """The state of the source's snapshot, prepared for look-ups that return these columns."""
    schema, splits = source.table_schema, source.plan().splits
    plan = source.read_plan(splits, columns)
    names = plan.merge.columns_for(columns) if schema.primary_keys else tuple(columns)
    fields = tuple(schema.field(name) for name in names)
    if schema.primary_keys:
        fields = (*fields, SEQUENCE_FIELD, KIND_FIELD)
    states = [_split_state(split, plan, source, fields) for split in splits]
    by_bucket: dict[bytes, dict[int, list[SplitState]]] = defaultdict(lambda: defaultdict(list))
    for state in states:
        by_bucket[state.split.partition][state.split.bucket].append(state)
    return LookupState(source, tuple(columns), fields, tuple(states), by_bucket)


def _split_state(
    split: Split, plan: ReadPlan, source: TableSource, fields: Sequence[Field]
) -> SplitState:
    files = SplitFiles(split, plan, source.context.store)
    table_fields = [each for each in fields if each not in (SEQUENCE_FIELD, KIND_FIELD)]
    direct = bool(late_casts(split.files, table_fields, plan.schemas)) or any(
        file.format != "parquet" and file.size_bytes > _WHOLE_FILE_BYTES_MAX for file in split.files
    )
    key = source.table_schema.key_fields
    runs = tuple(_bounded(run, key) for run in split.runs) if key else ()
    return SplitState(split, plan, files, runs, direct)


def _bounded(files: Sequence[DataFile], key: Sequence[Field]) -> tuple[BoundedFile, ...]:
    low, high = (
        order_columns(decode_rows(bounds, key).columns)
        for bounds in ([file.key_min for file in files], [file.key_max for file in files])
    )
    return tuple(BoundedFile(file, low.at(n), high.at(n)) for n, file in enumerate(files))
