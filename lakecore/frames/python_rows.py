"""Python rows as Arrow batches: dicts, a dict of columns, and pandas frames.

Columns that have a type (Arrow, Polars, NumPy numbers, pandas extension types) keep it; the values
of other columns are inspected (`python_values.py`). A row may have no columns.

INVARIANT: a batch is cut before its values are copied to Arrow, because a string that all rows
share would be copied for each of them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.errors import InvalidRequest
from lakecore.frames.python_leaves import REFUSED_BY_ARROW, Column
from lakecore.frames.python_values import array_of, bytes_of
from lakecore.model.arrow_arrays import rows_only
from lakecore.model.types import check_no_objects, with_nullable
from lakecore.rows.fit import Place, check_once, fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakecore.model.types import DataType, Field

_ROWS_MAX = 65_536
_PANDAS_ROWS_MAX = 1 << 20
_NUMBERS = "biufM"


class _Index(Protocol):
    names: list[object]


class _Places(Protocol):
    def __getitem__(self, at: object, /) -> object: ...


class PandasFrame(Protocol):
    """The part of the pandas.DataFrame interface that lakecore uses."""

    index: _Index
    columns: Iterable[object]
    iloc: _Places

    def reset_index(self, *, drop: bool) -> PandasFrame: ...
    def droplevel(self, level: list[int]) -> PandasFrame: ...
    def __len__(self) -> int: ...


class Named:
    """The fields of the table by name, and the maximum bytes of a batch."""

    def __init__(self, fields: Sequence[Field], bytes_max: int, *, settles: bool = False) -> None:
        self._types: dict[str, DataType] = {field.name: field.type for field in fields}
        self.bytes_max = bytes_max
        self.settles = settles

    def column(self, name: str, *, nan_is_null: bool = False) -> Column:
        """The column of that name; without a type if it is not a column of the table."""
        return Column(name=name, type=self._types.get(name), nan_is_null=nan_is_null)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """Python values of one column that has no Arrow type yet."""

    values: Sequence[object]
    nan_is_null: bool = False


def batches_of_dicts(
    rows: Sequence[Mapping[object, object]], named: Named
) -> Iterator[pa.RecordBatch]:
    """The rows as batches. The columns are the names in all dicts; a missing value is null."""
    names = _texts(dict.fromkeys(chain.from_iterable(rows)))
    columns = {name: _Values(values=[row.get(name) for row in rows]) for name in names}
    return _batches(columns, len(rows), named)


def batches_of_columns(given: Mapping[object, object], named: Named) -> Iterator[pa.RecordBatch]:
    """The rows of a dict of columns, which must have equal lengths."""
    if not given:
        raise InvalidRequest("a dict of columns names at least one column")
    columns = {
        name: _column(name, column)
        for name, column in zip(_texts(given), given.values(), strict=True)
    }
    lengths = {name: len(_of(each)) for name, each in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidRequest("the columns have different numbers of values", rows=lengths)
    count = next(iter(lengths.values()))
    step = _ROWS_MAX if any(isinstance(each, _Values) for each in columns.values()) else count
    for start in range(0, max(1, count), max(1, step)):
        part = slice(start, min(count, start + step))
        yield from _batches(
            {name: _sliced(each, part) for name, each in columns.items()},
            part.stop - part.start,
            named,
        )


def batches_of_pandas(frame: PandasFrame, named: Named) -> Iterator[pa.RecordBatch]:
    """The rows of a pandas frame."""
    whole = _with_named_index(frame)
    names = [str(name) for name in whole.columns]
    check_once(names)
    for start in range(0, max(1, len(whole)), _PANDAS_ROWS_MAX):
        piece = cast("PandasFrame", whole.iloc[slice(start, start + _PANDAS_ROWS_MAX)])
        columns = {name: _of_series(name, _at(piece, at)) for at, name in enumerate(names)}
        yield from _batches(columns, len(piece), named)


def _batches(
    columns: Mapping[str, _Values | pa.Array | pa.ChunkedArray], count: int, named: Named
) -> Iterator[pa.RecordBatch]:
    """The rows of these columns, in as many batches as the bytes of the Python values require."""
    try:
        yield from _converted(columns, count, named)
    except RecursionError as error:
        raise InvalidRequest("values are nested too deep, or hold themselves") from error


def _converted(
    columns: Mapping[str, _Values | pa.Array | pa.ChunkedArray], count: int, named: Named
) -> Iterator[pa.RecordBatch]:
    boxed = [each.values for each in columns.values() if isinstance(each, _Values)]
    for part in _parts(boxed, count, named.bytes_max):
        arrays = {}
        for name, each in columns.items():
            piece = _sliced(each, part)
            if isinstance(piece, _Values):
                column = named.column(name, nan_is_null=piece.nan_is_null)
                piece = array_of(piece.values, column)
                if named.settles:
                    piece = _settled(piece, column)
            arrays[name] = piece
        yield from _joined(arrays, part.stop - part.start)


def _settled(array: pa.Array, column: Column) -> pa.Array:
    """The values cast to the type of their column, if all of them fit."""
    if column.type is None:
        return array
    with suppress(InvalidRequest):
        nullable = with_nullable(column.type, nullable=True)
        return fit(array, nullable, Place(column=column.name))
    return array


def _parts(columns: Sequence[Sequence[object]], count: int, bytes_max: int) -> Iterator[slice]:
    """Slices of the rows, found by halving, whose Python values take at most that many bytes."""
    waiting = [slice(0, count)]
    while waiting:
        part = waiting.pop()
        rows = part.stop - part.start
        whole = rows == count
        held = (bytes_of(each if whole else each[part], bytes_max) for each in columns)
        if rows <= 1 or sum(held) <= bytes_max:
            yield part
            continue
        middle = part.start + rows // 2
        waiting += [slice(middle, part.stop), slice(part.start, middle)]


def _joined(
    arrays: Mapping[str, pa.Array | pa.ChunkedArray], count: int
) -> Iterator[pa.RecordBatch]:
    if not arrays:
        yield rows_only(count)
        return
    try:
        table = pa.Table.from_arrays(list(arrays.values()), names=list(arrays))
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "the name of a column is not valid Unicode", columns=list(arrays)
        ) from error
    batches = table.to_batches()
    if batches:
        yield from batches
    else:
        yield pa.RecordBatch.from_arrays(
            [pa.nulls(0, each.type) for each in arrays.values()], names=list(arrays)
        )


def _of(column: _Values | pa.Array | pa.ChunkedArray) -> Sequence[object]:
    return column.values if isinstance(column, _Values) else cast("Sequence[object]", column)


def _sliced(
    column: _Values | pa.Array | pa.ChunkedArray, part: slice
) -> _Values | pa.Array | pa.ChunkedArray:
    if part.start == 0 and part.stop == len(_of(column)):
        return column
    if isinstance(column, _Values):
        return _Values(values=column.values[part], nan_is_null=column.nan_is_null)
    return column.slice(part.start, part.stop - part.start)


def _column(name: str, column: object) -> _Values | pa.Array | pa.ChunkedArray:
    """A column of a dict of columns."""
    if isinstance(column, pl.Series):
        check_no_objects(column.to_frame(name))
        return column.to_arrow(compat_level=pl.CompatLevel.newest())
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return column
    if isinstance(column, np.ndarray):
        numbers = column.ndim == 1 and column.dtype.kind in _NUMBERS
        return pa.array(column) if numbers else _Values(values=list(column))
    if type(column).__module__.partition(".")[0] == "pandas" and hasattr(column, "dtype"):
        return _of_series(name, column)
    if isinstance(column, list | tuple | range):
        return _Values(values=column)
    raise InvalidRequest(
        "a dict names columns, each with a list of its values; one row is a list of one dict",
        column=name,
        given=type(column).__name__,
    )


def _of_series(name: str, column: object) -> _Values | pa.Array | pa.ChunkedArray:
    """A column of a pandas frame, in which NaN is null."""
    kind = getattr(column, "dtype", None)
    if str(kind) == "object" or getattr(kind, "storage", "") == "python":
        objects = np.asarray(cast("Iterable[object]", column), object)
        return _Values(values=cast("Sequence[object]", objects), nan_is_null=True)
    if str(kind).startswith("period["):
        raise InvalidRequest(
            "a period has no type: make it a time or a text first", column=name, type=str(kind)
        )
    try:
        if str(kind).startswith("Sparse["):
            column = np.asarray(column)
        return pa.array(column, from_pandas=True)
    except REFUSED_BY_ARROW as error:
        raise InvalidRequest(
            "the values of this pandas type have no Arrow form",
            column=name,
            type=str(kind),
            cause=error,
        ) from error


def _at(frame: PandasFrame, number: int) -> object:
    return frame.iloc[(slice(None), number)]


def _with_named_index(frame: PandasFrame) -> PandasFrame:
    """The frame with the named levels of its index as columns."""
    names = list(frame.index.names)
    unnamed = [level for level, name in enumerate(names) if name is None]
    if len(unnamed) == len(names):
        return frame
    try:
        return (frame.droplevel(unnamed) if unnamed else frame).reset_index(drop=False)
    except ValueError as error:
        raise InvalidRequest(
            "two columns have the same name: an index has the name of a column",
            column=next((name for name in names if name in list(frame.columns)), names),
        ) from error


def _texts(names: Iterable[object]) -> list[str]:
    texts = []
    for name in names:
        if not isinstance(name, str):
            raise InvalidRequest("the name of a column must be a string", column=name)
        texts.append(name)
    return texts
