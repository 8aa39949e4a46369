"""TPC-H's queries over merged tables give what DuckDB gives over the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest

import lakecore as lc
from bench.tpch import fill, same_rows
from bench.tpch_data import tables
from bench.tpch_queries import QUERIES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[lc.Session, duckdb.DuckDBPyConnection]:
    """Tables of five runs in lakecore, and the same rows in DuckDB."""
    data = tables(0.002)
    plain = duckdb.connect()
    for name, rows in data.items():
        plain.from_arrow(rows).create(name)
    folder: Path = tmp_path_factory.mktemp("tpch")
    catalog = lc.connect(folder, create=True)
    fill(catalog, data)
    return catalog, plain


@pytest.mark.parametrize("number", QUERIES)
def test_a_query_gives_the_rows_of_duckdb(
    sides: tuple[lc.Session, duckdb.DuckDBPyConnection], number: int
) -> None:
    catalog, plain = sides
    expected = plain.sql(QUERIES[number]).fetchall()
    assert expected
    assert same_rows(catalog.sql(QUERIES[number]).fetchall(), expected)
