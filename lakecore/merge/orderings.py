"""The sort order of the rows of append tables, from their options."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.errors import InvalidRequest
from lakecore.merge.curves import Ordering
from lakecore.options import OrderStrategy
from lakecore.options.clustering import LOCAL_SORT

if TYPE_CHECKING:
    from lakecore.options import TableOptions

__all__ = ["incremental_ordering", "write_ordering"]

_ZORDER_COLUMNS_MAX = 4


def write_ordering(options: TableOptions, *, primary_key: bool) -> Ordering | None:
    """The sort order of a batch write; None if it does not sort.

    As in Paimon, only tables without a primary key and without buckets are sorted. With incremental
    clustering, writes leave it to compaction unless the table says otherwise.
    """
    if primary_key or options.bucket != -1 or not options.clustering_columns:
        return None
    if options.clustering_incremental and not options.clustering_incremental_optimize_write:
        return None
    return _stated(options)


def incremental_ordering(options: TableOptions) -> Ordering:
    """The sort order of incremental clustering.

    Raises InvalidRequest without columns to sort by.
    """
    if not options.clustering_columns:
        raise InvalidRequest("clustering.incremental needs clustering.columns", table=options.table)
    if options.clustering_incremental_mode == LOCAL_SORT:
        return replace(_stated(options), strategy=OrderStrategy.ORDER)
    return _stated(options)


def _stated(options: TableOptions) -> Ordering:
    columns, strategy = options.clustering_columns, options.clustering_strategy
    if strategy == "auto":
        few = len(columns) <= _ZORDER_COLUMNS_MAX
        strategy = OrderStrategy.ZORDER if few else OrderStrategy.HILBERT
        strategy = OrderStrategy.ORDER if len(columns) == 1 else strategy
    return Ordering(
        strategy=OrderStrategy(strategy),
        columns=columns,
        var_bytes=options.zorder_var_length_contribution,
    )
