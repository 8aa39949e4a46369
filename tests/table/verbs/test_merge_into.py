"""MERGE: what the source matches, what it does not, and what it leaves, in one commit."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from lakecore.errors import CommitConflict, InvalidRequest, StorageError, Unsupported
from lakecore.model.snapshot import CommitResult
from lakecore.plan.row_changes import Verb
from lakecore.table.verbs.merge_files import (
    MergeRequest,
    inserted,
    merged,
    merging,
    source_plan,
)
from lakecore.table.verbs.merge_plan import Match
from lakecore.table.verbs.row_writer import commit_changes
from lakecore.table.writes.batch_write import author
from tests.reading import ReadingStore, rows_written
from tests.stores import FullStore, MeddledStore
from tests.tables import held, in_directory, new_table, put, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.table.handle import Table
    from lakecore.table.writes.batch_write import Author

WIDE = {"id": "INT NOT NULL", "v": "STRING", "n": "INT"}


def source(text: str) -> pa.Table:
    """Rows of the table's columns, to be merged into it."""
    return rows(new_table(WIDE).schema, text)


@pytest.fixture
def table() -> Table:
    made = new_table(WIDE)
    put(made, "1 a 1 | 2 b 2 | 3 c 3")
    return made


# --- clauses -------------------------------------------------------------------------------------


def test_rows_are_updated_or_inserted(table: Table) -> None:
    result = (
        table.merge(source("2 B 20 | 4 D 40"), on=["id"])
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )

    assert held(table) == "1 a 1 | 2 B 20 | 3 c 3 | 4 D 40"
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (1, 1, 0)
    assert result.snapshot_ids == (2,)
    assert sorted(rows_written(table), key=str) == [(0, 4, "D", 40), (2, 2, "B", 20)]


def test_every_clause_at_once(table: Table) -> None:
    result = (
        table.merge(source("1 x 0 | 2 y 7 | 8 z 8 | 9 w 9"), on="id")
        .when_matched_delete("source.n = 0")
        .when_matched_update({"n": pl.col("target.n") + pl.col("source.n")})
        .when_not_matched_insert({"id": pl.col("id"), "v": "new"}, "n = 8")
        .when_not_matched_by_source_update({"v": "alone", "n": pl.col("n") * 2}, "n = 3")
        .when_not_matched_by_source_delete()
        .execute()
    )

    assert held(table) == "2 b 9 | 3 alone 6 | 8 new _"
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (1, 2, 1)


def test_first_clause_whose_condition_holds_applies(table: Table) -> None:
    (
        table.merge(source("1 x 0 | 2 y 0 | 3 z 0"), on=["id"])
        .when_matched_update({"v": "first"}, pl.col("target.n") == 1)
        .when_matched_update({"v": "second"}, pl.col("target.n") <= 2)
        .when_matched_delete(pl.col("target.n") <= 1)
        .execute()
    )

    assert held(table) == "1 first 1 | 2 second 2 | 3 c 3"


def test_condition_is_not_computed_for_rows_that_an_earlier_clause_takes() -> None:
    table = new_table(WIDE)
    put(table, "1 no 1 | 2 22 2")
    number = pl.col("target.v").cast(pl.Int32)
    (
        table.merge(source("1 x 1 | 2 x 2"), on=["id"])
        .when_matched_delete("target.v = 'no'")
        .when_matched_update({"n": 5}, number == 22)
        .execute()
    )

    assert held(table) == "2 22 5"


def test_null_condition_does_not_hold(table: Table) -> None:
    table.merge(source("1 x _ | 2 x 1"), on="id").when_matched_delete("source.n = 1").execute()

    assert held(table) == "1 a 1 | 3 c 3"


def test_clauses_are_added_to_a_new_merge(table: Table) -> None:
    begun = table.merge(source("1 x 0 | 9 y 9"), on="id").when_matched_delete()
    begun.when_not_matched_insert_all()
    begun.execute()

    assert held(table) == "2 b 2 | 3 c 3"


def test_source_of_no_rows_matches_nothing(table: Table) -> None:
    nothing = source("").schema.empty_table()
    all_clauses = table.merge(nothing, on="id").when_matched_delete().when_not_matched_insert_all()

    assert all_clauses.execute().snapshot_ids == ()
    assert all_clauses.when_not_matched_by_source_delete("n > 1").execute().rows_deleted == 2
    assert held(table) == "1 a 1"


