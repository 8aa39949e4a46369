"""What one seed means: a table, the actors with their deeds, and the faults they meet.

Everything is drawn here, as frozen values, so that a scenario that fails can be made smaller: a
part is taken out, and the rest stays as it was.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Row = tuple[int, int | None, int | None]
"""Key, `v` and `w`."""

FAULTS = (
    "crash before",
    "crash within",
    "crash after",
    "lost request",
    "lost reply",
    "late",
    "slow",
    "disk full",
    "power lost",
)

LEADS_BACK = ("roll back", "fast forward")
"""The verbs that lead the table to another state. Writers pause meanwhile, as the verbs ask for."""
KEEPING = ("expire", "tag", "untag", "rename", "branch", *LEADS_BACK)
"""The verbs that keep a table in order: none writes rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What befalls an actor at its nth call of a kind: `any`, `change` or `commit`."""

    actor: str
    kind: str
    on: str
    nth: int
    wait_ms: int = 0

    def __str__(self) -> str:
        wait = f" for {self.wait_ms} ms" if self.wait_ms else ""
        return f"{self.actor}: {self.kind}{wait} at call {self.nth} of kind {self.on!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One thing that an actor does: a verb and what it is given."""

    name: str  # unique in its scenario
    verb: str
    rows: tuple[Row, ...] = ()
    deletes: tuple[int, ...] = ()  # keys
    number: int | None = None  # the identifier of a numbered commit
    count: int = 0  # how many snapshots are kept, or how far back it goes

    def __str__(self) -> str:
        parts = [self.name, self.verb]
        parts += [f"{row}" for row in self.rows]
        parts += [f"-{key}" for key in self.deletes]
        parts += [f"of {self.count}"] * bool(self.count)
        return " ".join(parts) + ("" if self.number is None else f" as {self.number}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """A name, and deeds in their order."""

    name: str
    deeds: tuple[Deed, ...]
    reopens: bool  # opens the table for each deed, or keeps one handle
    waits_ms: int = 0  # before each deed

    def __str__(self) -> str:
        return f"{self.name}: " + "; ".join(map(str, self.deeds))


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A kind of table. `engine` says how the model replays it."""

    engine: str = "deduplicate"
    partitioned: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    verbs: tuple[str, ...] = (
        "write",
        "write",
        "write",
        "numbered",
        "staged",
        "overwrite",
        "truncate",
    )
    edits: tuple[str, ...] = ("delete", "update", "merge")
    one_writer: bool = False  # who sees its own commits, or the order of its rows is not its own
    changelog: bool = False

    @property
    def tells(self) -> bool:
        """Whether the changes of its snapshots add up to its rows."""
        return self.changelog or (self.one_writer and "changelog-producer" in self.options)

    @property
    def keyed(self) -> bool:
        """Whether the table has a primary key."""
        return self.engine != "append"


SHAPES: dict[str, Shape] = {
    "one bucket": Shape(options={"bucket": "1"}),
    "partitions": Shape(
        partitioned=True,
        options={"bucket": "1"},
        verbs=("write", "write", "write", "numbered", "staged", "overwrite", "overwrite", "drop"),
    ),
    "two buckets": Shape(options={"bucket": "2"}),
    "dynamic buckets": Shape(options={"bucket": "-1", "dynamic-bucket.target-row-num": "2"}),
    "append": Shape(engine="append", verbs=("write", "write", "numbered", "staged", "overwrite")),
    "append in buckets": Shape(
        engine="append",
        options={"bucket": "2", "bucket-key": "k"},
        verbs=("write", "numbered", "staged"),
    ),
    "sums": Shape(
        engine="aggregation",
        options={
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
            "fields.w.aggregate-function": "max",
        },
        verbs=("write", "write", "numbered", "staged"),
        edits=(),
    ),
    "partial updates": Shape(
        engine="partial-update",
        options={"bucket": "1", "merge-engine": "partial-update"},
        verbs=("write", "write", "numbered", "staged"),
        edits=(),
        one_writer=True,
    ),
    "looked up": Shape(
        options={"bucket": "1", "changelog-producer": "lookup"},
        verbs=("write", "write", "numbered", "staged"),
        changelog=True,
    ),
    "told as written": Shape(
        options={"bucket": "1", "changelog-producer": "input"},
        verbs=("write", "write", "numbered", "staged"),
        edits=(),
        one_writer=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """All that a seed decides but the order of calls, which `seed` and `schedule` decide."""

    seed: int
    shape: str
    options: Mapping[str, str]
    actors: tuple[Actor, ...]
    faults: tuple[Fault, ...]
    listing_lag_ms: int = 0
    latency_ms: float = 2
    switch: float = 0.5
    slow_sync: float = 0.0
    schedule: int = 0
    goes_on: bool = False  # whether somebody writes and compacts when all others have ended

    def __str__(self) -> str:
        table = f"seed {self.seed}, schedule {self.schedule}: table {self.shape!r}"
        listings = f"listings lag {self.listing_lag_ms} ms, calls take up to {self.latency_ms} ms"
        others = f"another goes on with {self.switch}, slow syncs {self.slow_sync}"
        lines = [f"{table} {dict(self.options)}", f"  {listings}, {others}"]
        return "\n".join(lines + [f"  {part}" for part in (*self.actors, *self.faults)])


class _Draw:
    """The draws of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(f"scenario {seed}")
        self._deeds = 0

    def scenario(self) -> Scenario:
        chance = self.chance
        name = chance.choice([*SHAPES])
        shape = SHAPES[name]
        keys = chance.randint(2, 6)
        actors = [self._writer(shape, keys)]
        makers: list[Callable[[Shape, int], Actor]] = [self._compactor, self._reader]
        if not shape.one_writer:
            makers += [self._writer, self._writer, self._editor]
        if chance.random() < 0.3:
            makers.append(self._alterer)
        if chance.random() < 0.4:
            makers += [self._keeper, self._keeper, self._follower]
        actors += [chance.choice(makers)(shape, keys) for _ in range(chance.randint(1, 3))]
        named = [replace(actor, name=f"{actor.name}{at}") for at, actor in enumerate(actors, 1)]
        faults = self._faults([actor.name for actor in named])
        keepers = [actor.name for actor in named if actor.name.startswith("keeper")]
        if keepers and chance.random() < 0.5:
            # Their verbs have many steps, and few calls of others.
            kind, nth = chance.choice(("crash before", "crash after")), chance.randint(1, 24)
            faults.append(Fault(actor=keepers[0], kind=kind, on="change", nth=nth))
        lag_ms = chance.choice([0, 0, 0, 0 if shape.one_writer else 40])
        if any(deed.verb in KEEPING for actor in named for deed in actor.deeds):
            # What deletes snapshots needs listings that are complete, and removals that last.
            faults = [fault for fault in faults if fault.kind not in ("power lost", "late")]
            lag_ms = 0
        return Scenario(
            seed=self.seed,
            shape=name,
            options=self._options(),
            actors=tuple(named),
            faults=tuple(faults),
            listing_lag_ms=lag_ms,
            latency_ms=chance.choice([0, 1, 2, 5]),
            switch=chance.choice([0.05, 0.2, 0.5, 1.0]),
            slow_sync=chance.choice([0.0, 0.0, 0.3]),
            goes_on=chance.random() < 0.3,
        )

    def _options(self) -> dict[str, str]:
        # Avro files are the cheapest to write; other formats differ in their bytes alone.
        chance, options = self.chance, {"file.format": "avro"}
        if chance.random() < 0.15:
            options["file.format"] = chance.choice(["parquet", "orc"])
        if chance.random() < 0.5:
            options["num-sorted-run.compaction-trigger"] = chance.choice(["1", "2", "3"])
        elif chance.random() < 0.5:
            options["write-only"] = "true"
        if chance.random() < 0.15:
            options |= {"manifest.merge-min-count": "2", "manifest.target-file-size": "1 kb"}
        if chance.random() < 0.1:
            options["commit.max-retries"] = "1"
        return options

    def _name(self) -> str:
        self._deeds += 1
        return f"d{self._deeds}"

    def _rows(self, keys: int) -> tuple[Row, ...]:
        chosen = self.chance.sample(range(keys), self.chance.randint(1, min(3, keys)))
        return tuple((key, 100 * self._deeds + key, self.chance.randint(0, 9)) for key in chosen)

    def _actor(self, name: str, deeds: list[Deed]) -> Actor:
        return Actor(name=name, deeds=tuple(deeds), reopens=self.chance.random() < 0.5)

    def _writer(self, shape: Shape, keys: int) -> Actor:
        chance, deeds, number = self.chance, [], 0
        for _ in range(chance.randint(1, 3)):
            name, verb = self._name(), chance.choice(shape.verbs)
            rows = self._rows(keys)
            deletes: tuple[int, ...] = ()
            if verb in ("write", "numbered", "staged"):
                if shape.engine == "deduplicate" and chance.random() < 0.4:
                    deletes, rows = (rows[0][0],), rows[1:]
                if shape.engine == "partial-update":
                    rows = tuple(
                        (k, v, None) if chance.random() < 0.5 else (k, None, w) for k, v, w in rows
                    )
            if verb in ("truncate", "drop"):
                rows = rows[:1] if verb == "drop" else ()
            if verb in ("numbered", "staged"):
                number += 1
            deeds.append(
                Deed(
                    name=name,
                    verb=verb,
                    rows=rows,
                    deletes=deletes,
                    number=number if verb in ("numbered", "staged") else None,
                )
            )
        return self._actor("writer", deeds)

    def _editor(self, shape: Shape, keys: int) -> Actor:
        chance, deeds = self.chance, []
        if not shape.edits:
            return self._reader(shape, keys)
        for _ in range(chance.randint(1, 2)):
            name, verb = self._name(), chance.choice(shape.edits)
            rows = self._rows(keys)
            if verb == "merge":
                deeds.append(Deed(name=name, verb=verb, rows=rows))
            else:
                deeds.append(Deed(name=name, verb=verb, deletes=tuple(row[0] for row in rows)))
        return self._actor("editor", deeds)

    def _compactor(self, _shape: Shape, _keys: int) -> Actor:
        verbs = [self.chance.choice(["compact", "compact fully"]) for _ in range(2)]
        return self._actor("compactor", [Deed(name=self._name(), verb=verb) for verb in verbs])

    def _reader(self, _shape: Shape, _keys: int) -> Actor:
        count = self.chance.randint(1, 3)
        return self._actor("reader", [Deed(name=self._name(), verb="read") for _ in range(count)])

    def _alterer(self, _shape: Shape, _keys: int) -> Actor:
        verbs = [self.chance.choice(["add a column", "set an option"]) for _ in range(2)]
        return self._actor("alterer", [Deed(name=self._name(), verb=verb) for verb in verbs])

    def _keeper(self, _shape: Shape, _keys: int) -> Actor:
        chance = self.chance
        plans = (
            ("tag", "expire"),
            ("tag", "expire", "untag"),
            ("expire", "expire"),
            ("tag", "tag", "roll back"),
            ("roll back", "expire"),
            ("tag", "branch", "fast forward"),
            ("tag", "branch", "expire", "fast forward"),
            ("tag", "rename", "expire"),
        )
        deeds = [
            Deed(name=self._name(), verb=verb, count=chance.choice([1, 1, 2, 3]))
            for verb in (*chance.choice(plans), *chance.choice(plans))
        ]
        return replace(self._actor("keeper", deeds), waits_ms=chance.choice([0, 40, 100, 200]))

    def _follower(self, _shape: Shape, _keys: int) -> Actor:
        count = self.chance.randint(1, 3)
        deeds = [Deed(name=self._name(), verb="follow", count=2) for _ in range(count)]
        return replace(self._actor("follower", deeds), waits_ms=self.chance.choice([0, 50, 150]))

    def _faults(self, actors: list[str]) -> list[Fault]:
        chance = self.chance
        count = chance.choice([0, 1, 2, 2, 3])
        found = []
        for _ in range(count):
            on, most = chance.choice([("any", 60), ("change", 16), ("commit", 2), ("commit", 3)])
            kind = chance.choice(FAULTS)
            found.append(
                Fault(
                    actor=chance.choice(actors),
                    kind=kind,
                    on=on,
                    nth=chance.randint(1, most),
                    wait_ms=chance.choice([50, 200, 1000]) if kind == "slow" else 0,
                )
            )
        return found


AFTERWARDS = Actor(
    name="afterwards",
    deeds=(
        Deed(name="a1", verb="write", rows=((0, 1, 1), (9, 1, 1))),
        Deed(name="a2", verb="compact fully"),
        Deed(name="a3", verb="read"),
    ),
    reopens=True,
)
"""Who finds out whether the table can be used as ever."""


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    return _Draw(seed).scenario()
