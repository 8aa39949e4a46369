"""What both engines see of both tables: the same, or it is told in words.

1. Each engine reads every snapshot of both tables with the schema of then; tags; one snapshot by
   its time; and the latest one with the newest schema. All four see the same rows, or all refuse.
2. Each engine streams both tables: what each step has told of a key is the same, four times, or
   twice of each table where it makes no changelog. (Which snapshots a compaction makes hangs on the
   sizes of files.)
3. lakecore reads some columns alone, and rows that a condition on a column holds for: they must be
   those of its whole rows.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tests.differential.differences import Difference, excused, known, may_stream
from tests.differential.verbs import draw_condition, expression
from tests.interop import values
from tests.interop.protocol import PeerRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.differential.history import History
    from tests.differential.shape import Shape
    from tests.differential.steps import Change, Where
    from tests.interop.engines import PeerEngine
    from tests.interop.lakecore_engine import LakecoreEngine
    from tests.interop.values import Row

LINES_MAX = 12
_OPERATORS: Mapping[str, str] = {
    "is null": "isNull",
    "is not null": "isNotNull",
    "=": "equal",
    "<": "lessThan",
    ">=": "greaterOrEqual",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An engine said no."""

    reason: str


Seen: TypeAlias = "list[Row] | Refusal"
ByKey: TypeAlias = "dict[str, list[Change]]"


@dataclass(frozen=True, slots=True)
class After:
    """A step that made snapshots: the latest of each writer's table before it and after it.

    `folded`: it moves the postponed rows of several commits, each of which Java's table tells.
    """

    label: str
    before: Mapping[str, int]
    snapshots: Mapping[str, int]
    shape: Shape
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Tagged:
    """A tag, and the step whose snapshot it names."""

    name: str
    of: After


