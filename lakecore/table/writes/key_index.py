"""The place of each key of a table: an exact index with bounded memory.

A key is the bytes of its BinaryRow. Its place is a number that stands for its partition and bucket.
Keys are spread over shards by their hash. A shard holds sorted runs: the hashes in ascending order,
and for each hash the key and the place. Comparing the keys distinguishes those with equal hashes. A
run is at least twice as large as the next one, so that the cost of adding a batch depends on the
batch, not on the index.

Runs in memory hold a lease of the budget. When the lease cannot grow, the runs are moved to
memory-mapped files, whose pages the operating system reads and drops as needed.

INVARIANT: a key is in one run of one shard. If a key moves, its place in that run is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.io.spill import SpillDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from lakecore.memory import Budget

UNKNOWN = -1
"""The place of a key that is not in the index."""
_SHARD_BITS = 6
_BUDGET_SHARE = 8
"""Runs in memory take at most the budget divided by this."""
_LEASE_STEP_BYTES = 4 << 20
_UNLEASED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Keys in ascending order of their hashes; `places` may change."""

    hashes: NDArray[np.int32]
    places: NDArray[np.int64]
    keys: pa.LargeBinaryArray
    size_bytes: int
    """Bytes in memory; 0 if the run is in files."""

    def __len__(self) -> int:
        return len(self.hashes)

    def find(
        self, hashes: NDArray[np.int32], keys: pa.LargeBinaryArray
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The indices of the keys that are in the run, and their positions in the run."""
        low = np.searchsorted(self.hashes, hashes, side="left")
        count = np.searchsorted(self.hashes, hashes, side="right") - low
        asked = np.repeat(np.arange(len(hashes)), count)
        starts = np.repeat(low - (np.cumsum(count) - count), count)
        at = starts + np.arange(len(asked))
        if not len(asked):
            return asked, at
        same = pc.equal(self.keys.take(pa.array(at)), keys.take(pa.array(asked)))
        mask = same.to_numpy(zero_copy_only=False)
        return asked[mask], at[mask]


class KeyIndex:
    """The place (partition and bucket) of each key. It must be closed."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._lease = budget.acquire(0)
        self._files = SpillDirectory()
        self._shards: list[list[_Run]] = [[] for _ in range(1 << _SHARD_BITS)]

    def __len__(self) -> int:
        return sum(len(run) for runs in self._shards for run in runs)

    @property
    def size_bytes(self) -> int:
        """Bytes of the runs in memory."""
        return sum(run.size_bytes for runs in self._shards for run in runs)

    def find(self, hashes: NDArray[np.int32], keys: pa.LargeBinaryArray) -> NDArray[np.int64]:
        """The place of each key, or `UNKNOWN`."""
        places = np.full(len(hashes), UNKNOWN, np.int64)
        for shard, own in _by_shard(hashes):
            mine, my_keys = hashes[own], keys.take(pa.array(own))
            for run in self._shards[shard]:
                asked, at = run.find(mine, my_keys)
                places[own[asked]] = run.places[at]
        return places

    def move(
        self,
        hashes: NDArray[np.int32],
        keys: pa.LargeBinaryArray,
        places: NDArray[np.int64],
    ) -> None:
        """Change the places of keys that are in the index."""
        for shard, own in _by_shard(hashes):
            mine, my_keys = hashes[own], keys.take(pa.array(own))
            for run in self._shards[shard]:
                asked, at = run.find(mine, my_keys)
                run.places[at] = places[own[asked]]

    def add(
        self,
        hashes: NDArray[np.int32],
        keys: pa.LargeBinaryArray,
        places: NDArray[np.int64],
    ) -> None:
        """Add keys that are not in the index, each once."""
        for shard, own in _by_shard(hashes):
            order = own[np.argsort(hashes[own], kind="stable")]
            runs = self._shards[shard]
            runs.append(_run(hashes[order], places[order], keys.take(pa.array(order))))
            while len(runs) > 1 and len(runs[-2]) < 2 * len(runs[-1]):
                newer, older = runs.pop(), runs.pop()
                runs.append(_merged(older, newer))
        self._make_room()

    def close(self) -> None:
        """Forget all keys, and delete the files."""
        self._shards = [[] for _ in self._shards]
        self._files.close()
        self._lease.release()

    def _make_room(self, *, always: bool = False) -> None:
        """Move all runs to files if they take too much memory, or always."""
        held = self.size_bytes
        wanted = -(-held // _LEASE_STEP_BYTES) * _LEASE_STEP_BYTES
        limit = self._budget.size_bytes // _BUDGET_SHARE
        small = held <= _UNLEASED_BYTES or (held <= limit and self._lease.resize(wanted))
        if small and not always:
            return
        for runs in self._shards:
            runs[:] = [self._mapped(run) for run in runs]
        self._lease.resize(0)

    def _mapped(self, run: _Run) -> _Run:
        if not run.size_bytes:
            return run
        _, offsets, data = run.keys.buffers()
        ends = np.frombuffer(offsets, np.int64)[run.keys.offset :][: len(run) + 1]
        content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        content = content[ends[0] : ends[-1]]
        return _Run(
            self._files.mapped(run.hashes),
            self._files.mapped(run.places),
            _keys(self._files.mapped(ends - ends[0]), self._files.mapped(content)),
            0,
        )


def _by_shard(hashes: NDArray[np.int32]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """For each shard that gets some of the keys: the shard, and the indexes of these keys."""
    shards = (hashes.view(np.uint32) >> np.uint32(32 - _SHARD_BITS)).astype(np.int64)
    order = np.argsort(shards, kind="stable")
    bounds = np.flatnonzero(np.diff(shards[order])) + 1
    for own in np.split(order, bounds):
        if len(own):
            yield int(shards[own[0]]), own


def _keys(offsets: NDArray[np.int64], content: NDArray[np.uint8]) -> pa.LargeBinaryArray:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _run(hashes: NDArray[np.int32], places: NDArray[np.int64], keys: pa.LargeBinaryArray) -> _Run:
    return _Run(hashes, places, keys, hashes.nbytes + places.nbytes + keys.nbytes)


def _merged(older: _Run, newer: _Run) -> _Run:
    hashes = np.concatenate([older.hashes, newer.hashes])
    order = np.argsort(hashes, kind="stable")
    keys = pa.concat_arrays([older.keys, newer.keys]).take(pa.array(order))
    return _run(hashes[order], np.concatenate([older.places, newer.places])[order], keys)
