"""Checks of arguments that several verbs take: a table or its path, and counts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lakecore import InvalidRequest, open_table

if TYPE_CHECKING:
    from lakecore import Table
    from lakecore.distributed.tables import TableContext

__all__ = [
    "SPREAD_BYTES",
    "check_counts",
    "check_every",
    "check_spread",
    "opened",
    "overwrites_dynamically",
]

SPREAD_BYTES = 256 << 20
"""The driver does the work of a verb itself if the files have at most this many bytes."""


def opened(table: Table | str | os.PathLike[str]) -> Table:
    """The table itself, or the table at the path."""
    return open_table(table) if isinstance(table, str | os.PathLike) else table


def overwrites_dynamically(context: TableContext, mode: str = "static") -> bool:
    """Whether INSERT OVERWRITE and `df.write` replace only the partitions that the rows are in.

    The option `dynamic-partition-overwrite` decides if it is set, otherwise Spark's own `mode`
    (`spark.sql.sources.partitionOverwriteMode`).
    """
    if "dynamic-partition-overwrite" in context.options.texts:
        return context.options.dynamic_partition_overwrite
    return mode.lower() == "dynamic"


def check_counts(**counts: object) -> None:
    """Raise InvalidRequest, naming the argument, unless it is None or a whole number above 0."""
    for name, count in counts.items():
        if count is None:
            continue
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InvalidRequest(f"{name} is a whole number from one on", **{name: count})


def check_every(every: object) -> None:
    """Raise InvalidRequest unless `compact_every` is None or a whole number from 0 on."""
    if every is not None and (not isinstance(every, int) or isinstance(every, bool) or every < 0):
        raise InvalidRequest("compact_every is a whole number from 0 on", compact_every=every)


def check_spread(spread: object) -> None:
    """Raise InvalidRequest unless it is True, False or None."""
    if spread not in (True, False, None):
        raise InvalidRequest("spread is True, False or None", spread=spread)
