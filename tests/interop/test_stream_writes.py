"""One job that changes from engine to engine between checkpoints: each counts once.

The table adds up what it is given, so that a checkpoint that is lost or doubled shows.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, cast

import pytest

import lakecore as lc
from tests.interop import limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

TABLES: dict[str, dict[str, str]] = {
    "fixed buckets": {"bucket": "2", "num-sorted-run.compaction-trigger": "2"},
    "dynamic buckets": {"bucket": "-1", "dynamic-bucket.target-row-num": "3"},
    "full-compaction": {
        "bucket": "1",
        "changelog-producer": "full-compaction",
        "full-compaction.delta-commits": "2",
    },
    "lookup": {"bucket": "1", "changelog-producer": "lookup"},
    "write-only": {"bucket": "1", "write-only": "true"},
}
USER = "job"


def ids(checkpoint: int) -> list[int]:
    return [checkpoint % 3, checkpoint % 5, 10 + checkpoint]


def ours(path: Path, checkpoints: range) -> list[lc.CommitResult]:
    """The checkpoints by lakecore, one in flight while the next one is written."""
    done = []
    with lc.open_table(path).new_stream_write(USER) as writer:
        for checkpoint in checkpoints:
            writer.write([{"id": number, "n": 1} for number in ids(checkpoint)])
            writer.prepare_commit(checkpoint)
            if checkpoint - 1 in writer.in_flight:
                done.append(writer.commit(checkpoint - 1))
        done.append(writer.commit(checkpoints[-1]))
    return done


def theirs(java: PeerEngine, path: Path, checkpoints: range, *, together: bool = False) -> int:
    """The checkpoints by Java, `together` or one process after the other; how many it committed."""
    committed = 0
    for some in [checkpoints] if together else [[each] for each in checkpoints]:
        rows: dict[str, Any] = {
            str(checkpoint): [("+I", [number, 1]) for number in ids(checkpoint)]
            for checkpoint in some
        }
        found = java.peer.ask("stream_write", path=str(path), user=USER, checkpoints=rows)
        number, last = cast("list[int]", found)
        committed += number
        assert last >= max(some)
    return committed


@pytest.mark.parametrize("kind", TABLES)
def test_each_checkpoint_counts_once_whichever_engine_writes_it(
    kind: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java, path = peers(limits.JAVA), tmp_path / "t"
    table = lc.open_table(
        path,
        create=True,
        schema={"id": "INT NOT NULL", "n": "BIGINT"},
        primary_keys=["id"],
        options={
            **TABLES[kind],
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
        },
    )

    assert theirs(java, path, range(1, 4), together=True) == 3
    assert table.new_stream_write(USER).committed() == 3
    ours(path, range(4, 7))
    assert theirs(java, path, range(5, 8)) == 1  # 5 and 6 are done
    again = ours(path, range(6, 9))  # 6 and 7 are done
    assert [bool(each.facts.get("already_committed")) for each in again] == [True, True, False]
    assert theirs(java, path, range(9, 10)) == 1

    sums = Counter(number for checkpoint in range(1, 10) for number in ids(checkpoint))
    assert {row["id"]: row["n"] for row in table.to_arrow().to_pylist()} == sums
    assert {number: count for number, count in java.read(path)} == sums  # noqa: C416 - lists
    history = table.context.history
    numbers = [
        snapshot.commit_identifier
        for snapshot in map(history.snapshot, history.snapshot_ids())
        if snapshot.commit_kind == "APPEND"
    ]
    assert numbers == [*range(1, 10)]
