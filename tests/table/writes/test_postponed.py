"""Postponed rows are hidden until a compaction moves them; batches go to real buckets."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from lakecore.errors import InvalidRequest, LakecoreError, Unsupported
from lakecore.io.ambient import seeded
from tests.stores import FailingStore, MeddledStore
from tests.tables import changed, held, in_directory, new_table, reopened, rows

if TYPE_CHECKING:
    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "v": "STRING", "p": "STRING"}


def postponed(**options: Any) -> Table:
    stated = {"bucket": "-2", **options}
    return new_table(COLUMNS, keys=["id", "p"], partitions=["p"], **stated)


def later(table: Table, text: str) -> None:
    """Write rows to the postponed bucket."""
    with table.new_write() as writer:
        writer.write(rows(table.schema, text))
        table.commit(writer.prepare_commit())


def buckets(table: Table) -> dict[str, dict[int, int]]:
    """The buckets of each partition, each with the number of buckets it was written with."""
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    found: dict[str, dict[int, int]] = {}
    for entry in table.context.history.live_entries(snapshot):
        name = "/".join(table.context.partitions.texts(entry.partition).values())
        found.setdefault(name, {})[entry.bucket] = entry.total_buckets
    return found


def test_postponed_rows_are_hidden_until_a_compaction() -> None:
    table = postponed()
    later(table, "1 a x | 2 b x | 1 c x")
    later(table, "-D 2 b x | 3 d y")

    assert held(table) == ""
    assert buckets(table) == {"x": {-2: -2}, "y": {-2: -2}}
    done = table.compact()
    assert (done.buckets, done.files_before, done.rows_before, done.steps) == (4, 3, 5, 1)
    assert held(table) == "1 c x | 3 d y"
    assert buckets(table) == {"x": {0: 1}, "y": {0: 1}}
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    assert snapshot.commit_kind == "COMPACT"


def test_files_are_avro_without_statistics_and_tell_their_writer() -> None:
    table = postponed()
    with table.new_stream_write("loader") as writer:
        writer.write([{"id": 7, "v": "a", "p": "x"}, {"id": 2, "v": "b", "p": "x"}])
        writer.prepare_commit(1)
        writer.commit(1)
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    (entry,) = table.context.history.live_entries(snapshot)

    name = r"data--u-loader-s-\d+-w-[0-9a-f-]{36}-lc0\.avro"
    assert re.fullmatch(name, entry.file.name)
    assert in_directory(table, "p=x/bucket-postpone") == {entry.file.name}
    assert (entry.file.sequence_min, entry.file.sequence_max, entry.file.level) == (-1, -1, 0)
    assert entry.file.value_stats_columns == ()


@pytest.mark.parametrize("user", ["a-s-1", "../up", "x" * 100, "ü"])
def test_a_user_that_a_name_cannot_hold_is_left_out(user: str) -> None:
    table = postponed()
    with table.new_stream_write(user) as writer:
        writer.write([{"id": 7, "v": "a", "p": "x"}])
        writer.prepare_commit(1)
        writer.commit(1)
    (name,) = in_directory(table, "p=x/bucket-postpone")

    assert re.fullmatch(r"data--u-[0-9a-f]{32}-s-\d+-w-[0-9a-f-]{36}-lc0\.avro", name)
    table.compact()
    assert held(table) == "7 a x"


def test_avro_gives_way_to_types_that_it_cannot_store() -> None:
    table = new_table({"id": "INT NOT NULL", "t": "TIMESTAMP(9)"}, bucket="-2")
    with table.new_write() as writer:
        writer.write(pl.DataFrame({"id": [1], "t": [5]}, {"id": pl.Int32, "t": pl.Datetime("ns")}))
        table.commit(writer.prepare_commit())

    assert all(name.endswith(".parquet") for name in in_directory(table, "bucket-postpone"))
    table.compact()
    assert table.to_polars()["t"].dt.nanosecond().to_list() == [5]


def test_partition_keeps_its_number_of_buckets() -> None:
    table = postponed(postpone__default_bucket_num="3")
    later(table, "1 a x | 2 b x | 3 c x | 4 d x")
    table.compact()
    other = table.copy({"postpone.default-bucket-num": "5"})
    later(other, "1 z x | 2 z y | 3 z y | 4 z y | 5 z y | 6 z y")
    other.compact(full=True)

    assert set(buckets(table)["x"].values()) == {3}
    assert set(buckets(table)["y"].values()) == {5}
    assert held(table).startswith("1 z x | 2 b x")
    assert table.scan(where="id = 5").collect().height == 1


def test_number_of_buckets_follows_from_the_rows() -> None:
    table = postponed(postpone__target_row_num_per_bucket="4")
    later(table, " | ".join(f"{number} a x" for number in range(9)) + " | 1 b y")
    table.compact()

    assert set(buckets(table)["x"].values()) == {3}
    assert set(buckets(table)["y"].values()) == {1}


def test_batch_goes_to_real_buckets_at_once() -> None:
    table = postponed(postpone__target_row_num_per_bucket="4")
    table.write(rows(table.schema, " | ".join(f"{number} a x" for number in range(9))))
    table.write(rows(table.schema, "1 b x | 2 b y"))

    assert set(buckets(table)["x"].values()) == {4}
    assert set(buckets(table)["y"].values()) == {1}
    assert held(table).startswith("0 a x | 1 b x | 2 a x | 2 b y")
    assert not in_directory(table, "p=x/bucket-postpone")
    table.delete("id > 2")
    table.update({"v": "new"}, "id = 0")
    assert held(table) == "0 new x | 1 b x | 2 a x | 2 b y"


def test_batch_is_postponed_if_the_option_says_so() -> None:
    table = postponed(postpone__batch_write_fixed_bucket="false")
    table.write(rows(table.schema, "1 a x | 2 b x"))
    assert (held(table), buckets(table)) == ("", {"x": {-2: -2}})

    table.compact()
    table.delete("id = 1")
    assert held(table) == "1 a x | 2 b x"
    table.compact()
    assert held(table) == "2 b x"
    table.overwrite(rows(table.schema, "9 z x"))
    assert held(table) == ""
    table.compact()
    assert held(table) == "9 z x"


def test_large_batch_rescales_the_partition() -> None:
    table = postponed(
        postpone__target_row_num_per_bucket="2",
        **{"postpone__batch-write-fixed-bucket__rescale-load-factor": "2"},
    )
    table.write(rows(table.schema, "1 a x | 1 a y"))
    later(table, "50 late x")
    table.write(rows(table.schema, " | ".join(f"{number} b x" for number in range(9))))

    assert set(buckets(table)["x"].values()) == {8, -2}
    assert set(buckets(table)["y"].values()) == {1}
    assert held(table).startswith("0 b x | 1 a y | 1 b x | 2 b x")
    table.compact()
    assert "50 late x" in held(table)


def test_overwrite_replaces_postponed_rows_too() -> None:
    table = postponed(postpone__default_bucket_num="2")
    later(table, "1 a x | 1 a y")
    table.overwrite(rows(table.schema, "2 b x"))
    table.compact()

    assert held(table) == "1 a y | 2 b x"
    table.truncate()
    assert held(table) == ""
    assert buckets(table) == {}


def test_rescale_leaves_postponed_rows() -> None:
    table = postponed()
    table.write(rows(table.schema, "1 a x | 2 b x"))
    later(table, "3 c x")
    with pytest.raises(InvalidRequest, match="state bucket_num"):
        table.rescale()
    table.rescale(bucket_num=4)

    assert set(buckets(table)["x"].values()) == {4, -2}
    table.compact()
    assert held(table) == "1 a x | 2 b x | 3 c x"


def test_compaction_takes_what_is_selected() -> None:
    table = postponed()
    later(table, "1 a x | 1 a y | 1 a z")
    planned = table.compact(dry_run=True)
    assert (planned.buckets, planned.files_before, planned.files_after) == (3, 3, None)
    table.compact(partitions=[{"p": "x"}])
    assert held(table) == "1 a x"
    table.compact(buckets=[0])
    assert held(table) == "1 a x"

    done = table.compact(max_bytes=1)
    assert held(table) == "1 a x | 1 a y | 1 a z"
    assert done.steps == 2
    assert table.compact().snapshot_ids == ()


def test_stream_shows_rows_when_they_are_postponed() -> None:
    table = postponed()
    later(table, "1 a x | 2 b x")
    table.compact()
    later(table, "-D 1 a x | 3 c x")
    table.compact()
    table.write(rows(table.schema, "4 d x"))

    shown = [changed(frame.lazy()) for _, frame in table.stream(from_snapshot=1, until="latest")]
    assert " ".join(shown).split(" ").count("+I") == 4
    assert any("-D 1 a x" in each for each in shown)
    started = postponed()
    later(started, "1 a x")
    started.compact()
    later(started, "2 b x | -D 1 a x")
    (first,) = [changed(frame.lazy()) for _, frame in started.stream(until="latest")]
    assert first == "+I 1 a x | +I 2 b x | -D 1 a x"


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_changelog_shows_rows_when_they_are_moved(producer: str) -> None:
    table = postponed(changelog_producer=producer)
    later(table, "1 a x | 2 b x")
    assert list(table.stream(from_snapshot=1, until="latest")) == []
    table.compact(full=True)
    later(table, "1 c x")
    table.compact(full=True)

    told = " | ".join(
        changed(frame.lazy()) for _, frame in table.stream(from_snapshot=1, until="latest")
    )
    before = "" if producer == "input" else "-U 1 a x | "
    after = "+I 1 c x" if producer == "input" else "+U 1 c x"
    assert told == f"+I 1 a x | +I 2 b x | {before}{after}"


def test_merge_on_read_is_refused() -> None:
    table = postponed(postpone__merge_on_read="true")
    with pytest.raises(Unsupported, match=r"postpone.merge-on-read|option"):
        table.to_arrow()


def test_compaction_that_lost_a_race_starts_again() -> None:
    table = postponed()
    later(table, "1 a x")
    other = reopened(table)
    store = MeddledStore(table.context.store, other.compact)
    mine = reopened(table, store=store)
    later(table, "2 b x")
    mine.compact()

    assert held(table) == "1 a x | 2 b x"
    assert buckets(table) == {"x": {0: 1}}


def test_rows_postponed_during_a_compaction_wait_for_the_next() -> None:
    table = postponed()
    later(table, "1 a x")
    other = reopened(table)
    store = MeddledStore(table.context.store, lambda: later(other, "1 newer x"))
    reopened(table, store=store).compact()

    assert held(table) == "1 a x"
    table.compact()
    assert held(table) == "1 newer x"


def test_a_crash_at_any_call_of_a_compaction_loses_nothing() -> None:
    at, done = 1, False
    while not done:
        table = postponed(postpone__default_bucket_num="2")
        later(table, "1 a x | 2 b x")
        store = FailingStore(table.context.store, at, after=at % 2 == 0)
        with suppress(OSError, LakecoreError):
            reopened(table, store=store).compact()
        done = not store.is_dead
        at += 2
        again = reopened(table, ambient=seeded(at))
        assert held(again) in ("", "1 a x | 2 b x")
        again.compact()
        assert held(again) == "1 a x | 2 b x"

    assert at > 5


def test_unpartitioned_table_and_failed_batch_leave_nothing_behind() -> None:
    table = new_table(bucket="-2")
    with pytest.raises(InvalidRequest):
        table.write([{"id": 1, "v": "a"}, {"id": None, "v": "b"}])
    table.write([{"id": 1, "v": "a"}])

    assert held(table) == "1 a"
    assert not in_directory(table, "bucket-postpone")


def test_clean_up_knows_the_postponed_bucket() -> None:
    table = postponed()
    later(table, "1 a x")
    with table.new_write() as writer:
        writer.write(rows(table.schema, "2 b x"))
        writer.prepare_commit()
    future = table.context.ambient.now_ms() + 10**9
    found = table.remove_orphan_files(future, force=True)
    assert (found.files, len(in_directory(table, "p=x/bucket-postpone"))) == (1, 1)

    table.compact()
    later(table, "3 c x")
    table.compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert in_directory(table, "p=x/bucket-postpone") == set()
    assert held(table) == "1 a x | 3 c x"


def test_lookups_and_merges_find_rows_in_real_buckets() -> None:
    table = postponed(postpone__default_bucket_num="3")
    table.write(rows(table.schema, "1 a x | 2 b x | 3 c y"))
    found = table.lookup([{"id": 2, "p": "x"}, {"id": 9, "p": "x"}])
    assert found["v"].to_list() == ["b"]
    merge = table.merge(
        [{"id": 2, "v": "m", "p": "x"}, {"id": 4, "v": "n", "p": "new"}], on=["id", "p"]
    )
    merge.when_matched_update_all().when_not_matched_insert_all().execute()

    assert held(table) == "1 a x | 2 m x | 3 c y | 4 n new"
    assert set(buckets(table)["new"].values()) == {3}


def test_columns_that_a_batch_brings_are_added() -> None:
    table = postponed()
    table.write([{"id": 1, "v": "a", "p": "x", "n": 5}], evolve_schema=True)

    assert reopened(table).to_arrow().to_pylist() == [{"id": 1, "v": "a", "p": "x", "n": 5}]


def test_batch_does_not_rescale_rows_that_streams_have_yet_to_see() -> None:
    table = new_table(
        bucket="-2",
        changelog_producer="full-compaction",
        postpone__target_row_num_per_bucket="3",
        postpone__batch_write_fixed_bucket__rescale_load_factor="1",
    )
    table.write([{"id": 1, "v": "a"}])
    table.write([{"id": number, "v": "b"} for number in range(20)])
    table.compact(full=True)

    assert table.count() == 20
    assert table.changes().collect().height == 20
