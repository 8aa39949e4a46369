"""The streaming source by the calls of Spark: each change once, in batches that can be repeated."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, NotFound, Unsupported
from spark_bridge.source import LakecoreSource
from tests.spark.frames import held, table_at
from tests.spark.micro_batches import Checkpoint, Query, source_of
from tests.spark.streams import altered, applied, history_step, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def query(table: lc.Table, checkpoint: Any = None, **options: object) -> Query:
    given = {key.replace("__", ".").replace("_", "-"): str(x) for key, x in options.items()}
    texts = {"read.changelog": "true", **given}
    return Query(table, checkpoint or Checkpoint("q"), texts)


def shown(batches: Sequence[Sequence[dict[str, Any]]]) -> list[tuple[object, ...]]:
    return [tuple(row.values())[:3] for rows in batches for row in rows]


def ids(batches: Sequence[Sequence[dict[str, Any]]]) -> list[int]:
    return sorted(row["id"] for rows in batches for row in rows)


def test_state_then_one_snapshot_a_batch(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="2", changelog_producer="input")
    table.write(rows_of(1, 2, 3))
    table.write(rows_of(2, v="b"))
    checkpoint = Checkpoint("q")
    first = query(table, checkpoint).rows()
    table.write(rows_of(2, 4, v="c"))
    table.delete("id = 1")
    second = query(table, checkpoint).rows()

    assert sorted(shown(first)) == [("+I", 2, 1), ("+I", 2, 2), ("+I", 2, 3)]
    assert [sorted(shown([batch])) for batch in second] == [
        [("+I", 3, 2), ("+I", 3, 4)],
        [("-D", 4, 1)],
    ]
    assert applied(first + second) == held(table)
    assert query(table, checkpoint).rows() == []


def test_offsets_say_where_a_stream_is(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="2")
    table.write(rows_of(1))
    checkpoint = Checkpoint("q")
    query(table, checkpoint).rows()
    table.write(rows_of(2))
    query(table, checkpoint).rows()
    first, second = (json.loads(end) for _, end in checkpoint.offsets)

    assert (first["snapshot"], first["full"], first["split"], first["splits"]) == (1, True, 1, 1)
    assert (second["snapshot"], second["schema"]) == (2, 0)
    assert second.keys() == {"snapshot", "schema", "commit"}


def test_repeated_batch_has_the_same_rows(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="4", write_only="true")
    table.write(rows_of(*range(40)))
    checkpoint = Checkpoint("q")
    limits = {"maxFilesPerTrigger": 1}
    whole = query(table, checkpoint, **limits).rows()
    for start, end in list(checkpoint.offsets):
        table.write(rows_of(1, 2, 3))
        reader = source_of(table, {"read.changelog": "true"})
        parts = reader.partitions(json.loads(start), json.loads(end))
        again = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        number = checkpoint.offsets.index((start, end))

        assert again == whole[number]
    assert len(whole) == 4


def test_limits_cut_a_state_and_the_changes(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="4", write_only="true")
    table.write(rows_of(*range(40)))
    one = query(table, maxFilesPerTrigger=1).rows()
    for number in range(4):
        table.write(rows_of(number, v="b"))
    three = query(table, startingVersion=2, maxSnapshotsPerTrigger=3).rows()
    two = query(table, startingVersion=2, **{"read.stream.maxRowsPerTrigger": 2}).rows()
    small = query(table, startingVersion=1, maxBytesPerTrigger=1).rows()
    large = query(table, startingVersion=1, maxBytesPerTrigger=1 << 40).rows()

    assert ([len(batch) > 0 for batch in one], ids(one)) == ([True] * 4, list(range(40)))
    assert [len(batch) for batch in three] == [3, 1]
    assert [len(batch) for batch in two] == [2, 2]
    assert [len(batch) for batch in small] == [40, 1, 1, 1, 1]
    assert [len(batch) for batch in large] == [44]


def test_append_tables_have_no_limit_unless_one_is_stated(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", keys=())
    for number in range(3):
        table.write(rows_of(number))

    assert [len(batch) for batch in query(table, startingVersion=1).rows()] == [3]


def test_starting_options(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1", write_only="true")
    table.write(rows_of(1))
    table.write(rows_of(2))
    time_ms = table.context.history.snapshot(2).time_ms
    table.create_tag("first", snapshot_id=1)
    starts: dict[str, dict[str, object]] = {
        "version": {"startingVersion": 2},
        "latest": {"startingVersion": "latest"},
        "time": {"startingTimestamp": time_ms},
        "paimon": {"scan.mode": "from-snapshot", "scan.snapshot-id": 2},
        "millis": {"scan.timestamp-millis": time_ms},
        "full": {"scan.mode": "from-snapshot-full", "scan.snapshot-id": 1},
        "tag": {"scan.tag-name": "first"},
        "created": {"scan.file-creation-time-millis": 1},
    }

    assert {name: ids(query(table, **options).rows()) for name, options in starts.items()} == {
        "version": [2],
        "latest": [],
        "time": [2],
        "paimon": [2],
        "millis": [2],
        "full": [1, 2],
        "tag": [1, 2],
        "created": [1, 2],
    }


def test_stream_from_an_empty_table_has_its_first_rows(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1", write_only="true")
    checkpoint = Checkpoint("full")
    assert query(table, checkpoint).rows() == []
    latest = source_of(table, {"read.changelog": "true", "startingVersion": "latest"})
    start = latest.initialOffset()
    assert latest.latestOffset(start, latest.getDefaultReadLimit()) == start
    table.overwrite(rows_of(1))
    table.write(rows_of(2))

    assert ids(query(table, checkpoint).rows()) == [1, 2]
    end = latest.latestOffset(start, latest.getDefaultReadLimit())
    rows = [row for p in latest.partitions(start, end) for b in latest.read(p) for row in b["id"]]
    assert [row.as_py() for row in rows] == [2]


def test_state_without_rows_is_passed_over(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", keys=())
    table.write(rows_of(1))
    table.truncate()
    checkpoint = Checkpoint("q")
    assert query(table, checkpoint).rows() == [[]]
    table.write(rows_of(2))

    assert ids(query(table, checkpoint).rows()) == [2]


def test_expired_start_names_the_earliest(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1", write_only="true")
    for number in range(5):
        table.write(rows_of(number))
    table.expire_snapshots(retain_max=2, retain_min=1)

    for options in ({"startingVersion": 1}, {"scan.snapshot-id": 1, "scan.mode": "from-snapshot"}):
        with pytest.raises(NotFound, match=r"expired.*earliest=4"):
            query(table, **options).rows()
    # A start that has expired does not matter to a query that is beyond it.
    checkpoint = Checkpoint("q")
    query(table, checkpoint, startingVersion=4).rows()
    table.write(rows_of(9))
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert ids(query(table, checkpoint, startingVersion=4).rows()) == [9]


def test_outage_longer_than_the_retention_is_an_error(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1", write_only="true")
    table.write(rows_of(1))
    checkpoint = Checkpoint("q")
    query(table, checkpoint).rows()
    for number in range(5):
        table.write(rows_of(number))
    table.expire_snapshots(retain_max=2, retain_min=1)

    with pytest.raises(NotFound, match=r"expired.*earliest=5"):
        query(table, checkpoint).rows()


def test_batch_that_expired_before_it_is_repeated_is_an_error(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1", write_only="true")
    table.write(rows_of(1))
    table.write(rows_of(2))
    state, changes = query(table), query(table, startingVersion=1, maxSnapshotsPerTrigger=9)
    for each in (state, changes):
        each.crash = "planned"
        with pytest.raises(BaseException, match="planned"):
            each.rows()
    for number in range(3):
        table.write(rows_of(number))
    table.expire_snapshots(retain_max=1, retain_min=1)

    with pytest.raises(NotFound, match="state that the stream reads has expired"):
        state.rows()
    with pytest.raises(NotFound, match=r"expired.*earliest=5"):
        changes.rows()


def test_rollback_is_an_error_even_if_numbers_are_used_again(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1", write_only="true")
    table.write(rows_of(1))
    table.write(rows_of(2))
    checkpoint = Checkpoint("q")
    query(table, checkpoint, startingVersion=1).rows()
    table.rollback_to(1)
    with pytest.raises(NotFound, match="rolled back"):
        query(table, checkpoint).rows()
    table.write(rows_of(3))
    table.write(rows_of(4))

    with pytest.raises(NotFound, match="rolled back"):
        query(table, checkpoint).rows()


def test_changed_columns_end_a_query_and_the_next_one_has_them(tmp_path: Path) -> None:
    table = table_at(tmp_path / "d.db" / "t", bucket="1", write_only="true")
    table.write(rows_of(1))
    checkpoint = Checkpoint("q")
    running = query(table, checkpoint, startingVersion=1)
    seen: list[list[int]] = []

    def each(batch: int, tasks: Any) -> None:
        seen.append([row["id"] for task in tasks for row in task.to_pylist()])
        if batch == 0:
            table.write(rows_of(2))
            altered(table, lc.SchemaChange.set_option("snapshot.num-retained.min", "5"))
            table.write(rows_of(3))
            altered(table, lc.SchemaChange.add_column("w", "STRING"))
            table.refresh().write(rows_of(4, w="new"))

    running.available = False
    with pytest.raises(InvalidRequest, match=r"columns of the table have changed.*snapshot_id=4"):
        running.run(each)
    assert seen == [[1], [2], [3]]
    (batch,) = query(table, checkpoint).rows()
    assert [row["w"] for row in batch] == ["new"]


def test_frame_that_is_older_than_the_columns_is_refused(tmp_path: Path) -> None:
    table = table_at(tmp_path / "d.db" / "t", bucket="1")
    table.write(rows_of(1))
    source = LakecoreSource({"path": table.path, "read.changelog": "true"})
    schema = source.schema()
    old = LakecoreSource({"path": table.path, "scan.snapshot-id": "1"})
    old_schema = old.schema()
    altered(table, lc.SchemaChange.add_column("w", "STRING"))

    for each, columns in ((source, schema), (old, old_schema)):
        with pytest.raises(InvalidRequest, match="make the frame again"):
            each.streamReader(columns)
    # Who names the columns does not mind new ones.
    named = LakecoreSource({"path": table.path}).streamReader(schema)
    altered(table, lc.SchemaChange.add_column("x", "STRING"))
    table.refresh().write(rows_of(2, w="w", x="x"))
    start = named.initialOffset()
    assert named.latestOffset(start, named.getDefaultReadLimit())["snapshot"] == 2


def test_consumer_holds_what_a_query_has_not_done(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1", write_only="true")
    for number in range(3):
        table.write(rows_of(number))
    running = query(table, consumer_id="reports", startingVersion=1)
    running.crash = "planned"
    with pytest.raises(BaseException, match="planned"):
        running.rows()
    begun = [each.next_snapshot for each in table.consumers()]
    running.rows()
    after = [each.next_snapshot for each in table.consumers()]
    table.write(rows_of(3))
    table.expire_snapshots(retain_max=1, retain_min=1)
    # A new checkpoint goes on where the consumer is, not at startingVersion.
    lost = query(table, consumer_id="reports", startingVersion=1).rows()

    assert (begun, after, ids(lost)) == ([1], [4], [3])


def test_first_run_to_the_end_protects_what_the_next_one_reads(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1", write_only="true")
    table.write(rows_of(0))
    nightly = query(table, consumer_id="reports")
    first = nightly.rows()
    for number in (1, 2):
        table.write(rows_of(number))
    table.expire_snapshots(retain_max=1, retain_min=1)
    second = nightly.rows()

    assert (ids(first), ids(second)) == ([0], [1, 2])
    assert [each.next_snapshot for each in table.consumers()] == [4]


def test_kinds_must_be_asked_for_or_refused(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1", write_only="true")
    table.write(rows_of(1, 2))
    table.delete("id = 1")
    plain = table_at(tmp_path / "plain", keys=())
    plain.write(rows_of(1, 2))
    adding = Query(table, Checkpoint("q"), {"read.changelog": "false", "startingVersion": "1"})

    with pytest.raises(InvalidRequest, match=r"read\.changelog"):
        Query(table, Checkpoint("q"), {}).rows()
    assert [list(row) for row in adding.rows()[0]] == [["id", "v", "n"]] * 2
    assert ids(Query(plain, Checkpoint("q"), {}).rows()) == [1, 2]


WRONG: dict[str, dict[str, object]] = {
    "maxfilespertrigger": {"maxFilesPerTrigger": 0},
    "read.stream.maxthings": {"read.stream.maxThings": 1},
    "one way only": {"startingVersion": 1, "startingTimestamp": 1},
    "one way": {"startingVersion": 1, "scan.mode": "latest"},
    "zone": {"startingTimestamp": "2026-01-01T00:00:00"},
    "names a state": {"snapshot-id": 1},
    "ignoredeletes": {"ignoreDeletes": "true"},
    "true or false": {"read.changelog": "yes"},
    "scan.moode": {"scan.moode": "x"},
    "twice": {"maxFilesPerTrigger": 1, "read.stream.maxFilesPerTrigger": 1},
    "scan mode": {"scan.mode": "incremental"},
}


@pytest.mark.parametrize("text", list(WRONG))
def test_wrong_options_are_refused_by_name(tmp_path: Path, text: str) -> None:
    table = table_at(tmp_path / "t", bucket="1")
    table.write(rows_of(1))

    with pytest.raises((InvalidRequest, Unsupported), match=text):
        query(table, **WRONG[text]).rows()


def test_batch_read_and_write_refuse_options_of_a_stream(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1")
    table.write(rows_of(1))
    source = LakecoreSource({"path": table.path, "read.changelog": "true"})

    with pytest.raises(InvalidRequest, match="is for a stream"):
        source.reader(source.schema())
    with pytest.raises(Unsupported, match=r"read\.changelog"):
        source.writer(LakecoreSource({"path": table.path}).schema(), overwrite=False)


def test_offset_of_something_else_is_refused(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1")
    table.write(rows_of(1))
    reader = source_of(table, {"read.changelog": "true"})
    for wrong in ({}, {"snapshot": "1", "schema": 0}, {"snapshot": -1, "schema": 0}):
        with pytest.raises(InvalidRequest, match="new checkpoint"):
            reader.partitions(wrong, wrong)
    start = reader.initialOffset()
    state = reader.latestOffset(start, reader.getDefaultReadLimit())
    with pytest.raises(InvalidRequest, match="other splits"):
        reader.partitions(start, {**state, "plan": "another"})
    with pytest.raises(InvalidRequest, match="newer schema"):
        reader.partitions(state, {**state, "schema": 7})


def test_conditions_prune_and_filter(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="2", changelog_producer="input")
    table.write(rows_of(*range(10)))
    table.delete("id < 4")
    where = "_row_kind = '-D' AND id > 1 AND _snapshot_id > 0"

    assert sorted(shown(query(table, where=where, startingVersion=1).rows())) == [
        ("-D", 2, 2),
        ("-D", 2, 3),
    ]


@pytest.mark.parametrize("bucket", ["2", "-1"])
def test_overwrite_is_read_as_deletions_before_insertions(tmp_path: Path, bucket: str) -> None:
    table = table_at(tmp_path / "t", bucket=bucket, streaming_read_overwrite="true")
    table.write(rows_of(1, 2))
    table.overwrite(rows_of(2, 3, v="b"))
    last = table.context.history.latest_snapshot_id()
    (batch,) = query(table, startingVersion=last).rows()
    kinds = [(row["_row_kind"], row["id"]) for row in batch]

    assert sorted(kinds) == [("+I", 2), ("+I", 3), ("-D", 1), ("-D", 2)]
    assert kinds.index(("-D", 2)) < kinds.index(("+I", 2))


def test_snapshots_without_changes_are_passed_over(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1", write_only="true")
    table.write(rows_of(1))
    checkpoint = Checkpoint("q")
    query(table, checkpoint).rows()
    for number in range(20):
        table.overwrite(rows_of(number))
    passed = query(table, checkpoint).rows()
    table.expire_snapshots(retain_max=1, retain_min=1)
    table.write(rows_of(99))

    assert passed == [[]], "an empty batch records that they are done"
    assert ids(query(table, checkpoint).rows()) == [99]


def test_spark_4_1_asks_without_a_start(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t", bucket="1", write_only="true")
    table.write(rows_of(1))
    reader = source_of(table, {"read.changelog": "true"})
    start = reader.initialOffset()
    first = reader.latestOffset()
    table.write(rows_of(2))
    second = reader.latestOffset()
    restarted = source_of(table, {"read.changelog": "true"})
    table.write(rows_of(3))
    third = restarted.latestOffset()
    found = [
        [row["id"] for part in restarted.partitions(a, b) for batch in restarted.read(part)
         for row in batch.to_pylist()]
        for a, b in ((start, first), (first, second), (second, third), (start, third))
    ]  # fmt: skip

    assert found == [[1], [2], [3], [1, 2, 3]]
    limited = source_of(table, {"read.changelog": "true", "maxFilesPerTrigger": "1"})
    limited.initialOffset()
    with pytest.raises(Unsupported, match=r"4\.2"):
        limited.latestOffset()


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
@pytest.mark.sampled(2)
def test_backfill_has_the_rows_of_a_continuous_query(tmp_path: Path, producer: str) -> None:
    random = Random(producer)
    table = table_at(tmp_path / "t", bucket="2", changelog_producer=producer)
    continuous: list[list[dict[str, Any]]] = []
    checkpoint = Checkpoint("q")
    begin = {"startingVersion": 1}
    for _ in range(8):
        history_step(table, random)
        if producer == "full-compaction":
            table.compact(full=True)
        running = query(table, checkpoint, **begin)
        running.available = False
        continuous += running.rows()

    def in_order(batches: list[list[dict[str, Any]]]) -> list[str]:
        rows = sorted((row for batch in batches for row in batch), key=str)
        return [str(row) for row in rows]

    for limits in ({"maxSnapshotsPerTrigger": 3}, {"maxRowsPerTrigger": 9}):
        backfill = query(table, None, **begin, **limits)
        backfill.random = random
        assert in_order(backfill.rows()) == in_order(continuous)
