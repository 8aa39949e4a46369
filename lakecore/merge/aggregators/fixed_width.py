"""Values of fixed width as numbers of NumPy, and what a result outside their type is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    import numpy as np

    from lakecore.merge.aggregators.fold import Aggregate

INTEGERS_BY_WIDTH = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def as_integers(values: pa.Array, null: float) -> np.ndarray:
    """The values as integers, this number for null."""
    plain = values.view(INTEGERS_BY_WIDTH[values.type.bit_width])
    numbers: np.ndarray = plain.fill_null(null).to_numpy(zero_copy_only=False)
    return numbers


def overflow(aggregate: Aggregate) -> InvalidRequest:
    """The error of a result that its type cannot hold."""
    return InvalidRequest(
        "the aggregate of a column leaves the range of its type; widen the type",
        column=aggregate.column,
        function=aggregate.function,
        type=aggregate.type,
    )
