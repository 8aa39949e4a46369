"""Blocks of rows in key order, and the rows of keys in them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.io.files.file_format import WriteFormat
from lakecore.merge.keys import order_columns
from lakecore.table.lookups import bucket_rows
from lakecore.table.lookups.bucket_rows import DiskBlocks, distinct, order_of, sorted_block
from tests.tables import new_table, put

if TYPE_CHECKING:
    from lakecore.merge.keys import OrderColumns

NUMBERS = {"n": pa.int32()}
TEXTS = {"t": pa.string()}
BOTH = {"n": pa.int32(), "t": pa.string()}


def drawn(types: dict[str, pa.DataType], count: int, *, nulls: bool) -> pa.Table:
    random.seed(count)
    columns: dict[str, pa.Array] = {}
    for name, kind in types.items():
        values = [
            None if nulls and random.random() < 0.2 else random.randrange(6) for _ in range(count)
        ]
        texts = [None if value is None else f"t{value}" for value in values]
        columns[name] = pa.array(values if pa.types.is_integer(kind) else texts, kind)
    return pa.table(columns)


def keys_of(rows: pa.Table, names: list[str]) -> OrderColumns:
    return distinct(sorted_block(rows, names).keys)


@pytest.mark.parametrize("types", [NUMBERS, TEXTS, BOTH], ids=["numbers", "texts", "both"])
def test_equal_keys_stay_in_their_order(types: dict[str, pa.DataType]) -> None:
    rows = drawn(types, 5_000, nulls=False)
    keys = order_columns(rows.columns)
    texts = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))

    assert order_of(keys).tolist() == sorted(range(5_000), key=lambda at: texts[at])


@pytest.mark.parametrize("types", [NUMBERS, TEXTS, BOTH], ids=["numbers", "texts", "both"])
@pytest.mark.parametrize("few", [24, 3])
def test_all_rows_of_a_key_are_found(
    types: dict[str, pa.DataType], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_rows, "_FEW", few)
    names = list(types)
    block = sorted_block(drawn(types, 60, nulls=True), names)
    asked = drawn(types, 9, nulls=False)
    keys = keys_of(asked, names)
    assert keys.length > 3

    found = [each.tolist() for each in block.find(keys)]
    values = sorted({tuple(row.values()) for row in asked.to_pylist()})
    expected = [
        (number, place)
        for number, value in enumerate(values)
        for place, row in enumerate(block.rows.to_pylist())
        if tuple(row.values()) == value
    ]
    assert list(zip(*found, strict=True)) == expected


@pytest.mark.parametrize("types", [NUMBERS, TEXTS, BOTH], ids=["numbers", "texts", "both"])
def test_nothing_is_found_of_nothing(types: dict[str, pa.DataType]) -> None:
    names, some = list(types), drawn(types, 3, nulls=False)
    for rows, asked in ((some, some.slice(0, 0)), (some.slice(0, 0), some)):
        found = sorted_block(rows, names).find(keys_of(asked, names))
        assert [(str(each.dtype), len(each)) for each in found] == [("int64", 0), ("int64", 0)]


def test_rows_that_a_deletion_vector_marks_are_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lakecore.table.run_writer.file_shape.WriteFormat",
        lambda **given: WriteFormat(**given, row_group_rows=3),
    )
    table = new_table(deletion_vectors__enabled="true")
    put(table, " | ".join(f"{number} v" for number in range(9)))
    table.compact(full=True)
    put(table, "-D 4 v | 6 w")
    table.compact()

    keys = [{"id": number} for number in range(9)]
    with table.open_lookup() as lookup:
        found = " ".join(f"{number}{text}" for number, text in lookup.rows(keys).rows())
    assert found == "0v 1v 2v 3v 5v 6w 7v 8v"


def test_names_that_were_seen_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_rows, "_SEEN_MAX", 2)
    blocks, rows = DiskBlocks(None, 10, lambda: 0), pa.table({"n": [1]})
    for name in ("a", "b", "c", "b", "a"):
        blocks.offer(name, rows)

    assert [blocks.get(name) for name in "abc"] == [None, rows, None]
    blocks.offer("a", rows)
    assert blocks.get("a") == rows
    blocks.close()
