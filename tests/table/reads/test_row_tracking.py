"""Tables whose rows have ids, also if several files hold the columns of a row."""

from __future__ import annotations

import threading
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import CorruptTable, InvalidRequest, Unsupported
from tests.partial_files import rewrite_columns
from tests.tables import new_table

if TYPE_CHECKING:
    from lakecore.table.handle import Table

FIXTURE = Path(__file__).parents[2] / "golden/fixtures/head_row_tracking/table-head"
TRACKED = {"row-tracking.enabled": "true"}
EVOLVING = {**TRACKED, "data-evolution.enabled": "true"}


def make(path: Path, options: dict[str, str] = EVOLVING, **more: object) -> Table:
    columns = {"k": "INT", "v": "STRING", "n": "BIGINT"}
    return lc.open_table(path / "t", create=True, schema=columns, options=options, **more)  # type: ignore[arg-type]


def rows(first: int, count: int) -> pl.DataFrame:
    keys = range(first, first + count)
    return pl.DataFrame({"k": keys, "v": [f"v{key}" for key in keys], "n": [10 * k for k in keys]})


def tracked(table: Table) -> list[tuple[object, ...]]:
    return table.inspect.system_table("row_tracking").to_polars().sort("_ROW_ID").rows()


def test_ids_of_a_table_of_java() -> None:
    table = lc.open_table(FIXTURE)

    assert tracked(table) == [
        *((key, f"v{key}", key, key, 1) for key in range(4)),
        *((key, f"w{key}", key, 4 + key, 2) for key in range(3)),
    ]
    assert table.inspect.snapshots()["next_row_id"].to_list() == [4, 7]


@pytest.mark.parametrize("options", [TRACKED, EVOLVING], ids=["tracked", "evolving"])
def test_rows_get_ids_when_they_are_committed(tmp_path: Path, options: dict[str, str]) -> None:
    table = make(tmp_path, options)
    table.write(rows(0, 3))
    table.write(rows(3, 2))

    assert [row[3:] for row in tracked(table)] == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)]
    assert table.to_polars().sort("k").rows() == [row[:3] for row in tracked(table)]


def test_files_of_one_commit_share_its_sequence_number(tmp_path: Path) -> None:
    table = make(tmp_path, {**TRACKED, "target-file-size": "1 mb"})
    count = 200_000
    table.write(
        pl.DataFrame({"k": range(count), "v": [token_hex(16) for _ in range(count)], "n": 0})
    )
    files = table.inspect.files()

    assert files.height > 1
    assert files["min_sequence_number"].to_list() == [1] * files.height
    first, second, *_ = files.sort("first_row_id").iter_rows(named=True)
    assert (first["first_row_id"], second["first_row_id"]) == (0, first["record_count"])