def test_merge_into_an_empty_table_inserts() -> None:
    table = new_table(WIDE)
    result = (
        table.merge(source("1 a 1"), on="id")
        .when_matched_delete()
        .when_not_matched_by_source_delete()
        .when_not_matched_insert_all()
        .execute()
    )

    assert (held(table), result.rows_inserted) == ("1 a 1", 1)


def test_merge_without_changes_makes_no_snapshot(table: Table) -> None:
    result = table.merge(source("1 x 1"), on="id").when_matched_delete("target.n = 9").execute()

    assert (result.snapshot_ids, result.rows_deleted) == ((), 0)


def test_merge_is_one_snapshot_that_says_so(table: Table) -> None:
    merge = table.merge(source("1 x 1 | 9 y 9"), on="id")
    both = merge.when_matched_delete().when_not_matched_insert_all()
    both.execute(commit_user="me", identifier=3)
    snapshot = table.context.history.latest_snapshot()
    again = both.execute(commit_user="me", identifier=3)

    assert snapshot is not None
    assert (snapshot.id, snapshot.commit_kind, snapshot.operation) == (2, "APPEND", "MERGE")
    assert (again.facts, again.rows_deleted) == ({"already_committed": 1}, None)


# --- what rows are compared by -------------------------------------------------------------------


def test_column_that_is_no_key_matches_many_rows_of_the_table() -> None:
    table = new_table(WIDE)
    put(table, "1 a 1 | 2 a 2 | 3 b 3 | 4 _ 4")
    result = (
        table.merge(pl.DataFrame({"v": ["a", None], "by": [10, 99]}), on=["v"])
        .when_matched_update({"n": pl.col("n") + pl.col("by")})
        .execute()
    )

    assert held(table) == "1 a 11 | 2 a 12 | 3 b 3 | 4 _ 4"
    assert result.rows_updated == 2


@pytest.mark.parametrize(
    "on",
    [
        "source.key = target.id and source.least <= target.n",
        (pl.col("source.key") == pl.col("target.id")) & (pl.col("least") <= pl.col("n")),
        'SOURCE."key" = Target.ID AND least <= n',
    ],
    ids=str,
)
def test_condition_says_what_matches(table: Table, on: str | pl.Expr) -> None:
    (
        table.merge(pl.DataFrame({"key": [1, 2, 3], "least": [0, 5, 3]}), on=on)
        .when_matched_delete()
        .when_not_matched_insert({"id": pl.col("key") + 100, "n": pl.col("least")})
        .execute()
    )

    assert held(table) == "102 _ 5 | 2 b 2"


def test_condition_of_no_equality_matches_what_it_says(table: Table) -> None:
    (
        table.merge(pl.DataFrame({"least": [2]}), on="target.n >= source.least")
        .when_matched_update({"v": "much"})
        .when_not_matched_by_source_update({"v": "little"})
        .execute()
    )

    assert held(table) == "1 little 1 | 2 much 2 | 3 much 3"


def test_several_rows_of_the_source_for_one_of_the_table_are_an_error(table: Table) -> None:
    merge = table.merge(source("2 x 1 | 2 y 2 | 9 z 9 | 9 z 9"), on="id")

    with pytest.raises(InvalidRequest, match=r"several rows of the source.* key=\[2\]"):
        merge.when_matched_update_all().execute()
    assert merge.when_not_matched_insert_all().execute().rows_inserted == 2
    assert held(table) == "1 a 1 | 2 b 2 | 3 c 3 | 9 z 9"


def test_values_to_merge_on_are_fitted_to_the_table(table: Table) -> None:
    merge = table.merge(pl.DataFrame({"id": [1, 1 << 40]}), on="id").when_matched_delete()

    with pytest.raises(InvalidRequest, match=rf"column=source\.id value={1 << 40} row=1"):
        merge.execute()


def test_key_of_several_columns_and_partitions() -> None:
    columns = {"day": "STRING NOT NULL", "k": "STRING NOT NULL", "n": "INT"}
    table = new_table(columns, keys=["day", "k"], partitions=["day"], bucket="2")
    put(table, " | ".join(f"{day} {key} 0" for day in "xy" for key in "abcdefgh"))
    frame = pl.DataFrame({"day": ["x", "y", "z"], "k": ["a", "b", "c"], "n": [1, 2, 3]})
    merge = table.merge(frame, on=["day", "k"])
    merge.when_matched_update_all().when_not_matched_insert_all().execute()

    assert held(table, where="n > 0") == "x a 1 | y b 2 | z c 3"


