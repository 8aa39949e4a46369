"""Tables that are made with their first rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import AlreadyExists, InvalidRequest, NotFound, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = [{"id": 1, "s": "a"}, {"id": 2, "s": None}]
FRAMES: dict[str, Callable[[], object]] = {
    "arrow": lambda: pa.Table.from_pylist(ROWS),
    "reader": lambda: pa.Table.from_pylist(ROWS).to_reader(),
    "polars": lambda: pl.DataFrame(ROWS),
    "polars lazy": lambda: pl.LazyFrame(ROWS),
    "categories": lambda: pl.DataFrame(ROWS, schema_overrides={"s": pl.Categorical}),
    "pandas": lambda: pd.DataFrame(ROWS),
    "duckdb": lambda: duckdb.sql("FROM (VALUES (1::BIGINT, 'a'), (2, NULL)) t(id, s)"),
    "dicts": lambda: ROWS,
    "generator": lambda: (row for row in ROWS),
    "columns": lambda: {"id": [1, 2], "s": ["a", None]},
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_table_has_the_columns_and_rows_of_any_data(
    make: Callable[[], object], tmp_path: Path
) -> None:
    catalog = lc.connect(tmp_path / "w", create=True)
    catalog.create_database("d")

    tables = [
        catalog.create_table("d.t", data=make(), primary_keys=["id"]),
        lc.open_table(tmp_path / "t", create=True, data=make(), primary_keys=["id"]),
        catalog.get_table("d.t"),
    ]

    for table in tables:
        columns = {field.name: str(field.type) for field in table.schema.fields}
        assert columns == {"id": "BIGINT NOT NULL", "s": "STRING"}
        assert sorted(table.to_polars().rows()) == [(1, "a"), (2, None)]
        assert table.inspect.snapshots().height == 1


def test_schema_that_is_given_decides(tmp_path: Path) -> None:
    schema = {"id": "INT", "m": "MAP<STRING, INT>", "n": "DECIMAL(5, 2)"}

    table = lc.open_table(
        tmp_path / "t", create=True, schema=schema, data=[{"id": 1, "m": {"a": 1}}]
    )

    assert {field.name: str(field.type) for field in table.schema.fields} == schema
    assert table.to_arrow().to_pylist() == [{"id": 1, "m": [("a", 1)], "n": None}]


def test_row_kinds_are_no_column(tmp_path: Path) -> None:
    rows = {"id": [1, 2, 1], "_row_kind": ["+I", "+I", "-D"]}

    table = lc.open_table(tmp_path / "t", create=True, data=rows, primary_keys=["id"])

    assert table.schema.names == ("id",)
    assert table.to_polars().rows() == [(2,)]


@pytest.mark.parametrize(
    ("data", "error", "why"),
    [
        ([{"id": 1}, {"id": None}], InvalidRequest, "NOT NULL. column=id value=null row=1"),
        ([{"id": 1, "x": None}], InvalidRequest, "only nulls.* column=x"),
        ([], InvalidRequest, "no columns"),
        ([{}], InvalidRequest, "no columns"),
        ({"id": [1], "_row_kind": ["+X"]}, InvalidRequest, "unknown row kind"),
        ({"id": [1], "_KEY_id": [1]}, InvalidRequest, "reserved"),
        (pl.DataFrame, InvalidRequest, "this is a class"),
        (pd.DataFrame({"id": [1], "d": [pd.Timedelta(1)]}), Unsupported, "column=d"),
    ],
    ids=str,
)
def test_data_that_does_not_fit_leaves_no_table(
    data: object, error: type[Exception], why: str, tmp_path: Path
) -> None:
    catalog = lc.connect(tmp_path / "w", create=True)
    catalog.create_database("d")

    with pytest.raises(error, match=why):
        catalog.create_table("d.t", data=data, primary_keys=["id"])
    with pytest.raises(error, match=why):
        lc.open_table(tmp_path / "t", create=True, data=data, primary_keys=["id"])

    assert catalog.list_tables("d") == ()
    with pytest.raises(NotFound):
        lc.open_table(tmp_path / "t")


def test_table_that_is_there_gets_no_rows(tmp_path: Path) -> None:
    catalog = lc.connect(tmp_path / "w", create=True)
    catalog.create_database("d")
    table = catalog.create_table("d.t", data=ROWS)

    with pytest.raises(AlreadyExists):
        catalog.create_table("d.t", data=ROWS)
    catalog.create_table("d.t", data=ROWS, ignore_if_exists=True)
    with pytest.raises(AlreadyExists, match="open it, and write the data"):
        lc.open_table(table.path, create=True, data=ROWS)
    with pytest.raises(InvalidRequest, match="say create=True"):
        lc.open_table(table.path, data=ROWS)
    with pytest.raises(InvalidRequest, match="needs a schema"):
        catalog.create_table("d.other")

    assert table.count() == 2
