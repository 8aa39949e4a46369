"""DELETE: the rows that match are gone, in one commit, and little is read for it."""

from __future__ import annotations

import random
from datetime import date
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import CommitConflict, CommitUnknown, InvalidRequest
from tests.reading import ReadingStore, rows_written
from tests.stores import FailingStore, MeddledStore
from tests.tables import held, in_directory, new_table, put, reopened, rows

if TYPE_CHECKING:
    from lakecore.model.files import DataFile
    from lakecore.table.handle import Table

WIDE = {"id": "INT NOT NULL", "v": "STRING", "n": "INT"}


@pytest.mark.parametrize(
    "where",
    [
        "n > 1 and id <> 4",
        (pl.col("n") > 1) & (pl.col("id") != 4),
        "id in (2, 3)",
        pl.col("id").is_in([2, 3]),
        "v = 'b' or v = 'c'",
    ],
    ids=str,
)
def test_rows_that_match_are_gone(where: str | pl.Expr) -> None:
    table = new_table(WIDE)
    put(table, "1 a 1 | 2 b 2 | 3 c 3 | 4 d 4 | 5 e _")
    result = table.delete(where)

    assert held(table) == "1 a 1 | 4 d 4 | 5 e _"
    assert (result.snapshot_ids, result.rows_deleted) == ((2,), 2)
    assert (result.rows_inserted, result.rows_updated) == (0, 0)


def test_newest_row_decides_whether_a_key_matches() -> None:
    table = new_table(WIDE)
    put(table, "1 old 1 | 2 old 2")
    put(table, "1 new 1")
    table.delete("v = 'old'")

    assert held(table) == "1 new 1"


def test_deletion_is_one_snapshot_that_says_so() -> None:
    table = new_table(partitions=["v"], keys=["id", "v"], bucket="3")
    put(table, " | ".join(f"{number} {letter}" for number in range(20) for letter in "ab"))
    table.delete("id < 15", commit_user="me", identifier=7)
    snapshot = table.context.history.latest_snapshot()

    assert snapshot is not None
    assert (snapshot.id, snapshot.commit_kind, snapshot.operation) == (2, "APPEND", "DELETE")
    assert (snapshot.commit_user, snapshot.commit_identifier) == ("me", 7)
    assert len(table.to_arrow()) == 10


def test_deletion_done_again_under_its_number_counts_once() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    table.delete("id = 1", commit_user="me", identifier=1)
    again = table.delete("id = 2", commit_user="me", identifier=1)

    assert (again.facts, again.rows_deleted) == ({"already_committed": 1}, None)
    assert held(table) == "2 b"
    assert len(in_directory(table, "bucket-0")) == 2


def test_nothing_that_matches_makes_no_snapshot() -> None:
    table = new_table()
    empty = table.delete("id = 1")
    put(table, "1 a")
    result = table.delete("id = 2")

    assert (empty.snapshot_ids, empty.rows_deleted) == ((), 0)
    assert (result.snapshot_ids, result.rows_deleted) == ((), 0)


def test_condition_that_always_holds_deletes_all() -> None:
    table = new_table()
    put(table, "1 a | 2 b")

    assert table.delete("true").rows_deleted == 2
    assert held(table) == ""
    put(table, "1 z")
    assert table.delete(pl.lit(True)).rows_deleted == 1


def test_null_condition_deletes_nothing() -> None:
    table = new_table()
    put(table, "1 _ | 2 b")
    table.delete("v <> 'b'")

    assert held(table) == "1 _ | 2 b"


def test_deletion_writes_key_and_what_cannot_be_null() -> None:
    columns = {**WIDE, "need": "INT NOT NULL"}
    table = new_table(columns)
    put(table, "1 a 1 5 | 2 b 2 6")
    table.delete("id = 1")

    assert rows_written(table) == [(3, 1, None, None, 5)]


def test_deletion_with_an_input_changelog_tells_the_row_that_was() -> None:
    table = new_table(WIDE, changelog_producer="input")
    put(table, "1 a 1 | 2 b 2")
    table.delete("id = 1")

    assert rows_written(table, changelog=True) == [(3, 1, "a", 1)]


def test_deletion_by_key_reads_no_value_column() -> None:
    seed = random.Random(1)
    noise = [seed.randbytes(9000).hex() for _ in range(500)]
    table = new_table()
    table.write(pa.table({"id": pa.array(range(500), pa.int32()), "v": noise}))
    table.write(pa.table({"id": pa.array(range(500), pa.int32()), "v": noise[::-1]}))
    size = sum(file.size_bytes for file in live_files(table))
    store = ReadingStore(table.context.store)
    result = reopened(table, store=store).delete(pl.col("id").is_in([5, 77, 400, 1000]))

    assert result.rows_deleted == 3
    assert 0 < store.bytes_read < size / 20


def live_files(table: Table) -> list[DataFile]:
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    return [entry.file for entry in table.context.history.live_entries(snapshot)]


# --- options -------------------------------------------------------------------------------------


def test_deletion_carries_the_sequence_of_its_row() -> None:
    table = new_table(WIDE, sequence__field="n")
    put(table, "1 a 9 | 2 b 5")
    table.delete("id = 1")
    put(table, "1 late 8 | 2 late 4")

    assert held(table) == "2 b 5"
    put(table, "1 newer 9")
    assert held(table) == "1 newer 9 | 2 b 5"


