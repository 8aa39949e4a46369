from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakecore.format.arrow_buffers import fixed_width


def test_an_array_without_rows_may_have_no_buffer() -> None:
    values = fixed_width(pa.Array.from_buffers(pa.int32(), 0, [None, None]), "i4")

    assert (len(values), values.dtype) == (0, np.dtype("i4"))
