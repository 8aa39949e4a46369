"""`Table.compact`: reads stay as they are, files become one run, others are never in the way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import lakecore as lc
from lakecore.errors import CommitConflict, CorruptTable, InvalidRequest
from lakecore.format.layout import Layout
from lakecore.io.ambient import Clock, seeded
from lakecore.model.evolution import evolve
from lakecore.model.files import DataFile, FileSource
from lakecore.model.schema_change import SchemaChange
from lakecore.table.compactions.compact_work import CompactionProgress
from lakecore.table.publication import write_schema
from lakecore.table.verbs.compaction import PLANS_MAX, CompactionRequest
from lakecore.table.verbs.compaction import compact_table as compact_told
from tests.stores import MeddledStore
from tests.tables import held, in_directory, name_as_others, new_table, put, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakecore.table.handle import Table

VALUES = {"id": "INT NOT NULL", "a": "INT", "b": "STRING"}
DAYS = {"day": "STRING NOT NULL", "id": "INT NOT NULL", "v": "STRING"}
ENGINES: dict[str, dict[str, Any]] = {
    "deduplicate": {},
    "deduplicate by sequence": {"sequence__field": "a"},
    "partial-update": {
        "merge_engine": "partial-update",
        "partial_update__remove_record_on_delete": "true",
    },
    "aggregation": {
        "merge_engine": "aggregation",
        "fields__a__aggregate_function": "sum",
        "aggregation__remove_record_on_delete": "true",
    },
}
COMMITS = (
    "1 10 a | 2 20 b | 3 30 c",
    "1 11 _ | 4 40 d | -D 2 20 _",
    "-D 4 40 _ | 1 _ x | 5 50 e",
)


def made(engine: str, **options: Any) -> Table:
    table = new_table(VALUES, **{**ENGINES[engine], **options})
    for text in COMMITS:
        put(table, text)
    return table


def days(**options: Any) -> Table:
    """A table of two partitions, each with two runs."""
    table = new_table(DAYS, keys=("day", "id"), partitions=("day",), **options)
    put(table, "x 1 a | x 2 b | y 1 c")
    put(table, "x 2 B | y 1 C | y 2 d")
    return table


def live(table: Table) -> list[DataFile]:
    """The live files, by bucket and level."""
    history = table.context.history
    snapshot = history.latest_snapshot()
    assert snapshot is not None
    entries = sorted(history.live_entries(snapshot), key=lambda e: (e.partition, e.bucket))
    return [entry.file for entry in entries]


def levels(table: Table) -> list[int]:
    return [file.level for file in live(table)]


def kinds(table: Table) -> list[str]:
    return [str(kind) for kind in table.inspect.snapshots()["commit_kind"]]


def data_files(table: Table, directory: str = "bucket-0") -> set[str]:
    """What lies in a bucket's directory, whether or not a snapshot names it."""
    return in_directory(table, directory)


# --- what comes out -----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_reads_at_every_snapshot_stay_as_they_were(engine: str) -> None:
    table = made(engine)
    before = [held(table, snapshot_id=number) for number in (1, 2, 3)]

    result = table.compact(full=True)

    assert result.snapshot_id == 4
    assert [held(table, snapshot_id=number) for number in (1, 2, 3, 4)] == [*before, before[-1]]
    assert held(reopened(table)) == before[-1]
    assert kinds(table) == ["APPEND", "APPEND", "APPEND", "COMPACT"]


@pytest.mark.parametrize("engine", ENGINES)
def test_files_are_one_run_at_the_last_level_and_read_as_they_are(engine: str) -> None:
    table = made(engine)

    table.compact(full=True)

    found = table.explain()
    assert (found.raw_files, found.merged_files) == (1, 0)
    assert levels(table) == [5]


@pytest.mark.parametrize("engine", ENGINES)
def test_writing_goes_on_as_if_nothing_had_been_compacted(engine: str) -> None:
    table, plain = made(engine), made(engine)
    table.compact(full=True)
    for text in ("1 12 y | 3 32 z | 6 60 f", "-D 3 33 _ | 5 55 _"):
        put(table, text)
        put(plain, text)

        assert held(table) == held(plain)
        table.compact(full=True)
        assert held(table) == held(plain)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("stored", ["parquet", "orc", "avro"])
