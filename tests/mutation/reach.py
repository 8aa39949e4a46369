"""Which tests run which lines of a package, and how long each takes: one run of the tests says it.

The run is kept in a folder, for the code that it saw. It uses `coverage`, whose tracer would slow
down the trials themselves.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from coverage import CoverageData

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_TOOK = re.compile(r"^([\d.]+)s call +(\S.*)$", re.MULTILINE)
_SETTINGS = "[run]\nsource = {package}\nrelative_files = true\ndata_file = {data}\n"
_SECONDS_LEAST = 0.005
"""What pytest does not print took less."""


@dataclass
class Reach:
    """What a run of the tests has kept: `data` of coverage, and the `log` of pytest."""

    root: Path
    data: Path
    log: Path

    @staticmethod
    def of(
        root: Path,
        folder: Path,
        files: Sequence[str],
        parts: Sequence[str],
        package: str = "lakecore",
    ) -> Reach:
        """The run of the present code, from the folder or made now, with these files of tests.

        A run serves as long as the `parts` of the package, which are folders, are as they were.
        """
        seen = hashlib.sha256()
        for part in parts:
            for path in sorted((root / package / part).rglob("*.py")):
                seen.update(path.read_bytes())
        digest = seen.hexdigest()[:16]
        found = Reach(root=root, data=folder / f"{digest}-data", log=folder / f"{digest}-log")
        if not found.log.exists():
            print("All tests run once, to see which lines each of them runs.", flush=True)
            found._make(files, package)
        return found

    def _make(self, files: Sequence[str], package: str) -> None:
        self.data.parent.mkdir(parents=True, exist_ok=True)
        settings = self.data.with_name("coveragerc")
        settings.write_text(_SETTINGS.format(package=package, data=self.data), "utf-8")
        options = ("-q", "-n", "2", "--dist", "worksteal", "--durations=0")
        measured = (f"--cov-config={settings}", "--cov", "--cov-context=test", "--cov-report=")
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *measured, *files],
            cwd=self.root, env={**os.environ, "COVERAGE_CORE": "ctrace"},
            stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        self.log.write_text(ran.stdout, "utf-8")

    @cached_property
    def seconds(self) -> dict[str, float]:
        """What each test took, by its name; a test that is missing took nearly nothing."""
        return {name: float(took) for took, name in _TOOK.findall(self.log.read_text("utf-8"))}

    @cached_property
    def names(self) -> frozenset[str]:
        """The tests that ran a line of the package."""
        return frozenset(each.rpartition("|")[0] for each in self._data.measured_contexts())

    def tests(self, path: str, first: int, last: int) -> dict[str, float]:
        """The seconds of each test that runs one of the lines of a module, from first to last.

        If there is none, those of the whole module: threads that Python did not start are not seen.
        """
        found = self._data.contexts_by_lineno(path)
        lines = {line for line in found if first <= line <= last and _of_tests(found[line])}
        names = {name for line in lines or found for name in found[line]}
        return {each: self.seconds.get(each, _SECONDS_LEAST) for each in _of_tests(names)}

    @cached_property
    def _data(self) -> CoverageData:
        data = CoverageData(str(self.data))
        data.read()
        return data


def _of_tests(contexts: Iterable[str]) -> set[str]:
    """The tests among the contexts of coverage, without what was run to set them up."""
    return {each.removesuffix("|run") for each in contexts if each.endswith("|run")}
