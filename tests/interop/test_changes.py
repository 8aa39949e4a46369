"""Changes of tables that lakecore and Java write in turns: both give out the same ones.

Each history has writes of both engines, deletions, compactions and overwrites. Java's stream is
asked for each snapshot, and its `$audit_log` for what lies between two. The changes of one key must
come in the same order.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

import lakecore as lc
from tests.interop import limits
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.protocol import PeerRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from lakecore.table.handle import Table
    from tests.interop.engines import PeerEngine
    from tests.interop.values import Row

pytestmark = pytest.mark.interop

COLUMNS = {"id": "INT NOT NULL", "p": "STRING NOT NULL", "n": "INT", "v": "STRING"}
OURS = LakecoreEngine()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of table. `ours`: whether lakecore, too, writes and compacts it."""

    options: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ("id", "p")
    partitions: tuple[str, ...] = ()
    deletes: bool = True
    ours: bool = True

    @property
    def keyed(self) -> bool:
        return bool(self.keys)

    @property
    def hides_level_0(self) -> bool:
        vectors = self.options.get("deletion-vectors.enabled") == "true"
        return vectors or self.options.get("merge-engine") == "first-row"

    @property
    def producer(self) -> str:
        return self.options.get("changelog-producer", "none")


LOOKUP = {"bucket": "2", "changelog-producer": "lookup"}
KINDS = {
    "no changelog": Kind(options={"bucket": "2"}),
    "no changelog, partitioned": Kind(options={"bucket": "2"}, partitions=("p",)),
    "no changelog, dynamic buckets": Kind(options={"bucket": "-1"}),
    "input": Kind(options={"bucket": "2", "changelog-producer": "input"}),
    "lookup": Kind(options=LOOKUP),
    "full-compaction": Kind(options={"bucket": "2", "changelog-producer": "full-compaction"}),
    "lookup, aggregation": Kind(
        options={
            **LOOKUP,
            "merge-engine": "aggregation",
            "fields.n.aggregate-function": "sum",
        },
        deletes=False,
    ),
    "lookup, first-row": Kind(options={**LOOKUP, "merge-engine": "first-row"}, deletes=False),
    "deletion vectors": Kind(
        options={"bucket": "2", "deletion-vectors.enabled": "true"}, ours=False
    ),
    "append": Kind(keys=(), deletes=False),
    "append, fixed buckets": Kind(
        options={"bucket": "2", "bucket-key": "id"}, keys=(), deletes=False
    ),
}


def make(path: Path, kind: Kind) -> Table:
    session = lc.connect(path.parent.parent, create=True)
    session.create_database("d")
    return session.create_table(
        "d.t",
        COLUMNS,
        primary_keys=kind.keys,
        partition_keys=kind.partitions,
        options=dict(kind.options),
    )


def row(key: int, turn: int) -> Row:
    return [key, "ab"[key % 2], 10 * key + turn, f"v{turn}"]


def play(path: Path, kind: Kind, java: PeerEngine, *, rounds: int = 3) -> None:
    """Rounds of writes, deletions, a compaction and, in the middle, an overwrite."""
    table = make(path, kind)
    for turn in range(rounds):
        first = tuple(("+I", row(key, turn)) for key in range(turn, turn + 6))
        second = tuple(("+I", row(key, 10 + turn)) for key in range(0, turn + 9, 2))
        if kind.deletes:
            second += (("-D", row(turn, turn)), ("-U", row(3, turn)), ("+U", row(3, 20 + turn)))
        java.write(path, first)
        (OURS if kind.ours else java).write(path, second)
        if kind.keyed:
            full = turn != 1 or kind.producer == "full-compaction"
            (OURS if kind.ours and turn % 2 else java).compact(path, full=full)
        if turn == 1 and kind.ours:
            replaced = [dict(zip(COLUMNS, row(key, 30), strict=True)) for key in (2, 4, 50)]
            table.refresh().overwrite(replaced)


