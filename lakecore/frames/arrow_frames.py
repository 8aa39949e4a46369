"""Converts Arrow rows to Polars frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import pyarrow as pa


def to_frame(rows: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    """The rows as a Polars frame.

    Values are shared, not copied, if the memory layouts are equal.
    """
    frame = pl.from_arrow(rows, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame
