"""A history played on both engines, and what they disagree about.

1. Two tables, alike but for who writes and compacts them: each step is carried out on both. A step
   that one engine refuses the other must refuse too; the history ends there. A table that lakecore
   does not write is one, of Java's.
2. A change of the schema leaves the same schema file in both.
3. Both engines see the same in both tables: `compare`.

Tags and rollbacks are Java's work in both tables, and so are the verbs of Java, as `verbs` says.
Jobs that Java's core does not have are lakecore's in both tables: it sorts rows, indexes files, and
moves postponed rows, for which Java's table has a bucket of its own (`layout_draws`).
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.differential.compare import After, Comparison, Tagged
from tests.differential.differences import FOLDED_ALONE, excused, excused_of_java
from tests.differential.steps import (
    Alter,
    Branch,
    Clear,
    Cluster,
    Compact,
    Delete,
    Expire,
    Index,
    Overwrite,
    Rescale,
    RollBack,
    Tag,
    Untag,
    Update,
    Upsert,
    Write,
)
from tests.differential.verbs import play_by_lakecore, play_by_peer
from tests.interop.columns import type_from_json
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.protocol import PeerRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.differential.history import History
    from tests.differential.steps import Step
    from tests.interop.engines import PeerEngine

# The share of commits that go to the postponed bucket, of those that may go to others.
POSTPONED = 0.7


@dataclass(frozen=True, slots=True)
class Players:
    """The two engines, the newest Java, started when asked for, and the folder of the tables."""

    lakecore: LakecoreEngine
    java: PeerEngine
    newest: Callable[[], PeerEngine]
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
        engines = (players.lakecore, players.java)
        self._writers = engines[1:] if history.foreign else engines
        self._comparison = Comparison(
            history,
            {engine.name: players.path(engine.name) for engine in self._writers},
            players.lakecore,
            players.java,
        )
        self._problems: list[str] = []
        self._refusals: list[str] = []
        # The steps whose snapshots stand, and the tags.
        self._after: list[After] = []
        self._tags: dict[str, Tagged] = {}
        # Rows lie in the postponed bucket.
        self._waiting = False
        self._rolled_back = False

    def run(self) -> Played:
        comparison = self._comparison
        if self._both("create", self._create):
            reached = self._steps()
            comparison.compare(
                self._after, list(self._tags.values()), self._history.shapes[reached]
            )
        problems = (*self._problems, *comparison.problems)
        return Played(problems, comparison.snapshots, tuple(self._refusals))

    def _steps(self) -> int:
        """Carry out the steps; how many were."""
        before = self._latest()
        for number, step in enumerate(self._history.steps, start=1):
            label = f"step {number}"
            if isinstance(step, RollBack):
                before = self._roll_back(step)
                continue
            if isinstance(step, Branch) and not self._may_branch(number):
                continue
            base = self._after[-1] if self._after else None
            if not self._both(label, partial(self._step, number, step), step):
                return number - 1
            if self._history.layout == "postponed":
                self._waiting = isinstance(step, Write)
                if self._waiting:
                    # Only what follows a compaction can be compared.
                    continue
            snapshots = self._latest()
            made = {snapshots[name] - before[name] for name in before}
            if len(made) > 1 and not self._may_differ(step):
                self._problems.append(f"{label} leaves different snapshots: {snapshots}")
                return number
            shape = self._history.shapes[number]
            # A table without a new snapshot is read by the schema of its last one.
            behind = any(snapshots[name] == before[name] for name in before)
            behind &= bool(self._after) and self._after[-1].shape != shape
            if snapshots != before and all(snapshots.values()) and not behind:
                self._after.append(After(label, before, snapshots, shape, self._is_folded(number)))
            self._note(label, step, base)
            before = snapshots
        return len(self._history.steps)

    def _note(self, label: str, step: Step, base: After | None) -> None:
        """Remember what stands after a step, and compare what only it shows.

        `base`: the last step before it that made snapshots.
        """
        match step:
            case Alter():
                self._compare_schemas(label)
            case Tag() if self._after:
                self._tags[step.name] = Tagged(step.name, self._after[-1])
            case Untag():
                self._tags.pop(step.name, None)
            case Branch() if base is not None:
                self._comparison.branch(label, step.name, base.shape)
                if step.forward:
                    # The branch has none of the tags of the snapshot that it begins with.
                    kept = {name: each for name, each in self._tags.items() if each.of is not base}
                    self._tags = kept
            case Expire():
                del self._after[: -step.keep]

    def _may_branch(self, number: int) -> bool:
        """Whether the table has the schema of its latest snapshot, which a branch begins with."""
        return bool(self._after) and self._after[-1].shape == self._history.shapes[number]

    def _latest(self) -> dict[str, int]:
        return {each.name: _latest(self._players.path(each.name)) for each in self._writers}

    def _may_differ(self, step: Step) -> bool:
        """Whether how many snapshots a step makes hangs on the sizes of files, or on the engine."""
        looks_up = self._history.producer == "lookup" or self._history.engine == "first-row"
        if isinstance(step, (Rescale, Index)) or self._history.layout == "postponed":
            return True
        if FOLDED_ALONE in self._history.tags:
            # lakecore writes more files of level 0, which are compacted sooner.
            return True
        marks = self._history.table.options.get("deletion-vectors.enabled") == "true"
        if isinstance(step, Overwrite) and (marks or self._history.engine == "first-row"):
            # lakecore's is one snapshot, with its compaction.
            return True
        if isinstance(step, (Compact, Cluster)):
            # Without buckets Java knows no full compaction.
            # lakecore drops deletions that an overwrite put into the last level, too.
            overwritten = any(isinstance(each, Overwrite) for each in self._history.steps)
            return looks_up or overwritten or self._history.engine == "append"
        # Java's rows are written anew, and the writer compacts; lakecore's verb does not.
        anew = isinstance(step, (Delete, Update, Upsert)) and self._history.engine == "append"
        return anew and self._history.table.options.get("write-only") != "true"

    def _create(self, writer: str) -> None:
        path = self._players.path(writer)
        path.parent.mkdir(parents=True)
        table = self._history.table
        if self._history.layout == "postponed" and writer == self._players.java.name:
            table = replace(table, options={**table.options, "bucket": "1"})
        self._engine(writer).create(path, table)

    def _engine(self, name: str) -> LakecoreEngine | PeerEngine:
        return next(each for each in self._writers if each.name == name)

    def _step(self, number: int, step: Step, writer: str) -> None:
        path, lakecore = self._players.path(writer), self._players.lakecore
        engine = self._player(number, step, writer)
        match step:
            case Write() if self._is_postponed(number, engine):
                lakecore.postpone(path, step.changes)
            case Write():
                engine.write(path, step.changes)
            case Overwrite():
                engine.overwrite(
                    path, step.changes, dict(step.partition) or None, dynamic=step.dynamic
                )
            case Clear():
                engine.clear(path, [dict(each) for each in step.partitions] or None)
            case Compact() | Cluster() | Index() | Rescale():
                self._rewrite(step, path, engine)
            case Alter():
                engine.alter(path, [step.change])
            case Tag() | Untag() | Branch() | Expire():
                self._manage(step, path, engine, writer)
            case Delete() | Update() | Upsert():
                shape = self._history.shapes[number - 1]
                if isinstance(engine, LakecoreEngine):
                    play_by_lakecore(engine, path, step)
                else:
                    play_by_peer(engine, path, step, self._history, shape)

    def _manage(
        self,
        step: Tag | Untag | Branch | Expire,
        path: Path,
        engine: LakecoreEngine | PeerEngine,
        writer: str,
    ) -> None:
        """Make or remove what keeps snapshots."""
        java = self._players.java
        match step:
            case Tag() if self._after:
                java.create_tag(path, step.name)
            case Untag() if step.name in self._tags:
                java.delete_tag(path, step.name)
            case Branch():
                java.create_tag(path, step.name)
                engine.branch(path, step.name)
                engine.write_on(path, step.changes, step.name)
                if step.forward:
                    engine.fast_forward(path, step.name)
                    # Java copies EARLIEST from the branch, too, and so hides older snapshots.
                    self._players.lakecore.repair_hints(path)
            case Expire() if len(self._after) > step.keep:
                first = self._after[-step.keep].snapshots[writer]
                engine.expire(path, _latest(path) - first + 1)

    def _player(self, number: int, step: Step, writer: str) -> LakecoreEngine | PeerEngine:
        """Who carries out a step on the table of `writer`."""
        layout = self._history.layout
        relayed = self._history.relayed and number % 2 == 0
        if layout == "postponed" and not isinstance(step, Write):
            # What Java writes there would wait for the next compaction, which it cannot make.
            relayed = False
        engine = self._players.java if relayed else self._engine(writer)
        writes = isinstance(step, (Write, Branch, Delete, Update, Upsert))
        if layout == "across" and writes and engine is self._players.java:
            # 1.4.2 brings no database for the index of all keys.
            return self._players.newest()
        return engine

    def _is_postponed(self, number: int, engine: LakecoreEngine | PeerEngine) -> bool:
        """Whether lakecore writes rows to the postponed bucket; Java does whenever there is one."""
        if self._history.layout != "postponed" or engine is not self._players.lakecore:
            return False
        chance = random.Random(f"{self._history.seed} {number}")
        return self._waiting or chance.random() < POSTPONED

    def _is_folded(self, number: int) -> bool:
        """Whether a step moves rows of several commits, which compact Java's table one by one."""
        commits = self._history.steps[max(number - 3, 0) : number - 1]
        return (
            self._history.layout == "postponed"
            and self._history.table.options.get("write-only") != "true"
            and self._history.producer in ("lookup", "full-compaction")
            and [type(each) for each in commits] == [Write, Write]
        )

    def _rewrite(
        self,
        step: Compact | Cluster | Index | Rescale,
        path: Path,
        engine: LakecoreEngine | PeerEngine,
    ) -> None:
        """Write rows anew that stay what they are."""
        java, lakecore = self._players.java, self._players.lakecore
        match step:
            case Compact():
                sorting = "clustering.incremental" in self._history.table.options
                (lakecore if sorting else engine).compact(path, full=step.full)
            case Cluster():
                lakecore.cluster(path, step.strategy, step.columns)
            case Index():
                lakecore.index(path)
            case Rescale() if engine is lakecore:
                lakecore.rescale(path)
            case Rescale():
                rows = java.read(path)
                if rows:
                    java.overwrite(path, tuple(("+I", row) for row in rows))

    def _roll_back(self, step: RollBack) -> dict[str, int]:
        """Go back, if there are so many steps; the latest snapshots then."""
        if step.steps < len(self._after):
            self._rolled_back = True
            del self._after[len(self._after) - step.steps :]
            target = self._after[-1].snapshots
            for name, snapshot in target.items():
                self._players.java.roll_back(self._players.path(name), snapshot)
            # Tags of later snapshots go, too.
            standing = {each.label for each in self._after}
            self._tags = {
                name: tagged for name, tagged in self._tags.items() if tagged.of.label in standing
            }
        return self._latest()

    def _both(self, label: str, act: Callable[[str], None], step: Step | None = None) -> bool:
        """Let both act; whether both did. One alone is a problem, unless that is known."""
        refused: dict[str, str] = {}
        for engine in self._writers:
            try:
                act(engine.name)
            except PeerRefused as refusal:
                refused[engine.name] = refusal.reason
        if 0 < len(refused) < len(self._writers):
            ((name, reason),) = refused.items()
            java = name == self._players.java.name
            if (
                excused_of_java(reason, step, rolled_back=self._rolled_back)
                if java
                else excused(reason)
            ):
                self._refusals.append(f"{label}: {refused}")
            else:
                self._problems.append(f"{label}: only {name} refuses: {reason}")
        elif refused:
            self._refusals.append(f"{label}: {refused}")
        return not refused

    def _compare_schemas(self, label: str) -> None:
        """Tell what the newest schema files of the tables differ in."""
        found = {each.name: _schema(self._players.path(each.name)) for each in self._writers}
        if self._history.layout == "postponed":
            # The tables have other buckets.
            found = {
                name: {fact for fact in facts if "bucket" not in fact.partition(": ")[0]}
                for name, facts in found.items()
            }
        base = found[self._players.java.name]
        for name, schema in found.items():
            self._problems += [
                f"{label}: {name}'s schema has {fact}" for fact in sorted(schema - base)
            ] + [f"{label}: {name}'s schema lacks {fact}" for fact in sorted(base - schema)]


def _schema(path: Path) -> set[str]:
    """What the newest schema file says, fact by fact."""
    newest = max((path / "schema").iterdir(), key=lambda file: int(file.name.split("-")[1]))
    found: dict[str, Any] = json.loads(newest.read_text())
    facts = {key: found[key] for key in ("id", "highestFieldId", "partitionKeys", "primaryKeys")}
    facts |= {f"option {key}": text for key, text in found["options"].items()}
    # Which of its free ids a field in a ROW in a ROW takes is each engine's own.
    facts |= {
        f"field {place}": (each["id"], each["name"], type_from_json(each["type"]).text)
        for place, each in enumerate(found["fields"])
    }
    return {f"{key}: {json.dumps(value)}" for key, value in facts.items()}


def _latest(path: Path) -> int:
    """The latest snapshot of a table; 0 if it has none."""
    folder = path / "snapshot"
    if not folder.exists():
        return 0
    found = [file.name.removeprefix("snapshot-") for file in folder.iterdir()]
    return max((int(name) for name in found if name.isdigit()), default=0)
