"""Which runs of a bucket are compacted, and into which level: universal compaction.

The rules are Paimon's (https://paimon.apache.org/docs/master/primary-key-table/compaction/). The
runs of a bucket are ordered newest first: each file of level 0, then each level. A pick takes
consecutive runs from the newest on, so that a lower level always holds newer rows:

1. *Early full*: take all runs after an interval, while the bucket is small, or when much data is
   above its last level.
2. *Size amplification*: take all runs if the last run is small compared with those before it.
3. *Size ratio*: take the first run, and the next one while it is not much larger than the sum.
4. *Run count*: take as many runs as exceed the limit, then continue as in 3.
5. *Level 0*: in tables with look-ups, take all of level 0, then continue as in 3.

Rules 2 and 3 apply if there are at least `trigger` runs, rule 4 if there are more. The output level
is one less than the level of the first run that is not taken. If that is level 0, more runs are
taken, up to and including the first one above level 0. All runs together go to the last level.

INVARIANT: a unit that `pick` returns has at least two runs, or one run of level 0 (only rule 5
picks a single run). Therefore repeated picking and compacting ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from lakecore.lsm.levels import SortedRun, sections, sorted_runs
from lakecore.options import LookupCompact, TableOptions

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np

    from lakecore.model.files import DataFile


class Reason(StrEnum):
    """The rule by which the files of a compaction were chosen."""

    INTERVAL = "interval"
    TOTAL_SIZE = "total size"
    INCREMENTAL_SIZE = "incremental size"
    SIZE_AMPLIFICATION = "size amplification"
    SIZE_RATIO = "size ratio"
    RUN_COUNT = "run count"
    LEVEL_0 = "level 0"
    FULL = "full"
    STALE_FILES = "stale files"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """The compaction options of a table.

    - `trigger`: the number of runs at which compaction begins;
    - `level_0_every`: after this many picks without a result, take all of level 0; None: never;
    - `offpeak_hours`: the hours in which `offpeak_ratio_percent` is added to `size_ratio_percent`;
    - `low_levels_anyway`: a pick continues over runs of level 0 or 1 whatever their size, as in
      Paimon 2.1 but not in earlier releases;
    - `small_file_bytes`: smaller files are rewritten instead of moved to another level.
    """

    trigger: int
    level_count: int
    size_amplification_percent_max: int
    size_ratio_percent: int
    offpeak_hours: frozenset[int]
    offpeak_ratio_percent: int
    full_interval_ms: int | None
    total_size_bytes_min: int | None
    incremental_size_bytes_max: int | None
    level_0_every: int | None
    low_levels_anyway: bool
    small_file_bytes: int
    rewrite_all: bool
    deletion_vectors: bool

    @classmethod
    def of(cls, options: TableOptions) -> CompactionPolicy:
        """The policy of a primary-key table."""
        target_size_bytes = options.target_file_size(primary_key=True)
        return cls(
            trigger=options.num_sorted_run_compaction_trigger,
            level_count=options.level_count,
            size_amplification_percent_max=options.compaction_max_size_amplification_percent,
            size_ratio_percent=options.compaction_size_ratio,
            offpeak_hours=hours_between(
                options.compaction_offpeak_start_hour, options.compaction_offpeak_end_hour
            ),
            offpeak_ratio_percent=options.compaction_offpeak_ratio,
            full_interval_ms=options.compaction_optimization_interval_ms,
            total_size_bytes_min=options.compaction_total_size_threshold_bytes,
            incremental_size_bytes_max=options.compaction_incremental_size_threshold_bytes,
            level_0_every=_level_0_every(options),
            low_levels_anyway=False,
            small_file_bytes=int(target_size_bytes * options.compaction_small_file_ratio),
            rewrite_all=options.compaction_force_rewrite_all_files,
            deletion_vectors=options.deletion_vectors_enabled,
        )

    def level_max(self, runs: Sequence[SortedRun]) -> int:
        """The last level of a bucket: that of the policy, or a deeper one that has files."""
        return max([self.level_count - 1, *(run.level for run in runs)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The facts that a pick depends on, in addition to the files.

    - `now_ms`: the time by the clock of `DataFile.creation_time_ms`;
    - `hour`: the hour of the writer's day, 0 to 23;
    - `last_full_ms`: the time of the last known full compaction of the bucket, from the function
      `last_full_ms`;
    - `idle_picks`: the picks that found nothing since `level_0_every` last took level 0.
    """

    now_ms: int
    hour: int
    last_full_ms: int | None = None
    idle_picks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionUnit:
    """Runs to compact, newest first, and the level of the output.

    `is_full`: the output is the last level. `drops_deletions`: tombstones may be dropped, because
    no other run holds an older row of their keys, or deletion vectors mark those rows.
    """

    runs: tuple[SortedRun, ...]
    level_output: int
    reason: Reason
    is_full: bool
    drops_deletions: bool

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(chain.from_iterable(run.files for run in self.runs))


