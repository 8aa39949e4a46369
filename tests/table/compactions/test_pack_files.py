"""`Table.compact` of tables without a key: fewer files, the same rows, in order in buckets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import lakecore as lc
from lakecore.errors import CommitConflict, CorruptTable, InvalidRequest, StorageError, Unsupported
from lakecore.format.index_files import encode_vectors
from lakecore.format.layout import Layout
from lakecore.model.evolution import evolve
from lakecore.model.files import DELETION_VECTORS, DataFile, FileSource, IndexFile
from lakecore.model.schema_change import SchemaChange
from lakecore.model.types import parse_type
from lakecore.table.compactions.pack_files import plan_row_ranges
from lakecore.table.publication import write_schema
from tests.stores import FullStore, MeddledStore
from tests.tables import held, in_directory, new_table, put, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lakecore.table.handle import Table

COLUMNS = {"id": "INT", "v": "STRING"}
DAYS = {"day": "STRING", "id": "INT"}
IN_ORDER: dict[str, Any] = {"bucket": "1", "bucket_key": "id", "write_only": "true"}


def filled(count: int, **options: Any) -> Table:
    """A table of so many files, each of two rows: 0 and 1, 2 and 3, ..."""
    table = new_table(COLUMNS, keys=(), **options)
    for number in range(count):
        put(table, f"{2 * number} a | {2 * number + 1} b")
    return table


def days(**options: Any) -> Table:
    """A table of two partitions, of five files each."""
    table = new_table(DAYS, keys=(), partitions=("day",), **options)
    for number in range(5):
        put(table, f"x {number} | y {number}")
    return table


def live(table: Table) -> list[DataFile]:
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    return [entry.file for entry in table.context.history.live_entries(snapshot)]


def ids(table: Table) -> list[int]:
    """The ids as a read gives them out."""
    found: list[int] = table.to_arrow().column("id").to_pylist()
    return found


def ranges(table: Table) -> list[tuple[int, int]]:
    return sorted((file.sequence_min, file.sequence_max) for file in live(table))


def kinds(table: Table) -> list[str]:
    return [str(kind) for kind in table.inspect.snapshots()["commit_kind"]]


def meddled(table: Table, *deeds: Callable[[Table], object]) -> Table:
    """The table, whose commits come after these deeds, one each."""
    other = reopened(table)
    return reopened(
        table,
        store=MeddledStore(table.context.store, *(lambda deed=deed: deed(other) for deed in deeds)),
    )


# --- what comes out ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, IN_ORDER], ids=["no buckets", "in order"])
def test_small_files_become_one_and_rows_stay_as_they_are(options: dict[str, str]) -> None:
    table = filled(5, **options)

    result = table.compact()

    assert (result.buckets, result.files_before, result.files_after) == (1, 5, 1)
    assert (result.rows_before, result.rows_after) == (10, 10)
    assert result.bytes_before > (result.bytes_after or 0) > 0
    assert kinds(table) == [*["APPEND"] * 5, "COMPACT"]
    assert ids(table) == [*range(10)]
    assert [held(table, snapshot_id=number) for number in (1, 5)] == [
        "0 a | 1 b",
        held(table),
    ]


@pytest.mark.parametrize("options", [{}, IN_ORDER], ids=["no buckets", "in order"])
def test_compacted_table_has_nothing_to_compact(options: dict[str, str]) -> None:
    table = filled(5, **options)
    table.compact()

    assert table.compact() == table.compact(full=True) == lc.CompactionResult()
    assert new_table(COLUMNS, keys=()).compact(full=True) == lc.CompactionResult()


def test_few_files_are_left_alone_unless_it_is_full() -> None:
    table = filled(3)

    assert table.compact() == lc.CompactionResult()
    assert table.compact(full=True).files_after == 1
    assert ids(table) == [*range(6)]


def test_file_says_of_its_rows_what_they_are() -> None:
    table = filled(6, **IN_ORDER)

    table.compact()

    packed, left = sorted(live(table), key=lambda file: file.sequence_min)
    assert (packed.row_count, packed.delete_row_count, packed.level) == (10, 0, 0)
    assert (packed.sequence_min, packed.sequence_max) == (0, 9)
    assert (left.sequence_min, left.sequence_max) == (10, 11)
    assert (packed.file_source, left.file_source) == (FileSource.COMPACT, FileSource.APPEND)
    shown = table.inspect.files().sort("record_count")["min_value_stats", "max_value_stats"]
    assert shown.rows()[1] == ("{id=0, v=a}", "{id=9, v=b}")
    assert table.inspect.snapshots()["total_record_count"].to_list()[-2:] == [12, 12]


def test_rows_of_a_bucket_stay_in_order_when_some_of_its_files_are_packed() -> None:
    table = filled(12, **IN_ORDER)

    result = table.compact()

    assert (result.buckets, result.files_before, result.files_after) == (1, 10, 2)
    assert ids(table) == [*range(24)]
    assert ranges(table) == [(0, 9), (10, 19), (20, 21), (22, 23)]
    put(table, "24 a")
    assert table.compact(full=True).files_before == 5
    assert ids(table) == [*range(25)]
    assert ranges(table) == [(0, 24)]


def test_writing_goes_on_behind_the_last_row() -> None:
    table = filled(5, **IN_ORDER)
    table.compact()

    put(table, "10 a")

    assert ranges(table) == [(0, 9), (10, 10)]
    assert ids(table) == [*range(11)]


def test_rows_stay_in_order_where_writers_gave_out_numbers_twice() -> None:
    table = new_table(COLUMNS, keys=(), target_file_size="1 b", **IN_ORDER)
    writers = [reopened(table).new_write() for _ in range(3)]
    for number, writer in enumerate(writers):
        writer.write(rows(table.schema, " | ".join(f"{10 * number + each} a" for each in range(5))))
    for messages in [writer.prepare_commit() for writer in writers]:
        table.commit(messages)
    put(table, "99 z")
    assert ranges(table) == [*[(0, 4)] * 3, (5, 5)]

    for budget_bytes in (1000, 1 << 30):
        small = reopened(table, budget_bytes=budget_bytes)
        full = small.copy({"compaction.force-rewrite-all-files": "true"})
        full.compact(full=True)

        found = ids(table)
        assert found[-1] == 99
        for number in range(3):
            own = [10 * number + each for each in range(5)]
            assert [each for each in found if each in own] == own
        assert all(0 <= low <= high <= 5 for low, high in ranges(table))


def test_files_roll_at_the_target_size() -> None:
    table = new_table(COLUMNS, keys=(), target_file_size="4 kb", budget_bytes=1000)
    for number in range(40):
        put(table, f"{number} {Random(number).randbytes(160).hex()}")

    result = table.compact(full=True)

    assert result.files_after is not None
    assert 1 < result.files_after < 20
    assert sum(file.size_bytes < 4096 for file in live(table)) <= 1
    assert ids(table) == [*range(40)]
    assert table.context.budget.used_bytes == 0


@pytest.mark.parametrize("to", ["parquet", "orc", "avro"])
def test_files_of_every_format_go_together(to: str) -> None:
    table = new_table(COLUMNS, keys=())
    for number, stored in enumerate(("orc", "avro", "parquet")):
        put(table.copy({"file.format": stored}), f"{number} a | {number + 10} _")

    table.copy({"file.format": to}).compact(full=True)

    assert [file.format for file in live(table)] == [to]
    assert held(table) == "0 a | 1 a | 10 _ | 11 _ | 12 _ | 2 a"


def test_rows_get_the_schema_of_today_by_field_id() -> None:
    table = filled(2)
    context = table.context
    schema = context.schema
    changes = [
        [SchemaChange.update_column_type("id", parse_type("BIGINT"))],
        [SchemaChange.drop_column("v")],
        [SchemaChange.add_column("v", "STRING"), SchemaChange.rename_column("id", "key")],
    ]
    for number, change in enumerate(changes):
        schema = evolve(schema, change, now_ms=number, has_snapshots=True)
        write_schema(context.store, Layout(root=table.path), schema)
    put(table.refresh(), "1099511627776 new")
    before = held(table.refresh())

    table.compact(full=True)  # opened before the columns changed

    assert before == "0 _ | 1 _ | 1099511627776 new | 2 _ | 3 _"
    assert held(table.refresh()) == before
    assert [file.schema_id for file in live(table)] == [3]


def test_file_in_another_place_is_read_there_and_packed_into_the_table() -> None:
    table = filled(1).copy({"lakecore.external-paths": "memory://warehouse/elsewhere"})
    store = table.context.store
    with table.new_write() as writer:
        writer.write(rows(table.schema, "7 x"))
        (message,) = writer.prepare_commit()
    (file,) = message.new_files
    place = f"memory://warehouse/elsewhere/{file.name}"
    here = f"{table.path}/bucket-0/{file.name}"
    store.put(place, store.read(here))
    store.delete(here)
    table.commit([replace(message, new_files=(replace(file, external_path=place),))])

    with pytest.raises(InvalidRequest, match=r"lakecore\.external-paths"):
        held(table.copy({"lakecore.external-paths": "memory://warehouse/another"}))
    table.compact(full=True)

    assert held(table) == "0 a | 1 b | 7 x"
    assert [file.external_path for file in live(table)] == [None]
    assert store.exists(place)


# --- which of them -------------------------------------------------------------------------------


def test_partitions_are_packed_each_by_itself() -> None:
    table = days()

    result = table.compact()

    assert (result.buckets, result.files_before, result.files_after) == (2, 10, 2)
    assert held(table, where="day = 'x'") == "x 0 | x 1 | x 2 | x 3 | x 4"


def test_partitions_and_buckets_are_chosen() -> None:
    ways: tuple[dict[str, Any], ...] = ({"partitions": [{"day": "x"}]}, {"where": "day < 'y'"})
    for chosen in ways:
        assert days().compact(**chosen).files_before == 5
    table = new_table(COLUMNS, keys=(), bucket="3", bucket_key="id", write_only="true")
    for _ in range(5):
        put(table, " | ".join(f"{number} a" for number in range(20)))

    assert table.compact(buckets=[1]).buckets == 1
    assert table.compact(buckets=[7]) == lc.CompactionResult()
    assert table.compact().buckets == 2
    with pytest.raises(InvalidRequest, match="partition keys only"):
        days().compact(where="id = 1")


def test_dry_run_writes_nothing_and_says_what_would_be_read() -> None:
    table = filled(5)
    names = in_directory(table, "bucket-0")

    result = table.compact(dry_run=True)

    assert (result.buckets, result.files_before, result.rows_before) == (1, 5, 10)
    assert (result.files_after, result.rows_after) == (None, None)
    assert len(kinds(table)) == 5
    assert in_directory(table, "bucket-0") == names


def test_write_only_leaves_packing_to_those_who_ask() -> None:
    table = filled(5, write_only="true")

    assert table.compact().files_after == 1


# --- others meanwhile ----------------------------------------------------------------------------


def test_small_files_of_a_partition_are_packed_in_steps() -> None:
    table = filled(9, write_only="true")
    size_bytes = max(file.size_bytes for file in live(table))
    table = table.copy({"target-file-size": str(2 * size_bytes)})
    planned = table.compact(full=True, max_bytes=1, dry_run=True)
    told = [table.compact(full=True, max_bytes=10 * size_bytes, dry_run=True).steps]
    done = table.compact(full=True, max_bytes=1)

    assert (planned.steps, planned.files_before, told) == (2, 9, [1])
    # Four files at once are as much as two new ones may hold; what is small still goes on.
    assert (done.steps, done.files_before, len(done.snapshot_ids)) == (3, 11, 3)
    assert sorted(ids(table)) == list(range(18))
    assert len(live(table)) == 1


def test_rows_that_others_append_meanwhile_stay() -> None:
    table = filled(5)

    result = meddled(table, lambda other: put(other, "77 new")).compact()

    assert result.attempts == 1
    assert kinds(table)[-2:] == ["APPEND", "COMPACT"]
    assert sorted(ids(table)) == [*range(10), 77]


def test_files_that_others_packed_are_not_packed_again() -> None:
    table = filled(5)

    result = meddled(table, lambda other: other.compact()).compact()

    assert result.attempts == 2
    assert result.files_before == 0
    assert len(in_directory(table, "bucket-0")) == 6, "what the loser wrote is removed"
    assert ids(table) == [*range(10)]


@pytest.mark.parametrize("options", [{}, IN_ORDER], ids=["no buckets", "in order"])
@pytest.mark.parametrize("deed", ["delete", "update", "overwrite", "truncate"])
def test_what_others_changed_meanwhile_stays_changed(deed: str, options: dict[str, str]) -> None:
    deeds: dict[str, Callable[[Table], object]] = {
        "delete": lambda other: other.delete("id = 3"),
        "update": lambda other: other.update({"v": "new"}, "id = 3"),
        "overwrite": lambda other: other.overwrite(rows(other.schema, "50 z | 51 z")),
        "truncate": lambda other: other.truncate(),
    }
    table, plain = filled(6, **options), filled(6, **options)
    deeds[deed](plain)

    result = meddled(table, deeds[deed]).compact(full=True)

    assert result.attempts == 2
    assert held(table) == held(plain)
    named = {file.name for number in range(1, 9) for file in _named(table, number)}
    assert in_directory(table, "bucket-0") == named


def _named(table: Table, snapshot_id: int) -> list[DataFile]:
    history = table.context.history
    if snapshot_id not in table.inspect.snapshots()["snapshot_id"].to_list():
        return []
    return [entry.file for entry in history.live_entries(history.snapshot(snapshot_id))]


@pytest.mark.parametrize("options", [{}, IN_ORDER], ids=["no buckets", "in order"])
def test_change_of_a_file_that_was_packed_meanwhile_is_a_conflict(options: dict[str, str]) -> None:
    table = filled(6, **options)

    with pytest.raises(CommitConflict, match="gone"):
        meddled(table, lambda other: other.compact()).delete("id = 3")

    assert ids(table) == [*range(12)]
    table.delete("id = 3")
    assert sorted(ids(table)) == [each for each in range(12) if each != 3]


def test_group_that_nobody_touched_is_kept() -> None:
    table = filled(4, compaction__max__file_num="2")

    result = meddled(table, lambda other: other.delete("id = 0")).compact()

    assert (result.attempts, result.files_before, result.files_after) == (2, 4, 2)
    assert sorted(ids(table)) == [*range(1, 8)]
    assert len(in_directory(table, "bucket-0")) == 4 + 1 + 2, (
        "the group that was left was written once"
    )


@pytest.mark.parametrize("who", ["a job", "each writer"])
def test_packing_beside_four_writers_ends_and_every_row_is_there(who: str, tmp_path: Path) -> None:
    options = {
        "bucket": "2",
        "bucket-key": "id",
        "compaction.min.file-num": "2",
        "write-only": "true" if who == "a job" else "false",
        "commit.min-retry-wait": "1 ms",
        "commit.max-retries": "100",
    }
    table = lc.open_table(tmp_path / "t", create=True, schema=COLUMNS, options=options)
    writers = 4

    def write(number: int) -> None:
        own = lc.open_table(table.path)
        for turn in range(5):
            own.write([{"id": 100 * number + turn, "v": "a"}])

    with ThreadPoolExecutor(writers) as pool:
        running = [pool.submit(write, number) for number in range(writers)]
        while who == "a job" and not all(each.done() for each in running):
            lc.open_table(table.path).compact()
        for each in running:
            each.result()
    lc.open_table(table.path).compact(full=True)

    found = ids(table)
    assert sorted(found) == [100 * number + turn for number in range(writers) for turn in range(5)]
    assert "COMPACT" in kinds(table)


# --- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, IN_ORDER], ids=["no buckets", "in order"])
@pytest.mark.parametrize("stored", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("wrong", ["missing", "truncated", "empty"])
def test_damaged_file_is_one_error_and_leaves_the_table_as_it_was(
    options: dict[str, str], stored: str, wrong: str
) -> None:
    table = filled(5, file__format=stored, **options)
    path = f"{table.path}/bucket-0/{live(table)[3].name}"
    store = table.context.store
    data = store.read(path)
    if wrong == "missing":
        store.delete(path)
    else:
        store.put(path, data[: len(data) // 2] if wrong == "truncated" else b"")
    names = in_directory(table, "bucket-0")

    with pytest.raises(CorruptTable, match=path.rpartition("/")[2]):
        table.compact()

    assert len(kinds(table)) == 5
    assert in_directory(table, "bucket-0") == names
    assert table.context.budget.used_bytes == 0


def test_file_with_fewer_rows_than_the_manifest_says_is_an_error() -> None:
    table = filled(1)
    with table.new_write() as writer:
        writer.write(rows(table.schema, "7 x"))
        (message,) = writer.prepare_commit()
    (file,) = message.new_files
    table.commit([replace(message, new_files=(replace(file, row_count=2),))])

    with pytest.raises(CorruptTable, match=rf"fewer rows.*{file.name} rows=1 expected=2"):
        table.compact(full=True)

    assert len(live(table)) == 2
    assert len(in_directory(table, "bucket-0")) == 2


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"first_row_id": 0}, "rows have ids"),
        ({"write_columns": ("id",)}, "part of the columns"),
    ],
)
def test_files_that_say_more_than_their_rows_are_unsupported(
    facts: dict[str, Any], said: str
) -> None:
    table = filled(1)
    with table.new_write() as writer:
        writer.write(rows(table.schema, "7 x"))
        (message,) = writer.prepare_commit()
    (file,) = message.new_files
    table.commit([replace(message, new_files=(replace(file, **facts),))])

    with pytest.raises(Unsupported, match=rf"{said}.*{file.name}"):
        table.compact(full=True)


def vector_counts(table: Table) -> list[int | None]:
    """How many rows each deletion vector marks."""
    history = table.context.history
    entries = history.index_entries(history.latest_snapshot())
    return sorted(vector.cardinality for entry in entries for vector in entry.file.vectors or ())  # type: ignore[type-var]


MARKED: dict[str, Any] = {"deletion_vectors__enabled": "true"}


@pytest.mark.parametrize("options", [MARKED, {**MARKED, **IN_ORDER}], ids=["unaware", "ordered"])
def test_compaction_drops_marked_rows_and_their_vectors(options: dict[str, Any]) -> None:
    table = filled(4, **options)
    table.delete("id = 1 or id = 4")
    result = table.compact(full=True)

    assert held(table) == "0 a | 2 a | 3 b | 5 b | 6 a | 7 b"
    assert (vector_counts(table), sum(file.row_count for file in live(table))) == ([], 6)
    assert (result.rows_before or 0) - (result.rows_after or 0) == 2
    assert held(table, snapshot_id=5) == held(table)
    assert table.compact(full=True).snapshot_ids == ()


def test_compaction_rewrites_files_with_a_large_share_of_marked_rows_alone() -> None:
    table = new_table(COLUMNS, keys=(), target_file_size="1 b", **MARKED)
    for start in (0, 10):
        put(table, " | ".join(f"{start + number} a" for number in range(10)))
    table.delete("id = 1 or (id >= 10 and id < 13)")
    before = {file.name for file in live(table)}
    table.compact()

    assert vector_counts(table) == [1]
    assert len(before & {file.name for file in live(table)}) == 1
    table.copy({"compaction.delete-ratio-threshold": "0.05"}).compact()
    assert (vector_counts(table), table.count()) == ([], 16)


def test_vectors_of_files_that_stay_are_kept() -> None:
    table = new_table(COLUMNS, keys=(), target_file_size="1 b", **MARKED)
    for start in range(0, 40, 10):
        put(table, " | ".join(f"{start + number} a" for number in range(10)))
    table.delete("id % 10 = 3 or id in (5, 6)")
    assert vector_counts(table) == [1, 1, 1, 3]
    rows_before = held(table)
    table.compact()

    assert (vector_counts(table), held(table)) == ([1, 1, 1], rows_before)


def test_packing_of_a_write_drops_vectors() -> None:
    options = {**MARKED, "bucket": "1", "bucket_key": "id", "compaction__min__file_num": "3"}
    table = filled(2, **options)
    table.delete("id = 1")
    put(table, "4 c")

    assert kinds(table)[-2:] == ["APPEND", "COMPACT"]
    assert (held(table), vector_counts(table), len(live(table))) == (
        "0 a | 2 a | 3 b | 4 c",
        [],
        1,
    )


@pytest.mark.parametrize("options", [MARKED, {**MARKED, **IN_ORDER}], ids=["unaware", "ordered"])
def test_marks_set_while_files_are_packed_are_kept(options: dict[str, Any]) -> None:
    table = filled(4, **options)
    table.delete("id = 1")
    store = MeddledStore(table.context.store, lambda: reopened(table).delete("id = 4"))
    reopened(table, store=store).compact(full=True)
    after = reopened(table)

    assert (held(after), vector_counts(after)) == ("0 a | 2 a | 3 b | 5 b | 6 a | 7 b", [])
    named = {
        entry.file.name
        for snapshot in map(after.context.history.snapshot, after.context.history.snapshot_ids())
        for entry in after.context.history.index_entries(snapshot)
    }
    assert in_directory(after, "index") == named


def test_file_whose_rows_are_all_marked_is_packed_to_nothing() -> None:
    table = filled(1, **MARKED)
    file = live(table)[0].name
    context = table.context
    data, ranges_of = encode_vectors({file: np.array([0, 1])}, bitmap64=False)
    index = IndexFile(
        index_type=DELETION_VECTORS, name="index-0", size_bytes=len(data), row_count=1,
        vectors=ranges_of,
    )  # fmt: skip
    context.store.put(context.layout.live_index_file("", 0, index), data)
    with table.new_write() as writer:
        writer.write(rows(table.schema, "7 x"))
        (message,) = writer.prepare_commit()
    table.commit([replace(message, new_index_files=(index,))])
    assert held(table) == "7 x"
    table.compact(full=True)

    assert (held(table), vector_counts(table), len(live(table))) == ("7 x", [], 1)


def test_partitions_that_have_expired_are_left_out_if_asked() -> None:
    options: dict[str, Any] = {
        "compaction__skip_expired_partitions": "true",
        "partition__expiration_time": "1 d",
        "partition__expiration_check_interval": "9999 d",
    }
    table = new_table(DAYS, keys=(), partitions=("day",), **options)
    for number in range(5):
        put(table, f"2001-02-03 {number} | 2999-02-03 {number} | x {number}")
    by_file = table.copy({"partition.expiration-strategy": "update-time"})
    not_asked = table.copy({"compaction.skip-expired-partitions": "false"})

    assert by_file.compact(full=True, dry_run=True).buckets == 3
    assert not_asked.compact(full=True, dry_run=True).buckets == 3
    assert table.compact(full=True).buckets == 2
    assert table.inspect.partitions().sort("partition")["file_count"].to_list() == [5, 1, 1]


def test_form_of_partition_times_matters_only_where_expired_partitions_are_left_out() -> None:
    options: dict[str, Any] = {
        "partition__expiration_time": "1 d",
        "partition__expiration_check_interval": "9999 d",
        "partition__timestamp_formatter": "dd MMM yyyy",
    }
    table = new_table(DAYS, keys=(), partitions=("day",), **options)
    for number in range(5):
        put(table, f"x {number}")
    asked = table.copy({"compaction.skip-expired-partitions": "true"})

    with pytest.raises(Unsupported, match="a formatter of partition times"):
        asked.compact(full=True)
    assert table.compact(full=True).buckets == 1


# --- within a write ------------------------------------------------------------------------------

BY_ITSELF: dict[str, Any] = {"bucket": "1", "bucket_key": "id", "compaction__min__file_num": "3"}


def test_write_into_a_bucket_in_order_packs_as_soon_as_there_are_files_enough() -> None:
    table = filled(2, **BY_ITSELF)
    assert kinds(table) == ["APPEND", "APPEND"]

    result = table.write(rows(table.schema, "4 a | 5 b"))

    assert result.snapshot_ids == (3, 4)
    assert kinds(table)[2:] == ["APPEND", "COMPACT"]
    assert ranges(table) == [(0, 5)]
    assert ids(table) == [*range(6)]
    assert held(table, snapshot_id=3) == held(table)


def test_rows_stay_in_order_over_many_writes() -> None:
    table, plain = filled(20, **BY_ITSELF), filled(20, **{**BY_ITSELF, "write_only": "true"})

    assert len(live(table)) < 4 < len(live(plain))
    assert ids(table) == ids(plain) == [*range(40)]


def test_write_of_a_table_without_buckets_packs_nothing() -> None:
    assert kinds(filled(8)) == ["APPEND"] * 8


def test_overwrite_packs_nothing_of_what_it_throws_away() -> None:
    table = filled(2, **BY_ITSELF)

    table.overwrite(rows(table.schema, "50 z"))

    assert kinds(table) == ["APPEND", "APPEND", "OVERWRITE"]
    assert ids(table) == [50]


@pytest.mark.parametrize("verb", ["delete", "update", "merge"])
def test_changes_of_rows_leave_packing_to_the_next_write(verb: str) -> None:
    table = filled(2, **BY_ITSELF)
    deeds: dict[str, Callable[[], object]] = {
        "delete": lambda: table.delete("id in (0, 2)"),
        "update": lambda: table.update({"v": "new"}, "id in (0, 2)"),
        "merge": lambda: (
            table.merge([{"id": 0}], on="id")
            .when_matched_delete()
            .when_not_matched_by_source_update({"v": "new"}, "id = 2")
            .execute()
        ),
    }
    deeds[verb]()

    assert kinds(table) == ["APPEND", "APPEND", "OVERWRITE"]
    before = held(table)
    put(table, "6 c")
    put(table, "7 d")
    assert kinds(table)[-1] == "COMPACT"
    assert held(table) == f"{before} | 6 c | 7 d"


def test_damaged_file_is_an_error_of_the_write_before_anything_is_visible() -> None:
    table = filled(2, **BY_ITSELF)
    table.context.store.delete(f"{table.path}/bucket-0/{live(table)[0].name}")
    names = in_directory(table, "bucket-0")

    with pytest.raises(CorruptTable, match="missing"):
        put(table, "4 a")

    assert len(kinds(table)) == 2
    assert in_directory(table, "bucket-0") == names


def with_clustered_file(table: Table) -> None:
    """Commit a file of a higher level, as clustering does."""
    with table.copy({"write-only": "true"}).new_write() as writer:
        writer.write(rows(table.schema, "7 x"))
        (message,) = writer.prepare_commit()
    (file,) = message.new_files
    table.commit([replace(message, new_files=(replace(file, level=1),))])


def test_bucket_that_was_clustered_is_packed_like_any_other() -> None:
    table = filled(3, bucket="1", bucket_key="id", write_only="true")
    with_clustered_file(table)

    assert table.compact(full=True).files_before == 4
    assert ids(table) == [*range(6), 7]
    assert [file.level for file in live(table)] == [0]


def test_write_packs_a_file_that_was_clustered() -> None:
    table = filled(1, **BY_ITSELF)
    with_clustered_file(table)

    put(table, "8 y")

    assert kinds(table) == ["APPEND"] * 3 + ["COMPACT"]
    assert ids(table) == [0, 1, 7, 8]


def test_file_that_is_large_enough_parts_the_files_of_adjacent_rows() -> None:
    table = new_table(
        COLUMNS,
        keys=(),
        row_tracking__enabled="true",
        data_evolution__enabled="true",
        target_file_size="100 b",
        source__split__open_file_cost="1 b",
    )
    put(table, "1 a")
    context = table.context
    snapshot = context.history.snapshot(1)
    (stored,) = context.history.live_entries(snapshot)

    def packed(*sizes: int, at: Sequence[int] = range(9)) -> list[list[int]]:
        """The numbers of the files that are joined, of files of ten rows and these sizes.

        `at`: where the rows of each file begin; files of the same rows hold other columns.
        """
        numbered = [
            replace(
                stored.file,
                name=f"{number}.parquet",
                size_bytes=size,
                row_count=10,
                first_row_id=10 * place,
            )
            for number, (size, place) in enumerate(zip(sizes, at, strict=False))
        ]
        entries = [replace(stored, file=file) for file in numbered]
        found = plan_row_ranges(context, snapshot, entries, full=True)
        return [[numbered.index(file) for file in each.files] for each in found]

    assert packed(10, 10, 101, 50, 50, 1) == [[0, 1], [3, 4, 5]]
    assert packed(101, 10, 10, 101) == [[1, 2]]
    assert packed(60, 60, 10, 10) == [[0, 1], [2, 3]]
    assert [len(each) for each in packed(10, 60, 60, at=(0, 1, 1))] == [2]


def test_index_files_go_if_those_of_another_partition_cannot_be_written() -> None:
    table = new_table(
        DAYS,
        keys=(),
        partitions=("day",),
        deletion_vectors__enabled="true",
        write_only="true",
        target_file_size="2 kb",
    )
    # The first files are large enough, so their marks stay.
    put(table, " | ".join(f"{day} {37 * number}" for day in "ab" for number in range(1000)))
    for number in range(6):
        put(table, f"a {number} | a {number + 10} | b {number} | b {number + 10}")
    table.delete("id IN (3, 370)")
    before = in_directory(table, "index")
    full = FullStore(table.context.store, "/index/", 1)

    with pytest.raises(StorageError, match="no space left"):
        reopened(table, store=full).copy({"write-only": "false"}).compact()
    assert full.left == -1
    assert in_directory(table, "index") == before
