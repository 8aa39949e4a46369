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

from lakecore.format.layout import is_named_by_lakecore
from lakecore.lsm.levels import sections, sorted_runs
from lakecore.model.files import EMPTY_ROW, NO_STATS
from lakecore.options import MergeEngine

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from lakecore.model.files import DataFile, Split
    from lakecore.options import TableOptions

_WINNERS = frozenset({MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW})
"""The merge engines that return rows as they are stored."""


def folds_values(options: TableOptions) -> bool:
    """Whether a merged row may have values of several stored rows."""
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
