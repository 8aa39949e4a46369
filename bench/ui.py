"""The page over a warehouse of 5 000 tables, one of which has 10 000 snapshots, and its metrics.

The tables are copies of one; the snapshots are made by hand, with the manifests of the first. They
are in memory if there is memory for files (`/dev/shm`): lakecore is measured, and no disk.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import lakecore
from bench.report import Figures, console, promise
from lakecore.format.metadata import encode_snapshot
from tests.ui_pages import ui_server

if TYPE_CHECKING:
    import httpx

TABLES, SNAPSHOTS, RUNS = 5_000, 10_000, 5
SECONDS_MAX = 0.5
PAGES = {
    "list": "/",
    "list, page 50": "/?page=50",
    "list, searched": "/?q=t00042",
    "table": "/t/bench.old",
    "table, older snapshots": "/t/bench.old?before=5000",
    "snapshot": "/t/bench.old/snapshots/5000",
    "files": "/t/bench.old/files",
    "schema": "/t/bench.old/schema",
    "rows": "/t/bench.old/rows",
    "changes": "/t/bench.old/changes",
    "query": "/sql.json?q=SELECT count(*) FROM bench.t00042",
}


def run(scale: float = 1.0) -> bool:
    """Measure; whether every promise was kept."""
    memory = Path("/dev/shm")  # noqa: S108  a place, not a name
    place = tempfile.mkdtemp(prefix="lakecore-bench-", dir=memory if memory.is_dir() else None)
    tables, snapshots = int(TABLES * scale), int(SNAPSHOTS * scale)
    fill(Path(place) / "w", tables, snapshots)
    figures = Figures(f"pages over {tables:,} tables, one of {snapshots:,} snapshots")
    with ui_server(str(Path(place) / "w")) as client:
        for name, address in PAGES.items():
            for _ in range(RUNS):
                figures.time(name, partial(ask, client, address))
        scrapes = Figures("metrics of these tables")
        scrapes.time("first", partial(ask, client, "/metrics"))
        for _ in range(RUNS):
            scrapes.time("later", partial(ask, client, "/metrics"))
    shutil.rmtree(place)
    figures.show("list")
    scrapes.show("later")
    slowest = max(figures.cpu_seconds, key=lambda name: median(figures.cpu_seconds[name]))
    seconds = median(figures.cpu_seconds[slowest])
    text = f"seconds of the processor for the slowest page ({slowest})"
    kept = promise(text, seconds, SECONDS_MAX, at_least=False)
    console.print()
    return kept


def ask(client: httpx.Client, address: str) -> None:
    """Get a page."""
    assert client.get(address).status_code == 200, address


def fill(warehouse: Path, tables: int, snapshots: int) -> None:
    """Make the table of many snapshots, and the copies of a table of three."""
    session = lakecore.connect(warehouse, create=True)
    session.create_database("bench")
    columns = {"id": "INT NOT NULL", "name": "STRING"}
    old, table = (
        session.create_table(f"bench.{name}", columns, primary_keys=["id"], options={"bucket": "2"})
        for name in ("old", "t00000")
    )
    for each in (old, table):
        for number in range(3):
            each.write([{"id": number, "name": "a"}, {"id": number + 10, "name": "b"}])
    for number in range(1, tables - 1):
        shutil.copytree(table.path, Path(table.path).with_name(f"t{number:05}"))
    layout, newest = old.context.layout, old.context.history.snapshot(3)
    for number in range(4, snapshots + 1):
        made = replace(newest, id=number, uuid=str(number))
        Path(layout.snapshot(number)).write_bytes(encode_snapshot(made))
    Path(layout.latest_hint).write_text(str(snapshots))
