"""Tables with habits of the peers that wrote them, read without the peers.

Those of pypaimon 2.1.0 and paimon-rust 0.4.0 hold one commit, of (1, 1) and a deletion of (2, 2);
the column `op` is the table's `rowkind.field`. The ORC file is of Java Paimon 1.4.2, and
the maps of 0.8.2, which says of their keys in Parquet that they may be null, has manifests in
Snappy, and reads an empty map of its own as one of null to null.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import lakecore as lc

PEERS = Path(__file__).resolve().parents[1] / "golden" / "peers"
ROWS = [{"k": 1, "v": 1, "op": "+I"}]


@pytest.mark.parametrize(
    "name",
    [
        # The manifest says that the file holds no deletions.
        "pypaimon_uncounted_deletion",
        # The files have no key columns though the table does not ask for thin mode, and the records
        # of the manifests are unions with null.
        "paimon_rust_unasked_thin_mode",
    ],
)
def test_deleted_row_is_not_read_by_any_face(name: str) -> None:
    table = lc.open_table(PEERS / name)
    with duckdb.connect() as connection:
        counted = table.to_duckdb(connection).aggregate("count(*)").fetchall()

    assert table.to_arrow().to_pylist() == ROWS
    assert table.scan().collect().to_dicts() == ROWS
    assert counted == [(1,)]


def test_blanks_with_which_java_pads_orc_are_no_part_of_a_char() -> None:
    table = lc.open_table(PEERS / "java_orc_short_char")

    assert table.to_arrow().column("v").to_pylist() == ["", "ab", "abcde", None]


def test_maps_are_read_whose_keys_the_parquet_file_declares_nullable() -> None:
    table = lc.open_table(PEERS / "java_0_8_nullable_map_keys")
    with duckdb.connect() as connection:
        rows = table.to_duckdb(connection).order("k").fetchall()

    assert table.to_arrow().to_pylist() == [
        {"k": 1, "m": [("a", 1), ("b", None)], "n": {"x": [(1, "x")], "y": 5}},
        {"k": 2, "m": None, "n": None},
        {"k": 3, "m": [], "n": None},
    ]
    assert table.scan(columns=["k"], where="k > 1").collect().rows() == [(2,), (3,)]
    assert rows == [
        (1, {"a": 1, "b": None}, {"x": {1: "x"}, "y": 5}),
        (2, None, None),
        (3, {}, None),
    ]


def test_engines_are_not_handed_files_whose_maps_they_refuse() -> None:
    table = lc.open_table(PEERS / "java_0_8_append_of_maps")
    with duckdb.connect() as connection:
        keys = table.to_duckdb(connection).project("k").order("k").fetchall()

    assert table.scan(columns=["k"], where="k > 1").collect().rows() == [(2,)]
    assert table.to_arrow_dataset().to_table(columns=["k"]).to_pylist() == [{"k": 1}, {"k": 2}]
    assert keys == [(1,), (2,)]
    assert table.to_arrow().to_pylist() == [
        {"k": 1, "m": [("a", 1), ("b", None)]},
        {"k": 2, "m": None},
    ]
