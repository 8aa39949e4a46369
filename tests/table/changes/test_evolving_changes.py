"""Changes of tables with data evolution: what the snapshots wrote, and null for other columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import lakecore as lc
from lakecore.errors import Unsupported

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table

COLUMNS = {"k": "INT", "v": "STRING", "n": "BIGINT"}
EVOLVING = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}


def made(
    path: Path, columns: dict[str, str] | None = None, *partitions: str, **options: str
) -> Table:
    named = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return lc.open_table(
        path / "t",
        create=True,
        schema=columns or COLUMNS,
        partition_keys=list(partitions),
        options=EVOLVING | named,
    )


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"k": key, "v": f"v{key}", "n": 10 * key} for key in range(first, first + count)]


def streamed(table: Table, **where: Any) -> list[tuple[int, list[tuple[Any, ...]]]]:
    stream = table.stream(until="latest", **({"from_snapshot": 1} | where))
    return [(number, frame.collect().rows()) for number, frame in stream]


def test_a_stream_returns_the_columns_that_a_snapshot_wrote(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.write(rows(0, 2))
    table.update({"n": pl.col("n") + 1}, "k = 1")
    merge = table.merge([{"k": 0, "v": "z"}, {"k": 2, "v": "new"}], on="k")
    merge.when_matched_update({"v": pl.col("source.v")}).when_not_matched_insert(
        {"k": pl.col("source.k"), "v": pl.col("source.v")}
    ).execute()
    table.compact(full=True)
    table.write(rows(3, 1))

    assert streamed(table) == [
        (1, [("+I", 0, "v0", 0), ("+I", 1, "v1", 10)]),
        (2, [("+I", None, None, 0), ("+I", None, None, 11)]),
        (3, [("+I", None, "z", None), ("+I", None, "v1", None), ("+I", 2, "new", None)]),
        (5, [("+I", 3, "v3", 30)]),
    ]
    assert [number for number, _ in streamed(table, from_snapshot=None)] == [5]
    assert streamed(table, from_snapshot=None)[0][1] == [
        ("+I", 0, "z", 0),
        ("+I", 1, "v1", 11),
        ("+I", 2, "new", None),
        ("+I", 3, "v3", 30),
    ]


def test_changes_of_a_column_that_must_not_be_null_are_refused_if_it_was_not_written(
    tmp_path: Path,
) -> None:
    table = made(tmp_path, {"k": "INT NOT NULL", "v": "STRING", "n": "BIGINT"})
    table.write(rows(0, 2))
    table.update({"n": 5}, "k = 1")
    narrow = table.stream(from_snapshot=1, until="latest", columns=["n"])

    assert table.changes().collect().rows() == [("+I", 0, "v0", 0), ("+I", 1, "v1", 5)]
    with pytest.raises(Unsupported, match=r"NOT NULL; read the changes of other columns.*k"):
        table.changes(1).collect()
    assert table.changes(1).select("_row_kind").collect().height == 2
    assert [frame.collect()["n"].to_list() for _, frame in narrow] == [[0, 10], [0, 5]]


def test_conditions_and_columns_apply_to_what_was_written(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.write(rows(0, 3))
    table.update({"n": 99}, "k = 1")
    changes = table.changes(1)

    assert changes.filter(pl.col("n") > 50).collect().rows() == [("+I", None, None, 99)]
    assert changes.filter(pl.col("k") == 1).collect().height == 0
    assert changes.select("v").collect()["v"].to_list() == [None, None, None]
    assert changes.select(pl.len()).collect().item() == 3


def test_changes_between_two_points_join_the_files_of_all_snapshots(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.write(rows(0, 2))
    table.write(rows(2, 2))
    table.update({"n": -1}, "k = 2")
    table.update({"v": "w"}, "k in (0, 2)")

    assert table.changes(1).collect().rows() == [
        ("+I", None, "w", None),
        ("+I", None, "v1", None),
        ("+I", 2, "w", -1),
        ("+I", 3, "v3", 30),
    ]
    assert table.changes().sort("k").collect().rows() == [
        ("+I", 0, "w", 0),
        ("+I", 1, "v1", 10),
        ("+I", 2, "w", -1),
        ("+I", 3, "v3", 30),
    ]
    assert table.changes(2, 3).collect().rows() == [
        ("+I", None, None, -1),
        ("+I", None, None, 30),
    ]


def test_changes_across_a_compaction_that_joined_the_rows_are_refused(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.write(rows(0, 2))
    table.write(rows(2, 2))
    table.compact(full=True)
    table.update({"n": 7}, "k = 3")

    assert table.changes(0, 3).collect().height == 4
    assert table.changes(3).collect()["n"].to_list() == [0, 10, 20, 7]
    with pytest.raises(Unsupported, match="one by one, by a stream"):
        table.changes(0).collect()
    assert [number for number, _ in streamed(table)] == [1, 2, 4]


def test_new_blob_values_are_streamed(tmp_path: Path) -> None:
    table = made(tmp_path, {"k": "INT", "b": "BLOB", "c": "BLOB"}, blob__target_file_size="1 kb")
    values = [b"a" * 700, b"b" * 700, None]
    table.write([{"k": k, "b": b, "c": b"c%d" % k} for k, b in enumerate(values)])
    table.update({"b": b"new"}, "k = 1")
    table.update({"c": None, "k": 9}, "k = 0")

    assert streamed(table) == [
        (1, [("+I", k, b, b"c%d" % k) for k, b in enumerate(values)]),
        (2, [("+I", None, None, None), ("+I", None, b"new", None), ("+I", None, None, None)]),
        (3, [("+I", 9, None, None), ("+I", 1, None, None), ("+I", 2, None, None)]),
    ]
    assert table.changes().sort("k").collect().rows() == [
        ("+I", 1, b"new", b"c1"),
        ("+I", 2, None, b"c2"),
        ("+I", 9, values[0], None),
    ]
    only_keys = table.changes(1, 2).select("k", "_row_kind").collect()
    assert only_keys.rows() == [(None, "+I")] * 3


def test_a_column_file_shows_the_partition_of_its_rows(tmp_path: Path) -> None:
    table = made(tmp_path, {"k": "INT", "p": "STRING", "n": "INT"}, "p")
    table.write([{"k": 1, "p": "x", "n": 1}, {"k": 2, "p": "y", "n": 2}])
    table.update({"n": 5}, "k = 2")
    table.update({"k": 4}, "k = 2")

    assert table.changes(1, 2).collect().rows() == [("+I", None, "y", 5)]
    assert table.changes(1).collect().rows() == [("+I", 4, "y", 5)]
    assert table.changes(1).filter(pl.col("p") == "y").collect().height == 1
    assert table.changes(1).filter(pl.col("p") == "x").collect().height == 0
    assert table.to_polars(where="p = 'y'").rows() == [(4, "y", 5)]


def test_deleted_rows_are_no_changes_and_overwritten_ones_are_if_asked(tmp_path: Path) -> None:
    table = made(tmp_path, deletion_vectors__enabled="true")
    table.write(rows(0, 3))
    table.delete("k = 1")
    table.overwrite(rows(7, 1))
    asked = table.copy({"streaming-read-append-overwrite": "true"})

    assert [number for number, _ in streamed(table)] == [1]
    assert streamed(table)[0][1] == [("+I", *row.values()) for row in rows(0, 3)]
    assert streamed(asked)[-1] == (3, [("+I", 7, "v7", 70)])


def test_a_stream_of_new_files_may_lack_the_older_columns(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.write(rows(0, 2))
    files = table.inspect.files()
    table.update({"n": 3}, "k = 0")
    later = max(table.inspect.files()["creation_time"].to_list())
    assert later >= max(files["creation_time"].to_list())
    everything = table.copy({"scan.file-creation-time-millis": "1"})
    nothing = table.copy({"scan.file-creation-time-millis": str(2**53)})
    mode = {"scan_mode": "from-file-creation-time", "from_snapshot": None}

    assert streamed(everything, **mode)[0][1] == [("+I", 0, "v0", 3), ("+I", 1, "v1", 10)]
    assert all(not found for _, found in streamed(nothing, **mode))


def test_the_difference_of_two_tags_is_the_rows_between_them(tmp_path: Path) -> None:
    table = made(tmp_path, {"k": "INT", "b": "BLOB"})
    table.write([{"k": 1, "b": b"x"}])
    table.create_tag("one")
    table.write([{"k": 2, "b": b"y"}])
    table.create_tag("two")
    table.update({"k": 3}, "k = 1")
    table.create_tag("three")

    assert table.changes("one", "two").collect().rows() == [("+I", 2, b"y")]
    with pytest.raises(Unsupported, match="rewritten between the two states"):
        table.changes("two", "three").collect()


def test_the_audit_log_follows_column_files(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.write(rows(0, 1))
    table.update({"n": 4}, "k = 0")
    log: Any = table.inspect.system_table("audit_log")
    found = [frame.collect().rows() for _, frame in log.stream(from_snapshot=1, until="latest")]

    assert found == [[("+I", 0, "v0", 0)], [("+I", None, None, 4)]]
