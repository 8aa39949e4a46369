"""Tables with data evolution, which Java and lakecore change in turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import lakecore as lc
from lakecore.errors import Unsupported
from tests.interop import limits
from tests.interop.protocol import PeerRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lakecore.table.handle import Table
    from tests.interop.engines import PeerEngine

pytestmark = pytest.mark.interop

COLUMNS = {"k": "INT", "v": "STRING", "n": "BIGINT"}
EVOLVING = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
JAVAS = pytest.mark.parametrize("java", [limits.JAVA, limits.JAVA_NEW])


def made(path: Path, columns: dict[str, str] | None = None, **options: str) -> Table:
    named = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return lc.open_table(path, create=True, schema=columns or COLUMNS, options=EVOLVING | named)


def rows(first: int, count: int) -> pl.DataFrame:
    keys = range(first, first + count)
    return pl.DataFrame({"k": keys, "v": [f"v{key}" for key in keys], "n": [10 * k for k in keys]})


def of_java(java: PeerEngine, path: Path) -> list[tuple[Any, ...]]:
    """The rows of `$row_tracking`, as Java reads them."""
    answer: Any = java.peer.ask("system_table", path=str(path), name="row_tracking")
    return sorted((tuple(row) for row in answer["rows"]), key=lambda row: row[-2])


def of_lakecore(path: Path) -> list[tuple[Any, ...]]:
    view = lc.open_table(path).inspect.system_table("row_tracking")
    return view.to_polars().sort("_ROW_ID").rows()


def plain(java: PeerEngine, path: Path) -> list[tuple[Any, ...]]:
    """The rows as Java reads them without their ids."""
    return sorted((tuple(row) for row in java.read(path)), key=str)


@JAVAS
def test_columns_that_lakecore_changes_are_those_that_java_reads(
    peers: Callable[[str], PeerEngine], tmp_path: Path, java: str
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(java)
    table = made(path)
    table.write(rows(0, 4))
    table.write(rows(4, 3))
    table.update({"n": pl.col("n") + 1}, "k in (1, 5)")
    assert of_java(peer, path) == of_lakecore(path)

    source = pl.DataFrame({"k": [2, 6, 9], "v": ["two", "six", "nine"], "n": [1, 2, 3]})
    merge = table.merge(source, on="k").when_matched_update({"v": pl.col("source.v")})
    merge.when_not_matched_insert_all().execute()
    assert of_java(peer, path) == of_lakecore(path)
    assert plain(peer, path) == sorted((row[:3] for row in of_lakecore(path)), key=str)

    table.compact(full=True)
    assert table.inspect.files().height == 1
    assert of_java(peer, path) == of_lakecore(path)
    peer.write(path, (("+I", [10, "j", 2]),))
    assert of_lakecore(path)[-1][:4] == (10, "j", 2, 8)


@JAVAS
def test_columns_that_java_writes_and_files_that_it_joins_are_read(
    peers: Callable[[str], PeerEngine], tmp_path: Path, java: str
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(java)
    table = made(path)
    table.write(rows(0, 3))
    table.update({"n": 7}, "k = 1")
    new: list[Any] = [["a"], ["b"], [None]]
    peer.peer.ask("write_columns", path=str(path), columns=["v"], first_row_id=0, rows=new)
    table = lc.open_table(path)
    table.write(rows(3, 2))
    table.update({"v": "x", "n": None}, "k = 2 or k = 4")
    expected = [(0, "a", 0), (1, "b", 7), (2, "x", None), (3, "v3", 30), (4, "x", None)]
    assert [row[:3] for row in of_lakecore(path)] == expected
    assert of_java(peer, path) == of_lakecore(path)

    assert peer.peer.ask("join_files", path=str(path)) == 1
    assert [row[:3] for row in of_lakecore(path)] == expected
    assert of_java(peer, path) == of_lakecore(path)
    table = lc.open_table(path)
    assert table.inspect.files().height == 1
    table.update({"n": 1}, "k = 0")
    assert of_java(peer, path) == of_lakecore(path)


def test_rows_that_lakecore_deletes_are_gone_for_java(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(limits.JAVA_NEW)
    table = made(path, deletion_vectors__enabled="true")
    table.write(rows(0, 4))
    table.write(rows(4, 4))
    table.update({"n": -1}, "k < 6")
    table.delete("k in (1, 5, 6)")
    assert [row[0] for row in of_lakecore(path)] == [0, 2, 3, 4, 7]
    assert of_java(peer, path) == of_lakecore(path)

    table.update({"v": "w"}, "k in (0, 7)")
    table.delete("k = 0")
    assert of_java(peer, path) == of_lakecore(path)
    assert peer.peer.ask("join_files", path=str(path)) == 1
    assert [row[0] for row in of_lakecore(path)] == [2, 3, 4, 7]
    assert of_java(peer, path) == of_lakecore(path)

    table = lc.open_table(path)
    table.write(rows(8, 2))
    table.delete("k in (3, 9)")
    table.compact(full=True)
    assert [row[0] for row in of_lakecore(path)] == [2, 4, 7, 8]
    assert of_java(peer, path) == of_lakecore(path)


def test_rows_that_java_deletes_are_gone(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(limits.JAVA_NEW)
    table = made(path, deletion_vectors__enabled="true")
    table.write(rows(0, 4))
    table.write(rows(4, 3))
    table.update({"n": 1}, "k in (0, 1, 5)")
    table.delete("k = 2")
    peer.peer.ask("delete_rows", path=str(path), row_ids=[1, 6])

    assert [row[0] for row in of_lakecore(path)] == [0, 3, 4, 5]
    assert of_java(peer, path) == of_lakecore(path)
    table = lc.open_table(path)
    assert table.count() == 4
    table.update({"v": "x"}, "k in (0, 1, 2, 3)")
    table.compact(full=True)
    assert [row[:2] for row in of_lakecore(path)] == [(0, "x"), (3, "x"), (4, "v4"), (5, "v5")]
    peer.peer.ask("delete_rows", path=str(path), row_ids=[3, 5])
    assert [row[0] for row in of_lakecore(path)] == [0, 4]
    assert of_java(peer, path) == of_lakecore(path)


@JAVAS
def test_blob_values_go_both_ways(
    peers: Callable[[str], PeerEngine], tmp_path: Path, java: str
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(java)
    columns = {"k": "INT", "b": "BLOB", "c": "BLOB", "v": "STRING"}
    table = made(path, columns, blob__target_file_size="1 kb")
    values = [b"first", None, b"", b"x" * 3000, b"\x00\xff", b"y" * 900]
    given: list[dict[str, Any]] = [
        {"k": k, "b": v, "c": b"c%d" % k, "v": f"v{k}"} for k, v in enumerate(values)
    ]
    table.write(given)
    shown = [
        (row["k"], None if row["b"] is None else row["b"].hex(), row["c"].hex(), row["v"])
        for row in given
    ]
    assert plain(peer, path) == sorted(shown, key=str)

    peer.write(path, (("+I", [6, b"java".hex(), None, "j"]), ("+I", [7, None, b"z".hex(), "j"])))
    table = lc.open_table(path)
    assert table.to_polars().sort("k").rows() == [
        *((row["k"], row["b"], row["c"], row["v"]) for row in given),
        (6, b"java", None, "j"),
        (7, None, b"z", "j"),
    ]
    table.update({"v": "new"}, "k in (0, 6)")
    table.compact(full=True)
    assert sorted(row[3] for row in plain(peer, path) if row[0] in (0, 6)) == ["new", "new"]
    assert plain(peer, path) == sorted(
        (
            (k, None if b is None else b.hex(), None if c is None else c.hex(), v)
            for k, b, c, v in lc.open_table(path).to_polars().rows()
        ),
        key=str,
    )


def test_updated_blob_values_are_read_by_java(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(limits.JAVA_NEW)
    table = made(path, {"k": "INT", "b": "BLOB", "v": "STRING"})
    table.write([{"k": k, "b": b"old%d" % k, "v": "v"} for k in range(4)])
    table.update({"b": b"new"}, "k in (1, 2)")
    table.update({"b": None, "v": "w"}, "k = 2")

    assert plain(peer, path) == [
        (0, b"old0".hex(), "v"),
        (1, b"new".hex(), "v"),
        (2, None, "w"),
        (3, b"old3".hex(), "v"),
    ]
    peer.peer.ask("write_columns", path=str(path), columns=["b"], first_row_id=0, rows=[["aa"]] * 4)
    assert lc.open_table(path).to_polars()["b"].to_list() == [b"\xaa"] * 4


@JAVAS
def test_system_tables_count_the_rows_of_each_file_as_java_does(
    peers: Callable[[str], PeerEngine], tmp_path: Path, java: str
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(java)
    table = made(path)
    table.write(rows(0, 4))
    table.update({"n": 1}, "k = 1")
    table.update({"n": 2, "v": "z"}, "k = 2")
    for name in ("partitions", "buckets", "files"):
        theirs: Any = peer.peer.ask("system_table", path=str(path), name=name)
        ours = table.inspect.system_table(name).to_polars()
        at = [column for column, _ in theirs["columns"]].index("record_count")
        counts = sorted(int(row[at]) for row in theirs["rows"])
        assert sorted(ours["record_count"].to_list()) == counts, name


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_vectors_go_both_ways(
    peers: Callable[[str], PeerEngine], tmp_path: Path, kind: str
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(limits.JAVA_NEW)
    columns = {"k": "INT", "v": "VECTOR<FLOAT, 3>"}
    options = {"file.format": kind, "vector-field": "v"}
    table = lc.open_table(path, create=True, schema=columns, options=options)
    table.write([{"k": 1, "v": [1.5, -2.0, 0.25]}, {"k": 2, "v": None}])
    peer.write(path, (("+I", [3, ["0.5", "3.0", "-1.0"]]), ("+I", [4, None])))

    expected = [(1, [1.5, -2.0, 0.25]), (2, None), (3, [0.5, 3.0, -1.0]), (4, None)]
    assert lc.open_table(path).to_polars().sort("k").rows() == expected
    theirs: list[Any] = peer.read(path)
    assert expected == sorted(
        (key, None if value is None else [float(each) for each in value]) for key, value in theirs
    )


def streams(path: Path, first: int, **options: str) -> list[tuple[int, list[tuple[str, Any]]]]:
    """The changes of each snapshot, as lakecore streams them."""
    table = lc.open_table(path).copy(dict(options))
    return [
        (number, [(kind, list(row)) for kind, *row in frame.collect().rows()])
        for number, frame in table.stream(from_snapshot=first, until="latest")
    ]


def sorted_rows(found: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return sorted(((kind, list(row)) for kind, row in found), key=str)


@JAVAS
def test_both_stream_the_columns_that_a_snapshot_wrote(
    peers: Callable[[str], PeerEngine], tmp_path: Path, java: str
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(java)
    table = made(path)
    table.write(rows(0, 3))
    table.update({"n": pl.col("n") + 1}, "k in (0, 1)")
    new: list[Any] = [["a"], ["b"], [None]]
    peer.peer.ask("write_columns", path=str(path), columns=["v"], first_row_id=0, rows=new)
    table = lc.open_table(path)
    merge = table.merge(rows(1, 3), on="k").when_matched_update({"n": pl.col("source.n")})
    merge.when_not_matched_insert_all().execute()
    peer.write(path, (("+I", [9, "j", None]),))
    table.compact(full=True)
    table = lc.open_table(path)
    table.update({"v": "last"}, "k = 2")

    theirs = list(peer.stream(path, 1).items())
    assert [number for number, _ in theirs] == [1, 2, 3, 4, 5, 7]
    assert [(number, sorted_rows(found)) for number, found in theirs] == [
        (number, sorted_rows(found)) for number, found in streams(path, 1)
    ]
    assert streams(path, 2)[0][1] == [("+I", [None, None, n]) for n in (1, 11, 20)]


@JAVAS
def test_both_join_what_several_snapshots_wrote(
    peers: Callable[[str], PeerEngine], tmp_path: Path, java: str
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(java)
    table = made(path)
    table.write(rows(0, 2))
    table.write(rows(2, 2))
    table.update({"n": -1}, "k in (0, 2)")
    table.update({"v": "w"}, "k in (0, 3)")
    for first, last in ((0, 4), (1, 4), (1, 3), (2, 3), (2, 4), (3, 4)):
        theirs = peer.changes(path, {"incremental-between": f"{first},{last}"})
        ours = lc.open_table(path).changes(first, last).collect().rows()
        assert sorted_rows(theirs) == sorted_rows([(kind, row) for kind, *row in ours])


@JAVAS
def test_both_stream_blob_values(
    peers: Callable[[str], PeerEngine], tmp_path: Path, java: str
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(java)
    table = made(path, {"k": "INT", "b": "BLOB", "v": "STRING"}, blob__target_file_size="1 kb")
    table.write([{"k": k, "b": bytes([k]) * 600, "v": "v"} for k in range(4)])
    peer.write(path, (("+I", [4, b"java".hex(), None]),))
    table = lc.open_table(path)
    table.update({"v": "w"}, "k = 1")
    table.write([{"k": 5, "b": None, "v": "v"}])

    ours = [
        (number, [(kind, [k, b and b.hex(), v]) for kind, (k, b, v) in found])
        for number, found in streams(path, 1)
    ]
    assert [(number, sorted_rows(found)) for number, found in peer.stream(path, 1).items()] == [
        (number, sorted_rows(found)) for number, found in ours
    ]


@JAVAS
def test_both_refuse_changes_of_a_column_that_must_not_be_null_and_was_not_written(
    peers: Callable[[str], PeerEngine], tmp_path: Path, java: str
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(java)
    table = made(path, {"k": "INT NOT NULL", "v": "STRING", "n": "BIGINT"})
    table.write(rows(0, 2))
    table.update({"n": 5}, "k = 1")

    with pytest.raises(PeerRefused, match="Required column is missing"):
        peer.stream(path, 2)
    with pytest.raises(Unsupported, match="NOT NULL"):
        streams(path, 2)


def test_lists_and_maps_of_blob_values_go_both_ways(
    peers: Callable[[str], PeerEngine], tmp_path: Path
) -> None:
    path, peer = tmp_path / "d.db" / "t", peers(limits.JAVA_NEW)
    columns = {
        "k": "INT",
        "l": "ARRAY<BLOB>",
        "m": "MAP<STRING, BLOB>",
        "d": "MAP<TINYINT, BLOB>",
        "n": "MAP<BIGINT, BLOB>",
    }
    table = made(path, columns)
    table.write(
        [
            {"k": 0, "l": [b"a", None, b""], "m": [("x", b"y"), ("z", None)], "d": None, "n": []},
            {"k": 1, "l": None, "m": [], "d": [(-7, b"p")], "n": [(-5, b"n")]},
        ]
    )
    ours = [
        [0, ["61", None, ""], [["x", "79"], ["z", None]], None, []],
        [1, None, [], [[-7, "70"]], [[-5, "6e"]]],
    ]
    assert [list(row) for row in plain(peer, path)] == ours
    new: list[Any] = [2, [None, "00ff"], [["", "01"]], [[7, None]], [[2**40, ""]]]
    peer.write(path, (("+I", new),))
    assert lc.open_table(path).to_arrow().to_pylist()[-1] == {
        "k": 2,
        "l": [None, b"\x00\xff"],
        "m": [("", b"\x01")],
        "d": [(7, None)],
        "n": [(2**40, b"")],
    }
    table = lc.open_table(path)
    table.update({"k": 3}, "k = 2")
    assert [row[0] for row in plain(peer, path)] == [0, 1, 3]
