"""Dynamic buckets: a known key keeps its bucket, and a new key gets a bucket that has room.

For each partition, given the hashes of the trimmed primary keys in order of arrival
(https://paimon.apache.org/docs/master/primary-key-table/data-distribution/#dynamic-bucket):

1. a known hash keeps its bucket, and equal hashes share a bucket;
2. new hashes fill the existing buckets, by number, up to the target size;
3. then they fill new buckets with the smallest unused numbers, each up to the target size;
4. if the maximum number of buckets is reached, they are spread over all buckets by hash.

With several assigners (`dynamic-bucket.initial-buckets`) the hash h belongs to assigner |h| % n,
which fills the buckets b where b % n is its number: n buckets grow concurrently, and n processes
can assign concurrently if each gets the keys of its own assigner. INVARIANT: a hash never changes
its bucket; otherwise its key would be stored twice. A bucket counts all hashes it ever got:
deleting rows makes no room.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lakecore.errors import CorruptTable, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

BUCKETS_MAX = 32_767
"""The largest signed 16-bit integer: the format stores bucket numbers as such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicBucketRule:
    """The target size of buckets, their maximum number, and how many grow at the same time.

    `buckets_max` None: as many as the format allows.
    """

    target_row_count: int = 2_000_000
    buckets_max: int | None = None
    initial_buckets: int = 1

    def __post_init__(self) -> None:
        if min(self.target_row_count, self.bound, self.initial_buckets) < 1:
            raise InvalidRequest("the options of dynamic buckets must be positive", rule=self)

    @property
    def bound(self) -> int:
        """An exclusive upper bound of the bucket numbers."""
        return BUCKETS_MAX if self.buckets_max is None else min(self.buckets_max, BUCKETS_MAX)

    @property
    def assigners(self) -> int:
        """The number of buckets that grow at the same time."""
        return min(self.initial_buckets, self.bound)


@dataclass(frozen=True, slots=True, eq=False)
class HashRun:
    """Hashes in ascending order, each once, and their buckets."""

    hashes: NDArray[np.int32]
    buckets: NDArray[np.int16]


@dataclass(frozen=True, slots=True, eq=False)
class HashIndexState:
    """The hash index of one partition.

    `counts[b]` is the number of hashes in bucket b, or -1 if the bucket does not exist. The hashes
    are held in sorted runs without common hashes. Each run is at least twice as large as the next,
    so that the cost of adding a batch depends on the batch, not on the index.
    """

    runs: tuple[HashRun, ...] = ()
    counts: NDArray[np.int64] = field(default_factory=lambda: np.full(BUCKETS_MAX + 1, -1))

    @staticmethod
    def of(hashes: Mapping[int, NDArray[np.int32]]) -> HashIndexState:
        """Build the state from the index files of a partition's buckets."""
        if not hashes:
            return HashIndexState()
        if not 0 <= min(hashes) <= max(hashes) <= BUCKETS_MAX:
            raise CorruptTable("a hash index names no dynamic bucket", buckets=sorted(hashes))
        counts = HashIndexState().counts
        for bucket, own in hashes.items():
            counts[bucket] = len(own)
        buckets = np.concatenate(
            [np.full(len(own), bucket, dtype=np.int16) for bucket, own in sorted(hashes.items())]
        )
        joined = np.concatenate([own for _, own in sorted(hashes.items())]).astype(np.int32)
        distinct, firsts = np.unique(joined, return_index=True)
        return HashIndexState((HashRun(distinct, buckets[firsts]),), counts)

    def buckets_of(self, hashes: NDArray[np.int32]) -> NDArray[np.int32]:
        """The bucket of each hash, -1 if it is not known."""
        found = np.full(len(hashes), -1, dtype=np.int32)
        for run in self.runs:
            if len(run.hashes):
                at = np.minimum(np.searchsorted(run.hashes, hashes), len(run.hashes) - 1)
                found = np.where(run.hashes[at] == hashes, run.buckets[at], found)
        return found

    def hashes_of(self, bucket: int) -> NDArray[np.int32]:
        """All hashes of a bucket: the content of its index file."""
        parts = [run.hashes[run.buckets == bucket] for run in self.runs]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)

    def with_run(self, run: HashRun) -> HashIndexState:
        """The state with additional hashes, which must be new."""
        runs = [*self.runs, run]
        while len(runs) > 1 and len(runs[-2].hashes) < 2 * len(runs[-1].hashes):
            newer, older = runs.pop(), runs.pop()
            hashes = np.concatenate([older.hashes, newer.hashes])
            order = np.argsort(hashes, kind="stable")
            buckets = np.concatenate([older.buckets, newer.buckets])
            runs.append(HashRun(hashes[order], buckets[order]))
        counts = self.counts.copy()
        added = np.bincount(run.buckets, minlength=len(counts))
        counts[(counts < 0) & (added > 0)] = 0
        return HashIndexState(tuple(runs), counts + added)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignment:
    """The bucket of each row, the index afterwards, and the hashes that are new in each bucket."""

    buckets: NDArray[np.int32]
    state: HashIndexState
    new_hashes: Mapping[int, NDArray[np.int32]]


