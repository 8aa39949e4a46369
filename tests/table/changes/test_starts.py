"""Where streams begin, for each scan mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import NotFound
from lakecore.format.metadata import encode_tag
from lakecore.model.snapshot import Tag
from lakecore.table.changes.starts import retained_changes
from lakecore.table.maintenance.consumers import write_consumer
from tests.tables import changed, new_table, put

if TYPE_CHECKING:
    from lakecore.table.handle import Table

HOUR_MS = 3_600_000


def hourly(*lines: str, **options: Any) -> Table:
    """One commit an hour."""
    table = new_table(**options)
    for line in lines:
        table.context.ambient.sleep(3600)
        put(table, line)
    return table


def streamed(table: Table, options: dict[str, str] | None = None, **named: Any) -> dict[int, str]:
    stream = table.copy(options or {}).stream(until="latest", **named)
    return {number: changed(frame) for number, frame in stream}


def time_of(table: Table, snapshot_id: int) -> int:
    return table.context.history.snapshot(snapshot_id).time_ms


def expire(table: Table, *snapshot_ids: int, changelog: bool = False) -> None:
    store, layout = table.context.store, table.context.layout
    for number in snapshot_ids:
        if changelog:
            store.put(layout.changelog(number), store.read(layout.snapshot(number)))
        store.delete(layout.snapshot(number))


def tag(table: Table, name: str, snapshot_id: int) -> None:
    context = table.context
    made = Tag(name=name, snapshot=context.history.snapshot(snapshot_id))
    context.store.put(context.layout.tag(name), encode_tag(made))


def test_latest_full_begins_with_the_latest_state() -> None:
    table = hourly("1 a", "2 b")

    assert streamed(table) == {2: "+I 1 a | +I 2 b"}
    assert streamed(table, {"scan.mode": "latest-full"}) == {2: "+I 1 a | +I 2 b"}
    assert streamed(table, {"scan.mode": "full"}) == {2: "+I 1 a | +I 2 b"}


def test_latest_begins_after_the_latest_snapshot() -> None:
    table = hourly("1 a", "2 b")
    stream = table.stream(scan_mode="latest", until=3)
    put(table, "3 c")

    assert streamed(table, {"scan.mode": "latest"}) == {}
    assert [(number, changed(frame)) for number, frame in stream] == [(3, "+I 3 c")]


def test_latest_of_a_table_without_snapshots_gives_the_first_one() -> None:
    table = new_table()
    stream = table.stream(scan_mode="latest", until=2)
    put(table, "1 a")
    put(table, "2 b")

    assert [number for number, _ in stream] == [1, 2]


def test_from_snapshot_begins_with_the_changes_of_that_snapshot() -> None:
    table = hourly("1 a", "2 b", "3 c")
    expected = {2: "+I 2 b", 3: "+I 3 c"}

    assert streamed(table, {"scan.snapshot-id": "2"}) == expected
    assert streamed(table, {"scan.mode": "from-snapshot", "scan.snapshot-id": "2"}) == expected
    assert streamed(table, scan_mode="from-snapshot", from_snapshot=2) == expected
    assert streamed(table, {"scan.version": "2"}) == expected
    tag(table, "second", 2)
    assert streamed(table, {"scan.tag-name": "second"}) == expected
    assert streamed(table, {"scan.version": "second"}) == expected
    with pytest.raises(NotFound, match=r"no tag or snapshot of that name.* version=third"):
        streamed(table, {"scan.version": "third"})


def test_from_snapshot_full_begins_with_the_state_of_that_snapshot() -> None:
    table = hourly("1 a", "2 b", "3 c")
    expected = {2: "+I 1 a | +I 2 b", 3: "+I 3 c"}

    assert streamed(table, scan_mode="from-snapshot-full", from_snapshot=2) == expected
    options = {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "2"}
    assert streamed(table, options) == expected


def test_from_timestamp_begins_with_the_first_snapshot_of_that_time_or_later() -> None:
    table = hourly("1 a", "2 b", "3 c")
    second = time_of(table, 2)

    for at in (second, second - 1, time_of(table, 1) + 1):
        assert list(streamed(table, from_timestamp=at)) == [2, 3]
        assert list(streamed(table, {"scan.timestamp-millis": str(at)})) == [2, 3]
    assert list(streamed(table, from_timestamp=0)) == [1, 2, 3]
    assert list(streamed(table, from_timestamp=second + 1)) == [3]
    assert streamed(table, from_timestamp=second + 9 * HOUR_MS) == {}
    assert list(streamed(table, {"scan.timestamp": "2001-01-01 00:00:00"})) == [1, 2, 3]


def test_compacted_full_begins_with_the_newest_compaction() -> None:
    table = hourly("1 a", "1 b", write_only="true")
    assert streamed(table, scan_mode="compacted-full") == {2: "+I 1 b"}

    table.copy({"write-only": "false"}).compact(full=True)
    put(table, "2 c")
    assert streamed(table, scan_mode="compacted-full") == {3: "+I 1 b", 4: "+I 2 c"}


def test_compacted_full_of_scheduled_compactions_begins_with_a_full_one() -> None:
    table = hourly("1 a", write_only="true")
    compacting = table.copy({"write-only": "false"})
    compacting.compact(full=True)
    put(table, "2 b", commit_user="job", identifier=4)
    every = {"full-compaction.delta-commits": "3"}
    assert list(streamed(table, every, scan_mode="compacted-full")) == [2, 3]
    context = table.context
    snapshot = context.history.snapshot(2)
    assert snapshot.commit_identifier == 2**63 - 1


def test_from_file_creation_time_reads_the_files_that_were_made_since_then() -> None:
    table = hourly("1 a", "2 b", "3 c", write_only="true")
    second = time_of(table, 2)
    expected = {3: "+I 2 b | +I 3 c"}

    found = streamed(table, scan_mode="from-file-creation-time", from_timestamp=second)
    assert found == expected
    assert streamed(table, {"scan.file-creation-time-millis": str(second)}) == expected
    assert streamed(table, {"scan.file-creation-time-millis": str(second + 1)}) == {3: "+I 3 c"}


def test_from_creation_timestamp_is_one_of_two_modes() -> None:
    table = hourly("1 a", "2 b", "3 c", write_only="true")
    second = time_of(table, 2)

    def since(at: int) -> dict[int, str]:
        return streamed(table, {"scan.creation-time-millis": str(at)})

    assert since(second) == {2: "+I 2 b", 3: "+I 3 c"}
    # Before the first snapshot and after the last one, the times of files decide.
    assert since(time_of(table, 1)) == {3: "+I 1 a | +I 2 b | +I 3 c"}
    assert since(time_of(table, 3) + 1) == {3: ""}


# --- starts that have expired ---------------------------------------------------------------------


def test_start_of_an_option_that_has_expired_is_the_earliest_left_as_in_java() -> None:
    table = hourly("1 a", "2 b", "3 c", "4 d")
    first = time_of(table, 1)
    expire(table, 1, 2)

    assert list(streamed(table, {"scan.snapshot-id": "1"})) == [3, 4]
    assert list(streamed(table, {"scan.timestamp-millis": str(first)})) == [3, 4]
    options = {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "1"}
    assert list(streamed(table, options)) == [3, 4]


def test_start_of_an_argument_that_has_expired_names_the_earliest_left() -> None:
    table = hourly("1 a", "2 b", "3 c")
    expire(table, 1, 2)

    for mode in (None, "from-snapshot", "from-snapshot-full"):
        with pytest.raises(NotFound, match=r"expired.* snapshot_id=1 earliest=3 latest=3"):
            table.stream(1, scan_mode=mode)


def test_changelog_that_lives_longer_can_be_a_start_and_no_state() -> None:
    table = hourly("1 a", "2 b", "3 c")
    expire(table, 1, 2, changelog=True)

    assert list(streamed(table, from_snapshot=1)) == [1, 2, 3]
    assert list(streamed(table, {"scan.snapshot-id": "2"})) == [2, 3]
    options = {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "1"}
    assert streamed(table, options) == {3: "+I 1 a | +I 2 b | +I 3 c"}


@pytest.mark.parametrize("mode", ["from-snapshot", "from-snapshot-full"])
def test_start_beyond_the_next_snapshot_is_refused(mode: str) -> None:
    table = hourly("1 a", "2 b")

    with pytest.raises(NotFound, match=r"no such snapshot yet.* snapshot_id=4"):
        table.stream(4, scan_mode=mode)
    with pytest.raises(NotFound, match=r"no such snapshot yet.* snapshot_id=4"):
        table.copy({"scan.snapshot-id": "4", "scan.mode": mode}).stream()


# --- consumers ------------------------------------------------------------------------------------


def test_progress_of_a_consumer_comes_before_every_other_start() -> None:
    table = hourly("1 a", "2 b", "3 c")
    write_consumer(table.context, "c", 3)

    assert streamed(table, consumer_id="c") == {3: "+I 3 c"}
    assert streamed(table, from_snapshot=1, consumer_id="c") == {3: "+I 3 c"}
    assert streamed(table, {"consumer-id": "c", "scan.snapshot-id": "1"}) == {3: "+I 3 c"}
    ignoring = {"consumer-id": "c", "consumer.ignore-progress": "true"}
    assert list(streamed(table, ignoring, from_snapshot=2)) == [2, 3]


def test_consumer_whose_snapshots_have_expired_names_the_earliest_left() -> None:
    table = hourly("1 a", "2 b", "3 c")
    write_consumer(table.context, "c", 1)
    expire(table, 1, 2)

    with pytest.raises(
        NotFound,
        match=r"have expired; use reset_consumer.*consumer_id=c next_snapshot=1 earliest=3",
    ):
        table.stream(consumer_id="c")


def test_consumer_beyond_the_next_snapshot_is_refused() -> None:
    table = hourly("1 a")
    write_consumer(table.context, "c", 7)

    with pytest.raises(
        NotFound, match=r"rolled back or created again.* next_snapshot=7 .* latest=1"
    ):
        table.stream(consumer_id="c")


def test_snapshot_that_expires_into_the_changelog_is_found_there() -> None:
    table = hourly("1 a", "2 b", write_only="true")
    context = table.context
    retained = retained_changes(context)
    assert retained is not None
    first = retained.snapshot(1)
    expire(table, 1, changelog=True)

    assert retained.snapshot(1) == first
    context.store.delete(context.layout.changelog(1))
    with pytest.raises(NotFound, match="snapshot_id=1 earliest=2"):
        retained.snapshot(1)