def test_zeros_of_both_signs_are_one_value_to_merge_on_and_two_keys() -> None:
    table = new_table({"id": "DOUBLE NOT NULL", "n": "INT"})
    table.write(pl.DataFrame({"id": [0.0, -0.0, 1.0], "n": [1, 2, 3]}))
    table.merge(pl.DataFrame({"id": [0.0]}), on="id").when_matched_update({"n": 9}).execute()

    assert sorted(table.to_polars()["n"]) == [3, 9, 9]


# --- what is read and held -----------------------------------------------------------------------


def test_merge_reads_values_only_where_it_needs_them() -> None:
    seed = random.Random(2)
    table = new_table(WIDE, partitions=["n"], keys=["id", "n"])
    for part in range(8):
        noise = [seed.randbytes(9000).hex() for _ in range(100)]
        ids = pa.array(range(100), pa.int32())
        table.write(pa.table({"id": ids, "v": noise, "n": pa.array([part] * 100, pa.int32())}))
    snapshot = table.context.history.latest_snapshot()
    assert snapshot is not None
    size = sum(e.file.size_bytes for e in table.context.history.live_entries(snapshot))
    keys = pl.DataFrame({"id": [5, 1000], "n": [3, 4], "v": ["x", "y"]})

    deleting = ReadingStore(table.context.store)
    reopened(table, store=deleting).merge(keys, on=["id", "n"]).when_matched_delete(
        "target.n = 9"
    ).execute()
    assert 0 < deleting.bytes_read < size / 20

    updating = ReadingStore(table.context.store)
    merge = reopened(table, store=updating).merge(keys, on=["id", "n"])
    result = merge.when_matched_update({"v": pl.concat_str("target.v", "source.v")}).execute()
    assert result.rows_updated == 1
    # Of eight files, the values of one.
    assert deleting.bytes_read < updating.bytes_read < size / 5


@pytest.mark.parametrize("clause", ["delete", "update"])
@pytest.mark.parametrize("budget_bytes", [1 << 20, 1 << 30])
def test_rows_inserted_under_keys_of_changed_ones_stay_whatever_memory_there_is(
    clause: str, budget_bytes: int
) -> None:
    count = 20_000
    table = new_table({"id": "INT NOT NULL", "n": "INT"}, budget_bytes=budget_bytes)
    ids = pl.int_range(count, eager=True, dtype=pl.Int32)
    table.write(pl.DataFrame({"id": ids, "n": ids}))
    pad = pl.lit("x" * 100)
    matched = pl.DataFrame({"n": ids, "id": ids}).with_columns(pad=pad)
    fresh = matched.with_columns(n=pl.col("n") + 10**9)
    merge = table.merge(pl.concat([matched, fresh]), ["n"])
    merge = (
        merge.when_matched_delete()
        if clause == "delete"
        else merge.when_matched_update({"n": pl.lit(-1, pl.Int32)})
    )
    merge.when_not_matched_insert({"id": pl.col("id"), "n": pl.col("n")}).execute()

    found = table.to_polars().sort("id")
    assert found["n"].to_list() == (ids + 10**9).to_list()


