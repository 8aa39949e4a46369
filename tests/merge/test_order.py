from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from lakecore.merge import order as ordering
from lakecore.merge.keys import order_columns
from lakecore.merge.order import filter_rows, key_order, take_in_pieces
from lakecore.merge.spec import Slice
from lakecore.model.arrow_arrays import size_of

INT64 = np.iinfo(np.int64)


def slice_of(codes: list[int]) -> Slice:
    """Rows that came in this order."""
    rows = pa.table({"id": pa.array(codes, pa.int64())})
    keys = order_columns([rows.column("id")])
    return Slice(rows=rows, keys=keys, sequence_min=0, sequence_max=len(codes), unique=False)


@pytest.mark.parametrize(
    "codes",
    [
        [3, 1, 2],
        [0, -5, 7, -5, 0],
        [1, 0],
        [INT64.max, INT64.min],
        [INT64.max, INT64.max - 3, INT64.max - 1],
        [INT64.min + 2, INT64.min],
        [0, (1 << 61), 5, 1],
        [0, (1 << 60), 5, 1],
    ],
)
def test_positions_are_in_the_order_of_keys(codes: list[int]) -> None:
    order = key_order([slice_of(codes)], np.array(codes, np.int64))

    assert order.dtype == np.int64
    assert sorted(order) == list(range(len(codes)))
    assert np.array(codes)[order].tolist() == sorted(codes)


@pytest.mark.parametrize("chunks", [[6], [2, 0, 4], [1] * 6])
@pytest.mark.parametrize("kept", [[], [4], [0, 1, 5], [0, 1, 2, 3, 4, 5]])
def test_rows_of_a_mask_stay_in_order_however_many_chunks(
    chunks: list[int], kept: list[int]
) -> None:
    whole = pa.table({"a": range(6), "b": ["x", None, "yy", "", None, "z"]})
    starts = np.cumsum([0, *chunks[:-1]]).tolist()
    rows = pa.concat_tables(
        [whole.slice(start, length) for start, length in zip(starts, chunks, strict=True)]
    )
    mask = np.isin(np.arange(6), kept)

    assert filter_rows(rows, mask).to_pylist() == [whole.to_pylist()[row] for row in kept]


@pytest.mark.parametrize("larger", [0, 1])
def test_memory_is_released_before_and_after_the_rows_of_a_write_buffer(
    larger: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[str] = []

    @dataclass(frozen=True)
    class Pool:
        name: str

        def release_unused(self) -> None:
            released.append(self.name)

    part = slice_of([1, 2, 3])
    monkeypatch.setattr(ordering, "_BUFFER_BYTES", size_of(part.rows) + larger)
    monkeypatch.setattr(pa, "default_memory_pool", lambda: Pool("default"))
    monkeypatch.setattr(pa, "system_memory_pool", lambda: Pool("system"))

    pieces = take_in_pieces([part], np.array([2, 0]))
    assert next(pieces).to_pylist() == [{"id": 3}, {"id": 1}]
    assert released == ([] if larger else ["default", "system"])
    assert list(pieces) == []
    # The same thread copies the rows of the next window, so it has done all that was asked before.
    next(take_in_pieces([part], np.array([2, 0])))
    assert released == ([] if larger else ["default", "system"] * 3)