def assign_dynamic(
    known: HashIndexState, hashes: NDArray[np.int32], rule: DynamicBucketRule
) -> Assignment:
    """The bucket of each row, by the hash of its trimmed primary key."""
    distinct, firsts, places = np.unique(hashes, return_index=True, return_inverse=True)
    buckets = known.buckets_of(distinct)
    unknown = np.flatnonzero(buckets < 0)
    if not len(unknown):
        return Assignment(buckets=buckets[places], state=known, new_hashes={})
    arrival = unknown[np.argsort(firsts[unknown])]
    buckets[arrival] = new_buckets(known.counts, distinct[arrival], rule)
    run = HashRun(distinct[unknown], buckets[unknown].astype(np.int16))
    new_hashes = {
        int(bucket): run.hashes[run.buckets == bucket] for bucket in np.unique(run.buckets)
    }
    return Assignment(buckets=buckets[places], state=known.with_run(run), new_hashes=new_hashes)


def new_buckets(
    counts: NDArray[np.int64], hashes: NDArray[np.int32], rule: DynamicBucketRule
) -> NDArray[np.int32]:
    """Buckets for hashes that have none, in order of arrival.

    `counts[b]` is the number of keys in bucket b, or -1 if the bucket does not exist.
    """
    buckets = np.empty(len(hashes), dtype=np.int32)
    sizes = np.abs(hashes.astype(np.int64))
    assigners = sizes % rule.assigners
    for assigner in np.unique(assigners):
        own = np.flatnonzero(assigners == assigner)
        buckets[own] = _filled(counts, int(assigner), sizes[own], rule)
    return buckets


def _filled(
    counts: NDArray[np.int64], assigner: int, sizes: NDArray[np.int64], rule: DynamicBucketRule
) -> NDArray[np.int64]:
    """The buckets that one assigner gives to its new hashes.

    `sizes` are absolute values of the hashes.
    """
    known = np.flatnonzero(counts >= 0)
    used = known[known % rule.assigners == assigner]
    room = np.maximum(rule.target_row_count - counts[used], 0)
    missing = max(len(sizes) - int(room.sum()), 0)
    candidates = np.arange(assigner, rule.bound, rule.assigners)
    unused = candidates[counts[candidates] < 0]
    fresh = unused[: -(-missing // rule.target_row_count)]
    buckets = np.concatenate([used, fresh])
    bounds = np.cumsum(np.concatenate([room, np.full(len(fresh), rule.target_row_count)]))
    at = np.searchsorted(bounds, np.arange(len(sizes)), side="right")
    over = at == len(buckets)
    if over.any():
        if rule.buckets_max is None:
            raise InvalidRequest(
                "too many dynamic buckets: raise dynamic-bucket.target-row-num or set max-buckets",
                target_row_num=rule.target_row_count,
                buckets=BUCKETS_MAX,
            )
        at[over] = sizes[over] % len(buckets)
    return buckets[at]
