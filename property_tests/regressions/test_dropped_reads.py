"""Reads that are given up half way, as laws once found them stuck."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.io.stores.store import MemoryStore
from lakecore.table.reads.source import TableSource
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_SECONDS = 20


class HookedStore(MemoryStore):
    """Calls `opening` with the path of each file that is opened, in the thread that opens it."""

    opening: Callable[[str], None] | None = None

    def open_input(self, path: str) -> pa.NativeFile:
        if self.opening is not None:
            self.opening(path)
        return super().open_input(path)


@pytest.mark.parametrize("keys", [("id",), ()])
def test_read_may_be_dropped_by_one_of_its_own_threads(keys: tuple[str, ...]) -> None:
    """Polars lets go of an iterator in whichever thread calls it next: a reading one, perhaps."""
    store = HookedStore()
    table = new_table(keys=keys, store=store, bucket="2", bucket_key="id")
    ids = pa.array(range(100), pa.int32())
    for _ in range(2):
        table.write(pa.table({"id": ids, "v": pa.array(["a"] * 100)}))
    source = TableSource(
        context=table.context,
        snapshot=table.context.history.latest_snapshot(),
        table_schema=table.schema,
    )
    held, dropped = Event(), Event()
    errors: list[Exception] = []
    batches: Iterator[pa.RecordBatch] = source.batches()

    def drop(path: str) -> None:
        if "/bucket-1/" not in path or dropped.is_set():
            return
        held.wait(PATIENCE_SECONDS)
        try:
            batches.close()  # type: ignore[attr-defined]
        except Exception as error:  # noqa: BLE001  what a thread raises, the test must see
            errors.append(error)
        dropped.set()

    store.opening = drop
    assert next(batches).num_rows > 0
    held.set()

    assert dropped.wait(PATIENCE_SECONDS)
    assert errors == []
    budget = table.context.budget
    budget.acquire(budget.size_bytes, PATIENCE_SECONDS).release()
    assert budget.used_bytes == 0
