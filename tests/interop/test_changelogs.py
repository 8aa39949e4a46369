"""lakecore and Java write and compact a table with a changelog in turns: both tell the same of it.

Whoever compacted, both engines stream the same changes, and these, replayed from nothing, are the
rows that both read.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.testing import apply_changes, assert_same_rows
from tests.interop import limits
from tests.interop.lakecore_engine import LakecoreEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from tests.interop.engines import PeerEngine
    from tests.interop.values import Row

pytestmark = pytest.mark.interop

COLUMNS = {"id": "INT NOT NULL", "a": "INT", "b": "STRING"}
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "deduplicate by sequence": {"sequence.field": "a"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}
PRODUCERS = ("lookup", "full-compaction")
PLAYED = [
    (engine, producer)
    for engine in ENGINES
    for producer in PRODUCERS
    if (engine, producer) != ("first-row", "full-compaction")
]
ROUNDS = 20
OURS = LakecoreEngine()


def changes_of(turn: int, *, deletes: bool) -> tuple[tuple[str, Row], ...]:
    """The rows of a turn: some keys often, some once; every third turn takes some away."""
    keys = [*range(turn, turn + 6), 3 * turn, 100 + turn]
    rows: list[tuple[str, Row]] = []
    for number, key in enumerate(dict.fromkeys(keys)):
        value = None if (key + turn) % 5 == 0 else (7 * turn + number) % 11
        kind = "-D" if deletes and turn % 3 == 2 and number % 3 == 0 else "+I"
        rows.append((kind, [key, value, f"turn {turn}" if key % 2 else None]))
    return tuple(rows)


def by_key(changes: Iterable[tuple[str, Row]]) -> dict[Any, list[tuple[str, Row]]]:
    found: dict[Any, list[tuple[str, Row]]] = defaultdict(list)
    for kind, row in changes:
        found[row[0]].append((kind, row))
    return found


@pytest.mark.parametrize(("engine", "producer"), PLAYED)
def test_both_write_and_compact_in_turns_and_tell_the_same(
    engine: str, producer: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path, java = tmp_path / "d.db" / "t", peers(limits.JAVA)
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    options = {"bucket": "2", "changelog-producer": producer, **ENGINES[engine]}
    # So late that a file may stay at level 0 for some turns.
    options["num-sorted-run.compaction-trigger"] = "3"
    session.create_table("d.t", COLUMNS, primary_keys=["id"], options=options)
    for turn in range(ROUNDS):
        writer, compactor = (OURS, java) if turn % 2 else (java, OURS)
        writer.write(path, changes_of(turn, deletes=engine.startswith("deduplicate")))
        if turn % 4 == 3:
            compactor.compact(path, full=turn % 8 == 7 or producer == "full-compaction")
        if turn % 5 == 4:
            assert sorted(OURS.read(path), key=repr) == sorted(java.read(path), key=repr), turn
    OURS.compact(path, full=True)

    ours, theirs = OURS.stream(path, 1), java.stream(path, 1)

    assert ours.keys() == theirs.keys()
    for number, changes in ours.items():
        assert by_key(changes) == by_key(theirs[number]), number
    told = [
        {"_row_kind": kind, **dict(zip(COLUMNS, row, strict=True))}
        for _, changes in sorted(ours.items())
        for kind, row in changes
    ]
    assert_same_rows(apply_changes(told, ["id"]), lc.open_table(path))
    assert sorted(OURS.read(path), key=repr) == sorted(java.read(path), key=repr)


@pytest.mark.parametrize("version", [limits.JAVA, limits.JAVA_OLD])
def test_java_streams_what_a_compaction_of_ours_has_told(
    version: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path, java = tmp_path / "d.db" / "t", peers(version)
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    options = {"bucket": "1", "changelog-producer": "lookup", "changelog-file.format": "avro"}
    table = session.create_table("d.t", COLUMNS, primary_keys=["id"], options=options)
    table.write([{"id": key, "a": key, "b": "old"} for key in range(2000)])
    table.write([{"id": 5, "a": 0, "b": "new"}, {"id": 9000, "a": 1, "b": None}])
    table.delete("id = 7")

    assert java.stream(path, 3) == {
        4: [("-U", [5, 5, "old"]), ("+U", [5, 0, "new"]), ("+I", [9000, 1, None])],
        6: [("-D", [7, 7, "old"])],
    }