class Comparison:
    """Reads the tables at `paths`, by writer; collects `problems`, and counts the states read."""

    def __init__(
        self,
        history: History,
        paths: Mapping[str, Path],
        lakecore: LakecoreEngine,
        java: PeerEngine,
    ) -> None:
        """Remember what to read."""
        self._history = history
        self._paths = paths
        self._lakecore = lakecore
        self._java = java
        self._difference = known(history)
        self.problems: list[str] = []
        self.snapshots = 0

    def compare(self, after: Sequence[After], tags: Sequence[Tagged], shape: Shape) -> None:
        """Compare every state that stands, and all changes; `shape` is of the newest schema."""
        for each in after:
            self._states(
                each.label,
                {name: {"scan.snapshot-id": str(id_)} for name, id_ in each.snapshots.items()},
                each.shape,
            )
        if not after:
            return
        for tag in tags:
            of = {writer: {"scan.tag-name": tag.name} for writer in self._paths}
            self._states(f"tag {tag.name} of {tag.of.label}", of, tag.of.shape)
        self._at_a_time(after)
        if shape != after[-1].shape:
            newest: dict[str, dict[str, str]] = {name: {} for name in self._paths}
            self._states("the newest schema", newest, shape)
        self._changes(after, shape)

    def branch(self, label: str, name: str, shape: Shape) -> None:
        """Compare the state of a branch."""
        at = {writer: {"branch": name} for writer in self._paths}
        self._states(f"{label}: branch {name}", at, shape)

    def _at_a_time(self, after: Sequence[After]) -> None:
        chosen = random.Random(f"{self._history.seed} time").choice(after)
        times = {
            name: {
                int(file.name.split("-")[1]): int(json.loads(file.read_text())["timeMillis"])
                for file in (path / "snapshot").glob("snapshot-*")
            }
            for name, path in self._paths.items()
        }
        then = {name: times[name][id_] for name, id_ in chosen.snapshots.items()}
        if any(
            max(id_ for id_, time in times[name].items() if time <= then[name]) != id_then
            for name, id_then in chosen.snapshots.items()
        ):
            return
        options = {name: {"scan.timestamp-millis": str(time)} for name, time in then.items()}
        self._states(f"the time of {chosen.label}", options, chosen.shape)

    def _states(self, label: str, options: Mapping[str, Mapping[str, str]], shape: Shape) -> None:
        """Read a state in all ways, and tell what differs."""
        self.snapshots += 1
        seen: dict[tuple[str, str], Seen] = {}
        for writer, path in self._paths.items():
            for reader in (self._lakecore, self._java):
                found = self._read(reader, path, options[writer], shape)
                seen[writer, reader.name] = found
                if reader is self._lakecore:
                    self._project(label, writer, options[writer], shape, found)
        java = self._java.name
        for (writer, reader_name), found in seen.items():
            base = (writer if self._difference is Difference.TABLES else java, java)
            wrong = _wrong(found, seen[base], shape)
            if wrong:
                self.problems.append(
                    f"{label}: {reader_name} reads {writer}'s table unlike {base[1]} reads "
                    f"{base[0]}'s:"
                )
                self.problems += [f"    {line}" for line in wrong[:LINES_MAX]]

    def _read(
        self,
        reader: LakecoreEngine | PeerEngine,
        path: Path,
        options: Mapping[str, str],
        shape: Shape,
    ) -> Seen:
        try:
            return self._history.comparable(reader.read(path, options), shape)
        except PeerRefused as refusal:
            return Refusal(refusal.reason)

    def _project(
        self, label: str, writer: str, options: Mapping[str, str], shape: Shape, whole: Seen
    ) -> None:
        """Read some columns alone, perhaps of some rows alone."""
        if isinstance(whole, Refusal):
            return
        columns = shape.columns
        chance = random.Random(f"{self._history.seed} {label}")
        wanted = sorted(chance.sample(range(len(columns)), chance.randint(1, len(columns))))
        named = shape.chosen(wanted)
        names = named.names
        asked = draw_condition(chance, columns, whole) if chance.random() < 0.6 else None
        told = f"{names} of {writer}'s table where {asked}"
        try:
            where = None if asked is None else expression(asked)
            rows = self._lakecore.read(self._paths[writer], options, names, where)
        except PeerRefused as refusal:
            self.problems.append(f"{label}: lakecore refuses {told}: {refusal}")
            return
        judge = 0 if asked is None else shape.names.index(asked.column)
        kept = [row for row in whole if asked is None or asked.holds(row[judge])]
        expected = [[row[index] for index in wanted] for row in kept]
        wrong = values.difference(self._history.comparable(rows, named), expected, named.columns)
        if wrong:
            self.problems.append(f"{label}: lakecore reads {told} otherwise:")
            self.problems += [f"    {line}" for line in wrong[:LINES_MAX]]
        if asked is not None and self._history.layout == "indexed":
            self._prune(f"{label}: {told}", self._paths[writer], options, asked, kept, shape)

    def _prune(
        self,
        told: str,
        path: Path,
        options: Mapping[str, str],
        asked: Where,
        kept: Sequence[Row],
        shape: Shape,
    ) -> None:
        """Java reads by the indexes of files: it may leave out no row that matches."""
        condition = (asked.column, _OPERATORS[asked.operator], asked.value)
        rows = self._history.comparable(self._java.read_where(path, condition, options), shape)
        found = [repr(row) for row in rows]
        for row in kept:
            if repr(row) not in found:
                self.problems.append(f"{told}: Java leaves out {row}")
                return
            found.remove(repr(row))

    def _changes(self, after: Sequence[After], shape: Shape) -> None:
        """Stream both tables with both engines, and tell which step told them different things."""
        streams: dict[tuple[str, str], dict[int, list[Change]]] = {}
        first = {name: earliest(path) for name, path in self._paths.items()}
        for writer, path in self._paths.items():
            readers = (self._lakecore, self._java)
            for reader in readers if may_stream(self._history, writer) else readers[:1]:
                try:
                    found = reader.stream(path, first[writer])
                except PeerRefused as refusal:
                    self.problems.append(f"{reader.name} cannot stream {writer}'s table: {refusal}")
                    return
                streams[writer, reader.name] = found
        java = self._java.name
        # Without a changelog a stream tells what lies in the files of each table.
        alone = self._difference is Difference.TABLES or self._history.producer == "none"
        if self._history.layout == "postponed":
            # What is put off comes with the compaction, all at once.
            alone |= self._history.producer == "input"
        for each in after:
            if any(number < first[name] - 1 for name, number in each.before.items()):
                # Some of its snapshots have expired.
                continue
            told = {
                (writer, reader): self._by_key(
                    (
                        change
                        for number, changes in sorted(streams[writer, reader].items())
                        if each.before[writer] < number <= each.snapshots[writer]
                        for change in changes
                    ),
                    shape,
                )
                for writer, reader in streams
            }
            if each.folded:
                told = {place: net_changes(changes) for place, changes in told.items()}
            for (writer, name), changes in told.items():
                base = (writer if alone else java, java)
                if base not in told:
                    continue
                wrong = _unlike(changes, told[base])
                if wrong:
                    self.problems.append(
                        f"{each.label}: {name} streams {writer}'s table unlike {base[1]} streams "
                        f"{base[0]}'s:"
                    )
                    self.problems += [f"    {line}" for line in wrong[:LINES_MAX]]

    def _by_key(self, changes: Iterable[Change], shape: Shape) -> ByKey:
        """The changes of each key in order; without a key, those of each row."""
        at = self._history.keys(shape) or range(len(shape.columns))
        found: ByKey = {}
        for kind, row in changes:
            (shown,) = self._history.comparable([row], shape)
            found.setdefault(repr([row[index] for index in at]), []).append((kind, shown))
        if self._history.layout == "across":
            return {key: moved_changes(changes) for key, changes in found.items()}
        return found


