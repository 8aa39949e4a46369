"""Tables whose rows are numbered by snapshots, exchanged with Java 2.0, which knows the option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from tests.interop import limits
from tests.interop.lakecore_engine import LakecoreEngine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

OURS = LakecoreEngine()


@pytest.mark.parametrize("compacts", ["nobody", "lakecore", "java"])
def test_later_commits_win_for_both(
    compacts: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java = peers(limits.JAVA_NEW)
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    table = session.create_table(
        "d.t",
        {"id": "INT NOT NULL", "v": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true", "sequence.snapshot-ordering": "true"},
    )
    path = tmp_path / "d.db" / "t"
    wanted: dict[int, str] = {}
    for turn in range(4):
        # Prepared first and committed last: its rows have the smallest numbers, and win.
        with lc.open_table(path).new_write() as late:
            late.write([{"id": turn, "v": f"late {turn}"}, {"id": 99, "v": f"late {turn}"}])
            messages = late.prepare_commit()
        java.write(path, tuple(("+I", [n, f"java {turn}"]) for n in range(6)))
        wanted |= dict.fromkeys(range(6), f"java {turn}")
        if turn == 1:
            java.write(path, (("+I", [99, "java"]), ("+I", [50, "java"])))
            wanted |= {50: "java"}
        table.commit(messages)
        wanted |= {turn: f"late {turn}", 99: f"late {turn}"}
        if turn == 2 and compacts == "lakecore":
            lc.open_table(path).compact(full=True)
        if turn == 2 and compacts == "java":
            java.compact(path, full=True)
        rows: list[list[Any]] = sorted([[key, value] for key, value in wanted.items()])

        assert sorted(OURS.read(path), key=repr) == sorted(rows, key=repr)
        assert sorted(java.read(path), key=repr) == sorted(rows, key=repr)
