"""Footers that Arrow refuses."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecore.errors import CorruptTable
from lakecore.format.parquet_footer import ListValue, read_struct, write_struct
from lakecore.io.files.parquet_open import open_parquet
from lakecore.io.stores.store import MemoryStore

SCHEMA, REPETITION, NAME, CHILDREN, OPTIONAL = 2, 3, 4, 5, 1


def with_changed(name: bytes, id_: int, value: int) -> MemoryStore:
    """A file with a map, a part of which has another value in the footer."""
    out = io.BytesIO()
    kind = pa.map_(pa.string(), pa.int32())
    pq.write_table(pa.table({"m": pa.array([[("a", 1)], None], kind), "n": [1, 2]}), out)
    data = out.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = read_struct(memoryview(data)[-8 - length : -8], 0)
    (elements,) = (part for number, _, part in footer if number == SCHEMA)
    assert isinstance(elements, ListValue)
    for element in elements.items:
        assert isinstance(element, list)
        if (NAME, 8, name) in element:
            element[:] = [
                (number, wire, value if number == id_ else part) for number, wire, part in element
            ]
    changed = bytearray()
    write_struct(changed, footer)
    store = MemoryStore()
    end = bytes(changed) + len(changed).to_bytes(4, "little") + data[-4:]
    store.put("f/a.parquet", data[: -8 - length] + end)
    return store


def test_maps_with_nullable_keys_are_opened_as_lists() -> None:
    with open_parquet(with_changed(b"key", REPETITION, OPTIONAL), "f/a.parquet") as file:
        assert pa.types.is_list(file.schema_arrow.field("m").type)
        assert file.read(["n"])["n"].to_pylist() == [1, 2]


def test_other_faults_are_damage() -> None:
    store = with_changed(b"m", CHILDREN, 7)

    with pytest.raises(CorruptTable, match=r"f/a\.parquet"), open_parquet(store, "f/a.parquet"):
        pass
