"""Changes of tables with data evolution: only changed columns are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import CommitConflict, CommitUnknown, InvalidRequest, Unsupported
from lakecore.format.file_index.container import decode_container
from lakecore.model.files import EMPTY_ROW, CommitMessage, GlobalIndex, IndexFile
from lakecore.table.commits.commit import CommitRequest, commit
from tests.stores import FailingStore, MeddledStore
from tests.tables import (
    held,
    in_directory,
    new_table,
    put,
    reopened,
    rolled_back,
    rows,
    with_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.table.handle import Table

WIDE = {"id": "INT", "v": "STRING", "n": "INT"}


def evolving(columns: dict[str, str] = WIDE, *lines: str, **options: Any) -> Table:
    table = new_table(
        columns,
        keys=(),
        row_tracking__enabled="true",
        data_evolution__enabled="true",
        **options,
    )
    for line in lines or ("1 a 1 | 2 b 2", "3 c 3 | 1 a 1", "5 e _"):
        put(table, line)
    return table


def marking(**options: Any) -> Table:
    return evolving(deletion_vectors__enabled="true", **options)


def tracked(table: Table) -> list[tuple[object, ...]]:
    """The rows with their ids and the snapshots that wrote them, in the order of the ids."""
    return table.inspect.system_table("row_tracking").to_polars().sort("_ROW_ID").rows()


def live(table: Table) -> list[tuple[object, ...]]:
    """Columns, first row id and row count of the live files."""
    files = table.inspect.files().sort("first_row_id", "min_sequence_number")
    return files.select("write_cols", "first_row_id", "record_count").rows()


def test_update_writes_only_the_columns_that_it_sets() -> None:
    table = evolving()
    result = table.update({"n": pl.col("n") + 10}, "id = 1")

    assert tracked(table) == [
        (1, "a", 11, 0, 4),
        (2, "b", 2, 1, 4),
        (3, "c", 3, 2, 4),
        (1, "a", 11, 3, 4),
        (5, "e", None, 4, 3),
    ]
    assert (result.rows_updated, result.files_added, result.files_deleted) == (2, 2, 0)
    assert live(table) == [
        (None, 0, 2),
        (["n"], 0, 2),
        (None, 2, 2),
        (["n"], 2, 2),
        (None, 4, 1),
    ]
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    assert (snapshot.commit_kind, snapshot.operation) == ("APPEND", "UPDATE")


def test_updates_after_each_other() -> None:
    table = evolving()
    table.update({"v": "x"}, "n = 1")
    table.update({"n": 7, "v": None}, "v = 'x' and id = 1")
    table.update({"id": pl.col("n") * 2, "n": pl.col("id")})
    table.update({"v": "none"}, "id is null")

    assert held(table) == "14 _ 1 | 14 _ 1 | 4 b 2 | 6 c 3 | _ none 5"
    assert table.count() == table.to_polars().height == 5
    assert table.count("v is null") == 2
    assert table.update({"n": 1}, "id = 99").snapshot_ids == ()
    assert held(table, snapshot_id=3) == "1 a 1 | 1 a 1 | 2 b 2 | 3 c 3 | 5 e _"


def test_values_that_do_not_fit_change_nothing() -> None:
    table = evolving({"id": "INT NOT NULL", "n": "TINYINT"}, "1 1 | 2 2")
    before = in_directory(table, "bucket-0")

    with pytest.raises(InvalidRequest, match="column=n value=300"):
        table.update({"n": 300}, "id = 1")
    with pytest.raises(InvalidRequest, match=r"NOT NULL|null"):
        table.update({"id": None}, "id = 1")
    with pytest.raises(InvalidRequest, match="unknown column"):
        table.update({"x": 1})
    assert in_directory(table, "bucket-0") == before
    assert held(table) == "1 1 | 2 2"


def test_rows_of_partitions_stay_there() -> None:
    table = evolving(WIDE, "1 a 1 | 2 b 2 | 3 a 3", "4 b 4 | 5 a 5", partitions=["v"])
    table.update({"n": 0}, "v = 'a' and id > 1")

    assert held(table) == "1 a 1 | 2 b 2 | 3 a 0 | 4 b 4 | 5 a 0"
    with pytest.raises(Unsupported, match="stays in its partition"):
        table.update({"v": "c"}, "id = 1")
    with pytest.raises(Unsupported, match="stays in its partition"):
        table.merge([{"id": 1, "v": "c", "n": 1}], on="id").when_matched_update_all().execute()
    source = [{"id": 1, "v": "a", "n": 7}, {"id": 4, "v": "b", "n": 8}, {"id": 6, "v": "c", "n": 9}]
    merge = table.merge(source, on="id").when_matched_update_all()
    merge.when_not_matched_insert_all().execute()
    assert held(table) == "1 a 7 | 2 b 2 | 3 a 0 | 4 b 8 | 5 a 0 | 6 c 9"
    table.merge(source, on="id").when_matched_update({"v": pl.col("source.v")}).execute()
    assert held(table) == "1 a 7 | 2 b 2 | 3 a 0 | 4 b 8 | 5 a 0 | 6 c 9"


def test_rows_are_deleted_only_with_deletion_vectors() -> None:
    table = evolving()
    merge = table.merge([{"id": 1}], on="id").when_matched_delete()

    with pytest.raises(Unsupported, match=r"option=deletion-vectors\.enabled"):
        table.delete("id = 1")
    with pytest.raises(Unsupported, match=r"option=deletion-vectors\.enabled"):
        merge.execute()
    assert table.count() == 5


def test_deleted_rows_leave_the_ids_of_the_others() -> None:
    table = marking()
    assert table.delete("id = 2 or n is null").rows_deleted == 2
    assert held(table) == "1 a 1 | 1 a 1 | 3 c 3"
    table.update({"v": "x"}, "id = 1")
    table.delete("v = 'x' and n = 1 and id = 3")
    assert table.delete("id = 3").rows_deleted == 1

    assert tracked(table) == [(1, "x", 1, 0, 5), (1, "x", 1, 3, 5)]
    assert table.count() == 2
    assert table.delete("true").rows_deleted == 2
    assert (table.count(), held(table)) == (0, "")
    put(table, "9 z 9")
    assert tracked(table) == [(9, "z", 9, 5, 8)]


def test_merge_writes_columns_marks_and_appends() -> None:
    table = marking()
    source = pl.DataFrame({"id": [1, 2, 5, 7], "n": [10, 0, 5, 7]})
    result = (
        table.merge(source, on="id")
        .when_matched_delete("source.n = 0")
        .when_matched_update({"n": pl.col("source.n") + pl.col("target.n")}, "source.n = 10")
        .when_matched_update({"v": "five"})
        .when_not_matched_insert({"id": pl.col("id"), "v": "new"})
        .when_not_matched_by_source_update({"n": 33})
        .execute()
    )

    assert tracked(table) == [
        (1, "a", 11, 0, 4),
        (3, "c", 33, 2, 4),
        (1, "a", 11, 3, 4),
        (5, "five", None, 4, 4),
        (7, "new", None, 5, 4),
    ]
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (1, 4, 1)
    assert [each[0] for each in live(table) if each[0]] == [["v", "n"]] * 3
    assert table.context.budget.used_bytes == 0


def test_merge_that_sets_all_columns_by_a_condition() -> None:
    table = evolving()
    merge = table.merge(rows(table.schema, "2 B 20 | 8 h 8"), on="target.id = source.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()

    assert held(table) == "1 a 1 | 1 a 1 | 2 B 20 | 3 c 3 | 5 e _ | 8 h 8"
    with pytest.raises(InvalidRequest, match="several rows of the source"):
        table.merge([{"id": 2}, {"id": 2}], on="id").when_matched_update({"n": 1}).execute()


def test_source_larger_than_memory_is_merged_in_parts() -> None:
    count = 20_000
    table = marking(budget_bytes=1 << 20)
    for start in range(0, 2 * count, count):
        ids = pa.array(range(100 + start, 100 + start + count), pa.int32())
        table.write(pa.table({"id": ids, "v": pa.repeat("old" * 20, count), "n": ids}))

    def source() -> Any:
        for start in range(100, 100 + count + 10_000, 1000):
            keys = list(range(start, start + 1000))
            yield pa.table({"id": keys, "v": ["new" * 20] * 1000, "n": keys})

    result = (
        table.merge(source(), on="id")
        .when_matched_delete((pl.col("source.id") % 10 == 0) & (pl.col("source.id") < count))
        .when_matched_update({"v": pl.col("source.v")}, "target.n < 10000")
        .execute()
    )
    after = table.to_polars().filter(pl.col("id") >= 100).sort("id")

    assert (result.rows_updated, result.rows_deleted) == (8910, 1990)
    assert after["id"].to_list() == [n for n in range(100, 100 + 2 * count) if n % 10 or n >= count]
    assert after.filter(pl.col("v").str.starts_with("new"))["id"].to_list() == [
        n for n in range(100, 10_000) if n % 10
    ]
    assert (after["id"] == after["n"]).all()
    assert table.context.budget.used_bytes == 0


def test_columns_with_a_global_index_are_not_changed() -> None:
    table = evolving()
    index = IndexFile(
        index_type="btree",
        name="index-1",
        size_bytes=1,
        row_count=1,
        global_index=GlobalIndex(row_range_start=0, row_range_end=1, index_field_id=2),
    )
    message = CommitMessage(
        partition=EMPTY_ROW, bucket=0, total_buckets=-1, new_index_files=(index,)
    )
    commit(table.context, CommitRequest(messages=[message], user="index"))
    before = in_directory(table, "bucket-0")

    with pytest.raises(Unsupported, match=r"global-index\.column-update-action.* columns=\[n\]"):
        table.update({"n": 1}, "id = 1")
    assert in_directory(table, "bucket-0") == before
    table.update({"v": "x"}, "id = 1")
    put(table, "8 h 8")
    assert held(table) == "1 x 1 | 1 x 1 | 2 b 2 | 3 c 3 | 5 e _ | 8 h 8"
    assert table.inspect.table_indexes()["index_type"].to_list() == ["btree"]


def test_indexes_of_a_file_are_those_of_its_columns() -> None:
    table = evolving({**WIDE, "b": "BLOB"}, "1 a 1 _ | 2 b 2 _")
    table.update({"n": 9}, "id = 2")
    with_options(table, file_index__bitmap__columns="id,n")
    table = reopened(table)
    assert table.rewrite_file_index().files == 2

    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    for entry in table.context.history.live_entries(snapshot):
        file = entry.file
        stored = file.embedded_index
        names = [] if stored is None else [index.column for index in decode_container(stored)]
        assert set(names) == {"id", "n"} & set(file.write_columns or ())
    assert held(table, where="n = 9") == "2 b 9 _"
    assert held(table, where="n = 2") == ""
    assert held(table, where="id = 1") == "1 a 1 _"


# --- compaction ----------------------------------------------------------------------------------


def test_compaction_joins_files_with_adjacent_row_ids() -> None:
    table = marking()
    table.update({"n": 9}, "id = 3")
    table.delete("id = 2")
    before = [row[:4] for row in tracked(table)]
    assert table.compact(full=True).files_before == 4

    assert [row[:4] for row in tracked(table)] == before
    assert live(table) == [(None, 0, 5)]
    assert (table.count(), table.compact(full=True).files_before) == (4, 0)
    table.update({"v": "x"}, "id = 5")
    table.delete("id = 1")
    assert tracked(table) == [(3, "c", 9, 2, 7), (5, "x", None, 4, 7)]


def test_compaction_without_full_waits_for_files() -> None:
    table = evolving(compaction__min__file_num="5")
    assert table.compact().files_before == 0
    table.update({"n": 1}, "id in (2, 3)")

    assert table.compact().files_before == 5
    assert live(table) == [(None, 0, 5)]


def test_row_ids_of_another_partition_are_not_joined() -> None:
    table = evolving(WIDE, "1 a 1", "2 b 2", "3 a 3", partitions=["v"])
    assert table.compact(full=True).files_before == 0
    put(table, "4 a 4")

    assert table.compact(full=True).files_before == 2
    assert [row[:4] for row in tracked(table)] == [
        (1, "a", 1, 0),
        (2, "b", 2, 1),
        (3, "a", 3, 2),
        (4, "a", 4, 3),
    ]


# --- others who write meanwhile ------------------------------------------------------------------


def meddled(table: Table, deed: Callable[[Table], object]) -> Table:
    other = reopened(table)
    return reopened(table, store=MeddledStore(table.context.store, lambda: deed(other)))


def test_other_columns_of_the_same_rows_are_no_conflict() -> None:
    table = marking()
    meddled(table, lambda other: other.update({"v": "theirs"}, "id = 1")).update({"n": 8}, "id = 1")
    assert held(table) == "1 theirs 8 | 1 theirs 8 | 2 b 2 | 3 c 3 | 5 e _"
    meddled(table, lambda other: put(other, "6 f 6")).update({"n": 7}, "id = 5")
    meddled(table, lambda other: other.update({"n": 0}, "id = 5")).update({"n": 9}, "id = 1")
    meddled(table, lambda other: other.delete("id = 3")).update({"n": 4}, "id in (1, 3)")
    meddled(table, lambda other: other.update({"n": 5}, "id = 2")).delete("id = 1")

    assert held(table) == "2 b 5 | 5 e 0 | 6 f 6"


@pytest.mark.parametrize(
    "theirs",
    [
        lambda other: other.update({"n": 7}, "id = 2"),
        lambda other: (
            other.merge([{"id": 1, "n": 3}], on="id")
            .when_matched_update({"n": pl.col("source.n"), "v": "x"})
            .execute()
        ),
        lambda other: other.overwrite(rows(other.schema, "9 z 9")),
        lambda other: other.compact(full=True),
        lambda other: [rolled_back(other, 2), put(other, "7 g 7"), put(other, "8 h 8")],
    ],
    ids=["update", "merge", "overwrite", "compact", "rollback"],
)
def test_change_of_the_same_columns_and_rows_is_a_conflict_and_leaves_nothing(
    theirs: Callable[[Table], object],
) -> None:
    table = evolving()
    seen: list[set[str]] = []

    def deed(other: Table) -> None:
        theirs(other)
        seen.append({str(path).rpartition("/")[2] for path in other.inspect.files()["file_path"]})

    slow = meddled(table, deed)
    before = in_directory(table, "bucket-0")
    with pytest.raises(CommitConflict):
        slow.update({"n": 5}, "id in (1, 3)")

    assert in_directory(table, "bucket-0") <= before | seen[0]


def test_two_deletions_of_rows_of_one_file_are_a_conflict() -> None:
    table = marking()
    slow = meddled(table, lambda other: other.delete("id = 2"))

    with pytest.raises(CommitConflict):
        slow.delete("id = 1")
    assert held(table) == "1 a 1 | 1 a 1 | 3 c 3 | 5 e _"


@pytest.mark.parametrize(
    "theirs",
    [
        lambda other: other.update({"n": 7}, "id = 2"),
        lambda other: other.delete("id = 2"),
        lambda other: put(other, "2 z 2"),
    ],
    ids=["update", "delete", "write"],
)
def test_compaction_plans_again_after_another_commit(theirs: Callable[[Table], object]) -> None:
    table = marking()
    plain = marking()
    theirs(plain)
    meddled(table, theirs).compact(full=True)

    assert [row[:4] for row in tracked(table)] == [row[:4] for row in tracked(plain)]
    table.compact(full=True)
    assert [row[:4] for row in tracked(table)] == [row[:4] for row in tracked(plain)]


def test_column_written_while_its_rows_are_compacted_is_newer() -> None:
    table = evolving(WIDE, "1 a 1 | 2 b 2")
    table.update({"n": 5}, "id = 1")
    meddled(table, lambda other: other.update({"n": 6}, "id = 2")).compact(full=True)

    assert held(table) == "1 a 5 | 2 b 6"


@pytest.mark.parametrize("verb", ["update", "delete", "merge", "compact"])
def test_crash_at_any_call_leaves_the_rows_before_or_after(verb: str) -> None:
    deeds: dict[str, Callable[[Table], object]] = {
        "update": lambda table: table.update({"n": 5}, "id = 1"),
        "delete": lambda table: table.delete("id = 1"),
        "merge": lambda table: (
            table.merge([{"id": 1, "n": 4}, {"id": 8, "n": 4}], on="id")
            .when_matched_update({"n": 4})
            .when_not_matched_insert({"id": pl.col("id")})
            .execute()
        ),
        "compact": lambda table: table.compact(full=True),
    }
    whole = marking()
    before = held(whole)
    deeds[verb](whole)
    after = held(whole)
    number = 0
    while True:
        number += 1
        table = marking()
        store = FailingStore(table.context.store, number)
        try:
            deeds[verb](reopened(table, store=store))
        except (OSError, CommitUnknown):
            pass
        else:
            if not store.is_dead:
                break
        assert held(table) in (before, after)

    assert held(table) == after
    assert number > 5
