"""Joins with a small side: the same rows as DuckDB, and keys that reach the scan as a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.sql import statement_views
from lakecore.table.reads.source import TableSource
from tests.versions import DUCKDB_1

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakecore.plan.predicate import Predicate

Sides = tuple[lc.Session, duckdb.DuckDBPyConnection]

BIG = pa.table(
    {
        "id": pa.array(range(200), pa.int64()),
        "k": pa.array([each % 7 if each % 5 else None for each in range(200)], pa.int32()),
        "s": [f"s{each % 9}" if each % 4 else None for each in range(200)],
    }
)
SMALL = pa.table(
    {
        "id": pa.array([3, 50, 51, 199, 900, 7], pa.int32()),
        "k": pa.array([1, 2, None, 4, 5, 3], pa.int64()),
        "s": ["s3", None, "s6", "it's", "s1", "s7"],
        "f": [3.0, float("nan"), None, 199.0, 2.5, 7.0],
    }
)
NAMED = pa.table({"s": ["s1", "s3", None, "zz"], "n": pa.array([1, 3, 4, 9], pa.int16())})
_QUERIES = """
SELECT big.id, small.k FROM big JOIN small ON big.id = small.id WHERE small.k > 1
;
SELECT big.id FROM small JOIN big ON small.id = big.id AND small.s LIKE 's%'
;
SELECT b.id, n FROM big b, small x, named WHERE b.id = x.id AND x.s = named.s AND n = 3
;
SELECT id, big.k FROM big JOIN small USING (id) WHERE small.k IN (1, 4)
;
SELECT * FROM big JOIN small USING (id, k)
;
SELECT big.id FROM big LEFT JOIN small ON big.id = small.id AND small.k = 1
;
SELECT big.id, small.id FROM big RIGHT JOIN small ON big.id = small.id WHERE small.k < 9
;
SELECT count(*), count(small.id) FROM big FULL JOIN small ON big.id = small.id
;
SELECT big.id FROM big LEFT JOIN small ON big.id = small.id WHERE small.k = 1
;
SELECT big.id FROM big JOIN small ON big.id = small.id LEFT JOIN named ON n = small.k
;
SELECT big.id FROM big, small LEFT JOIN named ON n = small.k WHERE big.id = small.id
;
SELECT big.id FROM big SEMI JOIN small ON big.id = small.id
;
SELECT count(*) FROM big ANTI JOIN small ON big.id = small.id
;
SELECT id FROM big NATURAL JOIN small
;
SELECT big.id FROM big ASOF JOIN small ON big.id >= small.id WHERE small.k = 4
;
SELECT big.id FROM big JOIN small ON big.id = small.f WHERE small.k = 4
;
SELECT big.id FROM big JOIN small ON big.id = small.id + 1 WHERE small.k = 4
;
SELECT big.id FROM big JOIN small ON big.id = small.id OR small.k = 4
;
SELECT big.id FROM big JOIN small ON big.id IS NOT DISTINCT FROM small.k
;
SELECT big.id FROM big JOIN small ON big.k = small.k WHERE small.s IS NULL
;
SELECT big.id FROM big JOIN small ON big.s = small.s WHERE small.id < 100
;
SELECT a.id FROM big a JOIN big b ON a.id = b.id WHERE b.k = 2
;
SELECT b.id FROM big b WHERE EXISTS (SELECT 1 FROM small x WHERE x.id = b.id AND x.k = b.k)
;
SELECT b.id, (SELECT max(c.id) FROM big c JOIN small x ON c.id = x.id WHERE x.k < b.k) FROM big
b WHERE b.id < 20
;
SELECT s.id FROM small s, LATERAL (SELECT big.k FROM big WHERE big.id = s.id) l WHERE s.k = 4
;
WITH small AS (SELECT 5 AS id, 1 AS k) SELECT big.id FROM big JOIN small USING (id)
;
WITH c AS (SELECT big.id FROM big JOIN small USING (id) WHERE small.k = 1) FROM c JOIN big USING
(id)
;
SELECT big.id FROM big JOIN (SELECT id FROM small WHERE k = 1) x ON big.id = x.id
;
SELECT big.id FROM big JOIN small ON big.id = small.id WHERE small.k = 100
;
SELECT count(*) FROM big JOIN small ON big.id = small.id WHERE random() < 2 AND small.k = 1
;
SELECT count(*) FROM big JOIN small ON big.id = small.id WHERE small.id + random() < 2000
;
SELECT big.id FROM big JOIN small ON big.id = small.id WHERE small.k = (SELECT max(n) - 5 FROM
named)
;
SELECT big.id AS k FROM big JOIN small ON big.id = small.id WHERE small.k BETWEEN 1 AND 3
;
SELECT shop.big.id FROM shop.big JOIN shop.small ON shop.big.id = shop.small.id WHERE
shop.small.k = 1
;
SELECT b.x FROM big AS b(x, y, z) JOIN small ON b.x = small.k WHERE small.id = 7
;
SELECT big.id FROM big JOIN small ON big.id = small.id JOIN named ON named.n = small.k JOIN big
c ON c.id = named.n
;
SELECT id FROM big WHERE id IN (SELECT big.id FROM big JOIN small USING (id) WHERE small.k = 4)
;
SELECT big.id FROM big JOIN small ON big.id = small.id AND 10 // small.k > 2 WHERE small.k > 0
"""
QUERIES = [each.strip() for each in _QUERIES.split(";")]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Sides:
    """The same tables in lakecore, where they are merged, and in DuckDB."""
    catalog = lc.connect(tmp_path_factory.mktemp("keys"), create=True)
    catalog.create_database("shop")
    plain = duckdb.connect()
    plain.execute("CREATE SCHEMA shop; USE shop")
    for name, rows in (("big", BIG), ("small", SMALL), ("named", NAMED)):
        keys = [] if name == "named" else ["id"]
        options = {"write-only": "true", "bucket": "1"} if keys else {}
        table = catalog.create_table(
            f"shop.{name}", rows.schema, primary_keys=keys, options=options
        )
        if keys:
            table.write(rows.set_column(2, "s", pa.array(["old"] * rows.num_rows)))
        table.write(rows)
        plain.from_arrow(rows).create(name)
    catalog.sql("USE shop")
    return catalog, plain


@pytest.fixture(autouse=True)
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the optimisation apply to tables of any size."""
    for name, value in (
        ("TARGET_ROWS_MIN", 0),
        ("FEWER_ROWS", 0.001),
        ("FEW_WITHOUT_CONDITION", 1),
    ):
        monkeypatch.setattr(statement_views, name, value)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, by_lakecore: None) -> list[str]:
    """The predicates of the scans that a test makes."""
    del by_lakecore
    found: list[str] = []
    batches = TableSource.batches

    def noted(
        source: TableSource,
        columns: Sequence[str],
        predicate: Predicate | None = None,
        limit: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        found.append(f"{source.context.identifier} {predicate}")
        return batches(source, columns, predicate, limit)

    monkeypatch.setattr(TableSource, "batches", noted)
    return found


def rows_of(side: lc.Session | duckdb.DuckDBPyConnection, text: str) -> list[str]:
    return sorted(map(str, side.sql(text).fetchall()))


@pytest.mark.parametrize("listed_max", [None, 1000, 0])
@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.sampled(2)
def test_the_rows_are_those_of_duckdb(
    sides: Sides,
    text: str,
    listed_max: int | None,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if listed_max is not None:  # otherwise DuckDB scans the files itself
        request.getfixturevalue("by_lakecore")
        monkeypatch.setattr(statement_views, "LISTED_MAX", listed_max)
    catalog, plain = sides

    assert rows_of(catalog, text) == rows_of(plain, text)


def scans(asked: Sequence[str], name: str) -> list[str]:
    return [each for each in asked if each.startswith(f"shop.{name} ")]


def test_keys_reach_the_scan_as_a_list_as_a_range_or_not_at_all(
    sides: Sides, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, _ = sides
    text = QUERIES[0]
    assert rows_of(catalog, text) == ["(199, 4)", "(50, 2)", "(7, 3)"]
    assert all(key in scans(asked, "big")[-1] for key in ("50", "199", "900", "7"))
    assert " 3" not in scans(asked, "big")[-1]
    monkeypatch.setattr(statement_views, "LISTED_MAX", 1)
    assert len(rows_of(catalog, text)) == 3
    assert "900" in scans(asked, "big")[-1]
    assert "50" not in scans(asked, "big")[-1]
    monkeypatch.setattr(statement_views, "ROWS_MAX", 1)
    assert len(rows_of(catalog, text)) == 3
    assert scans(asked, "big")[-1] == "shop.big None"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT big.id FROM big LEFT JOIN small ON big.id = small.id WHERE small.k = 1",
        "SELECT big.id FROM big JOIN small ON big.k = small.k WHERE small.s IS NULL",
        "SELECT big.id FROM big JOIN small ON big.id = small.f WHERE small.k = 4",
        "SELECT big.id FROM big JOIN small TABLESAMPLE 50% ON big.id = small.id",
        "EXPLAIN SELECT big.id FROM big JOIN small ON big.id = small.id",
    ],
)
def test_other_joins_are_left_alone(sides: Sides, asked: list[str], text: str) -> None:
    sides[0].sql(text).fetchall()
    # DuckDB 1 filters a scan by the values of its join.
    assert DUCKDB_1 or set(scans(asked, "big")) <= {"shop.big None"}


@pytest.mark.parametrize(("least", "is_filtered"), [(100, True), (1000, False)])
def test_a_table_that_is_read_faster_than_keys_is_not_filtered(
    sides: Sides,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    least: int,
    *,
    is_filtered: bool,
) -> None:
    monkeypatch.setattr(statement_views, "TARGET_ROWS_MIN", least)
    assert len(rows_of(sides[0], QUERIES[0])) == 3
    assert (scans(asked, "big")[-1] != "shop.big None") == is_filtered


def test_frames_of_the_caller_are_small_sides(sides: Sides, asked: list[str]) -> None:
    wanted = pl.DataFrame({"id": [3, 150, None]})
    rows = sides[0].sql("SELECT big.id FROM big JOIN wanted ON big.id = wanted.id").fetchall()
    assert (sorted(rows), wanted.height) == ([(3,), (150,)], 3)
    assert "150" in scans(asked, "big")[-1]


def test_a_stream_of_the_caller_is_read_once(sides: Sides) -> None:
    def stream() -> pa.RecordBatchReader:
        return pa.table({"id": pa.array([3, 150], pa.int64())}).to_reader()

    first, second = stream(), stream()
    joined = sides[0].sql("SELECT big.id FROM big JOIN first ON big.id = first.id")
    assert sorted(joined.fetchall()) == [(3,), (150,)]
    listed = sides[0].sql("SELECT id FROM big WHERE id IN (SELECT id FROM second) ORDER BY id")
    assert listed.fetchall() == [(3,), (150,)]
    first.close()
    second.close()


def test_files_that_duckdb_scans_itself_are_left_to_its_own_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[dict[int, str]] = []
    key_filters = statement_views.key_filters

    def noted(*arguments: object) -> dict[int, str]:
        found.append(key_filters(*arguments))  # type: ignore[arg-type]  # as they came
        return found[-1]

    monkeypatch.setattr(statement_views, "key_filters", noted)
    catalog = lc.connect(tmp_path, create=True)
    catalog.create_database("shop")
    big = catalog.create_table(
        "shop.big", {"id": "BIGINT"}, primary_keys=["id"], options={"bucket": "1"}
    )
    wanted = pl.DataFrame({"id": [3, 7]})
    for _ in range(2):
        big.write([{"id": each} for each in range(100)])
    query = "SELECT big.id FROM shop.big JOIN wanted ON big.id = wanted.id ORDER BY id"

    assert catalog.sql(query).fetchall() == [(3,), (7,)]
    assert len(found[-1]) == 1
    big.compact(full=True)
    assert catalog.sql(query).fetchall() == [(3,), (7,)]
    assert (len(found), wanted.height) == (1, 2)
