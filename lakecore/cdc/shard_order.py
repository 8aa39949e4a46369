"""Orders the batches of several source tables with one target by the order of the changes.

A decoder collects the rows of each table, so a step with several tables does not keep the order
between them. If they share a target, this order matters: a row may move from one table to another,
as a deletion in the first and an insertion of the same key in the second.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakecore.cdc.events import SourceTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lakecore.cdc.events import ChangeBatch

__all__ = ["in_order"]


def in_order(batches: Sequence[ChangeBatch], *, joins: bool = True) -> list[ChangeBatch]:
    """The rows of the batches in the order that the batches state.

    Batches that are in order already, or that state no order, are returned unchanged. With `joins`,
    batches with equal columns are joined to one batch, whose table has all their names. Otherwise,
    a batch is split where rows of another table come between its rows.
    """
    orders = [
        each.order.to_numpy(zero_copy_only=False) for each in batches if each.order is not None
    ]
    if len(orders) < len(batches) or _is_sorted(orders):
        return list(batches)
    sorting = np.argsort(np.concatenate(orders), kind="stable")
    first = batches[0]
    if joins and all(each.rows.schema == first.rows.schema for each in batches):
        chosen = pa.array(sorting)
        names = dict.fromkeys(str(each.table) for each in batches)
        joined = pa.chunked_array([each.kinds for each in batches]).combine_chunks()
        return [
            replace(
                first,
                table=SourceTable("", ", ".join(names)),
                rows=pa.concat_tables([each.rows for each in batches]).take(chosen),
                kinds=joined.take(chosen),
                metadata=None,
                order=None,
            )
        ]
    owners = np.repeat(np.arange(len(batches)), [len(each) for each in batches])[sorting]
    done = [0] * len(batches)
    parts: list[ChangeBatch] = []
    for run in np.split(owners, np.flatnonzero(np.diff(owners)) + 1):
        number = int(run[0])
        start, stop = done[number], done[number] + len(run)
        parts.append(replace(batches[number].slice(start, stop), order=None))
        done[number] = stop
    return parts


def _is_sorted(orders: Sequence[npt.NDArray[np.int64]]) -> bool:
    whole = [each for each in orders if len(each)]
    return all(before[-1] <= after[0] for before, after in pairwise(whole))
