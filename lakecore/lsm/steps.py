"""The change to the files of a compaction unit: rewrite, move to another level, or none.

The files are cut into sections, which are processed in key order:

1. Overlapping files are merged. A small file is rewritten together with its merged neighbours.
2. A large file that overlaps no other only moves to the output level. The sections before it are
   written first, because output that continued behind the file would overlap it.
3. A file is rewritten alone if it may hold tombstones and moves to the last level, if some of its
   rows have expired, or if the table rewrites every file.
4. A small file without merged neighbours is treated like a large one.

INVARIANT: the output of a rewrite overlaps no other file of the unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from lakecore.lsm.levels import SortedRun, sections, sorted_runs
from lakecore.lsm.universal import Reason

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np

    from lakecore.lsm.universal import CompactionPolicy, CompactionUnit
    from lakecore.model.files import DataFile

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
        """The files of all these runs."""
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
