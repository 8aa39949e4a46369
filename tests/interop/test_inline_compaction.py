"""lakecore and Java write a table in turns, and the writes of both compact it, for every engine.

Twenty rounds; after each both read the same rows, which are those of a table that is never
compacted. With the changelog `input` both stream the same changes. `test_changelogs.py` does so for
the producers that compaction makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

import lakecore as lc
from lakecore.model.snapshot import CommitKind
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
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
}
PLAYED = [
    (engine, producer)
    for engine in ENGINES
    for producer in ("none", "input")
    if (engine, producer) != ("first-row", "input")
]
BUCKETS: Mapping[str, Mapping[str, str]] = {
    "fixed": {"bucket": "2"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "20"},
}
ROUNDS = 20
OURS = LakecoreEngine()


def changes_of(turn: int, *, deletes: bool) -> tuple[tuple[str, Row], ...]:
    """The rows of a turn; every third turn of a table that takes deletions takes some away."""
    rows: list[tuple[str, Row]] = []
    for number, key in enumerate([*range(turn, turn + 6), 3 * turn + 40, 100 + turn]):
        kind = "-D" if deletes and turn % 3 == 2 and number % 3 == 0 else "+I"
        value = None if (key + turn) % 5 == 0 else (7 * turn + number) % 11
        rows.append((kind, [key, value, f"turn {turn}" if key % 2 else None]))
    return tuple(rows)


def in_order(rows: Iterable[T]) -> list[T]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize("buckets", BUCKETS)
@pytest.mark.parametrize(("engine", "producer"), PLAYED)
@pytest.mark.sampled(2)
def test_writes_of_both_compact_one_table_and_both_read_its_rows(
    engine: str,
    producer: str,
    buckets: str,
    peers: Callable[[str], PeerEngine],
    tmp_path: Path,
) -> None:
    path, java = tmp_path / "d.db" / "t", peers(limits.JAVA)
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    options = {**BUCKETS[buckets], "changelog-producer": producer, **ENGINES[engine]}
    options["num-sorted-run.compaction-trigger"] = "3"
    table = session.create_table("d.t", COLUMNS, primary_keys=["id"], options=options)
    plain = {"bucket": "1", "write-only": "true", **ENGINES[engine]}
    if engine == "first-row":
        # Seen only once they are compacted.
        del plain["write-only"]
    session.create_table("d.plain", COLUMNS, primary_keys=["id"], options=plain)
    for turn in range(ROUNDS):
        changes = changes_of(turn, deletes=engine == "deduplicate")
        (OURS if turn % 2 else java).write(path, changes)
        OURS.write(tmp_path / "d.db" / "plain", changes)

        wanted = in_order(OURS.read(tmp_path / "d.db" / "plain"))
        assert in_order(OURS.read(path)) == wanted, turn
        if turn % 3 == 2:
            assert in_order(java.read(path)) == wanted, turn

    assert in_order(java.read(path)) == wanted
    history = table.context.history
    snapshots = [history.snapshot(number) for number in history.snapshot_ids()]
    compacted = {each.commit_user for each in snapshots if each.commit_kind is CommitKind.COMPACT}
    assert "java" in compacted
    assert compacted - {"java"}
    if producer == "input":
        ours, theirs = OURS.stream(path, 1), java.stream(path, 1)
        assert {number: in_order(found) for number, found in ours.items()} == {
            number: in_order(found) for number, found in theirs.items()
        }