def test_every_format_is_compacted(engine: str, stored: str) -> None:
    table = made(engine, file__format__per__level=f"5:{stored}")
    before = held(table)

    table.compact(full=True)

    assert [file.format for file in live(table)] == [stored]
    assert held(table) == before


def test_file_says_of_its_rows_what_they_are() -> None:
    table = new_table()
    put(table, "1 a | 2 b | 3 c")
    put(table, "-D 3 _ | 1 A")

    table.compact(full=True)

    (file,) = live(table)
    assert (file.row_count, file.delete_row_count) == (2, 0)
    assert (file.sequence_min, file.sequence_max) == (1, 4)
    assert file.file_source is FileSource.COMPACT
    shown = table.inspect.files()
    assert shown["min_key"].to_list() == ["[1]"]
    assert shown["max_key"].to_list() == ["[2]"]
    assert table.inspect.snapshots()["total_record_count"].to_list() == [3, 5, 2]


def test_result_counts_files_bytes_and_rows_before_and_after() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    put(table, "2 B | 3 c")
    before = live(table)

    result = table.compact(full=True)

    (after,) = live(table)
    assert result == lc.CompactionResult(
        snapshot_ids=(3,),
        buckets=1,
        files_before=2,
        files_after=1,
        bytes_before=sum(file.size_bytes for file in before),
        bytes_after=after.size_bytes,
        rows_before=4,
        rows_after=3,
        steps=1,
    )


def test_nothing_is_left_of_a_bucket_whose_rows_are_all_deleted() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    put(table, "-D 1 _ | -D 2 _")

    result = table.compact(full=True)

    assert (result.files_after, result.rows_after) == (0, 0)
    assert live(table) == []
    put(table, "1 c")
    assert held(table) == "1 c"


def test_key_whose_deletion_was_dropped_may_come_again() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    put(table, "-D 1 _")
    table.compact(full=True)

    put(table, "1 c")

    assert held(table) == "1 c | 2 b"
    table.compact(full=True)
    assert held(table) == "1 c | 2 b"


def test_table_without_rows_has_nothing_to_compact() -> None:
    table = new_table()

    assert table.compact(full=True) == lc.CompactionResult()


def test_compacted_table_has_nothing_to_compact() -> None:
    table = made("deduplicate")
    table.compact(full=True)

    assert table.compact(full=True) == lc.CompactionResult()
    assert kinds(table)[-2:] == ["APPEND", "COMPACT"]


def test_rows_of_a_first_row_table_become_visible() -> None:
    table = new_table(merge_engine="first-row", write_only="true")
    put(table, "1 a | 2 b")
    put(table, "1 A | 3 c")
    assert held(table) == ""

    table.copy({"write-only": "false"}).compact(full=True)

    assert held(table) == "1 a | 2 b | 3 c"
    put(table, "3 C | 4 d")
    table.compact(full=True)
    assert held(table) == "1 a | 2 b | 3 c | 4 d"
    assert table.explain().raw_files == 1


def test_newer_commit_wins_a_tie_of_two_writers_after_compaction_too() -> None:
    table = new_table()
    first, second = table.new_write(), reopened(table).new_write()
    for writer, text in ((first, "1 a | 2 b"), (second, "1 A | 2 B")):
        writer.write(rows(table.schema, text))
    messages = second.prepare_commit()
    table.commit(first.prepare_commit())
    table.commit(messages)
    before = held(table)

    table.compact(full=True)

    assert held(table) == before == "1 A | 2 B"


def test_files_roll_at_the_target_size_and_do_not_overlap() -> None:
    table = new_table(target_file_size="1 b", write_only="true", budget_bytes=1000)
    put(table, " | ".join(f"{number} a" for number in range(50)))
    put(table, " | ".join(f"{number} b" for number in range(0, 50, 7)))

    result = table.compact(full=True)

    assert result.files_after is not None
    assert result.files_after > 1
    assert table.explain().merged_files == 0
    assert held(table) == held(table, snapshot_id=2)
    assert table.context.budget.used_bytes == 0


def test_rows_get_the_schema_of_today() -> None:
    table = new_table()
    put(table, "1 a")
    context = table.context
    change = [SchemaChange.add_column("w", "INT")]
    newest = evolve(context.schema, change, now_ms=1, has_snapshots=True)
    write_schema(context.store, Layout(root=table.path), newest)
    put(table.refresh(), "2 b 7")

    table.compact(full=True)  # opened before the column was there

    assert held(table.refresh()) == "1 a _ | 2 b 7"
    assert [file.schema_id for file in live(table)] == [1]