def earliest(path: Path) -> int:
    """The first snapshot of a table that has not expired."""
    return min(int(file.name.split("-")[1]) for file in (path / "snapshot").glob("snapshot-*"))


def moved_changes(changes: Sequence[Change]) -> list[Change]:
    """The changes of a key that may move between partitions, in an order of their own.

    A stream gives out partition after partition, in no order that is defined, and Java takes a +U
    that it puts into another partition for a +I. A key that comes back to its partition in the
    same commit may come back to its bucket, which tells -U and +U, or to another, which tells -D
    and +I: the engines do not count the rows of buckets alike.
    """
    kinds = {"+U": "+I"}
    if any(kind.startswith("+") for kind, _ in changes):
        kinds["-U"] = "-D"
    return sorted(((kinds.get(kind, kind), row) for kind, row in changes), key=repr)


def net_changes(told: ByKey) -> ByKey:
    """The changes of each key as one change, from the first state to the last; none if equal."""
    found: ByKey = {}
    for key, changes in told.items():
        (first, old), (last, new) = changes[0], changes[-1]
        before = old if first in ("-U", "-D") else None
        after = new if last in ("+I", "+U") else None
        if before == after:
            continue
        if before is None or after is None:
            found[key] = [("-D", old) if after is None else ("+I", new)]
        else:
            found[key] = [("-U", old), ("+U", new)]
    return found


def _wrong(found: Seen, base: Seen, shape: Shape) -> list[str]:
    if isinstance(found, Refusal) or isinstance(base, Refusal):
        if isinstance(found, Refusal) and isinstance(base, Refusal):
            return []
        if isinstance(found, Refusal) and excused(found.reason):
            return []
        return [f"is {_told(found)}, should be {_told(base)}"]
    return values.difference(found, base, shape.columns)


def _unlike(found: ByKey, base: ByKey) -> list[str]:
    keys = sorted(key for key in {*found, *base} if found.get(key) != base.get(key))
    return [f"{key}: {found.get(key)}, should be {base.get(key)}" for key in keys]


def _told(seen: Seen) -> str:
    return f"refused: {seen.reason}" if isinstance(seen, Refusal) else f"{len(seen)} rows"