def test_source_larger_than_memory_is_merged_in_parts() -> None:
    table = new_table(WIDE, bucket="3", budget_bytes=1 << 20)
    count = 20_000
    ids = pa.array(range(0, 2 * count, 2), pa.int32())
    old = pa.table({"id": ids, "v": ["old" * 20] * count, "n": pa.array([0] * count, pa.int32())})
    table.write(old)

    def given() -> Any:
        for start in range(0, count, 1000):
            keys = range(start, start + 1000)
            yield pa.table({"id": list(keys), "v": ["new" * 20] * 1000, "n": list(keys)})

    result = (
        table.merge(given(), on="id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete("id >= 30000")
        .execute()
    )
    after = table.to_polars().sort("id")

    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (
        count // 2,
        count // 2,
        5000,
    )
    assert after.height == count + 10_000 - 5000
    assert after.filter(pl.col("v").str.starts_with("new"))["id"].to_list() == list(range(count))
    assert table.context.budget.used_bytes == 0


def test_large_source_is_not_merged_on_a_condition() -> None:
    table = new_table(WIDE, budget_bytes=1 << 20)
    wide = pl.DataFrame({"id": range(100_000)})
    merge = table.merge(wide, on="source.id < target.id").when_matched_delete()

    with pytest.raises(Unsupported, match="merged on columns"):
        merge.execute()
    assert table.context.budget.used_bytes == 0


@pytest.mark.parametrize("shape", ["dicts", "arrow", "polars", "lazy", "pandas", "reader"])
def test_source_is_whatever_a_write_takes(table: Table, shape: str) -> None:
    frame = pl.DataFrame({"id": [1, 9], "v": ["x", "y"], "n": [5, 6]})
    given: dict[str, Any] = {
        "dicts": frame.to_dicts(),
        "arrow": frame.to_arrow(),
        "polars": frame,
        "lazy": frame.lazy(),
        "pandas": frame.to_pandas(),
        "reader": frame.to_arrow().to_reader(),
    }
    merge = table.merge(given[shape], on="id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()

    assert held(table) == "1 x 5 | 2 b 2 | 3 c 3 | 9 y 6"


def test_values_of_every_kind_go_through() -> None:
    columns = {
        "id": "INT NOT NULL",
        "m": "MAP<STRING, INT>",
        "r": "ROW<x INT, y ARRAY<STRING>>",
        "t": "TIME(3)",
        "b": "BINARY(2)",
        "ts": "TIMESTAMP(9)",
    }
    table = new_table(columns)
    arrow = table.schema.arrow
    data = [
        {"id": 1, "m": [("a", 1)], "r": {"x": 1, "y": ["p", None]}, "b": b"ab"},
        {"id": 2, "m": None, "r": {"x": None, "y": []}, "b": None},
    ]
    given = pa.Table.from_pylist(data, schema=arrow)
    table.write(given.slice(0, 1))
    merge = table.merge(given, on="id").when_matched_update({"t": pl.col("source.t")})
    merge.when_not_matched_insert_all().execute()

    assert table.to_arrow().sort_by("id").equals(given)


# --- options -------------------------------------------------------------------------------------


def test_source_rows_with_kinds_are_rows_to_choose_from(table: Table) -> None:
    changes = pl.DataFrame({"_row_kind": ["-D", "+U"], "id": [1, 2], "v": ["", "B"], "n": [0, 9]})
    (
        table.merge(changes, on="id")
        .when_matched_delete("_row_kind = '-D'")
        .when_matched_update_all()
        .execute()
    )

    assert held(table) == "2 B 9 | 3 c 3"


@pytest.mark.parametrize("keys", [["id"], []], ids=["keyed", "unkeyed"])
def test_row_kinds_of_a_source_that_no_condition_reads_are_refused(keys: list[str]) -> None:
    # The deletion would be merged as a row that is there.
    table = new_table(WIDE, keys=keys)
    changes = pl.DataFrame({"_row_kind": ["-D"], "id": [1], "v": [""], "n": [0]})
    merge = table.merge(changes, on="id").when_matched_update_all().when_not_matched_insert_all()

    with pytest.raises(InvalidRequest, match="row kinds, which a merge does not follow") as caught:
        merge.execute()

    assert caught.value.facts["column"] == "_row_kind"


def test_maps_of_a_source_are_read_as_the_columns_of_the_table() -> None:
    table = new_table({"id": "INT NOT NULL", "m": "MAP<STRING, INT>"})
    table.write([{"id": 1, "m": {"a": 1}}])
    source_rows = [{"id": 1, "m": {"b": 2}}, {"id": 2, "m": [("c", 3)]}]
    merge = table.merge(source_rows, on="id").when_matched_update_all()
    merge.when_not_matched_insert_all().execute()

    assert table.to_arrow().sort_by("id")["m"].to_pylist() == [[("b", 2)], [("c", 3)]]


def test_update_with_an_input_changelog_tells_both_rows() -> None:
    table = new_table(WIDE, changelog_producer="input")
    put(table, "1 a 1 | 2 b 2")
    merge = table.merge(source("1 x 5 | 2 y 6 | 3 z 7"), on="id")
    merge.when_matched_delete("source.n = 6").when_matched_update({"n": 9}).execute()

    assert rows_written(table, changelog=True) == [
        (1, 1, "a", 1),
        (2, 1, "a", 9),
        (3, 2, "b", 2),
    ]


def test_column_of_kinds_holds_what_is_done() -> None:
    columns = {"id": "INT NOT NULL", "kind": "STRING NOT NULL", "n": "INT"}
    table = new_table(columns, rowkind__field="kind")
    put(table, "1 +I 1 | 2 +I 2")
    merge = table.merge(pl.DataFrame({"id": [1, 2, 3], "n": [5, 6, 7]}), on="id")
    merge = merge.when_matched_delete("source.n = 5").when_matched_update_all()
    merge.when_not_matched_insert_all().execute()

    assert held(table) == "2 +U 6 | 3 +I 7"
    with pytest.raises(InvalidRequest, match=r"rowkind\.field"):
        merge.when_not_matched_insert({"id": 1, "kind": "-D"}).execute()


def test_deletions_are_refused_where_they_would_do_nothing() -> None:
    table = new_table(WIDE, ignore_delete="true")
    merge = table.merge(source("1 a 1"), on="id").when_not_matched_insert_all()
    merge.execute()

    with pytest.raises(InvalidRequest, match="ignore-delete"):
        merge.when_matched_delete().execute()


def test_dynamic_buckets() -> None:
    table = new_table(WIDE, bucket="-1", dynamic_bucket__target_row_num="2")
    put(table, " | ".join(f"{number} a 0" for number in range(6)))
    merge = table.merge(source("1 x 1 | 5 x 1 | 8 x 1"), on="id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()

    assert held(table, where="n = 1") == "1 x 1 | 5 x 1 | 8 x 1"
    assert len(table.to_arrow()) == 7


# --- bad requests --------------------------------------------------------------------------------


def refusals() -> Sequence[tuple[str, Any, str]]:
    frame = pl.DataFrame({"id": [1], "v": ["x"], "n": [1], "extra": [1]})
    less = frame.select("id")
    return [
        ("clause", lambda t: t.merge(frame, on="id"), "needs a clause"),
        ("no on", lambda t: t.merge(frame, on=[]).when_matched_delete(), "name the columns"),
        (
            "unknown on",
            lambda t: t.merge(frame, on=["x"]).when_matched_delete(),
            "unknown column. column=x",
        ),
        (
            "aliases of the sides",
            lambda t: t.merge(frame, on="t.id = s.id").when_matched_delete(),
            r"source and target.*column=t\.id did_you_mean=source\.id or target\.id",
        ),
        (
            "on not in source",
            lambda t: t.merge(frame, on=["id"]).when_matched_delete("nope = 1"),
            "unknown column. column=nope",
        ),
        (
            "source lacks on",
            lambda t: t.merge(frame.drop("id"), on=["id"]).when_matched_delete(),
            "source lacks a column to merge on. column=id",
        ),
        (
            "source lacks columns",
            lambda t: t.merge(less, on="id").when_matched_update_all(),
            r"source lacks columns.* clause=update all columns=\[v, n\]",
        ),
        (
            "insert lacks columns",
            lambda t: t.merge(less, on="id").when_not_matched_insert_all(),
            r"source lacks columns.* clause=insert all columns=\[v, n\]",
        ),
        (
            "ambiguous",
            lambda t: t.merge(frame, on="id").when_matched_delete(pl.col("n") == 1),
            r"both sides.* column=n columns=\[source\.n, target\.n\]",
        ),
        (
            "no target",
            lambda t: t.merge(frame, on="id").when_not_matched_insert({"id": pl.col("target.id")}),
            r"no row of the target here. column=target\.id",
        ),
        (
            "no source",
            lambda t: t.merge(frame, on="id").when_not_matched_by_source_delete(
                pl.col("source.n") == 1
            ),
            r"no row of the source here. column=source\.n",
        ),
        (
            "key",
            lambda t: t.merge(frame, on="id").when_matched_update({"id": 5}),
            "primary key.* column=id",
        ),
        (
            "key by all",
            lambda t: t.merge(frame.with_columns(id=2), on="n").when_matched_update_all(),
            "primary key cannot be updated: merge on it.* column=id value=2",
        ),
        (
            "no values",
            lambda t: t.merge(frame, on="id").when_matched_update({}),
            "name the columns to set",
        ),
        (
            "unknown column",
            lambda t: t.merge(frame, on="id").when_not_matched_insert({"extra": 1}),
            "unknown column. column=extra",
        ),
        (
            "not one row",
            lambda t: t.merge(frame, on="id").when_matched_update({"n": pl.col("source.n").sum()}),
            "one row at a time",
        ),
        (
            "misfit",
            lambda t: t.merge(frame, on="id").when_matched_update({"n": "x"}),
            r"lc\.sql_expr\('x'\)\. column=n type=INT",
        ),
        (
            "insert without key",
            lambda t: t.merge(frame.with_columns(id=9), on="id").when_not_matched_insert({"n": 1}),
            "NOT NULL is missing. column=id",
        ),
        (
            "twice",
            lambda t: t.merge(
                pa.table([pa.array([1]), pa.array([2])], names=["id", "id"]), on="id"
            ).when_matched_delete(),
            r"two columns have the same name. column=id",
        ),
        (
            "on cannot be computed",
            lambda t: t.merge(
                frame, on=pl.col("target.v").cast(pl.Int32) == pl.col("source.id")
            ).when_matched_delete(),
            "cannot be computed",
        ),
        (
            "bad sql",
            lambda t: t.merge(frame, on="source.id = ").when_matched_delete(),
            "bad SQL",
        ),
    ]


@pytest.mark.parametrize(
    ("make", "message"), [case[1:] for case in refusals()], ids=[case[0] for case in refusals()]
)
def test_bad_merge_is_refused_and_changes_nothing(table: Table, make: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        make(table).execute()
    assert held(table) == "1 a 1 | 2 b 2 | 3 c 3"
    assert table.context.budget.used_bytes == 0


def test_key_inserted_meanwhile_is_a_conflict(table: Table) -> None:
    other = reopened(table)
    slow = reopened(table, store=MeddledStore(table.context.store, lambda: put(other, "9 z 9")))
    merge = slow.merge(source("9 x 1"), on="id")
    upsert = merge.when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(CommitConflict, match=r"key=\[9\]"):
        upsert.execute()

    assert upsert.execute().rows_updated == 1
    assert held(table, where="id = 9") == "9 x 1"


# --- parts of the table --------------------------------------------------------------------------
# Spark merges parts of the table in tasks; the driver then inserts the rows that none has matched.


def test_source_is_merged_with_parts_of_the_table_and_the_rest_is_inserted_once() -> None:
    table = new_table({"id": "INT", "v": "STRING"}, keys=(), source__split__target_size="1 b")
    for line in ("1 a | 2 b", "3 c"):
        put(table, line)
    merge = table.merge(pa.table({"id": [2, 3, 4], "v": ["x", "y", "z"]}), on="id")
    merge = merge.when_matched_update({"v": pl.col("source.v")}).when_not_matched_insert_all()
    context = table.context
    target, request = merging(context, MergeRequest(on=merge.on, clauses=merge.clauses))
    plan = source_plan(context, pa.table({"id": [0], "v": [""]}).slice(0, 0), request)
    assert (plan.set_columns, bool(plan.steps[Match.NOT_MATCHED])) == (("v",), True)

    splits = target.plan().splits
    assert len(splits) == 2
    done = [
        merged(context, replace(target, own=(split,)), merge.source, request, inserts=False)
        for split in splits
    ]
    flags = [each.found for each in done if each.found is not None]
    assert [each.tolist() for each in flags] == [[True, False, False], [False, True, False]]
    rest = inserted(context, target, merge.source, request, np.logical_or(*flags))
    changes = [*(each.changed for each in done), rest]
    result = commit_changes(context, Verb.MERGE, changes, author(context))

    assert (result.rows_updated, result.rows_inserted) == (2, 1)
    assert held(reopened(table)) == "1 a | 2 x | 3 y | 4 z"


def test_merge_is_carried_out_by_another_engine(table: Table) -> None:
    asked: list[tuple[object, ...]] = []
    done = CommitResult(commit_user="me")

    def run(context: object, source: object, request: MergeRequest, by: Author) -> CommitResult:
        asked.append((context, source, request.on, len(request.clauses), by.user, by.identifier))
        return done

    merge = replace(table.merge("rows", on="id"), run=run).when_matched_delete()
    assert merge.execute(commit_user="me", identifier=3) is done
    assert asked == [(table.context, "rows", "id", 1, "me", 3)]


@pytest.mark.parametrize("options", [{}, {"data_evolution__enabled": "true"}])
def test_files_of_a_merge_that_finds_no_space_go(options: dict[str, Any]) -> None:
    table = new_table(
        {"id": "INT", "v": "STRING"}, keys=(), row_tracking__enabled="true", **options
    )
    put(table, "1 a | 2 b")
    put(table, "3 c")
    before = in_directory(table, "bucket-0")
    failed = 0
    for count in range(20):
        full = FullStore(table.context.store, "/bucket-0/", count)
        merge = reopened(table, store=full).merge([{"id": 2, "v": "x"}, {"id": 4, "v": "z"}], "id")
        merge = merge.when_matched_update({"v": pl.col("source.v")}).when_not_matched_insert_all()
        try:
            merge.execute()
        except StorageError:
            failed += 1
            assert in_directory(table, "bucket-0") == before
        else:
            break
    assert failed >= 2
    assert held(reopened(table)) == "1 a | 2 x | 3 c | 4 z"
