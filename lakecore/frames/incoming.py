"""The data that a user passes to a write, as Arrow batches.

Accepted are:

- pyarrow tables, batches, readers, datasets and scanners;
- Polars frames, eager (without a copy) and lazy (streamed);
- pandas frames, and DuckDB relations (streamed);
- anything with `__arrow_c_stream__` or `__arrow_c_array__`;
- dicts (one for each row), a dict of columns, a NumPy array with named fields;
- iterables of any of these.

pandas and DuckDB are recognised by the names of their types, and never imported. A named index of a
pandas frame becomes a column, an unnamed one is dropped; NaN in pandas means null. Rows may have no
columns: they are still counted.

INVARIANT: data that can stream is never collected whole. A batch has at most `ROWS_MAX` rows and
about `bytes_max` bytes, and no column name twice. A value that several rows share (dictionaries,
views) counts once for each row (`model/arrow_arrays.py`). A larger batch is cut without a copy;
small batches are not combined.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import polars as pl
import pyarrow as pa

from lakecore.deferred import is_of
from lakecore.errors import InvalidRequest
from lakecore.frames.python_values import (
    REFUSED_BY_ARROW,
    Named,
    PandasFrame,
    batches_of_columns,
    batches_of_dicts,
    batches_of_pandas,
    zoned_time,
)
from lakecore.model.arrow_arrays import cut, with_offsets
from lakecore.model.types import Field, check_no_objects
from lakecore.rows.fit import check_once
from lakecore.scalar.infinity import finite_rows

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from duckdb import DuckDBPyRelation


ROWS_MAX = 1 << 20
BYTES_MAX = 256 << 20
_STREAM_ROWS = 131_072
_DICTS_MAX = 65_536
_TAKEN = (
    "pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner",
    "polars DataFrame or LazyFrame",
    "pandas DataFrame",
    "DuckDB relation",
    "object with __arrow_c_stream__ or __arrow_c_array__",
    "dicts, one a row",
    "iterable of these",
    "dict of columns",
)


def incoming_batches(
    data: object, fields: Sequence[Field] = (), *, bytes_max: int = BYTES_MAX, settles: bool = False
) -> Iterator[pa.RecordBatch]:
    """The rows of `data` in batches, in order; without rows, one empty batch or none.

    `fields`: the table's columns, if known, which decide the types of ambiguous Python values. With
    `settles`, Python values are converted to the type of their column if they fit it.

    Raises InvalidRequest for any other object, naming its type and the accepted types, and for a
    column name that occurs twice.
    """
    for batch in _batches(data, Named(fields, bytes_max, settles=settles)):
        check_once(batch.schema.names)
        yield from cut(with_offsets(batch), ROWS_MAX, bytes_max)
        # A row may be large: free this one before the next one is made.
        del batch


def _batches(data: object, named: Named) -> Iterator[pa.RecordBatch]:  # noqa: C901, PLR0912  one case a library
    if isinstance(data, type):
        raise _not_taken(data, "this is a class: pass an instance of it")
    if isinstance(data, pa.RecordBatch):
        return iter((data,))
    if isinstance(data, pa.Table):
        return _of_table(data)
    if isinstance(data, pa.RecordBatchReader):
        return _of_reader(data)
    if isinstance(data, pl.DataFrame | pl.LazyFrame):
        return _of_polars(data)
    if is_of(data, "pyarrow.dataset", "Scanner"):
        return _of_reader(cast("ds.Scanner", data).to_reader())
    if is_of(data, "pyarrow.dataset", "Dataset"):
        return _of_dataset(cast("ds.Dataset", data))
    held = getattr(data, "relation", None)
    if _foreign_name(held) == "duckdb.DuckDBPyRelation":
        data = held  # the result of an SQL statement
    match _foreign_name(data):
        case "pandas.DataFrame":
            return batches_of_pandas(cast("PandasFrame", data), named)
        case "duckdb.DuckDBPyRelation":
            return _of_relation(cast("DuckDBPyRelation", data))
    if hasattr(data, "__arrow_c_stream__"):
        return _of_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return iter((_imported(pa.record_batch, data),))
    if isinstance(data, Mapping):
        return batches_of_columns(data, named)
    if isinstance(data, np.ndarray) and data.dtype.names:
        return batches_of_columns({name: data[name] for name in data.dtype.names}, named)
    if isinstance(data, Iterable) and not isinstance(data, _NO_ROWS):
        return _of_iterable(data, named)
    raise _not_taken(data)


_NO_ROWS = (str, bytes, bytearray, memoryview, set, frozenset, np.ndarray)


def _foreign_name(data: object) -> str:
    kind = type(data)
    return f"{kind.__module__.split('.')[0].lstrip('_')}.{kind.__name__}"


def _not_taken(data: object, why: str = "") -> InvalidRequest:
    kind = data if isinstance(data, type) else type(data)
    return InvalidRequest(
        "rows cannot be read from this object" + (f": {why}" if why else ""),
        type=f"{kind.__module__}.{kind.__qualname__}",
        taken=_TAKEN,
    )


def _of_table(table: pa.Table) -> Iterator[pa.RecordBatch]:
    batches = table.to_batches()
    return iter(batches or [_empty(table.schema)])


def _of_reader(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    seen = False
    for batch in reader:
        seen = True
        yield batch
    if not seen:
        yield _empty(reader.schema)


def _of_dataset(data: ds.Dataset) -> Iterator[pa.RecordBatch]:
    check_once(data.schema.names)
    return _of_reader(data.scanner().to_reader())


def _of_stream(data: object) -> Iterator[pa.RecordBatch]:
    reader = _imported(pa.RecordBatchReader.from_stream, data)
    try:
        yield from _of_reader(reader)
    except pa.ArrowInvalid as error:  # for example, of a null row
        raise InvalidRequest("the stream does not contain rows", cause=error) from error


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    """An empty batch with these columns. The columns are checked even though there are no rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)


