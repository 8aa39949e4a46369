"""`file.format.per.level`, `file.compression.per.level`: files by level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import lakecore as lc
from tests.interop import limits
from tests.interop.lakecore_engine import LakecoreEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.interop.engines import PeerEngine
    from tests.interop.model import Commit

pytestmark = pytest.mark.interop

OURS = LakecoreEngine()
FORMATS = {0: "avro", 1: "orc", 3: "parquet"}
KINDS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "lookup": {"changelog-producer": "lookup"},
    "vectors": {"deletion-vectors.enabled": "true"},
}


def rows(turn: int) -> Commit:
    return tuple(("+I", [(turn * 3 + at) % 17, f"turn {turn}", at * turn]) for at in range(9))


@pytest.mark.parametrize("kind", KINDS)
def test_both_write_each_level_in_its_own_format(
    kind: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java = peers(limits.JAVA)
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    options = {
        **KINDS[kind],
        "bucket": "1",
        "file.format": "orc",
        "file.format.per.level": ",".join(f"{level}:{name}" for level, name in FORMATS.items()),
        "file.compression.per.level": "0:null,3:snappy",
        "num-levels": "4",
        "num-sorted-run.compaction-trigger": "3",
        "compaction.size-ratio": "0",
    }
    columns = {"id": "INT NOT NULL", "s": "STRING", "n": "INT"}
    session.create_table("d.t", columns, primary_keys=["id"], options=options)
    path = tmp_path / "d.db" / "t"
    wanted: dict[int, list[object]] = {}
    seen: set[tuple[int, str]] = set()
    for turn in range(10):
        changes = rows(turn)
        (OURS if turn % 2 else java).write(path, changes)
        wanted |= {row[0]: row for _, row in changes}  # type: ignore[misc]
        if turn in (5, 8):
            (OURS if turn == 5 else java).compact(path, full=True)
        seen |= files_of(path)

        found = sorted(wanted.values(), key=repr)
        assert sorted(OURS.read(path), key=repr) == found, turn
        assert sorted(java.read(path), key=repr) == found, turn
    assert {level for level, _ in seen} >= {3}
    assert all(FORMATS.get(level, "orc") == name for level, name in seen), seen
    assert codecs_of(path) <= {"SNAPPY"}


def files_of(path: Path) -> set[tuple[int, str]]:
    """The level of each live file, and how its name ends."""
    files = lc.open_table(path).inspect.files()
    return {(row["level"], row["file_path"].rpartition(".")[2]) for row in files.rows(named=True)}


def codecs_of(path: Path) -> set[str]:
    """The compression of the Parquet files."""
    return {
        pq.ParquetFile(file).metadata.row_group(0).column(0).compression
        for file in path.rglob("*.parquet")
    }
