"""A history played on both engines, and what they disagree about.

1. Two tables, alike but for who writes and compacts them: each step is carried out on both. A step
   that one engine refuses the other must refuse too; the history ends there.
2. Each engine reads every snapshot of both tables. All four must see the same rows, or all refuse.
3. lakecore reads some columns alone, and the rows in which a column is null, or is not: they must
   be those of its whole rows.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from tests.differential.differences import Difference, excused, known
from tests.differential.history import Compact
from tests.interop import values
from tests.interop.protocol import PeerRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.differential.history import History, Step
    from tests.interop.engines import PeerEngine
    from tests.interop.lakecore_engine import LakecoreEngine
    from tests.interop.values import Row

LINES_MAX = 12


@dataclass(frozen=True, slots=True)
class Refusal:
    """An engine said no."""

    reason: str


Seen: TypeAlias = "list[Row] | Refusal"


@dataclass(frozen=True, slots=True)
class Players:
    """The two engines, and the folder of the tables."""

    lakecore: LakecoreEngine
    java: PeerEngine
    folder: Path

    def path(self, writer: str) -> Path:
        return self.folder / writer / "d.db" / "t"


@dataclass(frozen=True, slots=True)
class Played:
    """What came of it: `problems` in words; the snapshots read, and the refusals that both made."""

    problems: tuple[str, ...]
    snapshots: int
    refusals: tuple[str, ...]


def play(history: History, players: Players) -> Played:
    """Play the history; the tables are removed."""
    shutil.rmtree(players.folder, ignore_errors=True)
    try:
        return _Play(history, players).run()
    finally:
        shutil.rmtree(players.folder, ignore_errors=True)


class _Play:
    def __init__(self, history: History, players: Players) -> None:
        self._history = history
        self._players = players
        self._writers = (players.lakecore, players.java)
        self._difference = known(history)
        self._problems: list[str] = []
        self._refusals: list[str] = []
        self._snapshots = 0

    def run(self) -> Played:
        if self._both("create", self._create):
            after: list[tuple[str, int]] = []
            for number, step in enumerate(self._history.steps, start=1):
                label = f"step {number}"
                if not self._both(label, partial(self._step, number, step)):
                    break
                snapshots = {_latest(self._players.path(each.name)) for each in self._writers}
                if len(snapshots) > 1:
                    self._problems.append(f"{label} leaves different snapshots: {snapshots}")
                    break
                (snapshot,) = snapshots
                if snapshot and snapshot not in [each for _, each in after]:
                    after.append((label, snapshot))
            for label, snapshot in after:
                self._compare(label, snapshot)
        return Played(tuple(self._problems), self._snapshots, tuple(self._refusals))

    def _create(self, writer: str) -> None:
        path = self._players.path(writer)
        path.parent.mkdir(parents=True)
        self._engine(writer).create(path, self._history.table)

    def _engine(self, name: str) -> LakecoreEngine | PeerEngine:
        return next(each for each in self._writers if each.name == name)

    def _step(self, number: int, step: Step, writer: str) -> None:
        path = self._players.path(writer)
        relayed = self._history.relayed and number % 2 == 0
        engine = self._players.java if relayed else self._engine(writer)
        if isinstance(step, Compact):
            if self._history.engine == "first-row" and not step.full:
                engine = self._players.java  # it takes look-ups, which lakecore refuses
            engine.compact(path, full=step.full)
        else:
            engine.write(path, step.changes)

    def _both(self, label: str, act: Callable[[str], None]) -> bool:
        """Let both act; whether both did. One alone is a problem."""
        refused: dict[str, str] = {}
        for engine in self._writers:
            try:
                act(engine.name)
            except PeerRefused as refusal:
                refused[engine.name] = refusal.reason
        if len(refused) == 1:
            ((name, reason),) = refused.items()
            if name == self._players.lakecore.name and excused(reason):
                self._refusals.append(f"{label}: {refused}")
            else:
                self._problems.append(f"{label}: only {name} refuses: {reason}")
        elif refused:
            self._refusals.append(f"{label}: {refused}")
        return not refused

    def _compare(self, label: str, snapshot: int) -> None:
        """Read the snapshot in all four ways, and tell what differs."""
        self._snapshots += 1
        seen: dict[tuple[str, str], Seen] = {}
        options = {"scan.snapshot-id": str(snapshot)}
        for writer in self._writers:
            path = self._players.path(writer.name)
            for reader in self._writers:
                seen[writer.name, reader.name] = found = self._read(reader, path, options)
                if reader is self._players.lakecore:
                    self._project(label, writer.name, options, found)
        for (writer_name, reader_name), found in seen.items():
            base = (
                writer_name if self._difference is Difference.TABLES else self._players.java.name,
                self._players.java.name,
            )
            wrong = self._wrong(found, seen[base])
            if wrong:
                self._problems.append(
                    f"{label}, snapshot {snapshot}: {reader_name} reads {writer_name}'s table "
                    f"unlike {base[1]} reads {base[0]}'s:"
                )
                self._problems += [f"    {line}" for line in wrong[:LINES_MAX]]

    def _read(
        self, reader: LakecoreEngine | PeerEngine, path: Path, options: Mapping[str, str]
    ) -> Seen:
        try:
            return self._history.comparable(reader.read(path, options))
        except PeerRefused as refusal:
            return Refusal(refusal.reason)

    def _project(self, label: str, writer: str, options: Mapping[str, str], whole: Seen) -> None:
        """Read some columns alone, perhaps of some rows alone."""
        if isinstance(whole, Refusal):
            return
        columns = self._history.columns
        chance = random.Random(f"{self._history.seed} {label}")
        wanted = sorted(chance.sample(range(len(columns)), chance.randint(1, len(columns))))
        named = [columns[index] for index in wanted]
        names = [column.name for column in named]
        judge, null = chance.randrange(len(columns)), chance.random() < 0.4
        where = f'"{columns[judge].name}" IS {"" if null else "NOT "}NULL'
        asked = chance.choice((None, where))
        told = f"{names} of {writer}'s table where {asked}"
        try:
            rows = self._players.lakecore.read(self._players.path(writer), options, names, asked)
        except PeerRefused as refusal:
            self._problems.append(f"{label}: lakecore refuses {told}: {refusal}")
            return
        kept = [row for row in whole if asked is None or (row[judge] is None) == null]
        expected = [[row[index] for index in wanted] for row in kept]
        wrong = values.difference(self._history.comparable(rows, named), expected, named)
        if wrong:
            self._problems.append(f"{label}: lakecore reads {told} otherwise:")
            self._problems += [f"    {line}" for line in wrong[:LINES_MAX]]

    def _wrong(self, found: Seen, base: Seen) -> list[str]:
        if isinstance(found, Refusal) or isinstance(base, Refusal):
            if isinstance(found, Refusal) and isinstance(base, Refusal):
                return []
            if isinstance(found, Refusal) and excused(found.reason):
                return []
            return [f"is {_told(found)}, should be {_told(base)}"]
        return values.difference(found, base, self._history.columns)


def _told(seen: Seen) -> str:
    return f"refused: {seen.reason}" if isinstance(seen, Refusal) else f"{len(seen)} rows"


def _latest(path: Path) -> int:
    """The latest snapshot of a table; 0 if it has none."""
    folder = path / "snapshot"
    if not folder.exists():
        return 0
    found = [file.name.removeprefix("snapshot-") for file in folder.iterdir()]
    return max((int(name) for name in found if name.isdigit()), default=0)