def test_kind_goes_to_the_column_that_is_for_it() -> None:
    columns = {"id": "INT NOT NULL", "kind": "STRING NOT NULL", "n": "INT"}
    table = new_table(columns, rowkind__field="kind")
    put(table, "1 +I 1 | 2 +I 2")
    table.delete("n = 1")

    assert held(table) == "2 +I 2"


def test_table_that_ignores_deletions_refuses() -> None:
    table = new_table(ignore_delete="true")
    put(table, "1 a")

    with pytest.raises(InvalidRequest, match=r"ignores deletions.* option=ignore-delete"):
        table.delete("id = 1")


def test_dynamic_buckets_find_the_bucket_of_the_key() -> None:
    table = new_table(bucket="-1", dynamic_bucket__target_row_num="2")
    put(table, " | ".join(f"{number} a" for number in range(9)))
    table.delete("id in (0, 4, 8)")

    assert held(table) == " | ".join(f"{n} a" for n in (1, 2, 3, 5, 6, 7))


def test_vectors_hide_nothing_that_is_newer() -> None:
    table = new_table(WIDE, deletion_vectors__enabled="true", write_only="true")
    put(table, "1 a 1 | 2 b 2")
    table.delete("n = 1")

    assert held(table.copy({"deletion-vectors.merge-on-read": "true"})) == "2 b 2"


def test_dates_and_partitions_match() -> None:
    columns = {"id": "INT NOT NULL", "day": "DATE NOT NULL"}
    table = new_table(columns, keys=["id", "day"], partitions=["day"])
    put(table, "1 2026-01-01 | 1 2026-01-02 | 2 2026-01-02")
    table.delete(pl.col("day") == date(2026, 1, 2))

    assert held(table) == "1 2026-01-01"


# --- bad requests --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("x = 1", "unknown column. column=x"),
        (pl.col("x") == 1, "unknown column. column=x"),
        (pl.col("n"), "true or false"),
        ("n", "true or false"),
        (pl.col("n") == pl.col("n").max(), "one row at a time"),
        (pl.col("n").shift(1) == 1, "one row at a time"),
        (pl.col("n") < pl.lit(None), r"with null.* is_null\(\)"),
        ((pl.col("n") > 1) | (pl.lit(None) == pl.col("n")), r"with null.* is_null\(\)"),
        (pl.col("n") > "a", "cannot be computed"),
        ("n >", "bad SQL condition"),
        (True, "Polars expression or SQL text"),
    ],
    ids=str,
)
def test_bad_condition_is_refused(where: str | pl.Expr, message: str) -> None:
    table = new_table(WIDE)
    put(table, "1 a 1")

    with pytest.raises(InvalidRequest, match=message):
        table.delete(where)
    assert held(table) == "1 a 1"


def test_table_of_another_time_is_refused() -> None:
    table = new_table()
    put(table, "1 a")

    with pytest.raises(InvalidRequest, match="at another time"):
        table.copy({"scan.snapshot-id": "1"}).delete("id = 1")


# --- others who write meanwhile ------------------------------------------------------------------


def test_row_that_changed_meanwhile_is_a_conflict_and_leaves_nothing() -> None:
    table = new_table()
    put(table, "1 a | 2 b | 3 c")
    other = reopened(table)
    slow = reopened(table, store=MeddledStore(table.context.store, lambda: put(other, "2 new")))
    with pytest.raises(CommitConflict, match=r"changed a row.* key=\[2\]"):
        slow.delete("id < 3")

    assert held(table) == "1 a | 2 new | 3 c"
    assert in_directory(table, "bucket-0") == {file.name for file in live_files(table)}
    assert slow.delete("id < 3").rows_deleted == 2


def test_other_keys_may_change_meanwhile() -> None:
    table = new_table()
    put(table, "1 a | 2 b | 3 c")
    other = reopened(table)
    slow = reopened(table, store=MeddledStore(table.context.store, lambda: put(other, "2 x | 4 d")))
    slow.delete("id = 1 or id = 3")

    assert held(table) == "2 x | 4 d"


def test_buckets_and_partitions_of_others_are_not_looked_at() -> None:
    table = new_table(partitions=["v"], keys=["id", "v"])
    put(table, "1 a | 1 b")
    other = reopened(table)
    slow = reopened(table, store=MeddledStore(table.context.store, lambda: put(other, "1 b")))
    slow.delete("v = 'a'")

    assert held(table) == "1 b"


def test_overwrite_meanwhile_is_a_conflict() -> None:
    table = new_table()
    put(table, "1 a | 2 b")
    other = reopened(table)
    slow = reopened(
        table,
        store=MeddledStore(table.context.store, lambda: other.overwrite(rows(table.schema, "9 z"))),
    )
    with pytest.raises(CommitConflict, match="replaced rows"):
        slow.delete("id = 1")

    assert held(table) == "9 z"


def test_crash_at_any_call_leaves_all_rows_or_those_that_stay() -> None:
    before, after = "1 a | 2 b | 3 c", "2 b"
    number = 0
    while True:
        number += 1
        table = new_table(bucket="2")
        put(table, before)
        store = FailingStore(table.context.store, number)
        try:
            reopened(table, store=store).delete("id <> 2")
        except (OSError, CommitUnknown):
            pass
        else:
            if not store.is_dead:
                break
        assert held(table) in (before, after)

    assert number > 5
