"""Deletion vectors exchanged with Java and pypaimon: keyed tables in turns, and append tables.

In a keyed table the vectors are made by the compactions of both engines: after each turn both read
the rows of a table without vectors. In an append table lakecore marks rows; Java reads them, goes
on writing, and compacts them away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import polars as pl
import pytest

import lakecore as lc
from lakecore.model.files import DELETION_VECTORS
from tests.interop import limits
from tests.interop.lakecore_engine import LakecoreEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tests.interop.engines import PeerEngine
    from tests.interop.values import Row

pytestmark = pytest.mark.interop

T = TypeVar("T")

COLUMNS = {"id": "INT NOT NULL", "a": "INT", "b": "STRING"}
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "deduplicate by a": {"sequence.field": "a"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"},
}
ROUNDS = 20
OURS = LakecoreEngine()


def changes_of(turn: int, *, deletes: bool) -> tuple[tuple[str, Row], ...]:
    """The rows of a turn; every third turn of a table that takes deletions takes some away."""
    rows: list[tuple[str, Row]] = []
    for number, key in enumerate([*range(turn, turn + 6), 3 * turn + 40, 100 + turn]):
        kind = "-D" if deletes and turn % 3 == 2 and number % 3 == 0 else "+I"
        rows.append((kind, [key, (7 * turn + number) % 11, f"turn {turn}" if key % 2 else None]))
    return tuple(rows)


def in_order(rows: Iterable[T]) -> list[T]:
    return sorted(rows, key=repr)


def vector_count(path: Path) -> int:
    """How many data files have a vector; each must be of a live file, and only one."""
    history = lc.open_table(path).context.history
    snapshot = history.latest_snapshot()
    assert snapshot is not None
    live = {entry.file.name for entry in history.live_entries(snapshot)}
    named = [
        vector.data_file
        for entry in history.index_entries(snapshot)
        if entry.file.index_type == DELETION_VECTORS
        for vector in entry.file.vectors or ()
    ]

    assert len(named) == len(set(named))
    assert set(named) <= live
    return len(named)


@pytest.mark.parametrize("wide", ["false", "true"])
@pytest.mark.parametrize("producer", ["none", "lookup"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.sampled(2)
def test_compactions_of_both_mark_rows_of_one_table(
    engine: str,
    producer: str,
    wide: str,
    peers: Callable[[str], PeerEngine],
    tmp_path: Path,
) -> None:
    path, plain, java = tmp_path / "d.db" / "t", tmp_path / "d.db" / "plain", peers(limits.JAVA)
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    rules = ENGINES[engine]
    options = {
        **rules,
        "bucket": "2",
        "changelog-producer": producer,
        "deletion-vectors.enabled": "true",
        "deletion-vectors.bitmap64": wide,
        "num-sorted-run.compaction-trigger": "3",
    }
    session.create_table("d.t", COLUMNS, primary_keys=["id"], options=options)
    alone = {**rules, "bucket": "1", "write-only": "true"}
    session.create_table("d.plain", COLUMNS, primary_keys=["id"], options=alone)
    most = 0
    for turn in range(ROUNDS):
        changes = changes_of(turn, deletes=engine == "deduplicate")
        (OURS if turn % 2 else java).write(path, changes)
        OURS.write(plain, changes)
        if turn in (9, 14):
            (OURS if turn == 9 else java).compact(path, full=turn == 14)
        wanted = in_order(OURS.read(plain))
        most = max(most, vector_count(path))

        assert in_order(OURS.read(path)) == wanted, turn
        if turn % 3 == 2:
            assert in_order(java.read(path)) == wanted, turn

    assert in_order(java.read(path)) == wanted
    assert most
    if producer == "lookup":
        ours, theirs = OURS.stream(path, 1), java.stream(path, 1)
        assert {number: in_order(found) for number, found in ours.items()} == {
            number: in_order(found) for number, found in theirs.items()
        }


@pytest.mark.parametrize(
    "shape", [{}, {"bucket": "1", "bucket-key": "id", "write-only": "true"}], ids=["unaware", "one"]
)
@pytest.mark.parametrize("wide", ["false", "true"])
def test_java_reads_and_compacts_rows_that_lakecore_marked(
    wide: str,
    shape: dict[str, str],
    peers: Callable[[str], PeerEngine],
    tmp_path: Path,
) -> None:
    path, java = tmp_path / "d.db" / "t", peers(limits.JAVA)
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    options = {
        **shape,
        "deletion-vectors.enabled": "true",
        "deletion-vectors.bitmap64": wide,
        "deletion-vector.index-file.target-size": "60 b",
        "compaction.min.file-num": "3",
    }
    session.create_table("d.t", COLUMNS, options=options)
    rows: list[Row] = []
    for turn in range(8):
        new: list[Row] = [[4 * turn + number, number, f"turn {turn}"] for number in range(4)]
        (OURS if turn % 2 else java).write(path, tuple(("+I", row) for row in new))
        rows += new
        if turn:
            OURS.delete(path, pl.col("id") == 4 * turn - turn % 3)
            rows = [row for row in rows if row[0] != 4 * turn - turn % 3]
            OURS.update(path, {"a": 9}, pl.col("id") == 3 * turn)
            rows = [[row[0], 9, row[2]] if row[0] == 3 * turn else row for row in rows]
        if turn in (3, 6):
            java.compact(path, full=True)

        assert in_order(OURS.read(path)) == in_order(rows), turn
        assert in_order(java.read(path)) == in_order(rows), turn
        vector_count(path)
    OURS.compact(path, full=True)
    assert vector_count(path) == 0
    assert in_order(java.read(path)) == in_order(rows)


def test_pypaimon_reads_narrow_vectors_of_lakecore(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path = tmp_path / "d.db" / "t"
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    # Enough levels and runs that a write compacts level 0 alone.
    levels = {"num-levels": "4", "num-sorted-run.compaction-trigger": "9"}
    options = {"bucket": "1", "deletion-vectors.enabled": "true", **levels}
    session.create_table("d.t", COLUMNS, primary_keys=["id"], options=options)
    OURS.write(path, tuple(("+I", [key, key, f"old {key}"]) for key in range(2000)))
    OURS.write(path, changes_of(2, deletes=True))

    assert vector_count(path)
    assert in_order(peers(limits.PYPAIMON).read(path)) == in_order(OURS.read(path))
