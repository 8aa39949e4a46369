"""Postponed buckets: rows that one engine postpones are read, moved and changed by the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from tests.interop import limits, values
from tests.interop.columns import columns
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.model import case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.interop.engines import PeerEngine
    from tests.interop.model import Case, Commit

pytestmark = pytest.mark.interop

OURS = LakecoreEngine()
FIRST: Commit = (("+I", [1, "x", "a"]), ("+I", [2, "x", "b"]), ("+I", [1, "y", "c"]))
SECOND: Commit = (("+I", [1, "x", "newer"]), ("-D", [2, "x", "b"]), ("+I", [3, "y", "d"]))
LEFT = [[1, "x", "newer"], [1, "y", "c"], [3, "y", "d"]]


def table_of(options: Mapping[str, str]) -> Case:
    return case(
        "postponed",
        columns(k="INT NOT NULL", p="STRING NOT NULL", v="STRING"),
        [],
        primary_keys=["k", "p"],
        partition_keys=["p"],
        options={"bucket": "-2", **options},
    )


def postpone(path: Path, changes: Commit) -> None:
    """Write changes to the postponed bucket by lakecore."""
    table = lc.open_table(path)
    with table.new_write() as writer:
        writer.write(
            [{"k": row[0], "p": row[1], "v": row[2], "_row_kind": kind} for kind, row in changes]
        )
        table.commit(writer.prepare_commit())


@pytest.mark.parametrize("version", [limits.JAVA, limits.JAVA_NEW])
def test_rows_that_java_postpones_are_moved(
    version: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, path = peers(version), tmp_path / "d.db" / "t"
    path.parent.mkdir()
    java.create(path, table_of({"postpone.default-bucket-num": "3"}))
    java.write(path, FIRST)
    java.write(path, SECOND)
    assert java.read(path) == OURS.read(path) == []

    OURS.compact(path, full=False)
    assert values.sort_rows(java.read(path)) == values.sort_rows(OURS.read(path)) == LEFT
    # In the next round, real buckets exist: from a batch, and from postponed rows of both engines.
    OURS.write(path, (("+I", [9, "z", "e"]),))
    java.write(path, (("+I", [3, "y", "java"]),))
    postpone(path, (("-D", [1, "y", "c"]),))
    OURS.compact(path, full=True)
    assert values.sort_rows(java.read(path)) == values.sort_rows(OURS.read(path))
    assert values.sort_rows(OURS.read(path)) == [[1, "x", "newer"], [3, "y", "java"], [9, "z", "e"]]


def test_java_streams_the_rows_that_lakecore_postpones(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, path = peers(limits.JAVA), tmp_path / "d.db" / "t"
    path.parent.mkdir()
    java.create(path, table_of({}))
    postpone(path, FIRST)
    postpone(path, SECOND)
    ours, theirs = (
        [sorted(map(repr, each)) for each in engine.stream(path, 1).values()]
        for engine in (OURS, java)
    )

    assert ours == theirs
    assert sum(map(len, ours)) == len(FIRST) + len(SECOND)


@pytest.mark.parametrize("producer", ["input", "lookup"])
def test_java_follows_the_changelog_of_moved_rows(
    producer: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, path = peers(limits.JAVA), tmp_path / "d.db" / "t"
    path.parent.mkdir()
    java.create(path, table_of({"changelog-producer": producer}))
    for changes in (FIRST, SECOND):
        postpone(path, changes)
        OURS.compact(path, full=True)
    told = [
        sorted(repr(each) for changes in engine.stream(path, 1).values() for each in changes)
        for engine in (OURS, java)
    ]

    assert told[0] == told[1]
    assert values.sort_rows(java.read(path)) == LEFT