def pick(
    runs: Sequence[SortedRun], policy: CompactionPolicy, moment: Moment
) -> CompactionUnit | None:
    """The unit to compact in a bucket with these runs; None if no rule applies."""
    reason = _early_full(runs, policy, moment)
    if reason is None and _is_amplified(runs, policy):
        reason = Reason.SIZE_AMPLIFICATION
    if reason is not None:
        return _unit(runs, len(runs), policy, reason)
    if len(runs) >= policy.trigger:
        count = _extended(runs, 1, policy, moment, begun=False)
        if count > 1:
            return _unit(runs, count, policy, Reason.SIZE_RATIO)
    if len(runs) > policy.trigger:
        count = _extended(runs, len(runs) - policy.trigger + 1, policy, moment)
        return _unit(runs, count, policy, Reason.RUN_COUNT)
    newest = sum(run.level == 0 for run in runs)
    if newest and policy.level_0_every and moment.idle_picks + 1 >= policy.level_0_every:
        count = _extended(runs, newest, policy, moment)
        return _unit(runs, count, policy, Reason.LEVEL_0)
    return None


def pick_full(
    runs: Sequence[SortedRun], policy: CompactionPolicy, stale: Collection[str] = ()
) -> CompactionUnit | None:
    """The unit that compacts the whole bucket into the last level; None if all rows are there.

    If they are, the `stale` files are still rewritten, each alone: files with expired rows, or with
    rows that a deletion vector hides.
    """
    if len(runs) != 1 or runs[0].level != policy.level_max(runs):
        return _unit(runs, len(runs), policy, Reason.FULL) if runs else None
    files = tuple(file for file in runs[0].files if policy.rewrite_all or file.name in stale)
    if not files:
        return None
    rewritten = [SortedRun(files=files)]
    return _unit(rewritten, len(rewritten), policy, Reason.STALE_FILES)


def last_full_ms(runs: Sequence[SortedRun], policy: CompactionPolicy) -> int | None:
    """When the newest file of the last level was created.

    None if unknown, or if there is no file.
    """
    if not runs or runs[-1].level != policy.level_max(runs):
        return None
    times = [file.creation_time_ms for file in runs[-1].files if file.creation_time_ms is not None]
    return max(times, default=None)


def hours_between(start: int, end: int) -> frozenset[int]:
    """The hours from `start` up to `end`, possibly across midnight; empty if equal or -1."""
    if -1 in {start, end}:
        return frozenset()
    inside = range(start, end) if start <= end else chain(range(start, 24), range(end))
    return frozenset(inside)


def _level_0_every(options: TableOptions) -> int | None:
    if not options.needs_lookup:
        return 1 if options.compaction_force_up_level_0 else None
    if options.lookup_compact is LookupCompact.RADICAL:
        return 1
    trigger = options.num_sorted_run_compaction_trigger
    return max(trigger, options.lookup_compact_max_interval or 2 * trigger)


def _early_full(
    runs: Sequence[SortedRun], policy: CompactionPolicy, moment: Moment
) -> Reason | None:
    """The rule that compacts the bucket in full before the number of runs requires it."""
    if len(runs) <= 1:
        return None
    last, interval = moment.last_full_ms, policy.full_interval_ms
    if interval is not None and (last is None or moment.now_ms - last > interval):
        return Reason.INTERVAL
    size_bytes = sum(run.size_bytes for run in runs)
    if policy.total_size_bytes_min is not None and size_bytes < policy.total_size_bytes_min:
        return Reason.TOTAL_SIZE
    if policy.incremental_size_bytes_max is not None:
        level_max = policy.level_max(runs)
        above = sum(run.size_bytes for run in runs if run.level != level_max)
        if above > policy.incremental_size_bytes_max:
            return Reason.INCREMENTAL_SIZE
    return None


def _is_amplified(runs: Sequence[SortedRun], policy: CompactionPolicy) -> bool:
    if not runs or len(runs) < policy.trigger:
        return False
    above = sum(run.size_bytes for run in runs[:-1])
    return above * 100 > policy.size_amplification_percent_max * runs[-1].size_bytes


