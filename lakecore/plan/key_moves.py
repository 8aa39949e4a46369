"""Where each row of a batch goes in a table whose keys may move between partitions.

The primary key of such a table does not contain all partition keys. Each key is in at most one
partition and bucket. If a row's key is in another partition, the merge engine decides what happens
("Cross Partitions Upsert" in
https://paimon.apache.org/docs/master/primary-key-table/data-distribution/):

- deduplicate: the key is deleted in its partition, then the row goes to its own partition;
- partial-update and aggregation: the row goes to the partition that the key is in;
- first-row: the row is ignored.

A *stay* is the time that a key spends in one partition and bucket, between two moves. Stays 0 to n
- 1 are new, and the caller gives each a bucket; stay n + k is where key k was before the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lakecore.options import MergeEngine

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Moves", "moves_of"]

NOWHERE = -1
"""Stands for the partition of a key that is not in the table."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moves:
    """What is written for a batch, in order.

    - `rows`: for each written row, the row of the batch that it comes from;
    - `partitions`: the partition in which it is stored;
    - `stays`: the stay of its key;
    - `deletes`: whether it deletes the key there;
    - `new_partitions`, `new_keys`: partition and key of each new stay, in order of arrival;
    - `left`: the stays that ended in this batch;
    - `last`: the stay of each key after the batch.
    """

    rows: NDArray[np.int64]
    partitions: NDArray[np.int64]
    stays: NDArray[np.int64]
    deletes: NDArray[np.bool_]
    new_partitions: NDArray[np.int64]
    new_keys: NDArray[np.int64]
    left: NDArray[np.int64]
    last: NDArray[np.int64]


def moves_of(
    keys: NDArray[np.int64],
    partitions: NDArray[np.int64],
    before: NDArray[np.int64],
    engine: MergeEngine,
) -> Moves:
    """What to write for rows in order of arrival.

    `keys` numbers the key of each row from 0, `partitions` are their partitions, and `before` is
    the partition of each key before the batch, or `NOWHERE`.
    """
    order = np.argsort(keys, kind="stable")
    key, partition = keys[order], partitions[order]
    first = np.ones(len(key), np.bool_)
    first[1:] = key[1:] != key[:-1]
    if engine is MergeEngine.DEDUPLICATE:
        previous = np.where(first, before[key], np.roll(partition, 1))
        begins = previous != partition
    else:
        # The key never moves: it stays where it is, or where its first row puts it.
        previous = np.full(len(key), NOWHERE)
        begins = first & (before[key] == NOWHERE)
    # The number of the stay of each row: new stays count up in order of arrival.
    new = np.flatnonzero(begins)
    arrival = np.argsort(order[new], kind="stable")
    stay = np.full(len(key), NOWHERE)
    stay[new[arrival]] = np.arange(len(new))
    known = first & ~begins
    stay[known] = len(new) + key[known]
    began = np.maximum.accumulate(np.where(stay != NOWHERE, np.arange(len(key)), 0))
    stay = stay[began]
    new_partitions, new_keys = partition[new[arrival]], key[new[arrival]]
    last = len(new) + np.arange(len(before))
    last[key] = stay  # the last row of a key wins
    if engine is not MergeEngine.DEDUPLICATE:
        place = np.concatenate([new_partitions, before])[stay]
        kept = place == partition if engine is MergeEngine.FIRST_ROW else np.ones(len(key), bool)
        back = np.argsort(order[kept], kind="stable")
        return Moves(
            rows=order[kept][back],
            partitions=place[kept][back],
            stays=stay[kept][back],
            deletes=np.zeros(int(kept.sum()), np.bool_),
            new_partitions=new_partitions,
            new_keys=new_keys,
            left=np.zeros(0, np.int64),
            last=last,
        )
    leaves = np.flatnonzero(begins & (previous != NOWHERE))
    left = np.where(first[leaves], len(new) + key[leaves], np.roll(stay, 1)[leaves])
    # A deletion comes just before the row that moves the key.
    at = np.concatenate([2 * order, 2 * order[leaves] - 1])
    back = np.argsort(at, kind="stable")
    return Moves(
        rows=np.concatenate([order, order[leaves]])[back],
        partitions=np.concatenate([partition, previous[leaves]])[back],
        stays=np.concatenate([stay, left])[back],
        deletes=np.concatenate([np.zeros(len(order), np.bool_), np.ones(len(leaves), np.bool_)])[
            back
        ],
        new_partitions=new_partitions,
        new_keys=new_keys,
        left=left,
        last=last,
    )
