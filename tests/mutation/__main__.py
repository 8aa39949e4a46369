"""A sample of mutants, and which tests catch them: `python -m tests.mutation 50 --seed 1`.

Each mutant is tried in a copy of the repository. The tests that mirror its module come first, then
those of its folder and the laws that name its part, then all others. A mutant that no test catches
within these, and that `survivors.txt` does not excuse, is a finding. It fails if less than 95 % of
the mutants that are not excused are caught.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from tests.mutation.mutants import Mutant, compiles, mutants

ROOT = Path(__file__).parents[2]
PARTS = ("merge", "lsm", "plan", "rows", "table", "format", "io")
SURVIVORS = Path(__file__).parent / "survivors.txt"
CAUGHT_SHARE_MIN = 0.95
LAWS = {
    "merge": ("merge_functions", "aggregators", "changelogs", "engines_table"),
    "lsm": ("packing", "picking", "fixed_points", "compaction_steps"),
    "plan": ("predicate", "filters", "pruned_reads"),
    "rows": ("conform", "values_come_back"),
    "table": ("table_machine", "races", "crash", "engines_table", "verbs", "changes"),
    "format": ("binary_row", "metadata", "manifests", "types"),
    "io": ("data_files", "table_machine"),
}
PYTEST_FOUND, PYTEST_NONE = 1, 5


def main() -> int:
    """Try the mutants; 0 if enough of them are caught."""
    given = _arguments()
    drawn = draw(given.mutants, given.seed, given.only)
    excused = {line.split(" | ")[0] for line in SURVIVORS.read_text("utf-8").splitlines()}
    counts = {"caught": 0, "excused": 0, "survived": 0}
    with tempfile.TemporaryDirectory(prefix="lakecore-mutants-") as folder:
        home = Path(folder) / "copy"
        copy_to(home)
        for number, mutant in enumerate(drawn, 1):
            began = time.monotonic()
            if mutant.key in excused:
                outcome, by = "excused", "survivors.txt"
            else:
                by = caught_by(mutant, home, quick=given.quick, seconds=given.timeout)
                outcome = "caught" if by else "survived"
            counts[outcome] += 1
            took = time.monotonic() - began
            print(f"{number:4} {outcome:8} {took:4.0f} s  {mutant.path}:{mutant.line} {by}")
            if outcome == "survived":
                print(f"     {mutant.key}")
            sys.stdout.flush()
    tried = counts["caught"] + counts["survived"]
    share = counts["caught"] / tried if tried else 1.0
    print(f"{counts}; caught {share:.1%} of {tried} that are not excused (seed {given.seed})")
    return 0 if share >= CAUGHT_SHARE_MIN else 1


def draw(count: int, seed: int, only: str) -> list[Mutant]:
    """So many mutants of the modules whose path has the text `only`, the same for one seed."""
    found: list[Mutant] = []
    for part in PARTS:
        for path in sorted((ROOT / "lakecore" / part).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if only in name:
                found += mutants(name, path.read_bytes())
    random.Random(seed).shuffle(found)
    code = (each for each in found if compiles(each, (ROOT / each.path).read_bytes()))
    return [*islice(code, count)]


def copy_to(home: Path) -> None:
    """The files of the repository, as they are in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, home / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def caught_by(mutant: Mutant, home: Path, *, quick: bool, seconds: int) -> str:
    """Which tests fail with the mutant, or run out of time; empty if none do."""
    path = home / mutant.path
    source = path.read_bytes()
    path.write_bytes(mutant.applied(source))
    try:
        for name, tests in stages(mutant.path, home, quick=quick):
            try:
                if not passes(tests, home, seconds):
                    return name
            except subprocess.TimeoutExpired:
                return f"{name}, out of time"
    finally:
        path.write_bytes(source)
    return ""


def stages(module: str, home: Path, *, quick: bool) -> list[tuple[str, list[str]]]:
    """The tests to run, the nearest first."""
    parts = Path(module).with_suffix("").parts[1:]
    own = Path("tests", *parts[:-1], f"test_{parts[-1]}.py")
    folder = own.parent
    laws = [f"property_tests/test_{name}.py" for name in LAWS[parts[0]]]
    found = [(own.as_posix(), [own.as_posix()])] if (home / own).exists() else []
    found.append((folder.as_posix(), [folder.as_posix()]))
    found.append(("its laws", laws))
    if not quick:
        found.append(("all tests", ["tests", "property_tests", "-n", "2"]))
    return found


def passes(tests: list[str], home: Path, seconds: int) -> bool:
    """Whether no test fails. Raises TimeoutExpired."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command, cwd=home, capture_output=True, text=True, timeout=seconds, check=False
    )
    return done.returncode in {0, PYTEST_NONE}


def _arguments() -> argparse.Namespace:
    asked = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    asked.add_argument("mutants", type=int, nargs="?", default=50, help="how many to draw")
    asked.add_argument("--seed", type=int, default=1, help="draws the same ones again")
    asked.add_argument("--only", default="lakecore/", help="a part of the path of modules")
    asked.add_argument("--quick", action="store_true", help="only the nearest tests and laws")
    asked.add_argument("--timeout", type=int, default=900, help="seconds for each group of tests")
    return asked.parse_args()


if __name__ == "__main__":
    sys.exit(main())
