"""When a bucket is compacted, and how far."""

from __future__ import annotations

from dataclasses import dataclass

from lakecore.options.kinds import (
    COUNT,
    DURATION,
    FLAG,
    SIZE,
    fraction,
    integer,
)
from lakecore.options.option import (
    APPEND,
    KEYED,
    MAINTAIN,
    OTHER,
    option,
)


@dataclass(frozen=True, kw_only=True)
class CompactionOptions:
    """When a bucket is compacted, and how far."""

    # Two lines for each declaration are easier to read than the formatter's eight lines.
    # fmt: off
    # --- compaction -------------------------------------------------------------------------------
    num_sorted_run_compaction_trigger: int = option(
        "num-sorted-run.compaction-trigger", COUNT, 5, MAINTAIN,
        "Sorted runs of a bucket that trigger a compaction.", scope=KEYED,
    )
    num_sorted_run_stop_trigger: int | None = option(
        "num-sorted-run.stop-trigger", COUNT, None, MAINTAIN,
        "Sorted runs at which writers wait; the compaction trigger + 3 if unset.", scope=KEYED,
    )
    num_levels: int | None = option(
        "num-levels", integer(2), None, MAINTAIN,
        "Levels of a bucket, level 0 included; the compaction trigger + 1 if unset.", scope=KEYED,
    )
    compaction_max_size_amplification_percent: int = option(
        "compaction.max-size-amplification-percent", integer(0), 200, MAINTAIN,
        "Size of the newer runs, in percent of the last, that triggers a full compaction.",
        scope=KEYED,
    )
    compaction_size_ratio: int = option(
        "compaction.size-ratio", integer(0), 1, MAINTAIN,
        "Percent by which the next run may be larger and still be merged.", scope=KEYED,
    )
    compaction_offpeak_start_hour: int = option(
        "compaction.offpeak.start.hour", integer(-1, 24), -1, MAINTAIN,
        "Local hour at which quiet hours begin; -1: there are none.", scope=KEYED,
    )
    compaction_offpeak_end_hour: int = option(
        "compaction.offpeak.end.hour", integer(-1, 24), -1, MAINTAIN,
        "Local hour before which quiet hours end, perhaps past midnight; -1: there are none.",
        scope=KEYED,
    )
    compaction_offpeak_ratio: int = option(
        "compaction.offpeak-ratio", integer(0), 0, MAINTAIN,
        "Percent added to the size ratio in quiet hours.", scope=KEYED,
    )
    compaction_optimization_interval_ms: int | None = option(
        "compaction.optimization-interval", DURATION, None, MAINTAIN,
        "Time between two full compactions.", scope=KEYED,
    )
    compaction_total_size_threshold_bytes: int | None = option(
        "compaction.total-size-threshold", SIZE, None, MAINTAIN,
        "Bucket size below which compactions are full.", scope=KEYED,
    )
    compaction_incremental_size_threshold_bytes: int | None = option(
        "compaction.incremental-size-threshold", SIZE, None, MAINTAIN,
        "Size outside the last level that triggers a full compaction.", scope=KEYED,
    )
    compaction_force_up_level_0: bool = option(
        "compaction.force-up-level-0", FLAG, False, MAINTAIN,
        "Take all of level 0 at each compaction.", scope=KEYED,
    )
    compaction_force_rewrite_all_files: bool = option(
        "compaction.force-rewrite-all-files", FLAG, False, MAINTAIN,
        "A full compaction rewrites every file.",
    )
    compaction_min_file_num: int = option(
        "compaction.min.file-num", COUNT, 5, MAINTAIN,
        "Small files that trigger a compaction.", scope=APPEND,
    )
    compaction_max_file_num: int | None = option(
        "compaction.max.file-num", COUNT, None, MAINTAIN,
        "Small files that one compaction takes (a key of older releases).", scope=APPEND,
    )
    compaction_file_num_limit: int = option(
        "compaction.file-num-limit", COUNT, 100_000, OTHER,
        "Files that a compaction plan holds in memory; lakecore plans with all.", scope=APPEND,
        no_effect="Compaction looks at all files; it streams their metadata.",
    )
    compaction_small_file_ratio: float = option(
        "compaction.small-file-ratio", fraction(0.0, 1.0), 0.7, MAINTAIN,
        "Share of the target size below which a file is small.",
    )
    compaction_delete_ratio_threshold: float = option(
        "compaction.delete-ratio-threshold", fraction(0.0, 1.0), 0.2, MAINTAIN,
        "Share of deleted rows at which a file is rewritten.", scope=APPEND,
    )
    compaction_skip_expired_partitions: bool = option(
        "compaction.skip-expired-partitions", FLAG, False, MAINTAIN,
        "Do not compact expired partitions.",
    )
    full_compaction_delta_commits: int | None = option(
        "full-compaction.delta-commits", COUNT, None, MAINTAIN,
        "Commits after which a write compacts its buckets in full.", scope=KEYED,
    )
    # fmt: on
