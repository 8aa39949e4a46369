"""lakecore and Java compact, write and read the same table in turns, for every merge engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from tests.interop import limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakecore.table.handle import Table
    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

COLUMNS = {"id": "INT NOT NULL", "a": "INT", "b": "STRING"}
ENGINES = {
    "deduplicate": {},
    "partial-update": {"partial-update.remove-record-on-delete": "true"},
    "aggregation": {"fields.a.aggregate-function": "sum"},
    # Reads show its rows once they are compacted, whoever does it.
    "first-row": {"write-only": "true"},
}
DELETES = ("deduplicate", "partial-update")
ROUNDS = 4


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    return sorted(table.refresh().to_polars().rows())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("version", [limits.JAVA, limits.JAVA_OLD])
def test_both_compact_and_write_in_turns_and_read_equal_rows(
    version: str, engine: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path, java = tmp_path / "d.db" / "t", peers(version)
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    options = {"bucket": "2", "merge-engine": engine, **ENGINES[engine]}
    table = session.create_table("d.t", COLUMNS, primary_keys=["id"], options=options)

    def java_rows() -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in java.read(path))

    for turn in range(ROUNDS):
        ids = range(turn, turn + 12)
        table.write([{"id": key, "a": 10 * key + turn, "b": f"ours {turn}"} for key in ids])
        if engine in DELETES:
            table.write([{"id": turn, "a": 1, "b": None, "_row_kind": "-D"}])
        before = rows_of(table)
        assert table.compact(full=True).buckets == 2
        assert table.explain().merged_files == 0
        if engine != "first-row":
            assert rows_of(table) == before
        assert java_rows() == rows_of(table)

        theirs = range(turn, turn + 15, 2)
        java.write(path, tuple(("+I", [key, key, f"theirs {turn}"]) for key in theirs))
        assert java_rows() == rows_of(table)
        java.compact(path, full=turn % 2 == 0)
        assert java_rows() == rows_of(table)

    assert len(rows_of(table)) > ROUNDS
