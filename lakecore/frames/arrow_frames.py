"""Converts Arrow rows to frames of Polars and of pandas, with unchanged values.

In pandas, columns that NumPy or pandas strings can represent have their usual dtype. NumPy has no
null for integers and booleans, and no decimals, dates, times, bytes or nested values; such columns
get a pandas extension dtype. A NumPy float column shows null as NaN, and pandas writes NaN back as
null; a float column that contains NaN is therefore Arrow-backed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import Unsupported

if TYPE_CHECKING:
    from types import ModuleType

    import pandas as pd


def to_frame(rows: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    """The rows as a Polars frame.

    Values are shared, not copied, if the memory layouts are equal.
    """
    frame = pl.from_arrow(rows, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame


# --- pandas --------------------------------------------------------------------------------------

_NULLABLE = {
    pa.int8(): "Int8Dtype",
    pa.int16(): "Int16Dtype",
    pa.int32(): "Int32Dtype",
    pa.int64(): "Int64Dtype",
    pa.bool_(): "BooleanDtype",
}


_NOT_A_TIME = -(1 << 63)
"""NumPy's NaT; as a TIMESTAMP(9) it is a valid time in the year 1677."""


def to_pandas(rows: pa.Table) -> pd.DataFrame:
    """The rows as a pandas frame."""
    pandas = _pandas()
    apart = [at for at, column in enumerate(rows.columns) if _loses_null(column)]

    def of_arrow(kind: pa.DataType) -> object:
        return pandas.ArrowDtype(kind) if _is_foreign(kind) else None

    if not apart:
        return rows.to_pandas(types_mapper=of_arrow)

    def with_nulls(kind: pa.DataType) -> object:
        name = _NULLABLE.get(kind)
        return pandas.ArrowDtype(kind) if name is None else getattr(pandas, name)()

    others = [at for at in range(rows.num_columns) if at not in set(apart)]
    parts = [
        rows.select(others).to_pandas(types_mapper=of_arrow),
        rows.select(apart).to_pandas(types_mapper=with_nulls),
    ]
    order = sorted(range(rows.num_columns), key=[*others, *apart].__getitem__)
    return pandas.concat(parts, axis=1).iloc[:, order]


def _pandas() -> ModuleType:
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise Unsupported("to_pandas needs pandas: pip install pandas") from error


def _loses_null(column: pa.ChunkedArray) -> bool:
    """Whether NumPy would lose the difference between null and a value in this column."""
    if column.type == pa.timestamp("ns"):
        return bool(pc.any(pc.equal(column.cast(pa.int64()), _NOT_A_TIME)).as_py())
    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.is_nan(column)).as_py())
    return bool(column.null_count) and column.type in _NULLABLE


def _is_foreign(kind: pa.DataType) -> bool:
    """Whether only Python objects can represent the type, not NumPy or pandas strings."""
    t = pa.types
    return not (
        t.is_integer(kind)
        or t.is_floating(kind)
        or t.is_boolean(kind)
        or t.is_timestamp(kind)
        or t.is_string(kind)
        or t.is_large_string(kind)
    )
