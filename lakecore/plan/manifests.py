"""Which manifests of a table a commit merges, and which of them a reader opens.

Given the manifests of a snapshot in order
(https://paimon.apache.org/docs/master/maintenance/manage-manifest/):

1. *Full*: manifests that are small or hold deletions "must change". When they reach
   `manifest.full-compaction-threshold-size` in total, they are rewritten without cancelled entries.
   Any other manifest whose partitions may contain a file that a must-change manifest deletes is
   rewritten too.
2. *Minor*: otherwise neighbouring manifests are collected until they reach
   `manifest.target-file-size`; they form a group to merge. The last group is merged only if it has
   at least `manifest.merge-min-count` manifests.

INVARIANT: a manifest is left out only if its partition bounds in the manifest list show that it
holds no entry of the wanted partitions. An ADD and its DELETE have the same partition, so either
both are read or neither.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import CorruptTable
from lakecore.format.manifest_files import entry_identities
from lakecore.model.files import EMPTY_ROW
from lakecore.model.manifest import FileKind, ManifestFile
from lakecore.plan.predicate import Compare, IsNull, Op, Predicate, all_of, any_of
from lakecore.plan.pruning import Mask, may_match

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakecore.plan.partitions import Partitions

T = TypeVar("T")


def neighbours_to_merge(
    manifests: Sequence[ManifestFile], *, target_bytes: int, count_min: int
) -> list[list[ManifestFile]]:
    """The manifests in order, in groups of neighbours; a group of more than one is to be merged."""
    groups = neighbours(manifests, _size_bytes, target_bytes)
    if groups and len(groups[-1]) < count_min and sum(map(_size_bytes, groups[-1])) < target_bytes:
        groups += [[manifest] for manifest in groups.pop()]
    return groups


def _size_bytes(manifest: ManifestFile) -> int:
    return manifest.size_bytes


def neighbours(items: Iterable[T], size_of: Callable[[T], float], least: float) -> list[list[T]]:
    """The items in order, in groups that reach the size `least`; the last one may be smaller."""
    groups: list[list[T]] = []
    size = least
    for item in items:
        if size >= least:
            groups.append([])
            size = 0
        groups[-1].append(item)
        size += size_of(item)
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
        order = pc.array_sort_indices(column)
        some = len(column) - column.null_count
        within: list[Predicate] = [IsNull(name)] if column.null_count else []
        if some:
            ends = (Op.GE, column[order[0].as_py()]), (Op.LE, column[order[some - 1].as_py()])
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


def holding(
    predicate: Predicate, manifests: Sequence[ManifestFile], partitions: Partitions
) -> list[ManifestFile]:
    """The manifests that may contain an entry of a matching partition."""
    mask = may_hold(predicate, manifests, partitions)
    return [each for each, may in zip(manifests, mask, strict=True) if may]


# --- entries -------------------------------------------------------------------------------------
# The entries that remain when manifests are merged, computed on columns.
#
# A frame has one row for each entry (`format/manifest_columns.py`). The rules are those of
# `model/manifest.py`, applied to columns, because the cost of merging grows with the table.
#
# INVARIANT: entries of one file keep their order, so that an ADD comes before its DELETE. Entries
# of one bucket keep their order too, so that its files stay in commit order.

_IS_ADD = pl.col("_KIND") == int(FileKind.ADD)


def cancel(entries: pl.DataFrame) -> pl.DataFrame:
    """The entries, without each pair of an ADD and a DELETE of the same file.

    A DELETE without an ADD here stays: an earlier manifest has its ADD. Raises CorruptTable if a
    file is added, or deleted, twice in a row.
    """
    named = entries.select("_KIND", identity=entry_identities(entries)).with_row_index("at")
    several = named.filter(pl.len().over("identity") > 1).sort("identity", "at")
    if several.is_empty():
        return entries
    follows = pl.col("identity") == pl.col("identity").shift(1)
    marked = several.with_columns(
        again=(follows & (pl.col("_KIND") == pl.col("_KIND").shift(1))).fill_null(value=False),
        # Each entry is cancelled by the next one; of an odd number, the last one remains.
        kept=(pl.len().over("identity") % 2 == 1) & ~follows.shift(-1).fill_null(value=False),
    )
    again = marked.filter("again")
    if not again.is_empty():
        at, kind = again.row(0)[0], FileKind(again["_KIND"][0])
        name = entries["_FILE_NAME"][at]
        raise CorruptTable("a file is added or deleted twice", file=name, kind=kind.name)
    keep = np.ones(entries.height, np.bool_)
    keep[marked.filter(~pl.col("kept"))["at"].to_numpy()] = False
    return entries.filter(keep)


class Deletions:
    """The files that the manifests of a snapshot delete. Each DELETE cancels one ADD."""

    def __init__(self, frames: Iterable[pl.DataFrame]) -> None:
        deleted = [frame.filter(~_IS_ADD) for frame in frames]
        parts = [
            frame.select("_PARTITION", "_FILE_NAME", identity=entry_identities(frame))
            for frame in deleted
            if frame.height
        ]
        none = pl.DataFrame(
            schema={"_PARTITION": pl.Binary, "_FILE_NAME": pl.String, "identity": pl.Binary}
        )
        together = pl.concat([none, *parts])
        self.partitions: list[bytes] = together["_PARTITION"].unique(maintain_order=True).to_list()
        self._left = together.group_by("identity", maintain_order=True).agg(
            pl.col("_FILE_NAME").first(), left=pl.len().cast(pl.Int64)
        )

    def take(self, entries: pl.DataFrame) -> pl.DataFrame:
        """The added entries of the next manifest that are not deleted.

        Call it in manifest order.
        """
        added = entries if entries["_KIND"].max() == FileKind.ADD else entries.filter(_IS_ADD)
        if self._left.is_empty() or added.is_empty():
            return added
        named = pl.DataFrame({"identity": entry_identities(added)}).with_row_index("at")
        hit = named.join(self._left, on="identity", how="inner", maintain_order="left")
        # A file may be added again after it was deleted: a DELETE cancels the first ADD.
        gone = hit.filter(pl.int_range(pl.len()).over("identity") < pl.col("left"))
        if gone.is_empty():
            return added
        counts = gone.group_by("identity").agg(found=pl.len().cast(pl.Int64))
        self._left = (
            self._left.join(counts, on="identity", how="left", maintain_order="left")
            .with_columns(pl.col("left") - pl.col("found").fill_null(0))
            .select("identity", "_FILE_NAME", "left")
            .filter(pl.col("left") > 0)
        )
        keep = np.ones(added.height, np.bool_)
        keep[gone["at"].to_numpy()] = False
        return added.filter(keep)

    def check_done(self) -> None:
        """Raise CorruptTable if a deleted file was added by none of the manifests."""
        if not self._left.is_empty():
            name = self._left["_FILE_NAME"][0]
            raise CorruptTable("a file is deleted that was not added", file=name)


def in_order_of_partitions(entries: pl.DataFrame, partitions: Partitions) -> pl.DataFrame:
    """The entries in order of partition, so that a manifest cut from them has few partitions."""
    distinct = entries["_PARTITION"].unique(maintain_order=True)
    if len(distinct) <= 1:
        return entries
    values = pl.DataFrame(partitions.values(distinct.to_list()))
    order = values.select(pl.struct(pl.all()).rank("dense").alias("rank")).to_series()
    ranks = pl.DataFrame({"_PARTITION": distinct, "rank": order})
    found = entries.select("_PARTITION").join(
        ranks, on="_PARTITION", how="left", maintain_order="left"
    )
    by_partition = np.argsort(found["rank"].to_numpy(), kind="stable")
    return entries[by_partition]