# --- what need not be written -------------------------------------------------------------------


def test_large_file_that_nothing_overlaps_only_changes_its_level() -> None:
    table = new_table(target_file_size="1 b")
    put(table, "1 a | 2 b")
    put(table, "5 e")
    before = live(table)
    names = data_files(table)

    result = table.compact(full=True)

    assert [replace(file, level=0) for file in live(table)] == before
    assert levels(table) == [5, 5]
    assert (result.files_upgraded, result.files_after) == (2, 2)
    assert data_files(table) == names
    assert held(table) == "1 a | 2 b | 5 e"
    assert table.explain().raw_files == 2


def test_deletions_that_the_writer_of_a_file_did_not_count_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name_as_others(monkeypatch)
    table = new_table(target_file_size="1 b")
    writer = table.new_write()
    writer.write(rows(table.schema, "1 a | -D 2 _"))
    (message,) = writer.prepare_commit()
    uncounted = tuple(replace(file, delete_row_count=0) for file in message.new_files)
    table.commit([replace(message, new_files=uncounted)])
    assert held(table) == "1 a"

    table.compact(full=True)

    assert held(table) == "1 a"
    assert [file.row_count for file in live(table)] == [1]


def test_runs_of_levels_between_are_merged_with_the_last() -> None:
    table = new_table()
    put(table, "1 a | 3 c")
    table.compact(full=True)
    for level, text in ((4, "1 A | 2 b"), (2, "3 C | -D 2 _")):
        writer = table.new_write()
        writer.write(rows(table.schema, text))
        (message,) = writer.prepare_commit()
        moved = tuple(replace(file, level=level) for file in message.new_files)
        table.commit([replace(message, new_files=moved)])
    assert levels(table) == [5, 4, 2]

    table.compact(full=True)

    assert levels(table) == [5]
    assert held(table) == "1 A | 3 C"


def test_deletions_in_the_last_level_are_dropped_and_other_files_left_alone() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    table.compact(full=True)
    writer = table.new_write()
    writer.write(rows(table.schema, "5 e | -D 6 _"))
    (message,) = writer.prepare_commit()
    moved = tuple(replace(file, level=5) for file in message.new_files)
    table.commit([replace(message, new_files=moved)])

    result = table.compact(full=True)

    assert (result.files_before, result.rows_before, result.rows_after) == (1, 2, 1)
    assert held(table) == "1 a | 2 b | 5 e"
    assert table.explain().raw_files == 2


def test_files_that_lie_deeper_than_the_option_says_keep_their_level() -> None:
    table = new_table(num_levels="9")
    put(table, "1 a | 2 b")
    table.compact(full=True)
    put(table, "2 B")

    table.copy({"num-levels": "3"}).compact(full=True)

    assert levels(table) == [8]
    assert held(table) == "1 a | 2 B"


# --- which buckets ------------------------------------------------------------------------------


def test_partitions_are_chosen_by_value_or_condition() -> None:
    for chosen in (
        {"partitions": [{"day": "x"}]},
        {"where": "day < 'y'"},
        {"where": pl.col("day") == "x"},
        {"where": "day <> 'z'", "partitions": [{"day": "x"}]},
    ):
        table = days()
        result = table.compact(full=True, **chosen)

        assert result.buckets == 1
        assert levels(table) == [5, 0, 0]


def test_buckets_are_chosen_by_number() -> None:
    table = new_table(bucket="3")
    for _ in range(2):
        put(table, " | ".join(f"{number} a" for number in range(20)))

    result = table.compact(full=True, buckets=[1])

    assert result.buckets == 1
    assert levels(table) == [0, 0, 5, 0, 0]
    assert table.compact(full=True, buckets=[7]) == lc.CompactionResult()


@pytest.mark.parametrize("partitioned", [True, False])
def test_condition_of_no_column_holds_for_all_or_none(*, partitioned: bool) -> None:
    def table() -> Table:
        if partitioned:
            return days()
        found = new_table()
        put(found, "1 a")
        put(found, "2 b")
        return found

    assert table().compact(full=True, where="1 = 0") == lc.CompactionResult()
    assert table().compact(full=True, where=pl.lit(False)) == lc.CompactionResult()
    assert table().compact(full=True, where="1 = 1").buckets > 0


