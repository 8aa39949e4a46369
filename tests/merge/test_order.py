from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakecore.merge.keys import order_columns
from lakecore.merge.order import filter_rows, key_order
from lakecore.merge.spec import Slice

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
