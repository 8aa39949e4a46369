"""Groups the live files of a bucket into splits: files to read raw, and files to merge.

Rules of a batch read (https://paimon.apache.org/docs/master/primary-key-table/overview/):

1. A table with deletion vectors (unless it merges on read) and a first-row table hide level 0,
   because the rows that level 0 replaces are not marked yet.
2. If level 0 is empty, no file holds deletions, and all files are on one level (or rule 1 applies
   to the table), every file is raw.
3. Otherwise the bucket is cut into sections. A section is raw if it has one file that certainly
   holds no deletions; any other is merged.

A file that lakecore flushed holds each key once, and its deletions are counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lakecore.format.layout import is_named_by_lakecore
from lakecore.lsm.levels import sections, sorted_runs
from lakecore.model.files import EMPTY_ROW, NO_STATS, DataFile, Split
from lakecore.options import MergeEngine, TableOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

_WINNERS = frozenset({MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW})
"""The merge engines that return rows as they are stored."""


def folds_values(options: TableOptions) -> bool:
    """Whether a merged row may combine values of several stored rows."""
    return options.merge_engine not in _WINNERS or options.data_evolution_enabled


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlan:
    """How to read a bucket: the `raw` files one by one; the `merged` sections, oldest run first."""

    raw: tuple[DataFile, ...]
    merged: tuple[tuple[tuple[DataFile, ...], ...], ...] = ()


def plan_bucket(
    files: Sequence[DataFile], lows: np.ndarray, highs: np.ndarray, *, settled: bool
) -> BucketPlan:
    """How to read a bucket of a primary-key table. `files` has no files of hidden levels.

    `lows` and `highs` rank the first and last key of each file. With `settled`, rule 1 holds:
    visible files never have a row that another visible file replaces, so nothing needs merging.
    """
    clean = not any(file.delete_row_count for file in files)
    levels = {file.level for file in files}
    if clean and 0 not in levels and (settled or len(levels) <= 1):
        return BucketPlan(raw=tuple(files))
    raw: list[DataFile] = []
    merged: list[tuple[tuple[DataFile, ...], ...]] = []
    for section in sections(lows, highs):
        inside = [files[index] for index in section]
        if len(inside) == 1 and not may_hold_deletions(inside[0]):
            raw += inside
            continue
        runs = sorted_runs(inside, lows[section].tolist(), highs[section].tolist())
        merged.append(tuple(run.files for run in runs))
    return BucketPlan(raw=tuple(raw), merged=tuple(merged))


def may_hold_deletions(file: DataFile) -> bool:
    """Whether rows of a file of a primary-key table may be deletions.

    NOTE: pypaimon always writes a count of 0, so the count of a level-0 file is trusted only if
    lakecore wrote it. Paimon trusts every count in raw reads, takes an unknown one for 0, and then
    returns deleted rows.
    """
    counted = file.level > 0 or is_named_by_lakecore(file.name)
    return not counted or file.delete_row_count != 0


def pack(
    files: Sequence[DataFile], target_bytes: int, open_cost_bytes: int
) -> list[list[DataFile]]:
    """The files in groups of about the target size, in order.

    A file counts as at least `open_cost_bytes`.
    """
    groups: list[list[DataFile]] = []
    room = 0
    for file in files:
        weight = max(file.size_bytes, open_cost_bytes)
        if not groups or weight > room:
            groups.append([])
            room = target_bytes
        groups[-1].append(file)
        room -= weight
    return groups


# --- columns -------------------------------------------------------------------------------------
# The same rules for all buckets of a large table at once, on columns: no object for each file.
#
# 1. Files are sorted by partition and bucket. Buckets that rule 2 makes raw need nothing more.
# 2. In the other buckets, keys are ranked. Adding a multiple of the largest rank to the ranks of
#    each bucket keeps buckets apart, so that one running maximum finds all sections.
# 3. In each bucket, raw files are moved before merged sections. Sums of sizes say where the pack
#    that begins at a file would end; packs are those on the way from the first file to the last.

_RANKED_AT_ONCE = 250_000
"""Keys are ranked for some buckets at a time, because decoded keys take memory."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileColumns:
    """The visible files of a table, in commit order. `partitions` are numbered in scan order."""

    partitions: Rows
    buckets: Rows
    total_buckets: Rows
    levels: Rows
    sizes_bytes: Rows
    sequences_min: Rows
    holds_deletions: NDArray[np.bool_]
    may_hold_deletions: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitColumns:
    """The splits of a table, in scan order.

    `files`: the places of files, split by split; the files of split `n` are from `starts[n]` to
    `starts[n + 1]`. `raw`: whether a split is read raw. `bucket_starts`: the place in `files` at
    which each bucket begins.
    """

    files: Rows
    starts: Rows
    raw: NDArray[np.bool_]
    bucket_starts: Rows


