"""A sample of mutants, and which tests kill them: `python -m tests.mutation 100 --seed 1`.

One in turn is drawn from each part of the engine. Each mutant is tried in a fork of this process,
by the tests that run its line (`reach.py`), the nearest first (`nearness.py`), until one fails or
the seconds given are used. A test that
fails must pass without the mutant, or it is put aside. A mutant that uses far more time than the
same test without it is out of time, and counted apart.

`--log` keeps what is known in a file, one line of JSON for each mutant; a later run of the same
draw goes on from there, and with `--again` tries survivors once more, as after a test was added. A
mutant that survives, and that `survivors.txt` does not excuse, is a finding. It fails if less than
95 % of the mutants that are not excused are killed.

Only functions are mutated. Tests in other processes would not see the mutant: they, and those that
need a server, are left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import random
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from threading import Lock
from typing import Any

from tests.mutation.mutants import Mutant, compiles, mutants
from tests.mutation.nearness import Nearness
from tests.mutation.reach import Reach
from tests.mutation.trial import (
    KILLED,
    SECONDS_FREE,
    SLOW,
    STILL,
    SURVIVED,
    Batch,
    Patch,
    Verdict,
    tried,
)

ROOT = Path(__file__).parents[2]
PARTS = ("merge", "lsm", "plan", "rows", "table", "format", "io", "scalar", "model")
SURVIVORS = Path(__file__).parent / "survivors.txt"
KILLED_SHARE_MIN = 0.95
TIMES_SLOWER = 4
SECONDS_FIRST = 3
NEAR_MAX = 1
FOLDER = ROOT / ".mutation"
LEFT_OUT = (
    "lakecore/io/hive/",
    "lakecore/io/stores/engine_files.py",
    "lakecore/io/stores/hdfs.py",
    "lakecore/io/stores/services.py",
    "lakecore/table/maintenance/iceberg_catalogs.py",
    "lakecore/table/maintenance/iceberg_hive.py",
    "lakecore/table/maintenance/iceberg_rest.py",
    "lakecore/scalar/syntax_trees.py",
)
"""Modules that only tests with a server run; the last one, only tests with DuckDB 1."""
ELSEWHERE = ("cli", "demo", "differential", "distributed", "interop", "mutation", "spark", "bench")
BEFORE_TESTS = ("hypothesis.strategies", "pandas", "duckdb", "pyarrow.dataset", "tests.tables")
EXCUSED, OUT_OF_TIME, NOT_TRIED = "excused", "out of time", "not tried"
OUTCOMES = (KILLED, OUT_OF_TIME, SURVIVED, EXCUSED, NOT_TRIED)


def main() -> int:
    """Try the mutants; 0 if enough of them are killed."""
    given = _arguments()
    for part in PARTS:
        for found in pkgutil.walk_packages([str(ROOT / "lakecore" / part)], f"lakecore.{part}."):
            importlib.import_module(found.name)
    for name in BEFORE_TESTS:
        importlib.import_module(name)
    files = _files()
    trials = Trials(
        seconds=given.seconds,
        reach=Reach.of(ROOT, FOLDER, files, PARTS),
        nearness=Nearness(ROOT, files),
    )
    excused = {line.split(" | ")[0] for line in SURVIVORS.read_text("utf-8").splitlines()}
    known = _known(given.log)

    def line_of(mutant: Mutant) -> dict[str, Any]:
        line = known.get(mutant.key)
        if mutant.key in excused:
            return {"key": mutant.key, "outcome": EXCUSED}
        if line is not None and not (given.again and line["outcome"] == SURVIVED):
            return line
        began = time.monotonic()
        line = {"key": mutant.key, "line": mutant.line, **trials.of(mutant)}
        line["took"] = round(time.monotonic() - began)
        if given.log is not None:
            with given.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return line

    outcomes: dict[str, str] = {}
    # The threads wait for their children.
    with ThreadPoolExecutor(given.jobs) as pool:
        lines = pool.map(line_of, draw(given.mutants, given.seed, given.only))
        for number, line in enumerate(lines, 1):
            outcomes[line["key"]] = line["outcome"]
            print(f"{number:4} {line}", flush=True)
    return 0 if reported(outcomes) >= KILLED_SHARE_MIN else 1


def draw(count: int, seed: int, only: str) -> list[Mutant]:
    """So many mutants of modules whose path has the text `only`, the same for one seed.

    Each part has its turn, so that a small one is looked at too; fewer drawn are the first of more.
    """
    parts: list[list[Mutant]] = []
    for part in PARTS:
        found: list[Mutant] = []
        for path in sorted((ROOT / "lakecore" / part).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if only in name and not name.startswith(LEFT_OUT):
                found += mutants(name, path.read_bytes())
        random.Random(f"{seed} {part}").shuffle(found)
        parts.append(found)
    drawn: list[Mutant] = []
    for mutant in chain.from_iterable(zip_longest(*parts)):
        if len(drawn) == count:
            break
        if mutant is not None and compiles(mutant, (ROOT / mutant.path).read_bytes()):
            drawn.append(mutant)
    return drawn


@dataclass
class Trials:
    """How mutants are tried; `without` are tests that fail without a mutant."""

    seconds: float
    reach: Reach
    nearness: Nearness
    without: set[str] = field(default_factory=set)
    passing: dict[str, float] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._known = self.reach.names
        self._known_files = {name.partition("::")[0] for name in self._known}

    def of(self, mutant: Mutant) -> dict[str, Any]:
        """What comes of a mutant, and of which test."""
        with self.lock:
            patch = Patch.of(mutant, ROOT)
            batches = self._batches(mutant)
        if patch is None:
            return {"outcome": NOT_TRIED}
        while True:
            verdict = tried(patch, batches, seconds=self.seconds, without=frozenset(self.without))
            outcome = verdict.outcome
            if outcome != SURVIVED:
                outcome = self._confirmed(patch, verdict)
            if outcome:
                return {
                    "outcome": outcome,
                    "by": verdict.by,
                    "tests": len(verdict.seconds),
                    "reached": verdict.reached,
                }

    def _batches(self, mutant: Mutant) -> list[Batch]:
        """The tests of the mutant's line, by file: some quick ones, the rest, laws again.

        Tests that are newer than the run that says which these are belong to the quick ones of a
        file, if it is near.
        """
        ranks = self.nearness.ranks(mutant.path, mutant.function)
        tests, known = (
            self.reach.tests(mutant.path, mutant.statement_line, mutant.line),
            self._known,
        )
        first: dict[str, list[str]] = defaultdict(list)
        rest: dict[str, list[str]] = defaultdict(list)
        used: dict[str, float] = defaultdict(float)
        for name in sorted(tests, key=lambda name: tests[name]):
            file = name.partition("::")[0]
            used[file] += tests[name]
            (first if used[file] < SECONDS_FIRST else rest)[file].append(name)
        newer = {
            file
            for file, (rank, *_) in ranks.items()
            if rank == 0 or (rank <= NEAR_MAX and file not in self._known_files)
        }
        near = sorted({*first, *rest, *newer} & ranks.keys(), key=lambda file: ranks[file])
        some = [Batch((file,), frozenset(first[file]), known) for file in near]
        others = [Batch((file,), frozenset(rest[file]), known) for file in near if file in rest]
        deep = [
            Batch((file,), frozenset(first[file] + rest[file]), known, deep=True) for file in near
        ]
        return [*some, *others, *deep]

    def _confirmed(self, patch: Patch, verdict: Verdict) -> str:
        """What the verdict of a test is worth, by the same test without the mutant.

        Empty if it is worth nothing; the test is then left out from here on.
        """
        test = verdict.by
        if verdict.is_sure:
            return KILLED
        if test not in self.passing:
            alone = tried(None, [Batch((test,))], seconds=1, seconds_each=600)
            if alone.outcome != SURVIVED or test not in alone.seconds:
                self.without.add(test)
                return ""
            self.passing[test] = alone.seconds[test]
        if verdict.outcome != SLOW:
            return OUT_OF_TIME if verdict.outcome == STILL else KILLED
        most = TIMES_SLOWER * self.passing[test]
        if most <= SECONDS_FREE:
            return OUT_OF_TIME
        slower = tried(patch, [Batch((test,))], seconds=1, seconds_each=most)
        if slower.outcome == SURVIVED:
            self.without.add(test)
            return ""
        return KILLED if slower.outcome == KILLED else OUT_OF_TIME


def reported(outcomes: dict[str, str]) -> float:
    """Print the counts of each part and of all; the share that was killed."""
    share = 1.0
    for part in (*PARTS, ""):
        found = [each for key, each in outcomes.items() if key.startswith(f"lakecore/{part}")]
        counts = {each: found.count(each) for each in OUTCOMES}
        judged = len(found) - counts[EXCUSED] - counts[NOT_TRIED]
        share = counts[KILLED] / judged if judged else 1.0
        texts = ", ".join(f"{count} {each}" for each, count in counts.items() if count)
        print(f"{part or 'all':7} {len(found)} drawn: {texts}; {share:.1%} of {judged} killed")
    return share


def _files() -> tuple[str, ...]:
    """The files of tests that may see a mutant."""
    found = [
        path.relative_to(ROOT)
        for folder in ("tests", "property_tests")
        for path in (ROOT / folder).rglob("test_*.py")
    ]
    return tuple(sorted(path.as_posix() for path in found if path.parts[1] not in ELSEWHERE))


def _known(log: Path | None) -> dict[str, dict[str, Any]]:
    if log is None or not log.exists():
        return {}
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    return {line["key"]: line for line in lines}


def _arguments() -> argparse.Namespace:
    asked = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    asked.add_argument("mutants", type=int, nargs="?", default=100, help="how many to draw")
    asked.add_argument("--seed", type=int, default=1, help="draws the same ones again")
    asked.add_argument("--only", default="lakecore/", help="a part of the path of modules")
    asked.add_argument("--seconds", type=int, default=60, help="of the processor, for each mutant")
    asked.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    asked.add_argument("--log", type=Path, help="a file that keeps what is known")
    asked.add_argument("--again", action="store_true", help="try known survivors once more")
    return asked.parse_args()


if __name__ == "__main__":
    sys.exit(main())
