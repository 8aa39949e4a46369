"""What compaction costs and saves: picking simulated on sizes alone, without any data.

`python -m bench compaction [SETTING=VALUE …]`; a setting is a table option, or one of

- `commits` (500), one a minute; `commit-rows` (160000) and `row-bytes` (100) of each;
- `picking` (1.4): `2.1` picks as Paimon 2.1 does, see `CompactionPolicy.low_levels_anyway`.

A bucket is a vector: the keys of a file by *cell*, an equal slice of the key space. Rows fall
evenly into a cell, so that files that hold the shares a and b of its keys hold 1 - (1 - a)(1 - b)
of them together. After each commit the bucket is asked once whether it wants compaction, and the
steps of the unit are done at once. Printed are, for each workload:

- *write*: bytes written, by flushes and compactions, for each byte flushed;
- *runs*: sorted runs that a read finds, in the mean and at most;
- *merged*: of the bytes that a read of everything finds, those that overlap others: the rest is
  a plain scan;
- *space*: bytes stored for each byte of the newest rows, in the mean and at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from bench.report import console
from lakecore.errors import LakecoreError
from lakecore.lsm.levels import SortedRun, level_runs, sections
from lakecore.lsm.universal import (
    CompactionPolicy,
    CompactionUnit,
    Moment,
    Reason,
    Rewrite,
    Upgrade,
    pick,
    unit_steps,
)
from lakecore.model.files import DataFile
from lakecore.options import parse_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MINUTE_MS = 60_000
SETTINGS = {"commits": "500", "commit-rows": "160000", "row-bytes": "100", "picking": "1.4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How much is written, and of which keys: `cell_keys` in each of `cells`."""

    commits: int
    commit_rows: int
    row_bytes: int
    cell_keys: float

    @property
    def cells(self) -> int:
        """Slices of the key space; two are of a commit that writes keys in order."""
        return 2 * self.commits

    def drawn(self, rows: float, share: slice = slice(None)) -> np.ndarray:
        """The keys by cell that so many rows hit, drawn evenly from a part of the key space."""
        keys = np.zeros(self.cells)
        part = keys[share]
        part[:] = self.cell_keys * -np.expm1(-rows / part.size / self.cell_keys)
        return keys

    def joined(self, parts: Iterable[np.ndarray]) -> np.ndarray:
        """The keys by cell of what holds all of these."""
        absent = np.ones(self.cells)
        for keys in parts:
            absent *= 1 - keys / self.cell_keys
        return self.cell_keys * (1 - absent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is written: the keys by cell of each commit. `spread`: all keys, in rows of a commit."""

    name: str
    spread: float | None
    keys: Callable[[Shape, int], np.ndarray]


def _appended(shape: Shape, commit: int) -> np.ndarray:
    keys = np.zeros(shape.cells)
    keys[2 * commit : 2 * commit + 2] = shape.cell_keys
    return keys


def _corrected(shape: Shape, commit: int) -> np.ndarray:
    late = shape.drawn(shape.commit_rows / 10, slice(0, 2 * commit + 2))
    return shape.joined([_appended(shape, commit), late])


def _even(shape: Shape, commit: int) -> np.ndarray:
    del commit
    return shape.drawn(shape.commit_rows)


def _uneven(shape: Shape, commit: int) -> np.ndarray:
    return shape.drawn(shape.commit_rows * (5.5 if commit % 10 == 0 else 0.5))


def _hot(shape: Shape, commit: int) -> np.ndarray:
    del commit
    hot = shape.drawn(shape.commit_rows * 0.9, slice(0, shape.cells // 20))
    return shape.joined([hot, shape.drawn(shape.commit_rows * 0.1)])


def _trickle(shape: Shape, commit: int) -> np.ndarray:
    if commit == 0:
        return np.full(shape.cells, shape.cell_keys)
    return shape.drawn(shape.commit_rows / 10)


WORKLOADS = (
    Workload(name="new keys, in order", spread=None, keys=_appended),
    Workload(name="new keys, and a tenth of old ones", spread=None, keys=_corrected),
    Workload(name="keys of 50 commits, evenly", spread=50, keys=_even),
    Workload(name="the same, each tenth 11 times as big", spread=50, keys=_uneven),
    Workload(name="the same, 90 % in a twentieth", spread=50, keys=_hot),
    Workload(name="loaded, then tenths of commits", spread=50, keys=_trickle),
)


@dataclass(slots=True, kw_only=True)
class Bucket:
    """The files of a bucket under a workload, and what was counted."""

    shape: Shape
    policy: CompactionPolicy
    target_bytes: int
    keys: dict[str, np.ndarray] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)
    live: np.ndarray = field(default_factory=lambda: np.zeros(0))
    numbers: int = 0
    sequence: int = 0
    idle_picks: int = 0
    last_full_ms: int | None = None
    flushed_bytes: float = 0
    rewritten_bytes: float = 0
    compactions: int = 0
    fulls: int = 0
    runs: list[int] = field(default_factory=list)
    merged: list[float] = field(default_factory=list)
    space: list[float] = field(default_factory=list)

    def commit(self, number: int, keys: np.ndarray) -> None:
        """Flush these keys, compact if the bucket asks for it, look at what a read finds."""
        self.sequence += 1
        self.live = self.shape.joined([self.live, keys]) if self.live.size else keys
        self.flushed_bytes += self._write(keys, 0, self.sequence)
        now_ms = number * MINUTE_MS
        moment = Moment(
            now_ms=now_ms,
            hour=number // 60 % 24,
            last_full_ms=self.last_full_ms,
            idle_picks=self.idle_picks,
        )
        unit = pick(self._runs(), self.policy, moment)
        if unit is None:
            self.idle_picks += 1
        else:
            self._compact(unit)
            self.compactions += 1
            self.fulls += unit.is_full
            self.idle_picks = 0 if unit.reason is Reason.LEVEL_0 else self.idle_picks
            self.last_full_ms = now_ms if unit.is_full else self.last_full_ms
        self._look()

    def _compact(self, unit: CompactionUnit) -> None:
        for step in unit_steps(unit, *self._ranks(unit.files), self.policy):
            if isinstance(step, Upgrade):
                self.files[step.file.name] = replace(step.file, level=unit.level_output)
                continue
            assert isinstance(step, Rewrite)
            keys = self.shape.joined(self.keys[file.name] for file in step.files)
            newest = max(file.sequence_max for file in step.files)
            for file in step.files:
                del self.files[file.name], self.keys[file.name]
            self.rewritten_bytes += self._write(keys, unit.level_output, newest)

    def _write(self, keys: np.ndarray, level: int, sequence: int) -> float:
        """Write the keys as files of the target size; their bytes."""
        size_bytes = keys * self.shape.row_bytes
        written = np.flatnonzero(size_bytes)
        part = (np.cumsum(size_bytes) - size_bytes / 2) // self.target_bytes
        for number in np.unique(part[written]):
            inside = written[part[written] == number]
            self.numbers += 1
            name = f"{self.numbers:09}"
            self.keys[name] = np.zeros(self.shape.cells)
            self.keys[name][inside] = keys[inside]
            self.files[name] = DataFile(
                name=name,
                size_bytes=max(1, int(size_bytes[inside].sum())),
                row_count=int(keys[inside].sum()),
                sequence_min=sequence,
                sequence_max=sequence,
                schema_id=0,
                level=level,
                delete_row_count=0,
            )
        return float(size_bytes.sum())

    def _look(self) -> None:
        files = list(self.files.values())
        stored = sum(file.size_bytes for file in files)
        overlapping = sum(
            files[index].size_bytes
            for section in sections(*self._ranks(files))
            if len(section) > 1
            for index in section
        )
        self.runs.append(len(self._runs()))
        self.merged.append(overlapping / stored)
        self.space.append(stored / (float(self.live.sum()) * self.shape.row_bytes))

    def _runs(self) -> tuple[SortedRun, ...]:
        files = list(self.files.values())
        return level_runs(files, *self._ranks(files))

    def _ranks(self, files: Sequence[DataFile]) -> tuple[np.ndarray, np.ndarray]:
        cells = [np.flatnonzero(self.keys[file.name])[[0, -1]] for file in files]
        lows, highs = np.array(cells, np.int64).reshape(-1, 2).T
        return lows, highs


def simulate(workload: Workload, options: Mapping[str, str], settings: Mapping[str, str]) -> Bucket:
    """The bucket after all commits of a workload."""
    parsed = parse_options(options, creating=True)
    commits, rows = int(settings["commits"]), int(settings["commit-rows"])
    keys = rows * (workload.spread or commits)
    shape = Shape(
        commits=commits,
        commit_rows=rows,
        row_bytes=int(settings["row-bytes"]),
        cell_keys=keys / (2 * commits),
    )
    policy = replace(CompactionPolicy.of(parsed), low_levels_anyway=settings["picking"] == "2.1")
    bucket = Bucket(
        shape=shape, policy=policy, target_bytes=parsed.target_file_size(primary_key=True)
    )
    for number in range(commits):
        bucket.commit(number, workload.keys(shape, number))
    return bucket


def run(arguments: Mapping[str, str]) -> None:
    """Simulate every workload and print the table."""
    given = dict(arguments)
    settings = {name: given.pop(name, text) for name, text in SETTINGS.items()}
    table = Table(
        title=f"compaction of a bucket, {', '.join(f'{k}={v}' for k, v in settings.items())}",
        caption=" ".join(f"{key}={text}" for key, text in given.items()) or "default options",
        title_justify="left",
        title_style="bold",
    )
    for column in ("", "compactions", "full", "write", "runs", "merged", "space"):
        table.add_column(column, justify="left" if column == "" else "right")
    for workload in WORKLOADS:
        bucket = simulate(workload, given, settings)
        written = bucket.flushed_bytes + bucket.rewritten_bytes
        table.add_row(
            workload.name,
            str(bucket.compactions),
            str(bucket.fulls),
            f"{written / bucket.flushed_bytes:.2f}",
            f"{mean(bucket.runs):.1f} (≤ {max(bucket.runs)})",
            f"{mean(bucket.merged):.0%}",
            f"{mean(bucket.space):.2f} (≤ {max(bucket.space):.2f})",
        )
    console.print(table)


def main(arguments: Sequence[str]) -> int:
    """Run with arguments such as `num-levels=3`; 0, or 2 if one is none."""
    try:
        run(dict(text.split("=", 1) for text in arguments))
    except (LakecoreError, ValueError) as error:
        console.print(f"{error}\nwanted: SETTING=VALUE; settings: {SETTINGS}, and table options")
        return 2
    return 0