def by_key(changes: Iterable[tuple[str, Row]], kind: Kind) -> dict[str, Any]:
    """The changes of each key in their order; without a key, those of each row."""
    found: dict[str, list[Any]] = defaultdict(list)
    for change, values in changes:
        found[repr(values[:2] if kind.keyed else values)].append((change, values))
    return dict(found)


def difference(path: Path, start: int, end: int) -> list[tuple[str, Row]]:
    """What makes of the rows of one snapshot those of another."""
    before, after = (
        {repr(row[:2]): row for row in OURS.read(path, {"scan.snapshot-id": str(snapshot)})}
        for snapshot in (start, end)
    )
    put = [("+I", row) for key, row in after.items() if before.get(key) != row]
    return [*put, *(("-D", row) for key, row in before.items() if key not in after)]


def added(changes: Iterable[tuple[str, Row]]) -> list[tuple[str, Row]]:
    """The changes, where a +U stands for any row that is there."""
    return [("+I" if change == "+U" else change, values) for change, values in changes]


Played = tuple[Kind, "PeerEngine", "Path"]


@pytest.fixture(scope="module", params=KINDS)
def played(
    request: pytest.FixtureRequest,
    peers: Callable[[str], PeerEngine],
    tmp_path_factory: pytest.TempPathFactory,
) -> Played:
    """A table with a history, which the tests do not change."""
    kind, java = KINDS[request.param], peers(limits.JAVA)
    path = tmp_path_factory.mktemp("changes") / "d.db" / "t"
    play(path, kind, java)
    return kind, java, path


def test_both_engines_stream_the_same_changes(played: Played) -> None:
    kind, java, path = played
    seen: list[dict[str, str]] = [{}]
    if kind.producer in ("none", "input"):
        overwrite = "streaming-read-overwrite" if kind.keyed else "streaming-read-append-overwrite"
        seen.append({overwrite: "true"})

    for options in seen:
        theirs, ours = java.stream(path, 1, options), OURS.stream(path, 1, options)
        assert ours.keys() == theirs.keys()
        for number, changes in theirs.items():
            assert by_key(ours[number], kind) == by_key(changes, kind), (options, number)
    assert len(OURS.stream(path, 1)) >= 2


def test_both_engines_begin_a_stream_with_the_same_state(played: Played, tmp_path: Path) -> None:
    kind, java, done = played
    path = tmp_path / "d.db" / "t"
    shutil.copytree(done, path)
    java.write(path, tuple(("+I", row(key, 40)) for key in range(5)))

    ((number, changes),) = OURS.stream(path).items()
    theirs = java.stream(path)

    assert theirs.keys() == {number}
    assert by_key(changes, kind) == by_key(added(theirs[number]), kind)


@pytest.mark.parametrize("mode", ["auto", "delta", "changelog", "diff"])
@pytest.mark.sampled(2)
def test_both_engines_read_the_same_between_snapshots(mode: str, played: Played) -> None:
    kind, java, path = played
    found = cast("list[dict[str, int]]", java.peer.ask("snapshots", path=str(path)))
    last = max(snapshot["id"] for snapshot in found)
    for start, end in ((1, last), (2, 4), (2, 2)):
        options = {
            "incremental-between": f"{start},{end}",
            "incremental-between-scan-mode": mode,
        }
        theirs = java.changes(path, options)
        try:
            ours = OURS.changes(path, options)
        except PeerRefused as refusal:
            # Java repeats the rows of files that were rewritten.
            if mode != "diff" or kind.keyed or "were rewritten" not in refusal.reason:
                raise
            continue
        if kind.hides_level_0 and (mode == "delta" or (mode, kind.producer) == ("auto", "none")):
            # Java reads no level 0 of such a table between snapshots, though its stream does.
            assert theirs == []
            continue
        if mode == "diff":
            ours, theirs = added(ours), added(theirs)
            if kind.keyed:
                assert sorted(map(repr, ours)) == sorted(map(repr, difference(path, start, end)))
                # Java leaves out a row whose sequence number went back, as by an overwrite.
                theirs += [change for change in ours if change not in theirs]
        # Java packs the files of several snapshots to splits, and does not keep their order.
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), options
