"""Assigns source rows and splits of the table to tasks, both by the bucket of the key.

A merge is *bucket-local* if all rows that match a source row are in one bucket, known from the
source row alone:

1. `on`, or the equalities of an SQL condition, contain the partition keys and the bucket key. Both
   sides have the same type, so that equal values have equal hashes.
2. Every split has the table's number of buckets. If the number of postponed buckets differs or is
   not known yet, a task owns whole partitions, and only the partition keys matter.
3. Insertions take these columns from the same source columns, so that new rows stay in the bucket.

If keys may move between partitions, one task owns the whole table.

INVARIANT: a source row and the rows of the table that it matches have the same owner. A row with a
null in one of the columns matches nothing, and may have any owner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as f

from lakecore.distributed.placing import bucket_key_fields, crosses_partitions, hash_rows
from lakecore.distributed.row_verbs import SOURCE, TARGET, Match, Sql
from lakecore.distributed.values import BucketFunction, with_nullable
from spark_bridge.failures import DATA_ERRORS, raised_in_task
from spark_bridge.placement import RoutingKeys, owner_numbers, routing_keys, task_count
from spark_bridge.postponed import buckets_of_changes, is_postponed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, SparkSession

    from lakecore.distributed.row_verbs import MergePlan
    from lakecore.distributed.tables import TableContext
    from lakecore.distributed.values import Split
    from lakecore.distributed.writing import WriteStart

Node: TypeAlias = "dict[str, Any]"
"""A node of DuckDB's syntax tree."""

