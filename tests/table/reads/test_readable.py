"""What tables and system tables share: the faces of a read."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, NotFound
from tests.stores import s3_service
from tests.tables import held, new_table, put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakecore.table.handle import Table


@pytest.fixture
def table() -> Table:
    table = new_table()
    put(table, "1 a | 2 b")
    put(table, "2 c | 3 _")
    return table


def _by_name(orders: Table) -> pl.DataFrame:
    found = duckdb.sql("FROM orders")
    assert found is not None
    assert orders is not None
    return pl.DataFrame(found.arrow())


FACES: dict[str, Callable[[Table], pl.DataFrame]] = {
    "polars": pl.DataFrame,
    "arrow": lambda t: pl.DataFrame(pa.table(t)),
    "reader": lambda t: pl.DataFrame(pa.RecordBatchReader.from_stream(t).read_all()),
    "duckdb": lambda t: duckdb.from_arrow(pa.RecordBatchReader.from_stream(t)).pl(),
    "duckdb, by name": _by_name,
    "dataset": lambda t: pl.DataFrame(t.to_arrow_dataset().to_table()),
    "head": lambda t: t.head(),
    "pandas": lambda t: pl.DataFrame(t.to_pandas()),
}


@pytest.mark.parametrize("face", FACES)
def test_table_is_taken_wherever_arrow_streams_are(table: Table, face: str) -> None:
    assert FACES[face](table).sort("id").rows() == [(1, "a"), (2, "c"), (3, None)]


def test_table_says_its_schema_as_arrow_does(table: Table) -> None:
    assert pa.schema(table) == table.schema.arrow


def test_stream_is_written_to_another_table(table: Table) -> None:
    other = new_table()
    other.write(table)
    table.write(table)

    assert held(other) == held(table) == "1 a | 2 c | 3 _"


@pytest.fixture(params=["disk", "s3"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lc.Session]:
    if request.param == "disk":
        yield lc.connect(tmp_path, create=True)
        return
    with s3_service() as service, service.client() as client:
        client.create_bucket(Bucket="lake")
        yield lc.connect({"warehouse": "s3://lake/w", **service.options}, create=True)


def test_stream_that_is_given_up_halfway_holds_no_memory(warehouse: lc.Session) -> None:
    """Nor until the garbage collector runs: no error that a read expects is part of a cycle."""
    warehouse.create_database("db")
    table = warehouse.create_table("db.t", {"id": "BIGINT"})
    for start in range(3):
        table.write(pl.DataFrame({"id": range(start, 300_000)}))
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            reader = pa.RecordBatchReader.from_stream(table)
            first = reader.read_next_batch()
            reader.close()
            held_bytes = table.context.budget.used_bytes

            assert (first.num_rows > 0, held_bytes) == (True, 0)
    finally:
        gc.enable()


def test_head_gives_rows_of_columns_that_match(table: Table) -> None:
    assert table.head(1, "id", "id > 1", snapshot_id=1).to_dicts() == [{"id": 2}]
    assert table.head(0).shape == (0, 2)
    assert table.inspect.system_table("snapshots").head(1, "snapshot_id").item() == 1
    with pytest.raises(InvalidRequest, match="a column twice"):
        table.head(1, ["id", "id"])
    assert table.head(5).schema == table.to_polars().schema
    for bad in (None, -1, 1.5, "3", True):
        with pytest.raises(InvalidRequest):
            table.head(bad)  # type: ignore[arg-type]


def test_table_is_true_without_counting(table: Table) -> None:
    assert bool(new_table())
    assert len(new_table()) == 0
    assert bool(table)
    assert len(table) == 3


def test_one_column_is_named_by_its_text(table: Table) -> None:
    assert table.scan("id").collect().columns == ["id"]
    assert table.to_polars("id").columns == ["id"]
    assert table.to_arrow("id").schema.names == ["id"]
    assert table.to_batches("id").schema.names == ["id"]
    assert list(table.to_pandas("id").columns) == ["id"]
    assert table.changes(columns="id").collect().columns == ["id"]
    assert table.explain("id").columns == ("id",)
    assert table.inspect.system_table("tags").to_polars("tag_name").columns == ["tag_name"]
    for _, frame in table.stream(until="latest", columns="v"):
        assert frame.collect().columns == ["v"]
    with pytest.raises(InvalidRequest, match=r"column=i .*\[id, v\]"):
        table.scan("i")


def test_handle_in_the_past_shows_the_schema_that_it_reads(tmp_path: Path) -> None:
    catalog = lc.connect(tmp_path / "wh", create=True)
    catalog.create_database("d")
    table = catalog.create_table("d.t", {"id": "INT", "a": "INT"})
    table.write([{"id": 1, "a": 1}])
    catalog.alter_table(
        "d.t",
        [
            lc.SchemaChange.rename_column("a", "b"),
            lc.SchemaChange.add_column("c", "INT"),
        ],
    )
    table = catalog.get_table("d.t")
    table.write([{"id": 2, "b": 2, "c": 3}])

    then = table.copy({"scan.snapshot-id": "1"})
    assert then.schema.names == ("id", "a")
    assert pa.schema(then).names == then.to_arrow().schema.names == ["id", "a"]
    assert then.to_polars(list(then.schema.names)).rows() == [(1, 1)]
    assert then.copy({"scan.snapshot-id": "2"}).schema.names == ("id", "b", "c")
    assert table.copy({"scan.timestamp": "2999-01-01"}).schema.names == ("id", "b", "c")
    assert table.copy({"incremental-between": "1,2"}).schema.names == ("id", "b", "c")
    with pytest.raises(NotFound):
        _ = table.copy({"scan.snapshot-id": "9"}).schema
    then.write([{"id": 3, "b": 4, "c": 5}])
    assert table.count() == 3
