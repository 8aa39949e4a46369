"""The DuckDB that evaluates expressions reaches nothing but the rows it is given."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest
from lakecore.scalar import engine
from lakecore.scalar.values import Setting, parse_where
from tests.conditions import kept

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('{}/secret')",
        "SELECT * FROM read_text('{}/secret')",
        "SELECT * FROM '{}/secret'",
        "ATTACH '{}/other.db'",
        "COPY (SELECT 1) TO '{}/copy'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SELECT * FROM variable",
    ],
)
def test_engine_reads_nothing_from_outside(query: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a,b\n1,2\n")
    variable = pa.table({"secret": [1]})

    with pytest.raises(duckdb.Error):
        engine.evaluate(query.format(tmp_path), {}, "")
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]
    assert variable.num_rows == 1


def test_no_filter_reaches_the_scan_of_arrow() -> None:
    numbers = pa.table({"f": [1.0, float("nan"), -0.0, None]})

    assert kept("f > 5", numbers) == [1]
    assert kept("f >= 0 AND f = 0.0", numbers) == [2]
    assert kept("f = 'nan'::DOUBLE", numbers) == [1]
    assert kept("NOT (f < 5)", numbers) == [1]


def test_threads_evaluate_side_by_side() -> None:
    rows = pa.table({"n": np.arange(50_000)})
    found: list[int] = []

    def read(rest: int) -> None:
        found.append(len(kept(f"n % 7 = {rest} AND abs(n) >= 0", rows)))

    threads = [threading.Thread(target=read, args=(rest,)) for rest in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(found) == 50_000


def test_rows_keep_their_places_beyond_one_vector() -> None:
    rows = pa.table({"n": pa.chunked_array([np.arange(200_000), np.arange(200_000, 300_001)])})

    assert kept("n + 0 IN (0, 2047, 2048, 199999, 200000, 300000)", rows) == [
        0,
        2047,
        2048,
        199_999,
        200_000,
        300_000,
    ]


def test_zone_of_the_session_decides_what_a_text_means() -> None:
    noon = pa.table({"at": pa.array([43_200_000], pa.timestamp("ms", "UTC"))})

    for zone, text in (("UTC", "12:00"), ("Asia/Tokyo", "21:00"), ("America/New_York", "07:00")):
        setting = Setting(now_ms=lambda: 0, zone=zone)
        assert kept(f"at = '1970-01-01 {text}'", noon, setting) == [0]
        assert kept(f"strftime(at, '%H:%M') = '{text}'", noon, setting) == [0]
    with pytest.raises(InvalidRequest, match="unknown time zone"):
        parse_where("hour(at) = 1", noon.schema, Setting(now_ms=lambda: 0, zone="Nowhere/At all"))


def test_an_error_of_a_row_names_the_column_of_the_table() -> None:
    rows = pa.table({"amount": ["12", "x"]})

    with pytest.raises(InvalidRequest, match=r"'x' to INT32 when casting from .* amount"):
        kept("CAST(amount AS INTEGER) > 1", rows)
    assert kept("try_cast(amount AS INTEGER) > 1", rows) == [0]


def test_a_broken_database_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_BROKEN", (duckdb.BinderException,))

    def evaluate() -> None:
        engine.evaluate("SELECT nothing", {}, "")

    def bind() -> None:
        engine.bind("SELECT nothing", {})

    for fails in (evaluate, bind):
        engine.catalog("CREATE TABLE mark (i INTEGER)")
        assert engine.catalog("SELECT * FROM mark") == []
        with pytest.raises(duckdb.BinderException):
            fails()
        with pytest.raises(duckdb.CatalogException, match="mark"):
            engine.catalog("SELECT * FROM mark")
