"""The picture of a write and its commit: what a crash before each step leaves, by real crashes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakecore.errors import LakecoreError
from property_tests.deeds import copy_of
from tests.pictures.drawing import WIDTH, Drawing
from tests.stores import FailingStore, StoreFailure, files_below
from tests.tables import PATH, held, new_table, put, reopened

if TYPE_CHECKING:
    from pathlib import Path

_STEPS = {
    "data": "write a data file",
    "manifest": "write manifests",
    "snapshot": "create snapshot-2: the commit",
    "LATEST": "note the latest snapshot",
}


def commit(_: Path) -> str:
    """Each step of a write, and what is there if the process dies just before it."""
    table = new_table()
    put(table, "1 old")
    store = table.context.store
    healthy = FailingStore(copy_of(store))
    put(reopened(table, store=healthy), "1 new")
    before = set(files_below(store, PATH))
    drawing = Drawing(352, "The steps of a write, and what a crash before each step leaves.")
    drawing.text(20, 30, "A write, step by step: what if the process dies before …", "strong")
    for x, name in ((330, "files left over"), (520, "readers see")):
        drawing.text(x, 62, name, "dim")
    done = set()
    y = 74
    for number, (_call, path) in enumerate(healthy.calls, start=1):
        kind = path.rpartition("/")[2].partition("-")[0]
        if kind in done:
            continue
        done.add(kind)
        dead = copy_of(store)
        with suppress(LakecoreError, StoreFailure):
            put(reopened(table, store=FailingStore(dead, number)), "1 new")
        found = held(reopened(table, store=dead)).partition(" ")[2]
        _row(drawing, y, _STEPS[kind], len(set(files_below(dead, PATH)) - before), found)
        y += 46
    _row(
        drawing, y, "after that", None, held(reopened(table, store=healthy.inner)).partition(" ")[2]
    )
    says = "No snapshot names left-over files; remove_orphan_files deletes them."
    drawing.text(20, 334, says, "dim")
    return drawing.svg()


def _row(drawing: Drawing, y: int, step: str, left: int | None, found: str) -> None:
    drawing.box(12, y, WIDTH - 24, 38, "win" if "commit" in step else "box")
    drawing.text(24, y + 25, step, "on strong" if "commit" in step else "strong")
    if left is not None:
        orphans = 0 if found == "new" else left
        drawing.text(330, y + 25, str(orphans) if orphans else "none")
    drawing.text(520, y + 25, f"the {found} row", "on" if "commit" in step else "")