__all__ = ["MergeOwners", "equal_columns", "is_all_equal", "merge_owners"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOwners:
    """The owners of a bucket-local merge.

    `places` are the positions of the source columns for the columns of `keys`, in their order.
    """

    keys: RoutingKeys
    places: tuple[int, ...]

    def count(self, spark: SparkSession) -> int:
        """The number of tasks."""
        if not self.places:
            return 1
        partitioned = bool(self.keys.partition)
        return task_count(spark, max(1, self.keys.buckets), partitioned=partitioned)

    def of_rows(self, columns: Sequence[str], count: int) -> Column:
        """The owner of each source row; `columns` are the names of the frame, by position."""
        own = [f.col(columns[place]) for place in self.places]
        keys = self.keys

        def number(rows: pa.Array) -> pa.Array:
            with raised_in_task():
                return pa.array(_owners(rows, keys, count))

        if not own:
            return f.lit(0)
        return f.arrow_udf(number, returnType="int")(f.struct(*own))

    def of_splits(
        self, context: TableContext, splits: Sequence[Split], count: int
    ) -> list[tuple[Split, ...]]:
        """The splits of each owner."""
        partitions = list({split.partition: None for split in splits})
        hashes = _partition_hashes(context, partitions)
        found: list[list[Split]] = [[] for _ in range(count)]
        buckets = max(self.keys.buckets, 1)
        for split in splits:
            bucket = split.bucket % buckets
            found[(hashes[split.partition] + bucket) % count].append(split)
        return [tuple(each) for each in found]


def merge_owners(
    context: TableContext,
    source: pa.Schema,
    plan: MergePlan,
    splits: Sequence[Split],
    *,
    assigners: int,
    base: WriteStart | None,
) -> MergeOwners | None:
    """The owners of a merge into a table with a key; None if it is not bucket-local.

    `base` is what the tasks start from, for a table with postponed buckets.
    """
    schema, options = context.schema, context.options
    if not schema.primary_keys:
        return None
    if crosses_partitions(context):
        # One task. It takes a large source in parts, which needs columns to merge on.
        keys = routing_keys(schema, (), (), 0, BucketFunction.DEFAULT)
        return MergeOwners(keys=keys, places=()) if plan.on else None
    dynamic = options.bucket == -1
    own: int | None = options.bucket
    if is_postponed(context):
        assert base is not None, "the numbers of buckets are those of a snapshot"
        own = buckets_of_changes(context, base)
    if own is not None and any(split.total_buckets != own for split in splits):
        return None
    fields = schema.key_fields if dynamic else bucket_key_fields(schema, options)
    # Without a common number of buckets, a task owns whole partitions.
    buckets = assigners if dynamic else own or 1
    function = BucketFunction.DEFAULT if dynamic else options.bucket_function_type
    hashed = buckets > 1
    keys = routing_keys(
        schema, schema.partition_fields, fields if hashed else (), hashed * buckets, function
    )
    pairs = {name: name for name in plan.on} or equal_columns(plan, source, schema.arrow)
    wanted = [field.name for field in keys.schema.fields]
    if not all(name in pairs for name in wanted) or not _stay_there(plan, pairs, wanted):
        return None
    nullable = tuple(
        replace(each, type=with_nullable(each.type, nullable=True), default_value=None)
        for each in keys.schema.fields
    )
    return MergeOwners(
        keys=replace(keys, schema=replace(keys.schema, fields=nullable)),
        places=tuple(source.get_field_index(pairs[name]) for name in wanted),
    )


def equal_columns(plan: MergePlan, source: pa.Schema, target: pa.Schema) -> dict[str, str]:
    """Columns of the table that an SQL condition requires to equal source columns of their type."""
    condition = plan.condition
    if not isinstance(condition, Sql):
        return {}
    columns = {side: plan.sides.of_side([condition], side) for side in (SOURCE, TARGET)}
    found: dict[str, str] = {}
    for names in _equalities(condition.tree):
        both = [condition.columns[int(name.removeprefix("_lakecore_column_"))] for name in names]
        mine = [columns[TARGET][name] for name in both if name in columns[TARGET]]
        other = [columns[SOURCE][name] for name in both if name in columns[SOURCE]]
        if len(mine) != 1 or len(other) != 1:
            continue
        kind = target.field(mine[0]).type
        if source.field(other[0]).type == kind and not pa.types.is_floating(kind):
            found.setdefault(mine[0], other[0])
    return found


def is_all_equal(plan: MergePlan, pairs: Mapping[str, str]) -> bool:
    """Whether an SQL condition consists only of equalities `target.x = source.x`."""
    condition = plan.condition
    if not isinstance(condition, Sql) or any(mine != other for mine, other in pairs.items()):
        return False
    parts = list(_conjuncts(condition.tree))
    return bool(pairs) and len(parts) == len(pairs) == len(list(_equalities(condition.tree)))


def _conjuncts(tree: Node) -> Iterator[Node]:
    if tree.get("type") != "CONJUNCTION_AND":
        yield tree
        return
    for child in tree["children"]:
        yield from _conjuncts(child)


def _equalities(tree: Node) -> Iterator[tuple[str, str]]:
    """The pairs of plain columns that one condition of the conjunction compares for equality."""
    for part in _conjuncts(tree):
        if part.get("type") != "COMPARE_EQUAL":
            continue
        sides = [part["left"], part["right"]]
        names = [side.get("column_names", ()) for side in sides]
        if all(len(each) == 1 for each in names):
            yield names[0][0], names[1][0]


def _stay_there(plan: MergePlan, pairs: Mapping[str, str], wanted: Sequence[str]) -> bool:
    """Whether inserted rows take the bucket's columns from source columns that `on` compares."""
    for step in plan.steps[Match.NOT_MATCHED]:
        names = step.sides.of_side(step.values.values(), SOURCE)
        for name in wanted:
            value = step.values.get(name)
            if isinstance(value, pl.Expr):
                roots = value.meta.root_names()
                plain = len(roots) == 1 and value.meta.eq(pl.col(roots[0]))
            elif isinstance(value, Sql):
                roots = list(value.columns)
                plain = len(roots) == 1 and value.tree.get("class") == "COLUMN_REF"
            else:
                return False
            if not plain or names.get(roots[0]) != pairs[name]:
                return False
    return True


def _partition_hashes(context: TableContext, partitions: Sequence[bytes]) -> dict[bytes, int]:
    if not context.schema.partition_keys or not partitions:
        return dict.fromkeys(partitions, 0)
    values = context.partitions.values(partitions)
    types = [field.type for field in context.schema.partition_fields]
    hashes = hash_rows(values.columns, types).astype(np.int64)
    return dict(zip(partitions, hashes.tolist(), strict=True))


def _owners(rows: pa.StructArray, keys: RoutingKeys, count: int) -> np.ndarray:
    """The owner of each row; 0 for a row with a null, and for rows that do not fit the table."""
    columns = rows.flatten()
    absent = np.zeros(len(rows), bool)
    for column in columns:
        absent |= column.is_null().to_numpy(zero_copy_only=False)
    names = [field.name for field in keys.schema.fields]
    whole = pc.filter(pa.StructArray.from_arrays(columns, names=names), pa.array(~absent))
    owners = np.zeros(len(rows), np.int32)
    try:
        owners[~absent] = owner_numbers(whole, keys, count)
    except DATA_ERRORS:
        # The task that gets the rows says what is wrong with them, and fails the merge.
        return np.zeros(len(rows), np.int32)
    return owners
