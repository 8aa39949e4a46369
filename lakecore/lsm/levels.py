"""Sections, sorted runs and levels of a bucket, computed from key and sequence ranges alone.

Key ranges are given as *ranks*: integers in key order, equal for equal keys, common to all files
that are compared. (The serialized keys themselves are bytes without an order.)

1. Files are sorted by their first key and cut into *sections*: a new section begins where the next
   first key is above every last key so far. No key is in two sections.
2. The files of a section are assigned to *sorted runs*, oldest first. Files whose sequence ranges
   overlap have the same *age*. The files of an age are appended to the previous run if no key
   ranges overlap; otherwise they begin a new run (or several, if they overlap each other). In the
   common case, whole runs are older or newer than each other, and a merge ignores sequence numbers.

INVARIANT: the files of a run do not overlap and are in key order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lakecore.errors import CorruptTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.model.files import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedRun:
    """Non-overlapping files in key order: one sorted stream of rows."""

    files: tuple[DataFile, ...]

    @property
    def level(self) -> int:
        """The level of the first file. In a run of `level_runs`, all files have this level."""
        return self.files[0].level

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def sequence_min(self) -> int:
        return min(file.sequence_min for file in self.files)

    @property
    def sequence_max(self) -> int:
        return max(file.sequence_max for file in self.files)


class _Ranked(NamedTuple):
    """A file with the ranks of its first and last key.

    The files of a run are sorted by these ranks.
    """

    low: int
    high: int
    number: int
    file: DataFile


def sections(lows: np.ndarray, highs: np.ndarray) -> list[np.ndarray]:
    """The indices of the files of each section, sorted by (low, high); sections in key order."""
    if len(lows) == 0:
        return []
    order = np.lexsort((highs, lows))
    reach = np.maximum.accumulate(highs[order])
    starts = np.flatnonzero(lows[order][1:] > reach[:-1]) + 1
    return np.split(order, starts)


def sorted_runs(
    files: Sequence[DataFile], lows: Sequence[int], highs: Sequence[int]
) -> tuple[SortedRun, ...]:
    """The sorted runs of the files of one section, oldest first."""
    ranked = [
        _Ranked(int(low), int(high), number, file)
        for number, (low, high, file) in enumerate(zip(lows, highs, files, strict=True))
    ]
    runs: list[list[_Ranked]] = []
    for age in _ages(ranked):
        dealt = _deal(age)
        if runs and len(dealt) == 1 and all(_fits(runs[-1], file) for file in dealt[0]):
            for file in dealt[0]:
                insort(runs[-1], file)
        else:
            runs += dealt
    return tuple(SortedRun(files=tuple(ranked.file for ranked in run)) for run in runs)


def level_runs(
    files: Sequence[DataFile], lows: np.ndarray, highs: np.ndarray
) -> tuple[SortedRun, ...]:
    """The runs that compaction picks from: each file of level 0, newest first, then each level.

    Raises CorruptTable if files of a level above 0 overlap: compaction would merge them wrongly.
    """
    newest = sorted((file for file in files if file.level == 0), key=_newest_first)
    runs = [SortedRun(files=(file,)) for file in newest]
    for level in sorted({file.level for file in files} - {0}):
        ranked = sorted(
            _Ranked(int(low), int(high), number, file)
            for number, (low, high, file) in enumerate(zip(lows, highs, files, strict=True))
            if file.level == level
        )
        for before, after in pairwise(ranked):
            if after.low <= before.high:
                raise CorruptTable(
                    "run overlaps", level=level, files=[before.file.name, after.file.name]
                )
        runs.append(SortedRun(files=tuple(each.file for each in ranked)))
    return tuple(runs)


def runs_are_ordered(runs: Sequence[SortedRun]) -> bool:
    """Whether every row of a run is older than every row of the runs after it."""
    return all(older.sequence_max < newer.sequence_min for older, newer in pairwise(runs))


def _newest_first(file: DataFile) -> tuple[int, int, int, str]:
    # Concurrent writers may have assigned the same range of numbers.
    return -file.sequence_max, file.sequence_min, file.creation_time_ms or 0, file.name


def _ages(files: Iterable[_Ranked]) -> list[list[_Ranked]]:
    """The files, grouped by overlapping sequence ranges. The oldest group comes first."""
    ages: list[list[_Ranked]] = []
    reach = -1
    for ranked in sorted(files, key=lambda r: (r.file.sequence_min, r.file.sequence_max, r.number)):
        if ages and ranked.file.sequence_min <= reach:
            ages[-1].append(ranked)
        else:
            ages.append([ranked])
        reach = max(reach, ranked.file.sequence_max)
    return ages


def _deal(age: list[_Ranked]) -> list[list[_Ranked]]:
    """The fewest runs that files of one age can form. Each file joins the run that ends first."""
    runs: list[list[_Ranked]] = []
    ends: list[tuple[int, int]] = []
    for ranked in sorted(age):
        if ends and ends[0][0] < ranked.low:
            _, run = heappop(ends)
            runs[run].append(ranked)
        else:
            run = len(runs)
            runs.append([ranked])
        heappush(ends, (ranked.high, run))
    return runs


def _fits(run: list[_Ranked], file: _Ranked) -> bool:
    """Whether the file overlaps no file of the run."""
    at = bisect_left(run, file.low, key=lambda ranked: ranked.low)
    before_ends = at == 0 or run[at - 1].high < file.low
    return before_ends and (at == len(run) or file.high < run[at].low)
