"""Keys of a query as constants: dates beyond Python's, and strings under a collation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.sql import semi_joins, statement_views
from tests.versions import DUCKDB_1

if TYPE_CHECKING:
    from pathlib import Path

INFINITE = 2**31 - 1
DAYS = (INFINITE, 2_932_896, 2_932_897, -719_162, -719_163, 0, 5_000_000, -INFINITE)
"""Dates as days: 9999-12-31, 0001-01-01 and their neighbours, and DuckDB's infinite dates."""
JOIN = "SELECT count(*) FROM t JOIN few ON t.k = few.k"
IN = "SELECT count(*) FROM t WHERE k IN (SELECT k FROM few)"


@pytest.fixture(params=[1000, 1])
def catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> lc.Session:
    """A session in which the keys of each small side become a filter, as a list or a range."""
    monkeypatch.setattr(statement_views, "TARGET_ROWS_MIN", 0)
    monkeypatch.setattr(statement_views, "FEW_WITHOUT_CONDITION", 1)
    for module in (statement_views, semi_joins):
        monkeypatch.setattr(module, "LISTED_MAX", request.param)
    session = lc.connect(tmp_path, create=True)
    session.create_database("shop")
    session.sql("USE shop")
    return session


def _merged(catalog: lc.Session, keys: pa.Array) -> None:
    """A table of these keys, whose rows are folded, so DuckDB does not scan its files."""
    rows = pa.table({"k": keys})
    options = {"bucket": "1", "write-only": "true", "merge-engine": "aggregation"}
    table = catalog.create_table("shop.t", rows.schema, primary_keys=["k"], options=options)
    table.write(rows)
    table.write(rows)


@pytest.mark.parametrize("query", [JOIN, IN])
def test_dates_that_python_does_not_have(catalog: lc.Session, query: str) -> None:
    days = pa.array(DAYS, pa.int32()).cast(pa.date32())
    _merged(catalog, days)
    for chosen in ([0], [0, 5], [1, 3], [2], [4], [6], [7], [*range(len(DAYS))]):
        few = pa.table({"k": days.take(pa.array(chosen))})
        if DUCKDB_1 and len(chosen) > 1 and {0, 1, 3, 7}.intersection(chosen):
            with pytest.raises(lc.LakecoreError, match="DuckDB 1 does not pass on"):
                catalog.sql(query).fetchall()
            continue
        assert catalog.sql(query).fetchall() == [(few.num_rows,)]


@pytest.mark.parametrize("query", [JOIN, IN])
def test_bounds_of_strings_follow_the_collation(catalog: lc.Session, query: str) -> None:
    _merged(catalog, pa.array(["a", "Z", "b"]))
    few = pa.table({"k": ["Z", "a"]})
    catalog.sql("SET 'default_collation' = 'NOCASE'")

    assert catalog.sql(query).fetchall() == [(few.num_rows,)]
