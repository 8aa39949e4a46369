"""The changes of a table, snapshot by snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from lakecore.errors import InvalidRequest, LakecoreError, NotFound
from lakecore.model.files import CommitMessage
from lakecore.options import ScanMode
from lakecore.table.changes import stream
from lakecore.table.changes.follow import Found, Nothing
from lakecore.table.commits.commit import CommitRequest, commit
from lakecore.table.context import with_schema
from lakecore.table.maintenance.consumers import write_consumer
from tests.tables import changed, new_table, put, reopened, rows, with_options

if TYPE_CHECKING:
    from lakecore.table.handle import Table


def streamed(
    table: Table, from_snapshot: int | None = None, until: Any = "latest", **named: Any
) -> dict[int, str]:
    return {number: changed(frame) for number, frame in table.stream(from_snapshot, until, **named)}


def history(*lines: str, **options: Any) -> Table:
    table = new_table(**options)
    for line in lines:
        put(table, line)
    return table


def keep_changelog_alone(table: Table, snapshot_id: int) -> None:
    """Expire a snapshot, but for its changelog."""
    store, layout = table.context.store, table.context.layout
    store.put(layout.changelog(snapshot_id), store.read(layout.snapshot(snapshot_id)))
    store.delete(layout.snapshot(snapshot_id))


def expire(table: Table, snapshot_id: int) -> None:
    table.context.store.delete(table.context.layout.snapshot(snapshot_id))


# --- follow-up -----------------------------------------------------------------------------------


def test_snapshots_come_one_by_one_from_the_first_named() -> None:
    table = history("1 a", "1 b", "-D 1 b")

    assert streamed(table, 1) == {1: "+I 1 a", 2: "+I 1 b", 3: "-D 1 b"}
    assert streamed(table, 2, 2) == {2: "+I 1 b"}
    assert streamed(table, 4) == {}


def test_snapshots_that_change_no_row_are_passed_over() -> None:
    table = history("1 a", changelog_producer="input")
    table.compact(full=True)
    table.commit([], identifier=7, commit_user="job")
    put(table, "1 b")

    assert streamed(table, 1) == {1: "+I 1 a", 4: "+I 1 b"}


def test_producers_that_compact_are_followed_by_their_changelog_alone() -> None:
    table = history("1 a", changelog_producer="lookup", write_only="true")
    lookup_changelog(table, "1 a")

    assert streamed(table, 1) == {2: "+I 1 a"}


def lookup_changelog(table: Table, line: str) -> None:
    """A compaction of the one file to level 5, whose changelog holds these rows."""
    context = table.context
    (entry,) = context.history.live_entries(context.history.snapshot(1))
    writer = new_writer(table)
    put(writer, line)
    snapshot = writer.context.history.snapshot(1)
    (made,) = writer.context.history.live_entries(snapshot)
    source = writer.context.layout.data_file("", 0, made.file)
    target = context.layout.data_file("", 0, made.file)
    context.store.put(target, writer.context.store.read(source))
    message = CommitMessage(
        partition=entry.partition,
        bucket=entry.bucket,
        total_buckets=entry.total_buckets,
        compact_before=(entry.file,),
        compact_after=(replace(entry.file, level=5),),
        compact_changelog_files=(made.file,),
    )
    commit(context, CommitRequest(messages=[message], user="compactor", identifier=1))


def new_writer(table: Table) -> Table:
    return new_table({column.name: str(column.type) for column in table.schema.fields})


def test_overwrites_are_passed_over_unless_asked_for() -> None:
    table = history("1 a | 2 b", "2 c")
    table.overwrite(rows(table.schema, "2 d | 3 e"))

    assert streamed(table, 3) == {}
    seeing = table.copy({"streaming-read-overwrite": "true"})
    assert streamed(seeing, 3) == {3: "-D 1 a | -D 2 c | +I 2 d | +I 3 e"}
    seeing.truncate()
    assert streamed(seeing, 4) == {4: "-D 2 d | -D 3 e"}


def test_overwrite_takes_back_only_what_it_replaced() -> None:
    columns = {"id": "INT NOT NULL", "p": "STRING NOT NULL"}
    table = new_table(columns, keys=("id", "p"), partitions=("p",))
    table = table.copy({"streaming-read-overwrite": "true"})
    put(table, "1 a | 1 b")
    put(table, "2 a | -D 1 a")
    table.overwrite(rows(table.schema, "3 a"))

    assert streamed(table, 3) == {3: "-D 2 a | +I 3 a"}
    assert streamed(table, 3, where="p = 'b'") == {3: ""}


def test_rows_that_an_overwrite_replaced_expire_with_their_snapshot() -> None:
    table = history("1 a").copy({"streaming-read-overwrite": "true"})
    table.overwrite(rows(table.schema, "2 b"))
    expire(table, 1)

    with pytest.raises(NotFound, match=r"rows that an overwrite replaced .* overwrite=2"):
        streamed(table, 2)


def test_overwrites_of_a_table_without_key_give_new_rows_if_asked_for() -> None:
    table = history("1 a | 2 b", keys=())
    table.overwrite(rows(table.schema, "3 c"), dynamic=False)

    assert streamed(table, 2) == {}
    seeing = table.copy({"streaming-read-append-overwrite": "true"})
    assert streamed(seeing, 2) == {2: "+I 3 c"}


# --- the first plan ------------------------------------------------------------------------------


def test_fresh_reader_begins_with_the_latest_state() -> None:
    table = history("1 a | 2 b", "1 c | -D 2 b")

    assert streamed(table) == {2: "+I 1 c"}
    assert streamed(new_table()) == {}
    with pytest.raises(InvalidRequest, match="after its end"):
        table.stream(until=1)


def test_fresh_reader_and_follower_see_each_row_once() -> None:
    table = history("1 a", changelog_producer="lookup", write_only="true")
    assert streamed(table) == {1: ""}

    lookup_changelog(table, "1 a")
    put(table, "2 b")
    assert streamed(table) == {3: "+I 1 a"}
    full = table.copy({"changelog-producer": "full-compaction"})
    assert streamed(full) == {3: "+I 1 a"}
    assert streamed(full.copy({"num-levels": "4"})) == {3: "+I 1 a"}


def test_fresh_reader_sees_level_0_where_no_changelog_will_show_it() -> None:
    for options in ({"merge_engine": "first-row"}, {"deletion_vectors__enabled": "true"}):
        table = history("1 a", write_only="true", **options)
        assert table.to_arrow().num_rows == 0

        assert streamed(table) == {1: "+I 1 a"}


# --- columns and conditions ----------------------------------------------------------------------


def test_columns_and_conditions_hold_for_each_frame() -> None:
    table = history("1 a", "-U 1 a | +U 1 b", changelog_producer="input")

    assert streamed(table, 1, columns=["v"]) == {1: "a", 2: "a | b"}
    assert streamed(table, 1, where="_row_kind = '+U'") == {1: "", 2: "+U 1 b"}
    assert streamed(table, where=pl.col("v") == "b", columns=["_row_kind"]) == {2: "+I"}


def test_columns_that_are_not_there_are_told_at_once() -> None:
    for asked in ({"columns": ["nosuch"]}, {"where": "nosuch = 1"}):
        with pytest.raises(InvalidRequest, match="unknown column"):
            history("1 a").stream(1, "latest", **asked)


def test_nothing_is_read_before_a_frame_is_collected() -> None:
    table = history("1 a", "1 b")
    stream = table.stream(1, "latest")
    number, frame = next(stream)
    put(table, "1 c")

    assert (number, changed(frame)) == (1, "+I 1 a")
    assert [each for each, _ in stream] == [2]


# --- what has expired ----------------------------------------------------------------------------


def test_changelog_that_was_kept_is_read() -> None:
    for options in ({}, {"changelog_producer": "input"}):
        table = history("1 a", "1 b", "1 c", **options)
        keep_changelog_alone(table, 1)
        keep_changelog_alone(table, 2)

        assert streamed(table, 1) == {1: "+I 1 a", 2: "+I 1 b", 3: "+I 1 c"}


def test_changelog_with_a_gap_before_the_snapshots_is_not_there() -> None:
    table = history("1 a", "1 b", "1 c")
    keep_changelog_alone(table, 1)
    expire(table, 2)

    with pytest.raises(NotFound, match=r"expired.* snapshot_id=1 earliest=3 latest=3"):
        table.stream(1, "latest")


def test_snapshot_that_expires_while_it_is_followed_is_told() -> None:
    table = history("1 a", "1 b", "1 c")
    stream = table.stream(1, "latest")
    next(stream)
    expire(table, 2)

    with pytest.raises(NotFound, match=r"expired.* snapshot_id=2 earliest=3 latest=3"):
        next(stream)


def test_snapshot_that_expires_into_the_changelog_is_followed() -> None:
    table = history("1 a", "1 b", "1 c")
    stream = table.stream(1, "latest")
    next(stream)
    keep_changelog_alone(table, 2)

    assert [(number, changed(frame)) for number, frame in stream] == [
        (2, "+I 1 b"),
        (3, "+I 1 c"),
    ]


# --- arguments -----------------------------------------------------------------------------------


def test_snapshot_named_goes_before_the_options_that_name_one() -> None:
    table = history("1 a", "1 b").copy({"scan.snapshot-id": "1"})

    assert streamed(table, 2) == {2: "+I 1 b"}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"from_snapshot": 4}, NotFound, "no such snapshot yet.* snapshot_id=4"),
        ({"from_snapshot": 0}, NotFound, "the first snapshot of a table is 1"),
        ({"from_snapshot": 2, "until": 0}, InvalidRequest, "begins after its end"),
        ({"until": "newest"}, InvalidRequest, "until must be a snapshot id or 'latest'"),
        ({"until": True}, InvalidRequest, "until must be a snapshot id or 'latest'"),
        ({"from_snapshot": "1"}, InvalidRequest, "from_snapshot must be a snapshot id"),
        ({"from_snapshot": -3}, NotFound, "the first snapshot of a table is 1"),
        (
            {"from_snapshot": 1, "from_timestamp": 5},
            InvalidRequest,
            "in one way only: from_snapshot or from_timestamp",
        ),
        ({"from_timestamp": "soon"}, InvalidRequest, "not an ISO 8601 timestamp"),
        ({"scan_mode": "newest"}, InvalidRequest, "no such scan mode.* scan_mode=newest .*latest"),
        ({"scan_mode": 3}, InvalidRequest, "no such scan mode"),
        ({"scan_mode": "from-snapshot"}, InvalidRequest, "scan mode needs one more option"),
        (
            {"scan_mode": "latest", "from_snapshot": 1},
            InvalidRequest,
            "cannot be combined with the scan mode",
        ),
        ({"scan_mode": "latest-delta"}, InvalidRequest, r"changes\(start, end\)"),
        ({"consumer_id": " "}, InvalidRequest, "not blank"),
        ({"consumer_id": "../x"}, InvalidRequest, "leads out of its directory"),
        ({"poll": "often"}, InvalidRequest, "poll is not a valid duration"),
        ({"poll": 0}, InvalidRequest, "poll must be a duration above 0"),
        ({"poll": float("nan")}, InvalidRequest, "poll must be a duration above 0"),
        ({"poll": True}, InvalidRequest, "poll must be a duration above 0"),
    ],
)
def test_requests_that_cannot_be_are_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    table = history("1 a", "1 b")

    with pytest.raises(error, match=message):
        table.stream(**{"until": "latest", **arguments})


def test_overwrites_are_not_asked_for_where_changes_would_come_twice() -> None:
    table = history("1 a", changelog_producer="lookup", write_only="true")

    with pytest.raises(InvalidRequest, match="would emit changes twice"):
        reopened(table).copy({"streaming-read-overwrite": "true"}).stream(1, "latest")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"incremental-between": "1,2"}, "value=incremental"),
        ({"scan.mode": "latest-delta"}, "value=latest-delta"),
    ],
)
def test_options_of_a_read_with_an_end_begin_no_stream(
    options: dict[str, str], message: str
) -> None:
    table = history("1 a", "1 b").copy(options)

    with pytest.raises(InvalidRequest, match=message):
        table.stream(until="latest")


def test_a_start_that_the_table_states_applies_to_a_stream_of_this_table() -> None:
    table = history("1 a", "1 b").copy({"scan.snapshot-id": "2"})

    assert streamed(table) == {2: "+I 1 b"}
    assert streamed(table, scan_mode="from-snapshot-full") == {2: "+I 1 b"}
    with pytest.raises(InvalidRequest, match="cannot be combined with the scan mode"):
        table.stream(scan_mode="latest")


def test_stream_is_read_although_a_batch_read_does_not_have_its_mode() -> None:
    table = history("1 a", "1 b").copy({"scan.mode": "compacted-full"})

    assert streamed(table) == {2: "+I 1 b"}


# --- positions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stated", "begins"),
    [
        ({}, "state 3, then 4"),
        ({"scan.mode": "latest"}, "then 4"),
        ({"scan.snapshot-id": "2"}, "then 2"),
        ({"scan.mode": "from-snapshot-full", "scan.snapshot-id": "2"}, "state 2, then 3"),
        ({"consumer-id": "job"}, "then 2, recorded"),
        ({"consumer-id": "job", "consumer.ignore-progress": "true"}, "state 3, then 4"),
        ({"consumer-id": "other"}, "state 3, then 4"),
    ],
)
def test_job_asks_where_its_stream_begins(stated: dict[str, str], begins: str) -> None:
    table = history("1 a", "1 b", "1 c")
    table.reset_consumer("job", 2)

    assert beginning(stream.begin(table.context, stream.StreamRequest(), stated)) == begins


def beginning(found: stream.Beginning) -> str:
    if found.start is None:
        first = ["later, a state"] if found.with_state else ["later"]
    else:
        state = found.start.state
        assert found.with_state == (state is not None)
        first = [] if state is None else [f"state {state.id}"]
        first.append(f"then {found.start.next_id}")
    return ", ".join([*first, *(["recorded"] if found.recorded else [])])


def test_snapshot_that_a_job_names_must_be_there() -> None:
    table = history("1 a", "1 b", "1 c").copy({"scan.mode": "latest"})
    found = stream.begin(table.context, stream.StreamRequest())
    assert beginning(found) == "then 4"

    expire(table, 1)
    assert beginning(stream.begin(table.context, stream.StreamRequest(from_snapshot=2))) == "then 2"
    with pytest.raises(NotFound, match="snapshot_id=1"):
        stream.begin(table.context, stream.StreamRequest(from_snapshot=1))


def test_job_begins_before_the_first_snapshot() -> None:
    table = new_table()
    write_consumer(table.context, "job", 1)
    for stated, begins in (
        ({}, "later, a state"),
        ({"scan.mode": "latest"}, "then 1"),
        ({"scan.snapshot-id": "1"}, "later"),
        ({"consumer-id": "job"}, "later, recorded"),
    ):
        found = stream.begin(table.context, stream.StreamRequest(), stated)
        assert beginning(found) == begins


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"scan.mode": "latest", "scan.snapshot-id": "1"}, "scan.snapshot-id"),
        ({"scan.mode": "latest-delta"}, "value=latest-delta"),
        ({"incremental-between": "1,2"}, "value=incremental"),
    ],
)
def test_job_learns_at_once_that_a_stream_cannot_begin_so(
    stated: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        stream.begin(history("1 a").context, stream.StreamRequest(), stated)


def test_job_goes_on_with_the_snapshot_that_it_names() -> None:
    table = history("1 a", "1 b", "1 c", scan__mode="latest")
    expire(table, 1)
    reading = stream.streamed(table.context)
    assert reading.options.scan_mode is ScanMode.DEFAULT

    follower = stream.follow_from(reading, 2, 3)
    found = [follower.step() for _ in range(3)]
    assert [each.snapshot_id for each in found if isinstance(each, Found)] == [2, 3]
    assert (found[2], stream.follow_from(reading, 4).step()) == (Nothing.MORE, Nothing.YET)
    for number in (1, 5):
        with pytest.raises(NotFound, match=f"snapshot_id={number}"):
            stream.follow_from(reading, number)


def test_job_learns_at_once_that_changes_cannot_be_read() -> None:
    hidden = new_table(query_auth__enabled="true")
    twice = new_table(changelog_producer="lookup")
    with_options(twice, streaming_read_overwrite="true")
    plain = new_table().context
    first, second = plain.schema.fields
    fields = (first, replace(second, name="_row_kind"))
    named = with_schema(plain, replace(plain.schema, fields=fields))
    for context, message in (
        (hidden.context, "query-auth"),
        (reopened(twice).context, "twice"),
        (named, "_row_kind"),
    ):
        with pytest.raises(LakecoreError, match=message):
            stream.streamed(context)


def test_job_reads_snapshots_without_their_delay() -> None:
    table = history("1 a", streaming__read__snapshot__delay="1 h")
    assert table.context.options.streaming_read_snapshot_delay_ms == 3_600_000
    assert stream.without_delay(table.context).options.streaming_read_snapshot_delay_ms is None


def test_mark_of_a_commit_tells_it_from_another_of_the_same_id() -> None:
    first, other = (history("1 a").context.history.snapshot(1) for _ in range(2))
    renamed = replace(other, delta_manifest_list=f"{other.delta_manifest_list}x")

    assert stream.commit_mark(first) == stream.commit_mark(other) != stream.commit_mark(renamed)
    assert len(stream.commit_mark(first)) == 12


# --- the order of partitions ---------------------------------------------------------------------


def partitioned(**options: Any) -> Table:
    columns = {"id": "INT", "p": "STRING"}
    table = new_table(columns, keys=(), partitions=("p",), **options)
    for line in ("1 b", "2 a | 3 b", "4 _ | 5 a"):
        put(table, line)
    return table


def test_older_partition_of_a_table_without_key_comes_first() -> None:
    table = partitioned()

    assert streamed(table) == {3: "+I 1 b | +I 3 b | +I 2 a | +I 5 a | +I 4 _"}


def test_partition_of_the_smaller_value_comes_first_if_asked_for() -> None:
    table = partitioned(scan__plan_sort_partition="true")

    by_value = "+I 4 _ | +I 2 a | +I 5 a | +I 1 b | +I 3 b"
    assert streamed(table) == {3: by_value}
    assert streamed(table, 2) == {2: "+I 2 a | +I 3 b", 3: "+I 4 _ | +I 5 a"}
    assert changed(table.scan()) == by_value.replace("+I ", "")


def test_rows_of_a_bucket_come_in_the_order_of_writing() -> None:
    table = new_table({"id": "INT"}, keys=(), bucket="1", bucket_key="id", write_only="true")
    for line in ("9 | 3", "7", "1 | 8"):
        put(table, line)
    assert streamed(table) == {3: "+I 9 | +I 3 | +I 7 | +I 1 | +I 8"}

    reopened(table).copy({"write-only": "false"}).compact(full=True)
    assert streamed(table) == {4: "+I 9 | +I 3 | +I 7 | +I 1 | +I 8"}
