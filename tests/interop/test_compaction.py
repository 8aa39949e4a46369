"""lakecore and Java compact, write and read the same table in turns, for every merge engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.table.compactions import compact_bucket
from lakecore.table.sections.merge_runs import coded_columns
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
@pytest.mark.sampled(2)
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


TEXTS = ["", "Köln", "oslo", None, "\U0001f600"]
MANY = 70_000
"""From which on lakecore moves texts as codes."""


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (writer, reader)
        for writer in (limits.JAVA, limits.JAVA_OLD, limits.LAKECORE)
        for reader in limits.PEERS
        # pypaimon reads no manifest of Java 0.9.
        if (writer, reader) != (limits.JAVA_OLD, limits.PYPAIMON)
    ],
)
@pytest.mark.sampled(2)
def test_texts_that_were_moved_as_codes_are_read_and_found(
    writer: str,
    reader: str,
    peers: Callable[[str], PeerEngine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved: list[frozenset[str]] = []

    def coded(*args: Any) -> frozenset[str]:
        moved.append(coded_columns(*args))
        return moved[-1]

    monkeypatch.setattr(compact_bucket, "coded_columns", coded)
    path = tmp_path / "d.db" / "t"
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    options = {"bucket": "1", "write-only": "true"}
    table = session.create_table("d.t", COLUMNS, primary_keys=["id"], options=options)
    commits = [
        [(key, key, TEXTS[(key + turn) % 5]) for key in range(0, MANY // (turn + 1), turn + 1)]
        for turn in range(2)
    ]
    for rows in commits:
        if writer == limits.LAKECORE:
            table.write([dict(zip(COLUMNS, row, strict=True)) for row in rows])
        else:
            peers(writer).write(path, tuple(("+I", list(row)) for row in rows))
    table.refresh().compact(full=True)

    assert moved == [{"b"}]
    expected = {key: (key, value, text) for rows in commits for key, value, text in rows}
    read = sorted(tuple(row) for row in peers(reader).read(path))
    assert read == sorted(expected.values())
    found = sorted(tuple(row) for row in peers(reader).read_where(path, ("b", "equal", "Köln")))
    assert found
    assert [row for row in found if row[2] == "Köln"] == [row for row in read if row[2] == "Köln"]
