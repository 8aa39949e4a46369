"""A stream that waits, and one that follows 100 000 snapshots: what a look costs, and memory.

A look that finds nothing is compared with Java Paimon's on the same table.

The snapshots are made by hand, with the manifests of the first one, in memory if there is memory
for files (`/dev/shm`): a look is measured, and no commit.
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
from bench.by_java import by_java
from bench.report import Figures, console, promise
from lakecore.format.metadata import encode_snapshot
from lakecore.table.changes.follow import Follower, Found, Nothing
from lakecore.table.changes.starts import Origin
from tests.interop.engines import running_peers
from tests.interop.limits import JAVA

if TYPE_CHECKING:
    from lakecore.table.handle import Table

SNAPSHOTS = 100_000
LOOKS = (1_000, 4_000)
_PAGE_BYTES = 4096


def run(snapshots: int = SNAPSHOTS) -> bool:
    """Measure; whether every promise was kept."""
    memory = Path("/dev/shm")  # noqa: S108  a place, not a name
    warehouse = tempfile.mkdtemp(prefix="lakecore-bench-", dir=memory if memory.is_dir() else None)
    catalog = lakecore.connect(warehouse, create=True)
    catalog.create_database("bench")
    table = catalog.create_table(
        "bench.t", {"id": "INT NOT NULL"}, primary_keys=["id"], options={"bucket": "1"}
    )
    table.write([{"id": 1}])
    options = table.copy({"scan.mode": "latest"}).options
    follower = Follower(table.context, Origin(options=options), None)
    figures = Figures("looks of a stream that finds nothing")
    few, many = (f"{count:,} looks" for count in LOOKS)
    for _ in range(5):
        for count in LOOKS:
            figures.time(f"{count:,} looks", partial(look, follower, count))
    with running_peers(Path(warehouse)) as peers:
        java = peers(JAVA)
        java.peer.ask("polls", path=table.path, times=LOOKS[0])
        theirs = Figures(few)
        for _ in range(5):
            theirs.time("lakecore", partial(look, follower, LOOKS[0]))
            assert by_java(theirs, java, "polls", Path(table.path), times=LOOKS[0]) == 0
    figures.show(few)
    theirs.show("lakecore")
    grown_bytes = follow(table, follower, snapshots)
    console.print(f"  memory grown over {snapshots:,} snapshots: {grown_bytes / 1e6:.1f} MB")
    shutil.rmtree(warehouse)
    each = median(figures.cpu_seconds[many]) / LOOKS[1]
    console.print(f"  a look that finds nothing: {1e6 * each:.0f} microseconds")
    times = LOOKS[1] / LOOKS[0]
    kept = promise(
        "4 000 looks to 1 000", figures.cpu_ratio(many, few), 1.25 * times, at_least=False
    )
    kept &= promise(
        "CPU of Java, in times of lakecore's",
        theirs.cpu_ratio("java", "lakecore"),
        1,
        at_least=True,
    )
    flat = promise("MB of memory grown", grown_bytes / 1e6, 20, at_least=False)
    return kept and flat


def look(follower: Follower, count: int) -> None:
    """Look for the next snapshot, which is not there."""
    for _ in range(count):
        assert follower.step() is Nothing.YET


def follow(table: Table, follower: Follower, count: int) -> int:
    """Follow that many snapshots; the bytes of memory that all but the first tenth took."""
    context = table.context
    first = context.history.snapshot(1)
    resident = 0
    for number in range(2, count + 2):
        made = replace(first, id=number, uuid=str(number))
        Path(context.layout.snapshot(number)).write_bytes(encode_snapshot(made))
        assert isinstance(follower.step(), Found)
        if number > 3:
            context.store.delete(context.layout.snapshot(number - 2))
        if number == 2 + count // 10:
            resident = resident_bytes()
    return resident_bytes() - resident


def resident_bytes() -> int:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
