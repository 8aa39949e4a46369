"""Which manifests of a table a commit merges, and which of them a reader opens.

Given the manifests of a snapshot in order
(https://paimon.apache.org/docs/master/maintenance/manage-manifest/):

1. *Full*: manifests that are small or hold deletions "must change". When they reach
   `manifest.full-compaction-threshold-size` in total, they are rewritten without cancelled entries.
   Any other manifest whose partitions may contain a file they delete is rewritten too.
2. *Minor*: otherwise neighbouring manifests are collected until they reach
   `manifest.target-file-size`; they form a group to merge. The last group is merged only if it has
   at least `manifest.merge-min-count` manifests.

INVARIANT: a manifest is left out only if its partition bounds in the manifest list show that it
holds no entry of the wanted partitions. An ADD and its DELETE have the same partition, so either
both are read or neither.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.model.files import EMPTY_ROW
from lakecore.plan.predicate import Compare, IsNull, Op, Predicate, all_of, any_of
from lakecore.plan.pruning import Mask, may_match

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.manifest import ManifestFile
    from lakecore.plan.partitions import Partitions


def neighbours_to_merge(
    manifests: Sequence[ManifestFile], *, target_bytes: int, count_min: int
) -> list[list[ManifestFile]]:
    """The manifests in order, in groups of neighbours; a group of more than one is to be merged."""
    groups: list[list[ManifestFile]] = []
    gathered: list[ManifestFile] = []
    size_bytes = 0
    for manifest in manifests:
        gathered.append(manifest)
        size_bytes += manifest.size_bytes
        if size_bytes >= target_bytes:
            groups.append(gathered)
            gathered, size_bytes = [], 0
    if len(gathered) >= count_min:
        groups.append(gathered)
    else:
        groups += [[manifest] for manifest in gathered]
    return groups


def must_change(manifest: ManifestFile, target_bytes: int) -> bool:
    """Whether a full merge always rewrites the manifest."""
    return manifest.deleted_count > 0 or manifest.size_bytes < target_bytes


def full_merge_is_due(
    manifests: Sequence[ManifestFile], *, target_bytes: int, threshold_bytes: int
) -> bool:
    """Whether the manifests that must change have reached the threshold in total."""
    changing = (m.size_bytes for m in manifests if must_change(m, target_bytes))
    return sum(changing) >= threshold_bytes


def live_count(manifests: Sequence[ManifestFile]) -> int:
    """The number of live files of a snapshot with these manifests."""
    return sum(manifest.added_count - manifest.deleted_count for manifest in manifests)


def hull_of(values: pa.RecordBatch) -> Predicate:
    """A predicate that holds for these partitions: the least and greatest value of each column."""
    parts: list[Predicate] = []
    for name, column in zip(values.schema.names, values.columns, strict=True):
        order = pl.Series(pl.from_arrow(column)).arg_sort(nulls_last=True)
        some = len(column) - column.null_count
        within: list[Predicate] = [IsNull(name)] if column.null_count else []
        if some:
            ends = (Op.GE, column[int(order[0])]), (Op.LE, column[int(order[some - 1])])
            within.append(all_of(Compare(name, op, end) for op, end in ends if not _is_nan(end)))
        parts.append(any_of(within))
    return all_of(parts)


def _is_nan(value: pa.Scalar) -> bool:
    """Whether the value is NaN.

    Statistics do not include NaN, and predicates do not compare with it.
    """
    return bool(pa.types.is_floating(value.type) and math.isnan(value.as_py()))


def may_hold(
    predicate: Predicate, manifests: Sequence[ManifestFile], partitions: Partitions
) -> Mask:
    """For each manifest, whether it may contain an entry of a matching partition."""
    # A writer that omits statistics stores rows without fields.
    at = [n for n, m in enumerate(manifests) if m.partition_stats.min_values != EMPTY_ROW]
    mask = np.ones(len(manifests), np.bool_)
    if not at:
        return mask
    known = [manifests[number] for number in at]
    stats = [manifest.partition_stats for manifest in known]
    names = [field.name for field in partitions.fields]
    counts = [
        [None if each.null_counts is None else each.null_counts[number] for each in stats]
        for number in range(len(names))
    ]
    nulls = pa.RecordBatch.from_arrays([pa.array(each, pa.int64()) for each in counts], names)
    mask[at] = may_match(
        predicate,
        partitions.values([each.min_values for each in stats]),
        partitions.values([each.max_values for each in stats]),
        nulls,
        np.array([m.added_count + m.deleted_count for m in known], np.int64),
    )
    return mask
