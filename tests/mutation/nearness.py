"""Which tests are tried first for a mutant: the nearer a file of tests to the module, the earlier.

1. the file that mirrors the module, or the package that it is of;
2. files of the mirrored folder, and those that name the function;
3. all others.

Of these, files come first that name the class more often, then those that name the function and the
module more often.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Nearness:
    """The files of tests of a repository, by name relative to its root."""

    root: Path
    files: tuple[str, ...]

    def ranks(self, module: str, function: str) -> dict[str, tuple[int, int, int]]:
        """The rank of each file of tests for a function of a module; the smallest comes first."""
        parts = Path(module).with_suffix("").parts[1:]
        folder = Path("tests", *parts[:-1])
        own = {
            (folder / f"test_{parts[-1]}.py").as_posix(),
            (folder.parent / f"test_{parts[-2]}.py").as_posix(),
        }
        owner, _, last = function.rpartition(".")
        named = re.compile(rf"\b{re.escape(last)}\b")
        found: dict[str, tuple[int, int, int]] = {}
        for file, text in self._texts.items():
            mentions = 0 if function.endswith("__") else len(named.findall(text))
            near = mentions or Path(file).parent == folder
            of_class = text.count(owner) if owner else 0
            rank = 0 if file in own else 1 if near else 2
            found[file] = (rank, -of_class, -mentions - text.count(parts[-1]))
        return found

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {file: (self.root / file).read_text("utf-8") for file in self.files}
