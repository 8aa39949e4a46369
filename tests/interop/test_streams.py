"""Streams of lakecore and Java from every start: the same sequence of plans, and the same rows.

Java's `newStreamScan` is planned again and again, up to the latest snapshot. Both engines go on
where a consumer is that the other one recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

import lakecore as lc
from lakecore.table.maintenance.consumers import read_consumer
from tests.interop import limits
from tests.interop.test_changes import KINDS, OURS, added, by_key, play, row

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.engines import PeerEngine
    from tests.interop.test_changes import Kind
    from tests.interop.values import Row

pytestmark = pytest.mark.interop

Played = tuple["Kind", "PeerEngine", "Path"]


@pytest.fixture(scope="module", params=KINDS)
def played(
    request: pytest.FixtureRequest,
    peers: Callable[[str], PeerEngine],
    tmp_path_factory: pytest.TempPathFactory,
) -> Played:
    """A table with a history; the tests add nothing but consumers."""
    kind, java = KINDS[request.param], peers(limits.JAVA)
    path = tmp_path_factory.mktemp("streams") / "d.db" / "t"
    play(path, kind, java)
    java.write(path, tuple(("+I", row(key, 40)) for key in range(5)))
    return kind, java, path


def starts(path: Path) -> dict[str, dict[str, str]]:
    """Options for each start, by a name."""
    history = lc.open_table(path).context.history
    ids = history.snapshot_ids()
    middle = ids[len(ids) // 2]
    first, then, last = (history.snapshot(number).time_ms for number in (1, middle, ids[-1]))
    return {
        "latest-full": {"scan.mode": "latest-full"},
        "latest": {"scan.mode": "latest"},
        "compacted-full": {"scan.mode": "compacted-full"},
        "from-snapshot": {"scan.mode": "from-snapshot", "scan.snapshot-id": str(middle)},
        "from-snapshot-full": {
            "scan.mode": "from-snapshot-full",
            "scan.snapshot-id": str(middle),
        },
        "from-timestamp": {"scan.mode": "from-timestamp", "scan.timestamp-millis": str(then)},
        "timestamp before all": {"scan.timestamp-millis": str(first - 5000)},
        "timestamp after": {"scan.timestamp-millis": str(then + 1)},
        "from-file-creation-time": {"scan.file-creation-time-millis": str(then)},
        "from-creation-timestamp": {"scan.creation-time-millis": str(then)},
        "creation before all": {"scan.creation-time-millis": str(first - 5000)},
        "creation after all": {"scan.creation-time-millis": str(last + 5000)},
    }


STARTS = (
    "latest-full",
    "latest",
    "compacted-full",
    "from-snapshot",
    "from-snapshot-full",
    "from-timestamp",
    "timestamp before all",
    "timestamp after",
    "from-file-creation-time",
    "from-creation-timestamp",
    "creation before all",
    "creation after all",
)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.sampled(4)
def test_both_engines_plan_the_same_stream_from_each_start(start: str, played: Played) -> None:
    kind, java, path = played
    options = starts(path)[start]
    theirs, ours = java.stream(path, None, options), OURS.stream(path, None, options)

    first, *_ = [*ours, 0]
    if ours.get(first) == []:
        del ours[first]  # Java has no plan for a state without rows
    assert list(ours) == list(theirs)
    for number, changes in theirs.items():
        # The rows of a state are +I; Java keeps the +U of a row that is not merged.
        assert by_key(added(ours[number]), kind) == by_key(added(changes), kind), number


def test_each_engine_goes_on_where_the_other_one_recorded(played: Played) -> None:
    _, java, path = played
    table = lc.open_table(path)
    whole = OURS.stream(path, 1)
    numbers = list(whole)
    middle = numbers[len(numbers) // 2]

    stream = table.stream(1, until="latest", consumer_id="ours")
    for number, _ in stream:
        if number == middle:
            break
    stream.commit()
    recorded = cast("dict[str, int]", java.peer.ask("consumers", path=str(path)))
    assert recorded["ours"] == middle + 1
    rest = java.stream(path, None, {"consumer-id": "ours"})
    assert list(rest) == [number for number in numbers if number > middle]

    java.peer.ask("reset_consumer", path=str(path), name="theirs", next_snapshot=middle)
    assert {each.consumer_id: each.next_snapshot for each in table.consumers()}["theirs"] == middle
    found = dict(table.stream(until="latest", consumer_id="theirs"))
    assert list(found) == [number for number in numbers if number >= middle]

    latest = cast("int", table.context.history.latest_snapshot_id())
    assert read_consumer(table.context, "ours") == latest + 1


ORDERED: dict[str, dict[str, str]] = {
    "by creation": {},
    "by value": {"scan.plan-sort-partition": "true"},
}


@pytest.mark.parametrize("order", ORDERED)
def test_rows_of_an_append_table_come_in_the_order_of_java(
    order: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java = peers(limits.JAVA)
    path = tmp_path / "d.db" / "t"
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    table = session.create_table(
        "d.t",
        {"id": "INT", "p": "STRING"},
        partition_keys=["p"],
        options={"bucket": "1", "bucket-key": "id", "write-only": "true"},
    )
    for first, parts in enumerate(("cb", "ac", "ba", "dd")):
        values: list[Row] = [[10 * first + place, part] for place, part in enumerate(parts)]
        if first % 2:
            java.write(path, tuple(("+I", value) for value in values))
        else:
            table.write([dict(zip(("id", "p"), value, strict=True)) for value in values])

    for start in ("", "1"):
        named = {"scan.snapshot-id": start} if start else {}
        options = {**ORDERED[order], **named}
        theirs, ours = java.stream(path, None, options), OURS.stream(path, None, options)
        assert list(ours.items()) == list(theirs.items())


def test_both_engines_end_at_the_bounded_watermark(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java = peers(limits.JAVA)
    path = tmp_path / "d.db" / "t"
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    table = session.create_table(
        "d.t", {"id": "INT NOT NULL"}, primary_keys=["id"], options={"bucket": "1"}
    )
    for number, watermark in enumerate((10, 20, None, 30, 40), start=1):
        writer = table.new_write()
        writer.write([{"id": number}])
        table.commit(writer.prepare_commit(), watermark=watermark)

    for bound in (5, 10, 20, 29, 30, 99):
        for start in ("", "1", "4"):
            named = {"scan.snapshot-id": start} if start else {}
            options = {"scan.bounded.watermark": str(bound), **named}
            assert OURS.stream(path, None, options) == java.stream(path, None, options), options


@pytest.mark.parametrize("expires", ["java", "lakecore"])
@pytest.mark.parametrize("records", ["java", "lakecore"])
def test_consumer_of_each_engine_holds_back_the_expiry_of_the_other(
    expires: str, records: str, peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    java = peers(limits.JAVA)
    path = tmp_path / "d.db" / "t"
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    table = session.create_table(
        "d.t",
        {"id": "INT NOT NULL"},
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true", "changelog-producer": "input"},
    )
    for number in range(1, 7):
        table.write([{"id": number}])
    if records == "java":
        java.peer.ask("reset_consumer", path=str(path), name="c", next_snapshot=3)
    else:
        table.reset_consumer("c", 3)

    if expires == "java":
        java.peer.ask("expire", path=str(path), retain=1)
    else:
        table.expire_snapshots(retain_max=1, retain_min=1)

    assert table.context.history.snapshot_ids() == (3, 4, 5, 6)
    found = dict(table.stream(until="latest", consumer_id="c"))
    assert [frame.collect().rows() for frame in found.values()] == [
        [("+I", number)] for number in range(3, 7)
    ]
    assert list(java.stream(path, None, {"consumer-id": "c"})) == [3, 4, 5, 6]