def test_two_commits_at_a_time_give_no_id_twice(tmp_path: Path) -> None:
    table = make(tmp_path)
    writers = [
        threading.Thread(
            target=lambda at=at: [table.write(rows(100 * at + i, 1)) for i in range(8)]
        )
        for at in range(3)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert [row[3] for row in tracked(table)] == list(range(24))


def test_row_ids_are_filtered_like_other_columns(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(rows(0, 50))
    view = table.inspect.system_table("row_tracking")

    assert view.to_polars(where="_ROW_ID = 7")["k"].to_list() == [7]
    assert view.scan(["k"]).filter(pl.col("k") > 47).collect()["k"].to_list() == [48, 49]
    assert view.to_arrow(["_ROW_ID"], "k = 3 AND _SEQUENCE_NUMBER = 1").to_pylist() == [
        {"_ROW_ID": 3}
    ]
    assert view.count("_ROW_ID IS NULL") == 0
    assert view.to_duckdb().filter("_ROW_ID >= 48").fetchall() == [
        (48, "v48", 480, 48, 1),
        (49, "v49", 490, 49, 1),
    ]


def test_newest_file_with_a_column_states_its_values(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(rows(0, 4))
    table.write(rows(4, 2))
    rewrite_columns(table, pa.table({"v": ["a", "b", "c", None]}), 0)
    rewrite_columns(table, pa.table({"v": ["A", "B", "C", "D"], "n": [None, 1, 2, 3]}), 0)
    rewrite_columns(table, pa.table({"n": [7, 8]}), 4)

    assert tracked(table) == [
        (0, "A", None, 0, 4),
        (1, "B", 1, 1, 4),
        (2, "C", 2, 2, 4),
        (3, "D", 3, 3, 4),
        (4, "v4", 7, 4, 5),
        (5, "v5", 8, 5, 5),
    ]
    assert table.to_polars(where="v = 'B'").rows() == [(1, "B", 1)]
    assert table.to_polars(where="n = 10").is_empty()
    assert sorted(table.to_arrow(["n"], snapshot_id=3)["n"].to_pylist()) == [0, 10, 20, 30, 40, 50]
    assert table.to_arrow([]).num_rows == table.count() == 6
    assert table.to_polars(limit=2).height == 2
    assert "files joined by row id" in str(table.explain())


def test_files_with_many_batches_are_joined_row_by_row(tmp_path: Path) -> None:
    table = make(tmp_path)
    count = 300_000
    table.write(pl.DataFrame({"k": range(count), "v": [f"v{i}" for i in range(count)], "n": 0}))
    rewrite_columns(table, pa.table({"n": pa.array(range(count), pa.int64())}), 0)

    read = table.to_polars()
    assert read["k"].to_list() == read["n"].to_list() == list(range(count))
    assert read["v"][count - 1] == f"v{count - 1}"


def test_columns_that_came_later_are_null_in_older_files(tmp_path: Path) -> None:
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    table = session.create_table(
        "d.t", {"k": "INT", "v": "STRING", "n": "BIGINT"}, options=EVOLVING
    )
    table.write(rows(0, 2))
    changes = [lc.SchemaChange.add_column("w", "INT"), lc.SchemaChange.rename_column("v", "u")]
    session.alter_table("d.t", changes)
    table = session.get_table("d.t")
    rewrite_columns(table, pa.table({"n": pa.array([5, 6], pa.int64())}), 0)
    assert table.to_polars().rows() == [(0, "v0", 5, None), (1, "v1", 6, None)]

    rewrite_columns(table, pa.table({"w": pa.array([1, 2], pa.int32())}), 0)
    assert table.to_polars(where="w = 2").rows() == [(1, "v1", 6, 2)]


def test_rows_of_one_file_are_read_from_that_file_alone(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(rows(0, 3))
    (file,) = table.inspect.files()["file_path"]
    rewrite_columns(table, pa.table({"n": pa.array([1, 2, 3], pa.int64())}), 0)
    Path(file).unlink()

    assert table.to_polars(["n"])["n"].to_list() == [1, 2, 3]
    with pytest.raises(CorruptTable, match="missing"):
        table.to_polars(["k"])


def test_overwritten_rows_get_new_ids(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(rows(0, 3))
    table.overwrite(rows(5, 1))

    assert tracked(table) == [(5, "v5", 50, 3, 2)]


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_keep_their_ids_when_they_are_changed_and_copied(tmp_path: Path, vectors: str) -> None:
    table = make(tmp_path, {**TRACKED, "deletion-vectors.enabled": vectors})
    table.write(rows(0, 4))
    table.write(rows(4, 3))
    table.delete("k = 1")
    table.update({"n": pl.col("n") + 1}, "k IN (2, 5)")
    table.write(rows(7, 1))

    expected = [
        (0, "v0", 0, 0, 1),
        (2, "v2", 21, 2, 4),
        (3, "v3", 30, 3, 1),
        (4, "v4", 40, 4, 2),
        (5, "v5", 51, 5, 4),
        (6, "v6", 60, 6, 2),
        (7, "v7", 70, 7, 5),
    ]
    assert tracked(table) == expected
    assert table.compact(full=True).files_before > 1
    assert tracked(table) == expected
    assert table.inspect.files().height == 1
    table.update({"v": "x"}, "k = 0")
    table.write(rows(8, 1))
    assert tracked(table)[0] == (0, "x", 0, 0, 7)
    assert tracked(table)[-1] == (8, "v8", 80, 8, 8)
    assert table.to_polars(where="n > 50").sort("k")["k"].to_list() == [5, 6, 7, 8]


def test_another_index_does_not_change_the_numbers_of_rows(tmp_path: Path) -> None:
    session = lc.connect(tmp_path, create=True)
    session.create_database("d")
    table = session.create_table("d.t", {"k": "INT", "v": "STRING", "n": "BIGINT"}, options=TRACKED)
    table.write(rows(0, 2))
    table.update({"v": "new"}, "k = 1")
    session.alter_table("d.t", [lc.SchemaChange.set_option("file-index.bitmap.columns", "k")])
    table = session.get_table("d.t")

    assert table.rewrite_file_index().files == 1
    assert tracked(table) == [(0, "v0", 0, 0, 1), (1, "new", 10, 1, 2)]


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_merge_keeps_the_ids_of_rows_and_new_rows_get_new_ones(
    tmp_path: Path, vectors: str
) -> None:
    table = make(tmp_path, {**TRACKED, "deletion-vectors.enabled": vectors})
    table.write(rows(0, 3))
    table.write(rows(3, 2))
    source = pl.DataFrame({"k": [1, 3, 4, 9], "v": ["a", "c", "d", "e"], "n": [0, 1, 2, 3]})
    merge = table.merge(source, on="k").when_matched_delete("source.v = 'd'")
    merge = merge.when_matched_update({"n": pl.col("source.n")}, "source.v = 'a'")
    merge = merge.when_matched_update_all().when_not_matched_insert_all()
    merge = merge.when_not_matched_by_source_update({"v": "by source"}, "k = 2")
    result = merge.execute()

    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (1, 3, 1)
    assert tracked(table) == [
        (0, "v0", 0, 0, 1),
        (1, "v1", 0, 1, 3),
        (2, "by source", 20, 2, 3),
        (3, "c", 1, 3, 3),
        (9, "e", 3, 5, 3),
    ]
    table.write(rows(7, 1))
    assert tracked(table)[-1] == (7, "v7", 70, 6, 4)
    table.compact(full=True)
    assert [row[3] for row in tracked(table)] == [0, 1, 2, 3, 5, 6]
    only_new = table.merge(rows(20, 2), on="k").when_not_matched_insert_all().execute()
    assert only_new.rows_inserted == 2
    assert [row[3] for row in tracked(table)[-2:]] == [7, 8]


def test_merge_of_a_source_in_parts_keeps_ids() -> None:
    table = new_table(
        {"k": "INT", "v": "STRING", "n": "INT"},
        keys=(),
        budget_bytes=1 << 20,
        row_tracking__enabled="true",
    )
    count = 20_000
    table.write(pl.DataFrame({"k": range(count), "v": "v", "n": 0}))
    keys = range(1, count + 1)
    source = pl.DataFrame({"k": keys, "v": [f"{key:060}" for key in keys], "n": keys})
    merge = table.merge(source, on=["k"]).when_matched_update({"n": pl.col("source.n")})
    merge.when_not_matched_insert_all().execute()

    view = table.inspect.system_table("row_tracking").to_polars().sort("_ROW_ID")
    assert view["k"].to_list() == view["_ROW_ID"].to_list() == list(range(count + 1))
    assert (view["n"] == view["k"]).all()


def test_files_without_a_wanted_row_id_are_not_opened(tmp_path: Path) -> None:
    table = make(tmp_path)
    for first in (0, 4, 8):
        table.write(rows(first, 4))
    rewrite_columns(table, pa.table({"n": [-1, -2, -3, -4]}), 4)
    view = table.inspect.system_table("row_tracking")
    files = table.inspect.files()
    for path in files.filter(pl.col("first_row_id") != 4)["file_path"]:
        Path(path).unlink()

    assert view.to_polars(where="_ROW_ID BETWEEN 5 AND 6").sort("k")["n"].to_list() == [-2, -3]
    assert view.to_polars(where="_ROW_ID = 7 OR _ROW_ID = 4").height == 2
    assert view.to_polars(where="_ROW_ID > 100").is_empty()
    with pytest.raises(CorruptTable, match="missing"):
        view.to_polars(where="_ROW_ID = 3")
    with pytest.raises(CorruptTable, match="missing"):
        view.to_polars(where="_ROW_ID = 5 OR k = 1")


def test_rewritten_files_are_read_for_any_row_id(tmp_path: Path) -> None:
    table = make(tmp_path, TRACKED)
    table.write(rows(0, 4))
    table.write(rows(4, 4))
    table.update({"v": "new"}, "k = 1")
    view = table.inspect.system_table("row_tracking")

    for key in range(8):
        assert view.to_polars(where=f"_ROW_ID = {key}")["k"].to_list() == [key]


def test_sorted_rows_keep_their_ids(tmp_path: Path) -> None:
    table = make(tmp_path, TRACKED)
    table.write(rows(3, 3))
    table.write(rows(0, 3))
    table.update({"v": "new"}, "k = 4")
    before = tracked(table)
    table.compact(order_strategy="order", order_by=["k"])

    assert table.to_polars()["k"].to_list() == [*range(6)]
    assert tracked(table) == before
    table.write(rows(6, 1))
    assert tracked(table)[-1][3:] == (6, 5)
    table.delete("k = 0")
    assert [row[3] for row in tracked(table)] == [0, 1, 2, 4, 5, 6]


def test_clustered_rows_keep_their_ids(tmp_path: Path) -> None:
    table = make(tmp_path, {**TRACKED, "clustering.incremental": "true", "clustering.columns": "n"})
    for first in (6, 3, 0):
        table.write(rows(first, 3))
    before = tracked(table)
    table.compact(full=True)

    assert table.to_polars()["k"].to_list() == [*range(9)]
    assert tracked(table) == before


def test_rows_with_data_evolution_are_not_sorted(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(rows(0, 3))
    by_n = {"clustering.incremental": "true", "clustering.columns": "n"}

    with pytest.raises(Unsupported, match="data evolution are not sorted"):
        table.compact(order_strategy="order", order_by=["n"])
    with pytest.raises(InvalidRequest, match="data evolution are not clustered"):
        make(tmp_path / "x", EVOLVING | by_n)


def test_row_tracking_needs_an_append_table(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="without a primary key"):
        make(tmp_path, TRACKED, primary_keys=["k"])
    with pytest.raises(InvalidRequest, match=r"data-evolution\.enabled needs row-tracking"):
        make(tmp_path, {"data-evolution.enabled": "true"})
    plain = make(tmp_path, {})
    with pytest.raises(InvalidRequest, match="rows have no ids"):
        plain.inspect.system_table("row_tracking")
