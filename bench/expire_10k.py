"""10 000 snapshots: a plan among them, and expiring 5 000 of them, compared with Java Paimon.

Each commit replaces the one small file of the commit before, as a compaction does: a snapshot that
expires takes a data file, its manifest and two manifest lists with it. Java does the same to a copy
of the table, in one process that is started and warm. Where there is memory for files (`/dev/shm`),
the tables are there.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import lakecore
from bench.by_java import by_java
from bench.report import Figures, console, promise
from lakecore.table.commits.commit import CommitRequest, commit
from tests.interop.engines import running_peers
from tests.interop.limits import JAVA

if TYPE_CHECKING:
    from lakecore.table.handle import Table
    from tests.interop.engines import PeerEngine

SNAPSHOTS = 10_000
PLANS = 20
OPTIONS = {"bucket": "1", "write-only": "true", "snapshot.num-retained.min": "1000000"}


def run(snapshots: int = SNAPSHOTS) -> bool:
    """Measure; whether every promise was kept."""
    memory = Path("/dev/shm")  # noqa: S108  a place, not a name
    home = Path(tempfile.mkdtemp(prefix="lakecore-bench-", dir=memory if memory.is_dir() else None))
    sizes = {snapshots // 2: home / "half", snapshots: home / "whole"}
    fill(home / "half", 0, snapshots // 2)
    shutil.copytree(home / "half", home / "whole")
    fill(home / "whole", snapshots // 2, snapshots)
    fill(home / "warm", 0, 100)
    with running_peers(home) as peers:
        java = peers(JAVA)
        java.peer.ask("plan", path=str(home / "warm"), times=PLANS)
        java.peer.ask("expire", path=str(home / "warm"), retain=10)
        kept = plans(java, sizes)
        kept &= expiries(java, sizes, home)
    shutil.rmtree(home)
    console.print()
    return kept


def fill(path: Path, first: int, last: int) -> None:
    """A table whose snapshots up to `last` each have one live file; `first` of them are there."""
    table = lakecore.open_table(
        path, create=True, schema={"id": "INT NOT NULL"}, primary_keys=["id"], options=OPTIONS
    )
    writer = table.new_write()
    writer.write([{"id": 1}])
    (message,) = writer.prepare_commit()
    (written,) = message.new_files
    stored = (path / "bucket-0" / written.name).read_bytes()
    live = table.context.history.latest_snapshot()
    gone = () if live is None else (table.context.history.live_entries(live)[0].file,)
    for number in range(first, last):
        added = replace(
            written, name=f"data-{number}.parquet", sequence_min=number, sequence_max=number
        )
        (path / "bucket-0" / added.name).write_bytes(stored)
        change = replace(
            message,
            base_snapshot_id=table.context.history.latest_snapshot_id(),
            base_snapshot_uuid=None,
            new_files=() if gone else (added,),
            compact_before=gone,
            compact_after=(added,) if gone else (),
        )
        commit(table.context, CommitRequest(messages=[change], user="bench"))
        gone = (added,)


def plans(java: PeerEngine, sizes: dict[int, Path]) -> bool:
    """Open and plan, with half of the snapshots and with all."""
    kept = True
    ours: dict[int, Figures] = {}
    for size, path in sizes.items():
        ours[size] = figures = Figures(f"{PLANS} times open and plan, {size:,} snapshots")
        for _ in range(5):
            figures.time("lakecore", partial(_plan, path))
            assert by_java(figures, java, "plan", path, times=PLANS) == 1
        figures.show("lakecore")
        ratio = figures.cpu_ratio("java", "lakecore")
        kept &= promise("CPU seconds of Java, in times of lakecore's", ratio, 1, at_least=True)
    # Paimon merges small manifests, but drops pairs of ADD and DELETE only above 16 MB.
    half, whole = (min(figures.cpu_seconds["lakecore"]) for figures in ours.values())
    return kept & promise("CPU, all snapshots to half", whole / half, 2.5, at_least=False)


def _plan(path: Path) -> None:
    for _ in range(PLANS):
        assert lakecore.open_table(path).explain().files_kept == 1


def expiries(java: PeerEngine, sizes: dict[int, Path], home: Path) -> bool:
    """Expire half of the snapshots of each table."""
    figures: dict[int, Figures] = {}
    for size, path in sizes.items():
        retain = size // 2
        figures[size] = Figures(f"expire {size - retain:,} of {size:,} snapshots")
        theirs = home / "theirs"
        shutil.copytree(path, theirs)
        table = lakecore.open_table(path)
        figures[size].time("lakecore", partial(_expire, table, retain))
        by_java(figures[size], java, "expire", theirs, retain=retain)
        assert _names(path) == _names(theirs)
        shutil.rmtree(theirs)
        figures[size].show("lakecore")
    half, whole = figures.values()
    ratio = whole.cpu_ratio("java", "lakecore")
    kept = promise("expiry: CPU of Java, in times of lakecore's", ratio, 1, at_least=True)
    growth = whole.cpu_seconds["lakecore"][0] / half.cpu_seconds["lakecore"][0]
    return kept & promise("expiry: CPU, twice as many", growth, 2.5, at_least=False)


def _expire(table: Table, retain: int) -> None:
    done = table.expire_snapshots(retain_max=retain, retain_min=retain, max_deletes=1_000_000)
    assert done.snapshots_expired == retain


def _names(path: Path) -> set[str]:
    """The files of a table, without the checksums that Java's local store keeps."""
    found = (each.relative_to(path).as_posix() for each in path.rglob("*") if each.is_file())
    return {name for name in found if not name.endswith(".crc")}