def test_condition_on_other_columns_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"partition keys only.*columns=.*id"):
        days().compact(full=True, where="id = 1 AND day = 'x'")
    with pytest.raises(InvalidRequest, match="not a partition key"):
        days().compact(full=True, partitions=[{"id": 1}])


def test_dry_run_writes_nothing_and_says_what_would_be_read() -> None:
    table = days()
    names = data_files(table, "day=x/bucket-0")

    result = table.compact(full=True, dry_run=True)

    assert (result.buckets, result.files_before, result.rows_before) == (2, 4, 6)
    assert (result.snapshot_id, result.files_after, result.rows_after) == (None, None, None)
    assert len(kinds(table)) == 2
    assert data_files(table, "day=x/bucket-0") == names


def test_dynamic_buckets_keep_their_index() -> None:
    table = days(bucket="-1", dynamic_bucket__target_row_num="1")
    context = table.context

    def indexes() -> list[str]:
        latest = context.history.latest_snapshot()
        assert latest is not None
        return sorted(entry.file.name for entry in context.history.index_entries(latest))

    before, names = held(table), indexes()

    table.compact(full=True)

    assert indexes() == names
    assert held(table) == before
    put(table, "x 1 z | x 2 z | y 3 z")
    assert held(table) == "x 1 z | x 2 z | y 1 C | y 2 d | y 3 z"


def test_progress_comes_to_all_rows_and_buckets() -> None:
    table = days()
    told: list[CompactionProgress] = []

    compact_told(table.context, CompactionRequest(full=True), told.append)

    assert told[-1] == CompactionProgress(buckets_done=2, buckets=2, rows_done=6, rows=6)
    assert [each.rows_done for each in told] == sorted(each.rows_done for each in told)


# --- others meanwhile ---------------------------------------------------------------------------


def meddled(table: Table, *deeds: Callable[[Table], object]) -> Table:
    """The table, whose commits come after these deeds, one each."""
    other = reopened(table)
    return reopened(
        table,
        store=MeddledStore(table.context.store, *(lambda deed=deed: deed(other) for deed in deeds)),
    )


def test_rows_that_others_write_meanwhile_stay_at_level_0() -> None:
    table = made("deduplicate")

    result = meddled(table, lambda other: put(other, "1 99 new | -D 3 _ _ | 7 70 g")).compact(
        full=True
    )

    assert kinds(table)[-2:] == ["APPEND", "COMPACT"]
    assert result.attempts == 1
    assert sorted(levels(table)) == [0, 5]
    assert held(table) == "1 99 new | 5 50 e | 7 70 g"
    assert held(table, snapshot_id=4) == held(table)


def test_files_that_others_compacted_are_not_compacted_again() -> None:
    table = made("deduplicate")

    result = meddled(table, lambda other: other.compact(full=True)).compact(full=True)

    assert result == lc.CompactionResult(attempts=2)
    assert kinds(table).count("COMPACT") == 1
    assert len(data_files(table)) == 4, "what the loser wrote is removed"


def test_what_was_done_for_other_buckets_is_kept() -> None:
    table = days()

    result = meddled(
        table, lambda other: other.compact(full=True, partitions=[{"day": "x"}])
    ).compact(full=True)

    assert (result.buckets, result.attempts) == (1, 2)
    assert levels(table) == [5, 5]
    assert held(table) == "x 1 a | x 2 B | y 1 C | y 2 d"
    assert len(data_files(table, "day=y/bucket-0")) == 3, "it was written once"


def test_bucket_that_others_compact_and_write_is_planned_anew() -> None:
    table = made("deduplicate")

    def work(other: Table) -> None:
        other.compact(full=True)
        put(other, "8 80 h")

    result = meddled(table, work).compact(full=True)

    assert (result.attempts, result.files_before) == (2, 2)
    assert levels(table) == [5]
    assert held(table) == "1 _ x | 3 30 c | 5 50 e | 8 80 h"


def test_partition_that_others_overwrite_stays_as_they_left_it() -> None:
    table = days()
    fresh = rows(table.schema, "x 9 z")

    result = meddled(table, lambda other: other.overwrite(fresh, {"day": "x"})).compact(full=True)

    assert held(table) == "x 9 z | y 1 C | y 2 d"
    assert result.attempts == 2
    assert levels(table) == [5, 5]


