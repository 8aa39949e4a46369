"""Changes of tables without a key: only files with rows that change are written anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import CommitConflict, CommitUnknown, InvalidRequest, Unsupported
from tests.stores import FailingStore, MeddledStore
from tests.tables import held, in_directory, new_table, put, reopened, rows, with_options

if TYPE_CHECKING:
    from lakecore.table.handle import Table

WIDE = {"id": "INT", "v": "STRING", "n": "INT"}


def appended(**options: str) -> Table:
    table = new_table(WIDE, keys=(), **options)  # type: ignore[arg-type]
    for line in ("1 a 1 | 2 b 2", "3 c 3 | 1 a 1", "5 e _"):
        put(table, line)
    return table


def live(table: Table) -> dict[str, int]:
    """The rows of each live file."""
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    entries = table.context.history.live_entries(snapshot)
    return {entry.file.name: entry.file.row_count for entry in entries}


def test_deletion_writes_files_with_matching_rows_anew_and_leaves_the_others() -> None:
    table = appended()
    before = live(table)
    result = table.delete("id = 2")

    assert held(table) == "1 a 1 | 1 a 1 | 3 c 3 | 5 e _"
    assert (result.snapshot_ids, result.rows_deleted) == ((4,), 1)
    assert (result.files_deleted, result.files_added) == (1, 1)
    assert len(before.keys() & live(table).keys()) == 2


def test_file_whose_rows_all_go_is_only_taken_away() -> None:
    table = appended()
    result = table.delete("id = 5 or n >= 3")

    assert (result.files_deleted, result.files_added, result.rows_deleted) == (2, 1, 2)
    assert held(table) == "1 a 1 | 1 a 1 | 2 b 2"
    assert table.delete("true").rows_deleted == 3
    assert held(table) == ""


def test_update_sets_values_in_rows_that_match() -> None:
    table = appended()
    result = table.update({"n": pl.col("n") + 10, "v": "x"}, "id = 1")

    assert held(table) == "1 x 11 | 1 x 11 | 2 b 2 | 3 c 3 | 5 e _"
    assert (result.rows_updated, result.files_deleted, result.files_added) == (2, 2, 1)
    assert table.update({"n": 0}).rows_updated == 5
    assert held(table, where="n = 0") == held(table)


def test_snapshot_is_an_overwrite_that_says_what_it_was() -> None:
    table = appended()
    results = [table.delete("id = 2"), table.update({"n": 1})]
    found = [table.context.history.snapshot(each.snapshot_ids[0]) for each in results]

    assert [each.operation for each in found] == ["DELETE", "UPDATE"]
    assert {(each.commit_kind, each.total_record_count) for each in found} == {("OVERWRITE", 4)}
    assert held(table, snapshot_id=3) == "1 a 1 | 1 a 1 | 2 b 2 | 3 c 3 | 5 e _"


def test_nothing_that_matches_makes_no_snapshot() -> None:
    table = appended()

    assert table.delete("id = 9").snapshot_ids == ()
    assert table.update({"n": 1}, "id = 9").snapshot_ids == ()
    assert new_table(keys=()).delete("id = 9").snapshot_ids == ()


def test_null_condition_matches_nothing() -> None:
    table = appended()
    table.delete("n <> 1")

    assert held(table) == "1 a 1 | 1 a 1 | 5 e _"


def test_rows_move_to_the_partition_and_bucket_of_their_new_values() -> None:
    table = new_table(WIDE, keys=(), partitions=["v"], bucket="2", bucket_key="id")
    put(table, "1 a 1 | 2 a 2 | 3 b 3")
    table.update({"v": "b", "id": pl.col("id") + 10}, "id = 1")

    assert held(table) == "11 b 1 | 2 a 2 | 3 b 3"
    assert held(table, where="v = 'b' and id = 11") == "11 b 1"


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_files_of_every_format(kind: str) -> None:
    table = appended(file__format=kind)
    table.delete("id = 1")

    assert held(table) == "2 b 2 | 3 c 3 | 5 e _"


def test_value_that_does_not_fit_changes_nothing() -> None:
    table = appended()

    with pytest.raises(InvalidRequest, match="column=n value=1099511627776"):
        table.update({"n": 1 << 40}, "id = 1")
    with pytest.raises(InvalidRequest, match=r"unknown column\. column=x"):
        table.update({"x": 1})
    assert len(live(table)) == 3
    assert in_directory(table, "bucket-0") == set(live(table))


def test_file_that_has_a_vector_although_the_table_does_not_mark_rows_is_rewritten() -> None:
    table = appended(deletion_vectors__enabled="true")
    table.delete("id = 2")
    with_options(table, deletion_vectors__enabled="false")
    table = reopened(table)
    table.update({"n": 7}, "id = 1")

    assert held(table) == "1 a 7 | 1 a 7 | 3 c 3 | 5 e _"
    history = table.context.history
    assert history.index_entries(history.latest_snapshot()) == ()


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_that_a_file_index_rules_out_are_kept(vectors: str) -> None:
    table = new_table(
        WIDE, keys=(), file_index__bitmap__columns="id", deletion_vectors__enabled=vectors
    )
    put(table, " | ".join(f"{number} a {number}" for number in range(300)))
    table.delete("id = 5")
    table.update({"n": 0}, "id = 7")

    assert (table.count(), held(table, where="id < 9 and id > 3")) == (
        299,
        "4 a 4 | 6 a 6 | 7 a 0 | 8 a 8",
    )


# --- merge ---------------------------------------------------------------------------------------


def test_merge_writes_files_anew_in_which_a_clause_applies() -> None:
    table = appended()
    before = live(table)
    result = (
        table.merge(pl.DataFrame({"id": [1, 2, 5, 7], "n": [10, 0, 5, 7]}), on="id")
        .when_matched_delete("source.n = 0")
        .when_matched_update({"n": pl.col("source.n") + pl.col("target.n")}, "source.n = 10")
        .when_not_matched_insert({"id": pl.col("id"), "v": "new"})
        .execute()
    )

    assert held(table) == "1 a 11 | 1 a 11 | 3 c 3 | 5 e _ | 7 new _"
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (1, 2, 1)
    assert len(before.keys() & live(table).keys()) == 1
    assert table.context.budget.used_bytes == 0


def test_merge_of_rows_that_the_source_does_not_match() -> None:
    table = appended()
    (
        table.merge(pl.DataFrame({"id": [1]}), on="id")
        .when_not_matched_by_source_update({"v": "alone"}, "n = 3")
        .when_not_matched_by_source_delete()
        .execute()
    )

    assert held(table) == "1 a 1 | 1 a 1 | 3 alone 3"


def test_merge_sets_all_columns() -> None:
    table = appended()
    merge = table.merge(rows(table.schema, "2 B 20 | 8 h 8"), on="id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()

    assert held(table) == "1 a 1 | 1 a 1 | 2 B 20 | 3 c 3 | 5 e _ | 8 h 8"


def test_merge_that_only_inserts_is_an_append() -> None:
    table = appended()
    merge = table.merge(pl.DataFrame({"id": [1, 8]}), on="id")
    result = merge.when_not_matched_insert({"id": pl.col("id")}).execute()
    snapshot = table.context.history.latest_snapshot()

    assert snapshot is not None
    assert (snapshot.commit_kind, snapshot.operation) == ("APPEND", "MERGE")
    assert (result.rows_inserted, result.files_deleted) == (1, 0)
    assert merge.when_matched_delete("target.n = 9").execute().snapshot_ids == ()


def test_merge_of_several_rows_for_one_is_refused() -> None:
    table = appended()
    merge = table.merge(pl.DataFrame({"id": [2, 2]}), on="id").when_matched_delete()

    with pytest.raises(InvalidRequest, match="several rows of the source"):
        merge.execute()
    with pytest.raises(InvalidRequest, match="needs a clause"):
        table.merge([{"id": 1}], on="id").execute()


def test_merge_with_a_condition() -> None:
    table = appended()
    by = pl.DataFrame({"least": [3]})
    table.merge(by, on="target.n >= source.least").when_matched_delete().execute()

    assert held(table) == "1 a 1 | 1 a 1 | 2 b 2 | 5 e _"


def large(count: int) -> Any:
    """Rows of the table's columns, as they come."""
    for start in range(0, count, 1000):
        keys = list(range(start, start + 1000))
        yield pa.table({"id": keys, "v": ["new" * 20] * 1000, "n": keys})


