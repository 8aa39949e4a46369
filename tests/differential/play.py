"""A history played on both engines, and what they disagree about.

1. Two tables, alike but for who writes and compacts them: each step is carried out on both. A step
   that one engine refuses the other must refuse too; the history ends there.
2. Each engine reads every snapshot of both tables. All four must see the same rows, or all refuse.
3. Each engine streams both tables: what each step has told of a key is the same, four times, or
   twice of each table where it makes no changelog. (Which snapshots a compaction makes hangs on the
   sizes of files.)
4. lakecore reads some columns alone, and the rows in which a column is null, or is not: they must
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
    from collections.abc import Callable, Iterable, Mapping, Sequence
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
Change: TypeAlias = "tuple[str, Row]"
ByKey: TypeAlias = "dict[str, list[Change]]"


@dataclass(frozen=True, slots=True)
class _After:
    """A step that made snapshots: the latest of each writer's table before it and after it."""

    label: str
    before: Mapping[str, int]
    snapshots: Mapping[str, int]


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
            after: list[_After] = []
            before = dict.fromkeys(self._names, 0)
            for number, step in enumerate(self._history.steps, start=1):
                label = f"step {number}"
                if not self._both(label, partial(self._step, number, step)):
                    break
                snapshots = {name: _latest(self._players.path(name)) for name in self._names}
                made = {snapshots[name] - before[name] for name in self._names}
                if len(made) > 1 and not (isinstance(step, Compact) and self._looks_up):
                    self._problems.append(f"{label} leaves different snapshots: {snapshots}")
                    break
                if snapshots != before and all(snapshots.values()):
                    after.append(_After(label, before, snapshots))
                before = snapshots
            for each in after:
                self._compare(each.label, each.snapshots)
            if after:
                self._compare_changes(after)
        return Played(tuple(self._problems), self._snapshots, tuple(self._refusals))

    @property
    def _names(self) -> list[str]:
        return [engine.name for engine in self._writers]

    @property
    def _looks_up(self) -> bool:
        return self._history.producer == "lookup" or self._history.engine == "first-row"

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

    def _compare(self, label: str, snapshots: Mapping[str, int]) -> None:
        """Read the snapshot in all four ways, and tell what differs."""
        self._snapshots += 1
        seen: dict[tuple[str, str], Seen] = {}
        for writer in self._writers:
            path = self._players.path(writer.name)
            options = {"scan.snapshot-id": str(snapshots[writer.name])}
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
                    f"{label}, snapshot {snapshots[writer_name]}: {reader_name} reads "
                    f"{writer_name}'s table unlike {base[1]} reads {base[0]}'s:"
                )
                self._problems += [f"    {line}" for line in wrong[:LINES_MAX]]

    def _compare_changes(self, after: Sequence[_After]) -> None:
        """Stream both tables with both engines, and tell which step told them different things."""
        streams: dict[tuple[str, str], dict[int, list[Change]]] = {}
        for writer in self._names:
            for reader in self._writers:
                try:
                    found = reader.stream(self._players.path(writer), 1)
                except PeerRefused as refusal:
                    self._problems.append(
                        f"{reader.name} cannot stream {writer}'s table: {refusal}"
                    )
                    return
                streams[writer, reader.name] = found
        java = self._players.java.name
        # Without a changelog a stream tells what lies in the files of each table.
        alone = self._difference is Difference.TABLES or self._history.producer == "none"
        for each in after:
            told = {
                (writer, reader): self._by_key(
                    change
                    for number, changes in sorted(streams[writer, reader].items())
                    if each.before[writer] < number <= each.snapshots[writer]
                    for change in changes
                )
                for writer, reader in streams
            }
            for (writer, name), changes in told.items():
                base = (writer if alone else java, java)
                wrong = _unlike(changes, told[base])
                if wrong:
                    self._problems.append(
                        f"{each.label}: {name} streams {writer}'s table unlike {base[1]} streams "
                        f"{base[0]}'s:"
                    )
                    self._problems += [f"    {line}" for line in wrong[:LINES_MAX]]

    def _by_key(self, changes: Iterable[Change]) -> ByKey:
        """The changes of each key, in order."""
        names = [column.name for column in self._history.columns]
        at = [names.index(name) for name in self._history.table.primary_keys]
        found: ByKey = {}
        for kind, row in changes:
            (shown,) = self._history.comparable([row])
            found.setdefault(repr([row[index] for index in at]), []).append((kind, shown))
        return found

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


def _unlike(found: ByKey, base: ByKey) -> list[str]:
    keys = sorted(key for key in {*found, *base} if found.get(key) != base.get(key))
    return [f"{key}: {found.get(key)}, should be {base.get(key)}" for key in keys]


def _told(seen: Seen) -> str:
    return f"refused: {seen.reason}" if isinstance(seen, Refusal) else f"{len(seen)} rows"


def _latest(path: Path) -> int:
    """The latest snapshot of a table; 0 if it has none."""
    folder = path / "snapshot"
    if not folder.exists():
        return 0
    found = [file.name.removeprefix("snapshot-") for file in folder.iterdir()]
    return max((int(name) for name in found if name.isdigit()), default=0)