def test_others_who_are_first_every_time_are_a_conflict_that_leaves_their_table() -> None:
    table = made("deduplicate")

    def work(other: Table) -> None:
        other.compact(full=True)
        put(other, "8 80 h")

    with pytest.raises(CommitConflict, match="every plan"):
        meddled(table, *[work] * PLANS_MAX).compact(full=True)

    named = {file.name for file in live(table)}
    assert sorted(levels(table)) == [0, 5]
    assert named <= data_files(table)
    assert held(table) == "1 _ x | 3 30 c | 5 50 e | 8 80 h"


def test_snapshot_that_is_published_first_only_costs_another_attempt_of_the_commit() -> None:
    table = made("deduplicate", commit__max_retries="0")

    result = meddled(table, lambda other: put(other, "8 80 h")).compact(full=True)

    assert result.attempts == 2
    assert sorted(levels(table)) == [0, 5]
    assert len(data_files(table)) == 5, "the bucket was written once"


def test_compactions_beside_eight_writers_end_and_every_row_is_there(tmp_path: Path) -> None:
    options = {"bucket": "2", "commit.min-retry-wait": "1 ms", "commit.max-retries": "100"}
    catalog = lc.connect(tmp_path)
    catalog.create_database("d")
    table = catalog.create_table(
        "d.t", {"id": "INT NOT NULL", "v": "INT"}, primary_keys=["id"], options=options
    )
    writers = 8

    def write(number: int) -> None:
        own = lc.open_table(table.path)
        for turn in range(2):
            own.write([{"id": 10 * number + turn, "v": turn}, {"id": 10 * number + 9, "v": turn}])

    with ThreadPoolExecutor(writers) as pool:
        running = [pool.submit(write, number) for number in range(writers)]
        while not all(each.done() for each in running):
            lc.open_table(table.path).compact(full=True)
        for each in running:
            each.result()
    table.compact(full=True)

    assert table.explain().merged_files == 0
    wanted = [(10 * number + key, min(key, 1)) for number in range(writers) for key in (0, 1, 9)]
    assert sorted(table.to_polars().rows()) == wanted


# --- what goes wrong ----------------------------------------------------------------------------


def test_missing_data_file_leaves_the_table_as_it_was() -> None:
    table = days(target_file_size="1 b")
    latest = table.context.history.latest_snapshot()
    before = data_files(table, "day=x/bucket-0")
    (lost, *_) = data_files(table, "day=y/bucket-0")
    table.context.store.delete(f"{table.path}/day=y/bucket-0/{lost}")
    left = data_files(table, "day=y/bucket-0")

    with pytest.raises(CorruptTable, match="missing"):
        table.compact(full=True)

    assert table.context.history.latest_snapshot() == latest
    assert data_files(table, "day=x/bucket-0") == before
    assert data_files(table, "day=y/bucket-0") == left
    assert table.context.budget.used_bytes == 0


def test_damaged_data_file_leaves_the_table_as_it_was() -> None:
    table = made("deduplicate")
    names = data_files(table)
    file = live(table)[1]
    path = f"{table.path}/bucket-0/{file.name}"
    table.context.store.put(path, table.context.store.read(path)[:100])

    with pytest.raises(CorruptTable):
        table.compact(full=True)

    assert len(kinds(table)) == 3
    assert data_files(table) == names


def test_file_that_others_replaced_and_removed_is_planned_anew() -> None:
    table = made("deduplicate")
    store = table.context.store

    class Hurried(MeddledStore):
        """Another compacts, and expires, before the first file is read."""

        def open_input(self, path: str) -> Any:
            if self.deeds:
                self.deeds.pop(0)()
            return super().open_input(path)

    def work() -> None:
        names = [file.name for file in live(table)]
        reopened(table).compact(full=True)
        put(reopened(table), "8 80 h")
        for name in names:
            store.delete(f"{table.path}/bucket-0/{name}")

    result = reopened(table, store=Hurried(store, work)).compact(full=True)

    assert result.attempts == 2
    assert held(table) == "1 _ x | 3 30 c | 5 50 e | 8 80 h"


# --- as many runs as it is time for --------------------------------------------------------------