def _extended(
    runs: Sequence[SortedRun],
    count: int,
    policy: CompactionPolicy,
    moment: Moment,
    *,
    begun: bool = True,
) -> int:
    """How many runs to take, at least `count`: one more while it is not much larger than the sum.

    `begun`: the first `count` runs are compacted in any case.
    """
    ratio = policy.size_ratio_percent
    if moment.hour in policy.offpeak_hours:
        ratio += policy.offpeak_ratio_percent
    size_bytes = sum(run.size_bytes for run in runs[:count])
    for run in runs[count:]:
        is_larger = size_bytes * (100.0 + ratio) / 100.0 < run.size_bytes
        if is_larger and not (begun and policy.low_levels_anyway and run.level <= 1):
            break
        size_bytes += run.size_bytes
        count += 1
        begun = True
    return count


def _unit(
    runs: Sequence[SortedRun], count: int, policy: CompactionPolicy, reason: Reason
) -> CompactionUnit:
    """A unit of the first `count` runs, and of more runs until the output level is above 0."""
    level_max = policy.level_max(runs)
    output = runs[count].level - 1 if count < len(runs) else level_max
    if output <= 0:
        deeper = (index for index in range(count, len(runs)) if runs[index].level)
        last = next(deeper, len(runs) - 1)
        count, output = last + 1, runs[last].level
    if count == len(runs):
        output = level_max
    return CompactionUnit(
        runs=tuple(runs[:count]),
        level_output=output,
        reason=reason,
        is_full=output == level_max,
        drops_deletions=output >= runs[-1].level or policy.deletion_vectors,
    )


# --- steps ---------------------------------------------------------------------------------------
# The change to the files of a compaction unit: rewrite, move to another level, or none.
#
# The files are cut into sections, which are processed in key order:
#
# 1. Overlapping files are merged. A small file is rewritten together with its merged neighbours.
# 2. A large file that overlaps no other only moves to the output level. The sections before it are
#    written first, because output that continued behind the file would overlap it.
# 3. A file is rewritten alone if it may hold tombstones and moves to the last level, if some of its
#    rows have expired, or if the table rewrites every file.
# 4. A small file without merged neighbours is treated like a large one.
#
# INVARIANT: the output of a rewrite overlaps no other file of the unit.

Section: TypeAlias = tuple[SortedRun, ...]
"""The runs of a section, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """A file that moves to the output level and keeps its name."""

    file: DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Sections in key order; each is merged, and all are written as one run."""

    sections: tuple[Section, ...]

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(file for section in self.sections for run in section for file in run.files)


Step: TypeAlias = Upgrade | Rewrite


def unit_steps(
    unit: CompactionUnit,
    lows: np.ndarray,
    highs: np.ndarray,
    policy: CompactionPolicy,
    expired: Collection[str] = (),
) -> tuple[Step, ...]:
    """The steps for the files of a unit, in key order; a file that no step names is unchanged.

    `lows` and `highs` rank the first and last key of each of `unit.files`. `expired` names files of
    which rows have expired.
    """
    if unit.reason is Reason.STALE_FILES:
        return tuple(_alone(file) for file in unit.files)
    files = unit.files
    found: list[Step] = []
    waiting: list[Section] = []
    for inside in sections(lows, highs):
        section = sorted_runs([files[index] for index in inside], lows[inside], highs[inside])
        lone = _lone([section])
        if lone is None or lone.size_bytes < policy.small_file_bytes:
            waiting.append(section)
            continue
        found += _together(waiting, unit, policy, expired)
        found += _moved(lone, unit, policy, expired)
        waiting = []
    found += _together(waiting, unit, policy, expired)
    return tuple(found)


def _together(
    waiting: Sequence[Section],
    unit: CompactionUnit,
    policy: CompactionPolicy,
    expired: Collection[str],
) -> list[Step]:
    lone = _lone(waiting)
    if lone is not None:
        return _moved(lone, unit, policy, expired)
    return [Rewrite(sections=tuple(waiting))] if waiting else []


def _moved(
    file: DataFile, unit: CompactionUnit, policy: CompactionPolicy, expired: Collection[str]
) -> list[Step]:
    # If the number of deletions is unknown, assume that there are some.
    holds_deletions = unit.is_full and file.delete_row_count != 0
    if holds_deletions or policy.rewrite_all or file.name in expired:
        return [_alone(file)]
    return [] if file.level == unit.level_output else [Upgrade(file=file)]


def _lone(waiting: Sequence[Section]) -> DataFile | None:
    """The only file of these sections; None if there are several files."""
    files = [file for section in waiting for run in section for file in run.files]
    return files[0] if len(files) == 1 else None


def _alone(file: DataFile) -> Rewrite:
    return Rewrite(sections=((SortedRun(files=(file,)),),))
