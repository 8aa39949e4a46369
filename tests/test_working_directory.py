"""A relative path is one of the directory that a process worked in when it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pytest

import lakecore as lc
from lakecore.catalog.catalog import Catalog
from lakecore.catalog.filesystem import DirectoryNames
from lakecore.catalog.options import parse_catalog_options
from lakecore.format.layout import Layout
from lakecore.io.stores.local import LocalStore
from lakecore.table.handle import load_table
from lakecore.table.publication import write_schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMA = {"id": "BIGINT NOT NULL", "v": "STRING"}
PATH = "wh/shop.db/t"


def by_path(path: str) -> lc.Table:
    return lc.open_table(
        path, create=True, schema=SCHEMA, primary_keys=["id"], options={"bucket": "1"}
    )


def by_catalog(path: str) -> lc.Table:
    catalog = lc.connect(path.partition("/shop.db")[0], create=True)
    catalog.create_database("shop", ignore_if_exists=True)
    return catalog.create_table(
        "shop.t", SCHEMA, primary_keys=["id"], options={"bucket": "1"}, ignore_if_exists=True
    )


def by_store(path: str) -> lc.Table:
    schema = by_path(path).schema
    store = LocalStore()
    write_schema(store, Layout(root=path), schema)
    return load_table(store, path)


def by_catalog_of_a_store(path: str) -> lc.Table:
    by_catalog(path)
    warehouse = path.partition("/shop.db")[0]
    options = parse_catalog_options({"warehouse": warehouse})
    return Catalog(DirectoryNames(warehouse, LocalStore(), options)).get_table("shop.t")


FACES: dict[str, Callable[[lc.Table], list[int]]] = {
    "to_polars": lambda table: table.to_polars()["id"].to_list(),
    "scan": lambda table: table.scan().collect()["id"].to_list(),
    "to_arrow": lambda table: table.to_arrow()["id"].to_pylist(),
    "to_batches": lambda table: [
        row for batch in table.to_batches() for row in batch["id"].to_pylist()
    ],
    "to_duckdb": lambda table: [
        row[0] for row in table.to_duckdb(duckdb.connect()).project("id").fetchall()
    ],
    "changes": lambda table: table.changes().collect()["id"].to_list(),
    "refresh": lambda table: table.refresh().to_polars()["id"].to_list(),
    "copy": lambda table: table.copy({"read.batch-size": "7"}).to_polars()["id"].to_list(),
    "inspect": lambda table: [int(table.inspect.files()["record_count"].sum())],
}


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (by_path, PATH),
        (by_path, f"x/../{PATH}"),
        (by_catalog, f"file:{PATH}"),
        (by_store, f"./{PATH}"),
        (by_catalog_of_a_store, PATH),
    ],
)
@pytest.mark.parametrize("raw", [True, False], ids=["one file", "merged"])
def test_handle_stays_with_its_table(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[str], lc.Table],
    path: str,
    *,
    raw: bool,
) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "x").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "b")
    others = make(path)
    others.write([{"id": 2, "v": "b"}])
    monkeypatch.chdir(tmp_path / "a")
    table = make(path)
    writer = table.new_write()
    table.write([{"id": 1, "v": "a"}])
    if not raw:
        table.write([{"id": 1, "v": "c"}])
    frame, changes = table.scan(), table.changes()

    monkeypatch.chdir(tmp_path / "b")

    for face, read in FACES.items():
        expected = [1, 1] if face == "changes" and not raw else [1]
        expected = [1 if raw else 2] if face == "inspect" else expected
        assert read(table) == expected, face
    assert frame.collect()["id"].to_list() == [1]
    assert set(changes.collect()["id"]) == {1}
    writer.write(pl.DataFrame({"id": [3], "v": ["x"]}))
    table.commit(writer.prepare_commit())
    table.delete(pl.col("id") == 1)
    table.compact(full=True)
    assert table.to_polars()["id"].to_list() == [3]
    assert others.to_polars()["id"].to_list() == [2]
    assert lc.open_table(tmp_path / "a/wh/shop.db/t").to_polars()["id"].to_list() == [3]


def test_session_stays_with_its_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    session = lc.connect("wh", create=True)
    monkeypatch.chdir("elsewhere")

    session.create_database("shop")
    table = session.create_table("shop.t", {"id": "INT"})

    assert session.warehouse == f"{tmp_path}/wh"
    assert table.path == f"{tmp_path}/wh/shop.db/t"
    assert not [*(tmp_path / "elsewhere").iterdir()]
