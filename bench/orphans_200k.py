"""Cleaning up among 200 000 files of a table, compared with Java Paimon on a copy.

190 000 empty files are named by the metadata of 100 commits; 10 000 are named by nothing. Only
names matter, so the files are empty. Where there is memory for files (`/dev/shm`), the tables are
there.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import lakecore
from bench.by_java import by_java
from bench.child import ran, tell
from bench.report import Figures, console, promise
from lakecore.table.commits.commit import CommitRequest, commit
from tests.interop.engines import running_peers
from tests.interop.limits import JAVA

COMMITS, LIVE, ORPHANS = 100, 190_000, 10_000


def run(scale: float = 1.0) -> bool:
    """Measure; whether every promise was kept."""
    memory = Path("/dev/shm")  # noqa: S108  a place, not a name
    home = Path(tempfile.mkdtemp(prefix="lakecore-bench-", dir=memory if memory.is_dir() else None))
    live, orphans = int(LIVE * scale), int(ORPHANS * scale)
    half, whole, theirs = home / "half", home / "whole", home / "theirs"
    fill(half, live // 2, orphans // 2)
    fill(whole, live, orphans)
    fill(theirs, live, orphans)
    fill(home / "warm", 1_000, 100)
    figures = Figures(f"remove {orphans:,} orphans among {live + orphans:,} files")
    with running_peers(home) as peers:
        java = peers(JAVA)
        later = int(time.time() * 1000) + 60_000
        java.peer.ask("remove_orphans", path=str(home / "warm"), older_than_ms=later)
        small = ran("bench.orphans_200k", half, later)
        large = ran("bench.orphans_200k", whole, later)
        assert (small.rows, large.rows) == (orphans // 2, orphans)
        figures.add("lakecore, half as many", small.seconds, small.cpu_seconds)
        figures.add("lakecore", large.seconds, large.cpu_seconds)
        deleted = by_java(figures, java, "remove_orphans", theirs, older_than_ms=later)
        assert deleted == orphans, deleted
    figures.show("lakecore")
    shutil.rmtree(home)
    ratio = figures.cpu_ratio("java", "lakecore")
    kept = promise("CPU of Java, in times of lakecore's", ratio, 1, at_least=True)
    growth = figures.cpu_ratio("lakecore", "lakecore, half as many")
    kept &= promise("CPU, twice as many files", growth, 2.5, at_least=False)
    kept &= promise("MiB of memory, the libraries included", large.peak_mib, 600, at_least=False)
    console.print()
    return kept


def fill(path: Path, live: int, orphans: int) -> None:
    """A table of so many files that are named and so many that are not."""
    table = lakecore.open_table(
        path,
        create=True,
        schema={"id": "INT NOT NULL"},
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true", "snapshot.num-retained.min": "1000"},
    )
    writer = table.new_write()
    writer.write([{"id": 1}])
    (message,) = writer.prepare_commit()
    (first,) = message.new_files
    bucket = path / "bucket-0"
    (bucket / first.name).unlink()
    for number in range(COMMITS):
        names = [f"data-{number}-{at}.parquet" for at in range(live // COMMITS)]
        for name in names:
            (bucket / name).touch()
        change = replace(
            message,
            base_snapshot_id=table.context.history.latest_snapshot_id(),
            new_files=tuple(replace(first, name=name) for name in names),
        )
        commit(table.context, CommitRequest(messages=[change], user="bench"))
    for at in range(orphans):
        (bucket / f"data-lost-{at}.parquet").touch()


def clean(path: str, later_ms: int) -> int:
    """Remove the orphans, how many there are; all files are younger than the default age."""
    return lakecore.open_table(path).remove_orphan_files(older_than=later_ms, force=True).files


if __name__ == "__main__":
    place, later_text = sys.argv[1:]
    tell(lambda: clean(place, int(later_text)))