def plan_columns(
    files: FileColumns,
    ranks: Callable[[Rows], tuple[np.ndarray, np.ndarray]] | None,
    *,
    settled: bool,
    target_bytes: int,
    open_cost_bytes: int,
) -> SplitColumns:
    """The splits that `plan_bucket` and `pack` give for each bucket.

    `ranks` ranks the first and last keys of these files; None for a table without a key.
    """
    # Without a key, rows are in the order of their sequence numbers.
    within = () if ranks else (files.sequences_min,)
    order = np.lexsort((*within, files.total_buckets, files.buckets, files.partitions))
    columns = [files.partitions[order], files.buckets[order], files.total_buckets[order]]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = np.logical_or.reduce([each[1:] != each[:-1] for each in columns])
    bucket_starts = np.flatnonzero(begins)
    bucket_of = np.cumsum(begins) - 1
    merged = np.zeros(len(order), np.bool_)
    if ranks is not None and len(order):
        levels = files.levels[order]
        lowest = np.minimum.reduceat(levels, bucket_starts)
        is_level = np.maximum.reduceat(levels, bucket_starts) == lowest
        clean = ~np.logical_or.reduceat(files.holds_deletions[order], bucket_starts)
        overlaps = np.flatnonzero(~(clean & (lowest > 0) & (settled | is_level))[bucket_of])
        while len(overlaps):
            last = overlaps[:_RANKED_AT_ONCE][-1]
            count = int(np.searchsorted(bucket_of[overlaps], bucket_of[last], "right"))
            own, overlaps = overlaps[:count], overlaps[count:]
            moved, begins[own], merged[own] = _in_sections(
                files, order[own], bucket_of[own], *ranks(order[own])
            )
            order[own] = order[own][moved]
    raw = np.flatnonzero(~merged)
    weights = np.maximum(files.sizes_bytes[order[raw]], open_cost_bytes)
    starts = np.concatenate(
        [raw[_packs(weights, bucket_of[raw], target_bytes)], np.flatnonzero(merged & begins)]
    )
    starts.sort()
    return SplitColumns(
        files=order,
        starts=np.append(starts, len(order)),
        raw=~merged[starts],
        bucket_starts=bucket_starts,
    )


def _in_sections(
    files: FileColumns, rows: Rows, bucket_of: Rows, lows: np.ndarray, highs: np.ndarray
) -> tuple[Rows, NDArray[np.bool_], NDArray[np.bool_]]:
    """The order of these files, raw ones first; whether each begins a section, and is merged."""
    ranked = np.unique(np.concatenate([lows, highs]), return_inverse=True)[1]
    above = bucket_of * (len(ranked) + 1)
    lows, highs = ranked[: len(rows)] + above, ranked[len(rows) :] + above
    order = np.lexsort((highs, lows))
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = lows[order][1:] > np.maximum.accumulate(highs[order])[:-1]
    section = np.cumsum(begins) - 1
    alone = np.bincount(section)[section] == 1
    merged = ~alone | files.may_hold_deletions[rows[order]]
    moved = np.lexsort((merged, bucket_of))
    return order[moved], begins[moved], merged[moved]


def _packs(weights: Rows, bucket_of: Rows, target_bytes: int) -> Rows:
    """Where the packs of raw files begin: `pack`, for the files of all buckets."""
    before = np.concatenate([[0], np.cumsum(weights)])
    full = np.searchsorted(before, before[:-1] + target_bytes, "right") - 1
    ends = np.searchsorted(bucket_of, bucket_of, "right")
    following = np.clip(full, np.arange(1, len(weights) + 1), ends).tolist()
    starts: list[int] = []
    at = 0
    while at < len(following):
        starts.append(at)
        at = following[at]
    return np.array(starts, np.int64)


# --- postponed -----------------------------------------------------------------------------------
# The number of real buckets of a partition, for tables with postponed buckets.
#
# A partition that has real buckets keeps their number. For a new partition,
# `postpone.default-bucket-num` states the number. Without this option, the number is computed from
# the rows or bytes and the target size of a bucket
# (https://paimon.apache.org/docs/master/primary-key-table/data-distribution/#postpone-bucket).


def compaction_count(rows: int, size_bytes: int, options: TableOptions) -> int:
    """The number of buckets of a new partition, by the rows and bytes in its postponed bucket."""
    return options.postpone_default_bucket_num or _needed(rows, size_bytes, options)


def batch_count(rows: int, size_bytes: int, options: TableOptions) -> int:
    """The number of buckets of a new partition, by the rows and bytes that a batch writes to it.

    An estimate is rounded up to a power of two, up to the largest number allowed.
    """
    stated = options.postpone_default_bucket_num
    return stated or _rounded(_needed(rows, size_bytes, options), options)


def rescaled_count(rows: int, size_bytes: int, buckets: int, options: TableOptions) -> int | None:
    """The wanted number of buckets, if a batch is too large for the `buckets` of its partition."""
    needed = _needed(rows, size_bytes, options)
    factor = options.postpone_batch_write_fixed_bucket_rescale_load_factor
    wanted = _rounded(needed, options)
    return wanted if needed > buckets * factor and wanted > buckets else None


def _needed(rows: int, size_bytes: int, options: TableOptions) -> int:
    target_rows = options.postpone_target_row_num_per_bucket
    if target_rows is not None:
        return max(1, -(-rows // target_rows))
    return max(1, -(-size_bytes // max(1, options.postpone_target_size_per_bucket_bytes)))


def _rounded(needed: int, options: TableOptions) -> int:
    most = options.postpone_batch_write_fixed_bucket_max_parallelism
    capped = min(needed, most)
    return min(1 << (capped - 1).bit_length(), most)


def without_statistics(split: Split) -> Split:
    """The split without its files' key bounds, statistics and indexes: tasks need none of them."""
    return replace(
        split,
        runs=tuple(
            tuple(
                replace(
                    file,
                    key_min=EMPTY_ROW,
                    key_max=EMPTY_ROW,
                    key_stats=NO_STATS,
                    value_stats=NO_STATS,
                    extra_files=(),
                    embedded_index=None,
                )
                for file in run
            )
            for run in split.runs
        ),
    )
