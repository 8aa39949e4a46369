"""Reads of other times, as laws once found them wrong."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakecore.format.layout import Layout
from lakecore.io.stores.store import MemoryStore
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.model.validation import create_schema
from lakecore.table.handle import load_table
from lakecore.table.publication import write_schema

PATH = "memory://warehouse/shop.db/orders"


@pytest.mark.parametrize("reader", ["opened before the rename", "opened after the rename"])
def test_sequence_field_that_was_renamed_since_still_orders_the_rows_of_then(reader: str) -> None:
    store, layout = MemoryStore(), Layout(root=PATH)
    schema = create_schema(
        {"id": "INT NOT NULL", "at": "INT", "status": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1", "sequence.field": "at,status"},
        now_ms=0,
    )
    write_schema(store, layout, schema)
    before = load_table(store, PATH)
    before.write(pa.table({"id": [1], "at": [5], "status": ["later"]}))
    before.write(pa.table({"id": [1], "at": [4], "status": ["sooner"]}))
    swaps = [("at", "x"), ("status", "at"), ("x", "status")]
    changes = [SchemaChange.rename_column(old, new) for old, new in swaps]
    write_schema(store, layout, evolve(schema, changes, now_ms=1, has_snapshots=True))
    after = load_table(store, PATH)
    after.write(pa.table({"id": [1], "status": [3], "at": ["soonest"]}))
    table = before if reader == "opened before the rename" else after

    assert table.to_arrow(snapshot_id=2).to_pylist() == [{"id": 1, "at": 5, "status": "later"}]
    assert table.to_arrow(snapshot_id=3).to_pylist() == [{"id": 1, "status": 5, "at": "later"}]


def test_bucket_key_that_was_renamed_since_still_finds_the_buckets_of_then() -> None:
    store, layout = MemoryStore(), Layout(root=PATH)
    schema = create_schema(
        {"id": "INT", "status": "STRING"},
        options={"bucket": "3", "bucket-key": "id"},
        now_ms=0,
    )
    write_schema(store, layout, schema)
    load_table(store, PATH).write(pa.table({"id": [1, 2, 3, 4], "status": ["new"] * 4}))
    change = SchemaChange.rename_column("id", "number")
    write_schema(store, layout, evolve(schema, [change], now_ms=1, has_snapshots=True))
    table = load_table(store, PATH)

    assert table.to_arrow(where="id = 3", snapshot_id=1).to_pylist() == [{"id": 3, "status": "new"}]
    assert table.to_arrow(where="number = 3").to_pylist() == [{"number": 3, "status": "new"}]