def test_nothing_is_compacted_before_there_are_runs_enough() -> None:
    table = new_table(num_sorted_run__compaction_trigger="3")
    put(table, "1 a")
    put(table, "2 b")

    assert table.compact().snapshot_id is None
    assert levels(table) == [0, 0]


def test_small_new_runs_are_merged_and_a_large_old_one_stays() -> None:
    table = new_table(num_sorted_run__compaction_trigger="4", write_only="true")
    put(table, " | ".join(f"{number} old-{number}" for number in range(1000)))
    table.compact(full=True)
    for text in ("1 a", "2 b | 7 q", "-D 2 b | 3 c | 1 d"):
        put(table, text)
    before = held(table)

    result = table.compact()

    assert (result.files_before, result.files_after) == (3, 1)
    assert sorted(levels(table)) == [3, 4]
    assert sorted(file.delete_row_count or 0 for file in live(table)) == [0, 1]
    assert held(table) == before
    assert held(table, where="id < 4") == "0 old-0 | 1 d | 3 c"


@pytest.mark.parametrize("options", [{"merge_engine": "first-row"}, {"force_lookup": "true"}])
def test_table_that_takes_look_ups_leaves_nothing_at_level_0(options: dict[str, Any]) -> None:
    table = new_table(write_only="true", **options)
    put(table, "1 a | 2 b")
    assert table.compact().files_upgraded == 1
    put(table, "2 c | 3 d")

    table.compact()

    assert 0 not in levels(table)
    assert held(table) == ("1 a | 2 c | 3 d" if "force_lookup" in options else "1 a | 2 b | 3 d")


@pytest.mark.parametrize("engine", ENGINES)
def test_compacting_as_it_is_time_changes_no_read(engine: str) -> None:
    plain = new_table(VALUES, **ENGINES[engine])
    table = new_table(VALUES, num_sorted_run__compaction_trigger="2", **ENGINES[engine])
    for number in range(9):
        text = f"{number % 4} {number} r{number}" + (" | -D 1 0 _" if number % 3 == 2 else "")
        put(plain, text)
        put(table, text)
        table.compact()

        assert held(table) == held(plain)
    assert max(levels(table)) > 0
    assert len(levels(table)) <= 2


def test_file_that_does_not_count_its_deletions_is_written_anew_before_it_moves_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name_as_others(monkeypatch)
    table = new_table(
        num_sorted_run__compaction_trigger="2",
        num_levels="4",
        compaction__small_file_ratio="0",
        write_only="true",
    )
    put(table, " | ".join(f"{number} old-{number}" for number in range(1000)))
    table.compact(full=True)
    for text in ("-D 1 a", "2000 z"):
        with table.new_write() as writer:
            writer.write(rows(table.schema, text))
            (message,) = writer.prepare_commit()
        (file,) = message.new_files
        table.commit([replace(message, new_files=(replace(file, delete_row_count=0),))])

    result = table.compact()

    assert result.files_upgraded == 1
    assert [(file.level, file.delete_row_count) for file in live(table)] == [
        (3, 0),
        (2, 1),
        (2, 0),
    ]
    assert held(table, where="id < 3") == "0 old-0 | 2 old-2"


def test_explicit_compaction_minds_the_hour_and_the_interval() -> None:
    day_ms = 86_400_000
    table = new_table(
        write_only="true",
        num_sorted_run__compaction_trigger="3",
        compaction__size_ratio="0",
        compaction__offpeak__start__hour="2",
        compaction__offpeak__end__hour="4",
        compaction__offpeak_ratio="100000",
    )
    put(table, " | ".join(f"{number} {'x' * 50}{number}" for number in range(400)))
    table.compact(full=True)
    put(table, " | ".join(f"{number} {'y' * 50}{number}" for number in range(300)))
    put(table, "1 a")

    def files_at(hour: int, **options: str) -> int:
        at = table.context.ambient.now_ms() // day_ms * day_ms + day_ms + hour * 3_600_000
        own = reopened(table, ambient=seeded(hour, Clock(at))).copy(options)
        return own.compact(dry_run=True).files_before

    # In off-peak hours, a compaction includes much larger runs.
    assert (files_at(3), files_at(12)) == (3, 0)
    everything = {"compaction.optimization-interval": "1 h"}
    assert files_at(12, **everything) == 3