def _of_polars(frame: pl.DataFrame | pl.LazyFrame) -> Iterator[pa.RecordBatch]:
    pieces = iter((frame,)) if isinstance(frame, pl.DataFrame) else _streamed(frame)
    seen = False
    for piece in pieces:
        seen = True
        check_no_objects(piece)
        yield from _of_reader(pa.RecordBatchReader.from_stream(piece))
    if not seen:
        yield from _of_polars(pl.DataFrame(schema=frame.collect_schema()))


def _streamed(frame: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    return frame.collect_batches(chunk_size=_STREAM_ROWS, engine="streaming", lazy=True)


def _of_relation(relation: DuckDBPyRelation) -> Iterator[pa.RecordBatch]:
    for name, kind in zip(relation.columns, relation.types, strict=True):
        if "TIME WITH TIME ZONE" in str(kind):  # Arrow would drop the zone
            raise zoned_time(name)
    return _read_relation(relation)


def _read_relation(relation: DuckDBPyRelation) -> Iterator[pa.RecordBatch]:
    failures = (sys.modules["duckdb"].Error, pa.ArrowException)
    try:
        yield from _of_reader(finite_rows(relation).to_arrow_reader(_STREAM_ROWS))
    except failures as error:
        if "INTERRUPT Error" in str(error):
            raise KeyboardInterrupt from error
        reason = str(error).partition("\n\nLINE ")[0]
        raise InvalidRequest("the rows of the relation cannot be read", reason=reason) from error


def _of_iterable(items: Iterable[object], named: Named) -> Iterator[pa.RecordBatch]:
    """The batches of each item; consecutive dicts are rows of one batch."""
    rows: list[Mapping[object, object]] = []
    for item in items:
        if isinstance(item, dict) or isinstance(item, Mapping):  # noqa: SIM101  the first is fast
            rows.append(item)
            if len(rows) == _DICTS_MAX:
                yield from batches_of_dicts(rows, named)
                rows = []
            continue
        if rows:
            yield from batches_of_dicts(rows, named)
            rows = []
        if isinstance(item, tuple):
            raise _not_taken(item, "a tuple does not name its columns: make a dict of the row")
        yield from _batches(item, named)
        del item
    if rows:
        yield from batches_of_dicts(rows, named)


def _imported(take: object, data: object) -> pa.RecordBatch | pa.RecordBatchReader:
    assert callable(take)
    try:
        return take(data)
    except REFUSED_BY_ARROW as error:
        raise _not_taken(data) from error
