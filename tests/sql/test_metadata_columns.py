"""`__paimon_...` columns: where each row is stored, hidden from `*`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import lakecore as lc

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.session import Session


@pytest.fixture
def catalog(tmp_path: Path) -> Session:
    found = lc.connect(tmp_path / "warehouse", create=True)
    found.sql("CREATE TABLE t (id INT, pt STRING, n INT) PARTITIONED BY (pt)")
    found.sql("INSERT INTO t VALUES (1, 'a', 10), (2, 'a', 20), (3, 'b', 30)")
    found.sql("INSERT INTO t VALUES (4, 'a', 40), (5, 'a', 50), (6, NULL, 60)")
    found.sql("CREATE TABLE pk (id INT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket' = '2')")
    found.sql("INSERT INTO pk VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    return found


VECTORS = """
    ALTER TABLE t SET ('deletion-vectors.modifiable' = 'true', 'deletion-vectors.enabled' = 'true')
"""
PLACES = "SELECT id, __paimon_file_path, __paimon_row_index FROM {} ORDER BY id"


def check_places(catalog: Session, table: str) -> list[int]:
    """Each row is in its file at its position. Returns the ids."""
    rows = catalog.sql(PLACES.format(table)).fetchall()
    for key, path, position in rows:
        assert pq.read_table(path, partitioning=None).column("id")[position].as_py() == key
    return [key for key, _, _ in rows]


@pytest.mark.parametrize("vectors", [False, True])
def test_the_file_holds_the_row_at_its_position_also_after_a_delete(
    catalog: Session, *, vectors: bool
) -> None:
    if vectors:
        catalog.sql(VECTORS)
    catalog.sql("DELETE FROM t WHERE id IN (1, 5)")

    assert check_places(catalog, "t") == [2, 3, 4, 6]
    assert check_places(catalog, "t VERSION AS OF 1") == [1, 2, 3]


def test_rows_of_merged_files_have_a_bucket_but_no_file_until_they_are_compacted(
    catalog: Session,
) -> None:
    catalog.sql("INSERT INTO pk VALUES (2, 'new')")
    buckets = "SELECT count(DISTINCT __paimon_bucket), count(*) FROM pk WHERE __paimon_bucket < 2"
    assert catalog.sql(buckets).fetchall() == [(2, 3)]
    with pytest.raises(lc.Unsupported, match="merged from several files"):
        catalog.sql("SELECT __paimon_file_path FROM pk")
    with pytest.raises(lc.Unsupported, match="merged from several files"):
        catalog.sql("SELECT id FROM t WHERE id IN (SELECT __paimon_row_index FROM pk)")

    catalog.sql("CALL sys.compact('default.pk')")
    assert check_places(catalog, "pk") == [1, 2, 3]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM t WHERE __paimon_row_index = 1", [(2, "a", 20), (5, "a", 50)]),
        ("SELECT t.* FROM t WHERE t.__paimon_partition.pt = 'b'", [(3, "b", 30)]),
        (
            "SELECT x.*, v FROM t x JOIN pk USING (id) WHERE x.__paimon_row_index > 0",
            [(2, "a", 20, "b")],
        ),
        ("SELECT * FROM (SELECT id, __paimon_bucket FROM pk) WHERE id = 7", []),
        ("SELECT * FROM (SELECT __paimon_bucket AS b FROM t WHERE id = 3)", [(0,)]),
        ("SELECT id FROM t WHERE __paimon_partition.pt IS NULL", [(6,)]),
        (
            "WITH c AS (SELECT *, __paimon_row_index r FROM t) FROM c WHERE r = 1 AND id > 2",
            [(5, "a", 50, 1)],
        ),
        ("SELECT id FROM pk WHERE id IN (SELECT id FROM t WHERE __paimon_row_index = 1)", [(2,)]),
        (
            "SELECT * FROM t x WHERE id = 1 AND EXISTS (FROM pk WHERE x.__paimon_bucket < pk.id)",
            [(1, "a", 10)],
        ),
        ("SELECT DISTINCT __paimon_partition FROM pk", [(None,)]),
        ("SELECT count(*) FROM t WHERE __paimon_file_path LIKE '%/pt=a/%.parquet'", [(4,)]),
    ],
)
def test_star_leaves_metadata_columns_out(
    catalog: Session, query: str, expected: list[tuple[object, ...]]
) -> None:
    assert sorted(catalog.sql(query).fetchall()) == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("FROM t WHERE __paimon_bucket = 0", "name the columns"),
        ("SELECT * EXCLUDE (n) FROM t WHERE __paimon_bucket = 0", "name the columns"),
        ("SELECT count(COLUMNS(*)) FROM t WHERE __paimon_bucket = 0", "name the columns"),
        ("SELECT id, __paimon_bucket FROM t NATURAL JOIN pk", "NATURAL JOIN"),
        ("SELECT __paimon_search_score FROM t", "no such metadata column"),
        ("SELECT __paimon_bucket FROM t$files", "system table"),
        ("SELECT __paimon_bucket FROM paimon_incremental_query('t', 1, 2)", "two snapshots"),
    ],
)
def test_what_has_no_meaning_is_refused(catalog: Session, query: str, message: str) -> None:
    with pytest.raises(lc.Unsupported, match=message):
        catalog.sql(query)


def test_a_column_of_that_name_in_the_table_is_the_tables_own(catalog: Session) -> None:
    catalog.sql("CREATE TABLE own (id INT, __paimon_bucket STRING)")
    catalog.sql("INSERT INTO own VALUES (1, 'mine')")

    assert catalog.sql("SELECT *, __paimon_bucket FROM own").fetchall() == [(1, "mine", "mine")]


def test_rows_of_two_branches_have_no_metadata_columns(catalog: Session) -> None:
    catalog.sql("CALL sys.create_branch('default.t', 'b')")
    query = "SELECT __paimon_bucket FROM t /*+ OPTIONS('scan.fallback-branch' = 'b') */"
    with pytest.raises(lc.Unsupported, match="two branches"):
        catalog.sql(query)
