from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakecore.model.row_mask import RowMask

MASK = RowMask.of(np.arange(21) % 3 == 1)


def test_mask_of_positions_is_that_of_flags() -> None:
    positions = np.arange(1, 40, 3)

    assert RowMask.at(positions, 21, returned=True) == MASK
    assert MASK.flags.tolist() == MASK.array.to_pylist() == [n % 3 == 1 for n in range(21)]
    assert (RowMask.at(positions, 21, returned=False) & MASK).count == 0
    assert MASK.count == 7


@pytest.mark.parametrize("at", [0, 3, 8, 17])
def test_filter_returns_the_rows_of_a_batch_and_their_positions(at: int) -> None:
    batch = pa.record_batch({"n": np.arange(at, min(at + 9, 21))})
    positions, rows = MASK.filter(batch, at)

    assert rows.column("n").to_pylist() == list(positions)
    assert list(positions) == [n for n in range(at, min(at + 9, 21)) if n % 3 == 1]


def test_batch_that_stays_whole_is_not_copied() -> None:
    batch = pa.record_batch({"n": np.arange(8)})
    positions, rows = RowMask.at(np.array([2]), 30, returned=False).filter(batch, 11)

    assert positions == range(11, 19)
    assert rows is batch


def test_rows_are_asked_by_position_and_by_range() -> None:
    assert MASK.has(np.array([0, 1, 19, 20])).tolist() == [False, True, True, False]
    assert not MASK.has_any(2, 4)
    assert MASK.has_any(2, 5)


def test_rows_that_hold_enough_returned_ones_are_few() -> None:
    assert [MASK.rows_with(count) for count in (0, 1, 4, 7, 8)] == [8, 8, 16, 21, 21]
