"""How the rows of append tables are sorted, so that reads skip files."""

from __future__ import annotations

from dataclasses import dataclass

from lakecore.options.choices import OrderStrategy
from lakecore.options.kinds import COUNT, DURATION, FLAG, NAMES, integer, one_of
from lakecore.options.option import APPEND, MAINTAIN, WRITE, option

LOCAL_SORT = "local-sort"


@dataclass(frozen=True, kw_only=True)
class ClusteringOptions:
    """How the rows of append tables are sorted, so that reads skip files."""

    # Two lines for each declaration are easier to read than the formatter's eight lines.
    # fmt: off
    # --- clustering -------------------------------------------------------------------------------
    clustering_columns: tuple[str, ...] = option(
        "clustering.columns", NAMES, (), WRITE,
        "Columns by which a batch write sorts the rows of a table without buckets.", scope=APPEND,
        fallbacks=("sink.clustering.by-columns",),
    )
    clustering_strategy: str = option(
        "clustering.strategy", one_of("auto", *OrderStrategy), "auto", WRITE,
        "How rows are sorted; auto: order for one column, zorder for up to 4, else hilbert.",
        scope=APPEND, fallbacks=("sink.clustering.strategy",),
    )
    clustering_incremental: bool = option(
        "clustering.incremental", FLAG, False, WRITE,
        "Compactions sort rows, a part of the files at a time; writes do not.", scope=APPEND,
    )
    clustering_incremental_mode: str = option(
        "clustering.incremental.mode", one_of("global-sort", LOCAL_SORT), "global-sort", MAINTAIN,
        "Compactions sort along the curve, or (local-sort) by the columns one after another.",
        scope=APPEND,
    )
    clustering_incremental_optimize_write: bool = option(
        "clustering.incremental.optimize-write", FLAG, False, WRITE,
        "With `clustering.incremental`, batch writes sort rows too.", scope=APPEND,
    )
    clustering_history_partition_idle_to_full_sort_ms: int | None = option(
        "clustering.history-partition.idle-to-full-sort", DURATION, None, MAINTAIN,
        "A compaction of chosen partitions also sorts other partitions that are idle this long.",
        scope=APPEND,
    )
    clustering_history_partition_limit: int = option(
        "clustering.history-partition.limit", COUNT, 5, MAINTAIN,
        "Most idle partitions that one compaction sorts.", scope=APPEND,
    )
    zorder_var_length_contribution: int = option(
        "zorder.var-length-contribution", integer(1, 1024), 8, MAINTAIN,
        "Bytes of a string or binary that count in a Z-order.", scope=APPEND,
    )
    local_sort_max_num_file_handles: int = option(
        "local-sort.max-num-file-handles", integer(2), 128, MAINTAIN,
        "Sorted runs on local disk that a sort merges at once.", scope=APPEND,
    )
    # fmt: on