def test_source_larger_than_memory_is_merged_in_parts() -> None:
    table = new_table(WIDE, keys=(), budget_bytes=1 << 20)
    count = 20_000
    for start in range(0, 2 * count, count // 2):
        ids = pa.array(range(start, start + count // 2), pa.int32())
        table.write(pa.table({"id": ids, "v": pa.repeat("old" * 20, len(ids)), "n": ids}))
    whole = list(live(table))
    result = (
        table.merge(large(count + 10_000), on="id")
        .when_matched_delete((pl.col("source.id") % 10 == 0) & (pl.col("source.id") < count))
        .when_matched_update({"v": pl.col("source.v")}, "target.n < 10000")
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete("id >= 39990")
        .execute()
    )
    after = table.to_polars().sort("id")

    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (0, 9000, 2010)
    assert after["id"].to_list() == [n for n in range(39_990) if n % 10 or n >= count]
    assert after.filter(pl.col("v").str.starts_with("new"))["id"].max() == 9999
    assert len(set(whole) & set(live(table))) == 1
    assert table.context.budget.used_bytes == 0


def test_rows_of_a_large_source_that_match_nothing_are_inserted_nulls_too() -> None:
    table = new_table(WIDE, keys=(), budget_bytes=1 << 20)
    put(table, "5 a 1 | _ b 2")
    source = [*large(20_000), pa.table({"id": pa.nulls(9000, pa.int64()), "n": [1] * 9000})]
    result = table.merge(source, on="id").when_not_matched_insert_all().execute()

    assert result.rows_inserted == 19_999 + 9000
    assert table.to_polars()["id"].null_count() == 9001


def test_several_rows_of_a_large_source_for_one_are_refused() -> None:
    table = new_table(WIDE, keys=(), budget_bytes=1 << 20)
    put(table, "19999 a 1")
    merge = table.merge([*large(20_000), pa.table({"id": [19_999]})], on="id")

    with pytest.raises(InvalidRequest, match="several rows of the source"):
        merge.when_matched_delete().execute()
    assert held(table) == "19999 a 1"
    assert table.context.budget.used_bytes == 0


def test_large_source_is_not_merged_on_a_condition() -> None:
    table = new_table(WIDE, keys=(), budget_bytes=1 << 20)
    merge = table.merge(pl.DataFrame({"id": range(200_000)}), on="source.id < target.id")

    with pytest.raises(Unsupported, match="merged on columns"):
        merge.when_matched_delete().execute()


# --- others who write meanwhile ------------------------------------------------------------------


def test_appends_of_others_stay() -> None:
    table = appended()
    other = reopened(table)
    slow = reopened(table, store=MeddledStore(table.context.store, lambda: put(other, "1 new 1")))
    slow.delete("id = 1")

    assert held(table) == "1 new 1 | 2 b 2 | 3 c 3 | 5 e _"


@pytest.mark.parametrize("theirs", ["delete", "update", "overwrite"])
def test_file_that_another_commit_replaced_is_a_conflict_and_leaves_nothing(theirs: str) -> None:
    table = appended()
    other = reopened(table)
    deeds = {
        "delete": lambda: other.delete("id = 2"),
        "update": lambda: other.update({"n": 7}, "id = 2"),
        "overwrite": lambda: other.overwrite(rows(table.schema, "9 z 9")),
    }
    slow = reopened(table, store=MeddledStore(table.context.store, deeds[theirs]))
    with pytest.raises(CommitConflict, match="gone"):
        slow.delete("v = 'a'")

    named = set(live(table)) | {
        entry.file.name
        for entry in table.context.history.live_entries(table.context.history.snapshot(3))
    }
    assert in_directory(table, "bucket-0") == named


def test_others_may_replace_other_files() -> None:
    table = appended()
    other = reopened(table)
    slow = reopened(table, store=MeddledStore(table.context.store, lambda: other.delete("id = 5")))
    slow.delete("id = 2")

    assert held(table) == "1 a 1 | 1 a 1 | 3 c 3"


def test_crash_at_any_call_leaves_the_rows_before_or_after() -> None:
    before, after = held(appended()), "2 b 2 | 3 c 3 | 5 e _"
    number = 0
    while True:
        number += 1
        table = appended()
        store = FailingStore(table.context.store, number)
        try:
            reopened(table, store=store).delete("id = 1")
        except (OSError, CommitUnknown):
            pass
        else:
            if not store.is_dead:
                break
        assert held(table) in (before, after)

    assert held(table) == after
    assert number > 5
