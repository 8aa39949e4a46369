"""Which tests are tried first for a mutant: the nearer a file of tests to the module, the earlier.

1. the file that mirrors the module, or the package that it is of;
2. files that import the module, or that begin as it in the mirrored folder; the more often they
   name the class and the function, the earlier;
3. files that name the function: a word such as `part` stands in many;
4. files of the mirrored folder that import a module which imports it;
5. other files of the mirrored folder;
6. the laws that name its part;
7. other files that import a module which imports it;
8. all others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

LAWS = {
    "merge": ("merge_functions", "aggregators", "changelogs", "engines_table"),
    "lsm": ("packing", "picking", "fixed_points", "compaction_steps"),
    "plan": ("predicate", "filters", "pruned_reads", "conditions"),
    "rows": ("conform", "values_come_back"),
    "scalar": ("conditions", "filters"),
    "model": ("types", "metadata", "table_machine"),
    "table": ("table_machine", "races", "crash", "engines_table", "verbs", "changes"),
    "format": ("binary_row", "metadata", "manifests", "types", "damaged_bytes", "damaged_indexes"),
    "io": ("data_files", "table_machine", "damaged_bytes"),
}


_IMPORT = re.compile(r"^ *from (lakecore[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Nearness:
    """The files of tests of a repository, by name relative to its root."""

    root: Path
    files: tuple[str, ...]

    def ranks(self, module: str, function: str) -> dict[str, tuple[int, int]]:
        """The rank of each file of tests for a function of a module; the smallest comes first."""
        name = ".".join(Path(module).with_suffix("").parts)
        parts = Path(module).with_suffix("").parts[1:]
        folder = Path("tests", *parts[:-1])
        own = {
            (folder / f"test_{parts[-1]}.py").as_posix(),
            (folder.parent / f"test_{parts[-2]}.py").as_posix(),
        }
        begins = f"test_{parts[-1].partition('_')[0]}"
        laws = {f"property_tests/test_{law}.py" for law in LAWS.get(parts[0], ())}
        users = {other for other, seen in self._modules.items() if name in seen}
        owner, _, last = function.rpartition(".")
        named = re.compile(rf"\b{re.escape(last)}\b")
        found: dict[str, tuple[int, int]] = {}
        for file in self.files:
            text, seen = self._tests[file]
            if file in own:
                rank = 0
            elif name in seen or (
                Path(file).parent == folder and Path(file).name.startswith(begins)
            ):
                rank = 1
            elif Path(file).parent == folder:
                rank = 3 if users & seen else 4
            elif file in laws:
                rank = 5
            else:
                rank = 6 if users & seen else 7
            mentions = len(named.findall(text))
            if rank > 2 and mentions and not function.endswith("__"):
                rank = 2
            of_class = text.count(owner) if owner else 0
            found[file] = (rank, -of_class - mentions - text.count(parts[-1]))
        return found

    @cached_property
    def _tests(self) -> dict[str, tuple[str, frozenset[str]]]:
        texts = {file: (self.root / file).read_text("utf-8") for file in self.files}
        return {file: (text, _imported(text)) for file, text in texts.items()}

    @cached_property
    def _modules(self) -> dict[str, frozenset[str]]:
        paths = (self.root / "lakecore").rglob("*.py")
        return {
            ".".join(path.relative_to(self.root).with_suffix("").parts): _imported(
                path.read_text("utf-8")
            )
            for path in paths
        }


def _imported(text: str) -> frozenset[str]:
    """The modules of lakecore that a source imports, and the names that may be modules."""
    found: set[str] = set()
    for module, names in _IMPORT.findall(text):
        found |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    return frozenset(found)
