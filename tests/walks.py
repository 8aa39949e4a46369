"""Counts the modules and functions of lakecore that a verb enters: `python -m tests.walks`.

Four *walks* over a tiny keyed table: a merged read, a write with its commit, a MERGE, and a full
compaction. Each walk is made once without counting, so that imports and caches do not count. A
function counts once, however often it is called, and in whatever thread. Code that runs when a
module is imported does not count.

`tests/test_walks.py` limits the modules: code that one verb needs should stand in few places.
`--modules` lists the modules of each walk.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import lakecore as lc

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

_SOURCE = f"{Path(lc.__file__).parent}/"


@dataclass(frozen=True, slots=True)
class Walk:
    """What a verb entered: `functions` as (module, first line, name)."""

    functions: frozenset[tuple[str, int, str]]

    @property
    def modules(self) -> frozenset[str]:
        """The files of the functions, relative to the package."""
        return frozenset(module for module, _, _ in self.functions)


def walks() -> dict[str, Walk]:
    """What each verb enters, by the name of the walk."""
    with tempfile.TemporaryDirectory() as folder:
        for verb in _verbs(Path(folder) / "first").values():
            verb()
        verbs = _verbs(Path(folder) / "second")
        return {name: _walked(verb) for name, verb in verbs.items()}


def _verbs(folder: Path) -> dict[str, Callable[[], object]]:
    """The verbs, in the order in which they are called; the read meets two overlapping runs."""
    catalog = lc.connect(str(folder), create=True)
    catalog.create_database("shop")
    columns = {"id": "BIGINT NOT NULL", "v": "STRING"}
    table = catalog.create_table(
        "shop.orders", columns, primary_keys=["id"], options={"bucket": "1"}
    )
    table.write(_rows(1, 2, 3))
    changed = table.merge(_rows(3, 4), on=["id"])
    changed = changed.when_matched_update_all().when_not_matched_insert_all()
    return {
        "write": lambda: table.write(_rows(2, 3)),
        "merged read": table.to_arrow,
        "MERGE": changed.execute,
        "full compaction": lambda: table.compact(full=True),
    }


def _rows(*keys: int) -> pa.Table:
    return pa.table({"id": pa.array(keys, pa.int64()), "v": [f"value {key}" for key in keys]})


def _walked(verb: Callable[[], object]) -> Walk:
    """Call the verb, and watch all threads that are started meanwhile."""
    entered: set[CodeType] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.add(frame.f_code)

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        verb()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return Walk(
        frozenset(
            (code.co_filename.removeprefix(_SOURCE), code.co_firstlineno, code.co_qualname)
            for code in entered
            if code.co_filename.startswith(_SOURCE)
            # Bodies of modules and classes run at import.
            and code.co_flags & inspect.CO_OPTIMIZED
        )
    )


def main() -> None:
    """Print a row for each walk."""
    parser = argparse.ArgumentParser(prog="python -m tests.walks")
    parser.add_argument("--modules", action="store_true", help="list the modules of each walk")
    given = parser.parse_args()
    print(f"{'walk':<16}{'modules':>8}{'functions':>10}")
    for name, walk in walks().items():
        print(f"{name:<16}{len(walk.modules):>8}{len(walk.functions):>10}")
        for module in sorted(walk.modules) if given.modules else ():
            own = sum(each == module for each, _, _ in walk.functions)
            print(f"  {own:>4} {module}")


if __name__ == "__main__":
    main()
