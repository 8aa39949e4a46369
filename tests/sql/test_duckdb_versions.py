"""What DuckDB 1 and DuckDB 2 answer differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from tests.versions import DUCKDB_1

if TYPE_CHECKING:
    from pathlib import Path


def test_a_column_of_nulls_alone(tmp_path: Path) -> None:
    catalog = lc.connect(tmp_path, create=True)
    if DUCKDB_1:  # its nulls are integers
        catalog.sql("CREATE TABLE made AS SELECT NULL AS a")
        assert str(catalog.get_table("default.made").schema.field("a").type) == "INT"
        return
    with pytest.raises(lc.InvalidRequest, match="a column has only nulls, and no type is known"):
        catalog.sql("CREATE TABLE made AS SELECT NULL AS a")


def test_the_old_arrow_of_a_lambda(tmp_path: Path) -> None:
    catalog = lc.connect(tmp_path, create=True)
    query = "SELECT list_transform([1, 2], x -> x + 1)"
    if DUCKDB_1:
        assert catalog.sql(query).fetchall() == [([2, 3],)]
        return
    with pytest.raises(lc.InvalidRequest, match="deprecated lambda arrow"):
        catalog.sql(query).fetchall()
