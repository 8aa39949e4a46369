"""Rows of equal sequence numbers, as laws once found them wrong."""

from __future__ import annotations

import pyarrow as pa

from lakecore.format.layout import Layout
from lakecore.io.stores.store import MemoryStore
from lakecore.model.validation import create_schema
from lakecore.table.handle import load_table
from lakecore.table.publication import write_schema

PATH = "memory://warehouse/shop.db/orders"


def test_of_two_rows_written_side_by_side_the_same_one_wins_in_every_read() -> None:
    store = MemoryStore()
    schema = create_schema(
        {"id": "INT NOT NULL", "writer": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1"},
        now_ms=0,
    )
    write_schema(store, Layout(root=PATH), schema)
    table = load_table(store, PATH)
    # The rows of 13 are the first of two writers that began at one snapshot: both are number 0.
    given = {"first": [1, 10], "second": [13, 5, 15], "third": [13, 12, 20]}
    prepared = []
    for name, ids in given.items():
        with table.new_write() as writer:
            writer.write(pa.table({"id": pa.array(ids, pa.int32()), "writer": [name] * len(ids)}))
            prepared.append(writer.prepare_commit())
    for messages in prepared:
        table.commit(messages)
    winner = [row for row in table.to_arrow().to_pylist() if row["id"] == 13]

    assert winner == [{"id": 13, "writer": "third"}]
    assert table.to_arrow(where="id = 13").to_pylist() == winner
    assert table.to_arrow(where="id >= 13 and id < 15").to_pylist() == winner
