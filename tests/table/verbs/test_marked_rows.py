"""DELETE, UPDATE and MERGE of append tables with deletion vectors: rows are marked, files stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import CommitConflict, CommitUnknown, CorruptTable
from lakecore.model.files import DELETION_VECTORS, IndexFile
from lakecore.table.vectors import BucketVectors
from tests.stores import FailingStore, MeddledStore, StoreFailure, files_below
from tests.tables import PATH, held, in_directory, new_table, put, reopened, rolled_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.table.handle import Table

WIDE = {"id": "INT", "v": "STRING", "n": "INT"}
UNAWARE: dict[str, Any] = {"deletion_vectors__enabled": "true"}
ORDERED: dict[str, Any] = {**UNAWARE, "bucket": "1", "bucket_key": "id", "write_only": "true"}
BOTH = pytest.mark.parametrize("options", [UNAWARE, ORDERED], ids=["unaware", "ordered"])


def appended(**options: Any) -> Table:
    table = new_table(WIDE, keys=(), **options)
    for line in ("1 a 1 | 2 b 2", "3 c 3 | 1 a 1", "5 e _"):
        put(table, line)
    return table


def live(table: Table) -> set[str]:
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    return {entry.file.name for entry in table.context.history.live_entries(snapshot)}


def indexes(table: Table) -> list[IndexFile]:
    history = table.context.history
    found = [entry.file for entry in history.index_entries(history.latest_snapshot())]
    assert {file.index_type for file in found} <= {DELETION_VECTORS}
    return found


def marked(table: Table) -> dict[str, int]:
    """For each data file with a vector, how many rows it marks."""
    ranges = [vector for file in indexes(table) for vector in file.vectors or ()]
    assert len({vector.data_file for vector in ranges}) == len(ranges)
    return {vector.data_file: vector.cardinality or 0 for vector in ranges}


@BOTH
def test_deletion_marks_rows_and_leaves_all_files(options: dict[str, Any]) -> None:
    table = appended(**options)
    before = live(table)
    result = table.delete("id = 2 or id = 3")

    assert held(table) == "1 a 1 | 1 a 1 | 5 e _"
    assert (result.rows_deleted, result.files_added, result.files_deleted) == (2, 0, 0)
    assert live(table) == before
    assert sorted(marked(table).values()) == [1, 1]
    assert (table.count(), held(table, snapshot_id=3).count("|")) == (3, 4)


@BOTH
def test_file_whose_rows_are_all_deleted_is_removed_with_its_vector(
    options: dict[str, Any],
) -> None:
    table = appended(**options)
    table.delete("id = 2")
    result = table.delete("n = 1 and v = 'a'")

    assert held(table) == "3 c 3 | 5 e _"
    assert (result.files_deleted, len(live(table))) == (1, 2)
    assert len(marked(table)) == 1
    table.delete("true")
    assert (held(table), live(table), indexes(table)) == ("", set(), [])


@BOTH
def test_update_marks_old_rows_and_appends_new_ones(options: dict[str, Any]) -> None:
    table = appended(**options)
    before = live(table)
    result = table.update({"n": pl.col("n") + 10, "v": "x"}, "id = 1")

    assert held(table) == "1 x 11 | 1 x 11 | 2 b 2 | 3 c 3 | 5 e _"
    assert (result.rows_updated, result.files_added, result.files_deleted) == (2, 1, 0)
    assert before < live(table)
    assert sorted(marked(table).values()) == [1, 1]


@BOTH
def test_merge_marks_rows_to_which_a_clause_applies(options: dict[str, Any]) -> None:
    table = appended(**options)
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
    assert result.files_deleted == 0
    assert before < live(table)
    assert sorted(marked(table).values()) == [1, 2]


@BOTH
def test_marks_of_a_file_add_up(options: dict[str, Any]) -> None:
    table = new_table({"id": "INT"}, keys=(), **options)
    put(table, " | ".join(map(str, range(10))))
    for number in (7, 2, 4):
        assert table.delete(f"id = {number}").rows_deleted == 1
        assert table.delete(f"id = {number}").snapshot_ids == ()
    (cardinality,) = marked(table).values()

    assert cardinality == 3
    assert held(table) == "0 | 1 | 3 | 5 | 6 | 8 | 9"
    assert held(table, snapshot_id=2) == "0 | 1 | 2 | 3 | 4 | 5 | 6 | 8 | 9"


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("wide", ["true", "false"])
def test_files_of_every_format_and_vectors_of_both_widths(kind: str, wide: str) -> None:
    table = appended(file__format=kind, deletion_vectors__bitmap64=wide, **UNAWARE)
    table.delete("id = 1")

    assert held(table) == "2 b 2 | 3 c 3 | 5 e _"
    (index,) = indexes(table)
    data = table.context.store.read(f"{PATH}/index/{index.name}")
    assert (data[5:9].hex(), data[0]) == ("d1d33964" if wide == "true" else "5e43f2d0", 1)


def test_width_of_vectors_may_change_between_commits() -> None:
    table = appended(**UNAWARE)
    put(table, "6 f 6 | 7 g 7 | 8 h 8")
    table.delete("id = 6")
    wide = table.copy({"deletion-vectors.bitmap64": "true"})
    wide.delete("id = 7")
    wide.delete("id = 1")

    assert held(reopened(table)) == "2 b 2 | 3 c 3 | 5 e _ | 8 h 8"


def test_unaware_bucket_gets_index_files_of_the_target_size() -> None:
    table = new_table({"id": "INT"}, keys=(), **UNAWARE)
    for number in range(6):
        put(table, f"{number} | {number + 10} | {number + 20}")
    small = table.copy({"deletion-vector.index-file.target-size": "60 b"})
    small.delete("id < 6")
    first = indexes(table)

    assert [len(file.vectors or ()) for file in first] == [2, 2, 2]
    assert all(file.size_bytes > 60 for file in first)
    table.delete("id = 10")
    assert len(set(first) & set(indexes(table))) == 2
    assert sorted(marked(table).values()) == [1, 1, 1, 1, 1, 2]
    assert table.count() == 11


def test_bucket_has_one_index_file_whatever_its_size() -> None:
    table = new_table({"id": "INT"}, keys=(), **ORDERED)
    for number in range(4):
        put(table, f"{number} | {number + 10}")
    table.copy({"deletion-vector.index-file.target-size": "1 b"}).delete("id < 3")
    table.delete("id = 3")

    assert [len(file.vectors or ()) for file in indexes(table)] == [4]


def test_partitions_and_buckets_have_their_own_vectors() -> None:
    table = new_table(
        {"p": "STRING", "id": "INT"}, keys=(), partitions=["p"], bucket="2", bucket_key="id",
        write_only="true", deletion_vectors__enabled="true",
    )  # fmt: skip
    put(table, " | ".join(f"{p} {number}" for p in "xy" for number in range(8)))
    table.delete("id < 3")
    found = table.context.history.index_entries(table.context.history.latest_snapshot())

    assert len(found) == len({(entry.partition, entry.bucket) for entry in found}) == 4
    assert table.count() == 10
    table.overwrite(pa.table({"p": ["x"], "id": [1]}), partition={"p": "x"})
    assert held(table, where="p = 'x'") == "x 1"
    assert len(indexes(table)) == 2
    table.drop_partition({"p": "y"})
    assert (held(table), indexes(table)) == ("x 1", [])


def test_large_source_is_merged_in_parts() -> None:
    table = new_table(WIDE, keys=(), budget_bytes=1 << 20, **UNAWARE)
    ids = pa.array(range(20_000), pa.int32())
    table.write(pa.table({"id": ids, "v": pa.repeat("old" * 20, len(ids)), "n": ids}))
    source = [
        pa.table({"id": range(at, at + 1000), "v": ["new" * 20] * 1000})
        for at in range(0, 30_000, 1000)
    ]
    result = (
        table.merge(source, on="id")
        .when_matched_delete(pl.col("source.id") % 10 == 0)
        .when_matched_update({"v": pl.col("source.v")}, "target.n < 10000")
        .execute()
    )
    after = table.to_polars().sort("id")

    assert (result.rows_updated, result.rows_deleted) == (9000, 2000)
    assert after["id"].to_list() == [number for number in range(20_000) if number % 10]
    assert after.filter(pl.col("v").str.starts_with("new"))["id"].max() == 9999
    assert sum(marked(table).values()) == 11_000
    assert table.context.budget.used_bytes == 0


# --- others who write meanwhile ------------------------------------------------------------------


def conflicting(options: dict[str, Any], meanwhile: Callable[[Table], object]) -> Table:
    """A table whose `delete("id = 1")` comes after what another does."""
    table = appended(**options)
    store = MeddledStore(table.context.store, lambda: meanwhile(reopened(table)))
    with pytest.raises(CommitConflict):
        reopened(table, store=store).delete("id = 1")
    return reopened(table)


@BOTH
def test_concurrent_marks_of_the_same_file_are_a_conflict(options: dict[str, Any]) -> None:
    table = conflicting(options, lambda other: other.delete("id = 2"))

    assert held(table) == "1 a 1 | 1 a 1 | 3 c 3 | 5 e _"
    assert in_directory(table, "index") == {file.name for file in indexes(table)}
    table.delete("id = 1")
    assert held(table) == "3 c 3 | 5 e _"


@BOTH
def test_concurrent_compaction_is_a_conflict(options: dict[str, Any]) -> None:
    table = conflicting(options, lambda other: other.compact(full=True))

    assert held(table) == "1 a 1 | 1 a 1 | 2 b 2 | 3 c 3 | 5 e _"
    assert indexes(table) == []


@BOTH
def test_concurrent_overwrite_is_a_conflict(options: dict[str, Any]) -> None:
    table = conflicting(options, lambda other: other.overwrite(pa.table({"id": [1]})))

    assert held(table) == "1 _ _"


@BOTH
def test_concurrent_append_is_kept(options: dict[str, Any]) -> None:
    table = appended(**options)
    store = MeddledStore(table.context.store, lambda: put(reopened(table), "1 z 9"))
    reopened(table, store=store).delete("id = 1")

    assert held(reopened(table)) == "1 z 9 | 2 b 2 | 3 c 3 | 5 e _"


def test_concurrent_marks_of_other_files_are_kept() -> None:
    table = appended(**UNAWARE)
    store = MeddledStore(table.context.store, lambda: reopened(table).delete("id = 3"))
    reopened(table, store=store).delete("id = 2")

    assert held(reopened(table)) == "1 a 1 | 1 a 1 | 5 e _"
    assert len(indexes(reopened(table))) == 2


def test_rollback_meanwhile_is_a_conflict() -> None:
    table = appended(**UNAWARE)
    table.delete("id = 5 or id = 3")

    def rollback(other: Table) -> None:
        other = rolled_back(other, 3)
        other.delete("id = 2")
        put(other, "9 i 9")

    store = MeddledStore(table.context.store, lambda: rollback(reopened(table)))
    with pytest.raises(CommitConflict):
        reopened(table, store=store).delete("id = 1")
    assert held(reopened(table)) == "1 a 1 | 1 a 1 | 3 c 3 | 5 e _ | 9 i 9"


@BOTH
def test_crash_at_each_call_leaves_the_rows_before_or_after(options: dict[str, Any]) -> None:
    before, after = "1 a 1 | 1 a 1 | 3 c 3 | 5 e _", "1 b 7 | 1 b 7 | 3 c 3 | 5 e _"
    seen: set[str] = set()
    for call in range(1, 100):
        table = appended(**options)
        table.delete("id = 2")
        store = FailingStore(table.context.store, call)
        try:
            reopened(table, store=store).update({"v": "b", "n": 7}, "id = 1")
        except (StoreFailure, CommitUnknown):
            assert store.is_dead
        seen.add(held(reopened(table)))
        assert held(reopened(table)) in {before, after}
        if not store.is_dead:
            break
    assert seen == {before, after}


def test_failed_commit_leaves_no_index_file() -> None:
    table = appended(**UNAWARE)
    files = files_below(table.context.store, PATH)
    store = MeddledStore(table.context.store, lambda: reopened(table).delete("id = 2"))
    with pytest.raises(CommitConflict):
        reopened(table, store=store).update({"n": 1}, "id = 2 or id = 1")
    left = set(files_below(table.context.store, PATH)) - set(files)

    # The snapshot of the other: its hints, manifests and index files.
    assert sum("/index/" in path or "/bucket-" in path for path in left) == 1


def test_missing_index_file_is_corrupt() -> None:
    table = appended(**UNAWARE)
    table.delete("id = 2")
    (index,) = indexes(table)
    table.context.store.delete(f"{PATH}/index/{index.name}")

    with pytest.raises(CorruptTable, match=index.name):
        table.delete("id = 1")
    with pytest.raises(CorruptTable, match=index.name):
        table.to_arrow()


def test_vectors_without_a_change_are_not_read_or_written() -> None:
    table = appended(**UNAWARE)
    table.delete("id = 2")
    snapshot = table.context.history.latest_snapshot()
    vectors = BucketVectors.of(table.context, snapshot, bytes(12), 0)
    vectors.drop(["another file"])
    (index,) = indexes(table)
    table.context.store.delete(f"{PATH}/index/{index.name}")

    assert vectors.write().added == ()
    vectors.mark("one more", np.array([3, 3, 1]))
    files = vectors.write()
    assert (files.deleted, files.added[0].row_count) == ((), 1)
    vectors.abort()
    assert in_directory(table, "index") == set()
